//! Percent-encoding in paths and queries.

/// The text with `%XX` decoded; what is no such pair of digits stays, what is no UTF-8 then is
/// replaced.
pub(crate) fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |place: usize| char::from(*bytes.get(place)?).to_digit(16);
        match (bytes[at], hex(at + 1), hex(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                // Two hexadecimal digits are at most 255.
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            (byte, _, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_digits_are_decoded_and_everything_else_stays() {
        assert_eq!(decoded("Qwen%2FQwen3%2d32B"), "Qwen/Qwen3-32B");
        assert_eq!(decoded("100%, %zz, %4"), "100%, %zz, %4");
        assert_eq!(decoded("%ff"), "\u{fffd}");
    }
}
