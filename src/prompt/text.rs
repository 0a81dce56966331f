//! JSON strings, and what their escapes mean.
//!
//! Escapes are decoded to UTF-8. A surrogate without its other half, which UTF-8 cannot say, is
//! given the three bytes it would have (as WTF-8 does). A broken escape stands for its own bytes.

use super::near;
use memchr::memchr;
use std::borrow::Cow;
use std::cmp::Ordering;

/// The inside of a JSON string, escapes and all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Text<'a> {
    raw: &'a [u8],
}

/// A stretch of decoded text.
#[derive(Clone, Copy, Debug)]
pub(super) enum Piece<'a> {
    /// Bytes that stand for themselves.
    Run(&'a [u8]),
    /// Bytes an escape stands for.
    Char(Escape),
}

impl Piece<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Run(run) => run,
            Self::Char(escape) => &escape.bytes[..escape.length],
        }
    }
}

/// Longest member name that is looked up.
pub(super) const NAME_BYTES: usize = 32;

impl<'a> Text<'a> {
    pub(super) fn new(raw: &'a [u8]) -> Self {
        Self { raw }
    }

    /// As written.
    pub(super) fn raw(self) -> &'a [u8] {
        self.raw
    }

    pub(super) fn is_empty(self) -> bool {
        self.raw.is_empty()
    }

    /// The decoded text, piece by piece.
    pub(super) fn pieces(self) -> Pieces<'a> {
        Pieces { rest: self.raw }
    }

    /// Bytes of the decoded text.
    pub(super) fn decoded_len(self) -> usize {
        self.pieces().map(|piece| piece.bytes().len()).sum()
    }

    /// The decoded text if it is a short name; else something that matches no name.
    pub(super) fn name<'b>(self, buffer: &'b mut [u8; NAME_BYTES]) -> &'b [u8]
    where
        'a: 'b,
    {
        if NAME_BYTES * 6 < self.raw.len() {
            return b"";
        }
        if memchr(b'\\', self.raw).is_none() {
            return self.raw;
        }
        let mut length = 0;
        for piece in self.pieces() {
            let bytes = piece.bytes();
            let Some(room) = buffer.get_mut(length..length + bytes.len()) else {
                return b"";
            };
            room.copy_from_slice(bytes);
            length += bytes.len();
        }
        &buffer[..length]
    }

    /// As a string; what is no UTF-8 becomes the replacement character. Borrowed unless there is
    /// something to decode.
    pub(super) fn lossy(self) -> Cow<'a, str> {
        if memchr(b'\\', self.raw).is_none() {
            return String::from_utf8_lossy(self.raw);
        }
        let mut decoded = Vec::with_capacity(self.raw.len());
        self.pieces().for_each(|piece| decoded.extend_from_slice(piece.bytes()));
        Cow::Owned(String::from_utf8_lossy(&decoded).into_owned())
    }

    /// The order of decoded bytes.
    pub(super) fn order(self, other: Self) -> Ordering {
        if memchr(b'\\', self.raw).is_none() && memchr(b'\\', other.raw).is_none() {
            return self.raw.cmp(other.raw);
        }
        self.decoded_bytes().cmp(other.decoded_bytes())
    }

    fn decoded_bytes(self) -> impl Iterator<Item = u8> {
        self.pieces().flat_map(|piece| {
            let (run, short): (&[u8], _) = match piece {
                Piece::Run(run) => (run, ([0; 4], 0)),
                Piece::Char(escape) => (&[], (escape.bytes, escape.length)),
            };
            run.iter().copied().chain(short.0.into_iter().take(short.1))
        })
    }
}

/// See [`Text::pieces`].
#[derive(Clone, Debug)]
pub(super) struct Pieces<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    #[inline]
    fn next(&mut self) -> Option<Piece<'a>> {
        match self.rest.first()? {
            b'\\' => {
                let escape = unescape(self.rest);
                self.rest = &self.rest[escape.used..];
                Some(Piece::Char(escape))
            }
            _ => {
                let (run, rest) =
                    self.rest.split_at(near::find(b'\\', self.rest).unwrap_or(self.rest.len()));
                self.rest = rest;
                Some(Piece::Run(run))
            }
        }
    }
}

/// The bytes an escape stands for: how many of the four count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Escape {
    pub(super) bytes: [u8; 4],
    pub(super) length: usize,
    /// Bytes the escape took in the text.
    pub(super) used: usize,
}

/// Decodes the escape that `rest` starts with. What is no escape stands for its first byte.
#[inline]
pub(super) fn unescape(rest: &[u8]) -> Escape {
    let plain = |byte: u8, used| Escape { bytes: [byte, 0, 0, 0], length: 1, used };
    match rest.get(1) {
        Some(b'u') => match unit(rest) {
            Some(unit) => unescape_unit(unit, rest),
            None => plain(b'\\', 1),
        },
        Some(letter) => match SHORT[usize::from(*letter)] {
            0 => plain(b'\\', 1),
            byte => plain(byte, 2),
        },
        None => plain(b'\\', 1),
    }
}

/// What the escapes of one letter stand for; 0 is none. A table, since which of them comes next
/// cannot be guessed.
const SHORT: [u8; 256] = {
    let mut table = [0; 256];
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table[b'/' as usize] = b'/';
    table[b'b' as usize] = 0x08;
    table[b'f' as usize] = 0x0C;
    table[b'n' as usize] = b'\n';
    table[b'r' as usize] = b'\r';
    table[b't' as usize] = b'\t';
    table
};

fn unescape_unit(high: u32, rest: &[u8]) -> Escape {
    if (0xD800..0xDC00).contains(&high)
        && let Some(low) = rest.get(6..).filter(|next| next.starts_with(b"\\u")).and_then(unit)
        && (0xDC00..0xE000).contains(&low)
    {
        return encode(0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00), 12);
    }
    encode(high, 6)
}

/// The code unit of the `\uXXXX` that `rest` starts with.
fn unit(rest: &[u8]) -> Option<u32> {
    let digits: &[u8; 4] = rest.get(2..6)?.try_into().ok()?;
    let [a, b, c, d] = digits.map(|digit| u32::from(HEX[usize::from(digit)]));
    // No digit is more than four bits long.
    if (a | b | c | d) < 0x10 { Some(a << 12 | b << 8 | c << 4 | d) } else { None }
}

/// The value of every hexadecimal digit; of other bytes more than a digit has.
const HEX: [u8; 256] = {
    let mut table = [0xFF; 256];
    let mut digit = 0;
    while digit < 16 {
        table[b"0123456789abcdef"[digit as usize] as usize] = digit;
        table[b"0123456789ABCDEF"[digit as usize] as usize] = digit;
        digit += 1;
    }
    table
};

/// UTF-8 of a code point, generalised to surrogates. The masks make every cast exact.
fn encode(point: u32, used: usize) -> Escape {
    let tail = |shift: u32| 0x80 | (point >> shift & 0x3F) as u8;
    let (bytes, length) = match point {
        0..0x80 => ([point as u8, 0, 0, 0], 1),
        0x80..0x800 => ([0xC0 | (point >> 6) as u8, tail(0), 0, 0], 2),
        0x800..0x1_0000 => ([0xE0 | (point >> 12) as u8, tail(6), tail(0), 0], 3),
        0x1_0000.. => ([0xF0 | (point >> 18 & 0x07) as u8, tail(12), tail(6), tail(0)], 4),
    };
    Escape { bytes, length, used }
}
