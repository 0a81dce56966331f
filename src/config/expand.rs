//! `${VAR}` in the file's texts: values, mostly secrets, from the environment.

/// Why a text could not be expanded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ExpandError {
    #[error("the environment variable {0} is not set")]
    Unset(String),
    #[error("`${{` needs a variable's name and `}}`, as in ${{W1_KEY}}; `$${{` stands for itself")]
    Malformed,
}

/// The text with each `${VAR}` replaced, `None` if there is none; `$${` gives `${`.
pub(super) fn expand(
    text: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<String>, ExpandError> {
    if !text.contains("${") {
        return Ok(None);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, after) = (&rest[..at], &rest[at + 2..]);
        if let Some(escaped) = before.strip_suffix('$') {
            out.push_str(escaped);
            out.push_str("${");
            rest = after;
            continue;
        }
        let (name, tail) = after.split_once('}').ok_or(ExpandError::Malformed)?;
        if !is_name(name) {
            return Err(ExpandError::Malformed);
        }
        out.push_str(before);
        out.push_str(&env(name).ok_or_else(|| ExpandError::Unset(name.to_owned()))?);
        rest = tail;
    }
    out.push_str(rest);
    Ok(Some(out))
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn env(name: &str) -> Option<String> {
        (name == "KEY").then(|| "v${KEY}".to_owned())
    }

    #[test]
    fn variables_are_replaced_once_and_escapes_stand_for_themselves() {
        assert_eq!(expand("plain $KEY {}", &env), Ok(None));
        assert_eq!(expand("a${KEY}b${KEY}", &env).unwrap().unwrap(), "av${KEY}bv${KEY}");
        assert_eq!(expand("$${KEY}", &env).unwrap().unwrap(), "${KEY}");
    }

    #[test]
    fn what_cannot_be_replaced_is_an_error() {
        assert_eq!(expand("${NO}", &env), Err(ExpandError::Unset("NO".into())));
        for text in ["${", "${}", "${a b}", "${1A}", "${KEY"] {
            assert_eq!(expand(text, &env), Err(ExpandError::Malformed), "{text}");
        }
    }
}
