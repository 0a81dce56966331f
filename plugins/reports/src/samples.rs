//! A reader for one line of Prometheus' text format, and of OpenMetrics' where it agrees.
//!
//! Only lines of metrics that are asked for are taken apart; what an engine says about anything
//! else may be as it pleases. Each byte is looked at a bounded number of times.

use crate::number::Scalar;
use std::borrow::Cow;

/// Most labels a sample may have.
const MAX_LABELS: usize = 64;

/// Names and values without escapes, sorted by name.
pub(crate) type Labels<'a> = Vec<(&'a str, Cow<'a, str>)>;

/// Splits a line into the metric's name and the rest; the name is empty if there is none.
pub(crate) fn split_name(line: &str) -> (&str, &str) {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':';
    let end = line.bytes().position(|byte| !is_name(byte)).unwrap_or(line.len());
    line.split_at(end)
}

/// Reads what follows the name: labels, value, and a timestamp and an exemplar that are ignored.
/// `None` if the line is broken.
pub(crate) fn read(rest: &str) -> Option<(Labels<'_>, Scalar)> {
    let (labels, rest) = match skip_blanks(rest).strip_prefix('{') {
        Some(rest) => read_labels(rest)?,
        None if rest.starts_with(is_blank) => (Labels::new(), rest),
        None => return None,
    };
    let mut words = rest.split_ascii_whitespace();
    let value = Scalar::from_text(words.next()?);
    match words.next() {
        None => {}
        Some(word) if word.starts_with('#') => {}
        Some(timestamp) => {
            let _: f64 = timestamp.parse().ok()?;
            if words.next().is_some_and(|word| !word.starts_with('#')) {
                return None;
            }
        }
    }
    Some((labels, value))
}

/// Reads labels after `{`; the rest follows `}`.
fn read_labels(mut rest: &str) -> Option<(Labels<'_>, &str)> {
    let mut labels = Labels::new();
    loop {
        rest = skip_blanks(rest);
        if let Some(rest) = rest.strip_prefix('}') {
            labels.sort();
            let twice = labels.windows(2).any(|pair| pair[0].0 == pair[1].0);
            return (!twice).then_some((labels, rest));
        }
        let (name, after) = split_name(rest);
        if name.is_empty() || MAX_LABELS <= labels.len() {
            return None;
        }
        let after = skip_blanks(skip_blanks(after).strip_prefix('=')?).strip_prefix('"')?;
        let (value, after) = read_quoted(after)?;
        labels.push((name, value));
        rest = skip_blanks(after);
        rest = match rest.strip_prefix(',') {
            Some(rest) => rest,
            None if rest.starts_with('}') => rest,
            None => return None,
        };
    }
}

/// Reads a label value after its opening quote; the rest follows the closing one.
fn read_quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut unescaped = String::new();
    let mut plain_from = 0;
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => {
                let plain = &text[plain_from..at];
                let value = match plain_from {
                    0 => Cow::Borrowed(plain),
                    _ => Cow::Owned(unescaped + plain),
                };
                return Some((value, &text[at + 1..]));
            }
            b'\\' => {
                unescaped.push_str(&text[plain_from..at]);
                match bytes.next()?.1 {
                    b'n' => unescaped.push('\n'),
                    b'"' => unescaped.push('"'),
                    b'\\' => unescaped.push('\\'),
                    _ => return None,
                }
                plain_from = at + 2;
            }
            _ => {}
        }
    }
    None
}

fn is_blank(letter: char) -> bool {
    letter == ' ' || letter == '\t'
}

fn skip_blanks(text: &str) -> &str {
    text.trim_start_matches(is_blank)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn labels<'a>(pairs: &[(&'a str, &'a str)]) -> Labels<'a> {
        pairs.iter().map(|&(name, value)| (name, value.into())).collect()
    }

    #[test]
    fn a_sample_has_labels_a_value_and_what_is_ignored() {
        for (rest, pairs, value) in [
            (" 3", &[][..], Scalar::Unsigned(3)),
            ("\t3.5 ", &[], Scalar::Float(3.5)),
            ("{} 3", &[], Scalar::Unsigned(3)),
            ("{a=\"1\"}3", &[("a", "1")], Scalar::Unsigned(3)),
            (
                " { b = \"2\" , a=\"1\", } 3 1712345678901",
                &[("a", "1"), ("b", "2")],
                Scalar::Unsigned(3),
            ),
            ("{a=\"}, #\"} 3 # {trace=\"x\"} 0.5 1.7e9", &[("a", "}, #")], Scalar::Unsigned(3)),
            ("{a=\"1\"} 3 1.7e9 # {trace=\"x\"} 0.5", &[("a", "1")], Scalar::Unsigned(3)),
            (r#"{a="x\\y\"z\nw"} 3"#, &[("a", "x\\y\"z\nw")], Scalar::Unsigned(3)),
            ("{a=\"Ω\\\\Ω\"} +Inf", &[("a", "Ω\\Ω")], Scalar::Float(f64::INFINITY)),
            (" -1", &[], Scalar::Float(-1.0)),
            (" many", &[], Scalar::Other),
        ] {
            assert_eq!(read(rest), Some((labels(pairs), value)), "{rest}");
        }
    }

    #[test]
    fn a_broken_sample_is_not_read() {
        for rest in [
            "",
            " ",
            "-3",
            "{} ",
            "{a=\"1\"",
            "{a=\"1",
            "{a=\"1\\",
            "{a=\"1\\q\"} 3",
            "{a=1} 3",
            "{a} 3",
            "{=\"1\"} 3",
            "{a=\"1\" b=\"2\"} 3",
            "{a=\"1\",,b=\"2\"} 3",
            "{a=\"1\",a=\"2\"} 3",
            " 3 4 5",
            " 3 soon",
        ] {
            assert_eq!(read(rest), None, "{rest}");
        }
    }

    #[test]
    fn labels_are_bounded() {
        let many = |count: usize| {
            let labels: String = (0..count).map(|at| format!("l{at}=\"\",")).collect();
            read(&format!("{{{labels}}} 1")).is_some()
        };
        assert!(many(MAX_LABELS));
        assert!(!many(MAX_LABELS + 1));
    }

    #[test]
    fn a_name_ends_where_its_letters_end() {
        assert_eq!(
            split_name("vllm:num_requests_waiting{a=\"1\"} 3"),
            ("vllm:num_requests_waiting", "{a=\"1\"} 3")
        );
        assert_eq!(split_name("up 1").0, "up");
        assert_eq!(split_name("# HELP up").0, "");
    }
}
