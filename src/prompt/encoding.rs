//! Compressed request bodies, decoded for routing only: the worker gets the bytes as they came.

use std::borrow::Cow;
use std::io::Read;

/// Codings applied one on another that are undone; more are not routed by prefix.
const MAX_CODINGS: usize = 2;

/// Largest zstd window, as a power of two: what RFC 8878 asks every decoder to support. A frame
/// may ask for more memory than its content needs.
const ZSTD_WINDOW_LOG: u32 = 23;

/// Bytes the brotli decoder reads at a time.
const BROTLI_INPUT: usize = 8192;

/// The body as the engine will read it, or `None` if a coding is unknown, the data is broken, or
/// any step gives more than `max_decoded_bytes`. A body without coding is borrowed, whatever its
/// length. `content_encoding` is the header's value; several headers are joined with commas.
pub fn decode<'a>(
    content_encoding: &str,
    body: &'a [u8],
    max_decoded_bytes: usize,
) -> Option<Cow<'a, [u8]>> {
    let mut codings = 0;
    let mut decoded = Cow::Borrowed(body);
    // The coding applied last is named last.
    for name in content_encoding.rsplit(',').map(str::trim) {
        let Some(coding) = Coding::named(name)? else {
            continue;
        };
        codings += 1;
        if MAX_CODINGS < codings {
            return None;
        }
        decoded = Cow::Owned(coding.decode(&decoded, max_decoded_bytes)?);
    }
    Some(decoded)
}

/// Whether a `content-encoding` header leaves the content readable as it is.
pub fn is_identity(content_encoding: &str) -> bool {
    content_encoding.split(',').all(|name| matches!(Coding::named(name.trim()), Some(None)))
}

#[derive(Clone, Copy, Debug)]
enum Coding {
    Gzip,
    Zstd,
    Brotli,
}

impl Coding {
    /// `Some(None)` changes nothing; `None` is unknown.
    fn named(name: &str) -> Option<Option<Self>> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        match () {
            () if name.is_empty() || is("identity") => Some(None),
            () if is("gzip") || is("x-gzip") => Some(Some(Self::Gzip)),
            () if is("zstd") => Some(Some(Self::Zstd)),
            () if is("br") => Some(Some(Self::Brotli)),
            () => None,
        }
    }

    fn decode(self, body: &[u8], max: usize) -> Option<Vec<u8>> {
        match self {
            Self::Gzip => bounded(flate2::bufread::MultiGzDecoder::new(body), max),
            Self::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(body).ok()?;
                decoder.window_log_max(ZSTD_WINDOW_LOG).ok()?;
                bounded(decoder, max)
            }
            Self::Brotli => bounded(brotli::Decompressor::new(body, BROTLI_INPUT), max),
        }
    }
}

fn bounded(decoder: impl Read, max: usize) -> Option<Vec<u8>> {
    let mut decoded = Vec::new();
    // One byte more than allowed tells "exactly full" from "too long".
    let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    decoder.take(limit).read_to_end(&mut decoded).ok()?;
    Some(decoded).filter(|decoded| decoded.len() <= max)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::io::Write;

    const MIB: usize = 1 << 20;

    fn gzip(body: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }

    fn brotli(body: &[u8]) -> Vec<u8> {
        let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 20);
        encoder.write_all(body).unwrap();
        encoder.into_inner()
    }

    fn zstd(body: &[u8]) -> Vec<u8> {
        zstd::encode_all(body, 1).unwrap()
    }

    /// A coding and what makes it.
    type Case = (&'static str, fn(&[u8]) -> Vec<u8>);
    const CASES: [Case; 4] = [("gzip", gzip), ("zstd", zstd), ("br", brotli), (" X-GZIP ", gzip)];

    #[test]
    fn known_codings_are_undone() {
        for (name, encode) in CASES {
            assert_eq!(
                decode(name, &encode(b"{\"a\":1}"), MIB).as_deref(),
                Some(&b"{\"a\":1}"[..]),
                "{name}"
            );
        }
    }

    #[test]
    fn no_coding_borrows_the_body_however_long() {
        for name in ["", "identity", "Identity, identity"] {
            assert!(matches!(decode(name, b"body", 1), Some(Cow::Borrowed(b"body"))), "{name}");
        }
    }

    #[test]
    fn two_codings_are_undone_in_the_opposite_order() {
        assert_eq!(decode("gzip, zstd", &zstd(&gzip(b"x")), MIB).as_deref(), Some(&b"x"[..]));
        assert_eq!(decode("gzip, zstd", &gzip(&zstd(b"x")), MIB), None);
        assert_eq!(decode("gzip, gzip, gzip", &gzip(&gzip(&gzip(b"x"))), MIB), None);
    }

    #[test]
    fn the_limit_is_the_longest_that_is_decoded() {
        for (name, encode) in CASES {
            let body = encode(&vec![0; 100_000]);
            assert_eq!(
                decode(name, &body, 100_000).map(|body| body.len()),
                Some(100_000),
                "{name}"
            );
            assert_eq!(decode(name, &body, 99_999), None, "{name}");
        }
    }

    #[test]
    fn a_body_that_grows_in_the_first_step_alone_is_over_the_limit_too() {
        let bomb = gzip(&gzip(&vec![0; 100 * MIB]));
        assert_eq!(decode("gzip, gzip", &bomb, MIB), None);
    }

    #[test]
    fn broken_and_unknown_codings_give_nothing() {
        for (name, encode) in CASES {
            let body = encode(&vec![7; 50_000]);
            assert_eq!(decode(name, &body[..body.len() - 3], MIB), None, "{name}");
            assert_eq!(decode(name, b"{\"a\":1}", MIB), None, "{name}");
        }
        for name in ["deflate", "compress", "gzip2", "gzip, nonsense"] {
            assert_eq!(decode(name, b"x", MIB), None, "{name}");
        }
    }

    #[test]
    fn a_window_larger_than_every_decoder_must_have_is_refused() {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(27).unwrap();
        encoder.write_all(&[1; 64]).unwrap();
        assert_eq!(decode("zstd", &encoder.finish().unwrap(), MIB), None);
    }
}
