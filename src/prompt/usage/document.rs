//! A JSON reader that is pushed to: bytes come cut anywhere, and nothing is kept but the way to
//! the value being read.
//!
//! Every value near the surface is told to [`Facts`] with its path. It is no validator: text
//! that is no JSON gives some values or none.

use super::facts::{Facts, Key};
use memchr::memchr2;

/// Containers deep that paths are told; deeper values are passed over.
const DEPTH: usize = 8;

/// Bytes kept of a string or a scalar. No name, number or marker that matters is longer.
const WORD: usize = 32;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Between,
    Text,
    /// Behind a backslash in a string.
    Escape,
    Scalar,
}

/// The document being read.
#[derive(Clone, Debug, Default)]
pub(super) struct Document {
    state: State,
    /// Open containers.
    depth: usize,
    /// Of each open container, the member that is being read.
    path: [Key; DEPTH],
    is_object: [bool; DEPTH],
    key_is_due: bool,
    word: [u8; WORD],
    word_length: usize,
}

impl Document {
    pub(super) fn push(&mut self, bytes: &[u8], facts: &mut Facts) {
        let mut rest = bytes;
        while let Some((byte, tail)) = rest.split_first() {
            rest = match self.state {
                State::Between => {
                    self.between(*byte, facts);
                    tail
                }
                State::Text => self.text(rest, facts),
                State::Escape => {
                    self.state = State::Text;
                    tail
                }
                State::Scalar => self.scalar(rest, facts),
            };
        }
    }

    /// Forgets a document that did not end.
    pub(super) fn reset(&mut self, facts: &mut Facts) {
        if self.state != State::Between || 0 < self.depth {
            facts.end_document();
        }
        self.state = State::Between;
        self.depth = 0;
        self.key_is_due = false;
    }

    /// The way to the current value; `None` if it lies too deep.
    fn path(&self) -> Option<&[Key]> {
        self.path.get(..self.depth)
    }

    fn between(&mut self, byte: u8, facts: &mut Facts) {
        match byte {
            b'"' => {
                self.word_length = 0;
                self.state = State::Text;
            }
            b':' => self.key_is_due = false,
            b',' => self.key_is_due = self.in_object(),
            b'{' => self.open(true, facts),
            b'[' => self.open(false, facts),
            b'}' | b']' => self.close(facts),
            b' ' | b'\t' | b'\n' | b'\r' => {}
            _ => {
                self.word_length = 0;
                self.keep(&[byte]);
                self.state = State::Scalar;
            }
        }
    }

    fn in_object(&self) -> bool {
        self.depth.checked_sub(1).and_then(|at| self.is_object.get(at)).copied().unwrap_or(false)
    }

    fn open(&mut self, is_object: bool, facts: &mut Facts) {
        if let Some(path) = self.path() {
            facts.opened(path);
        }
        if let (Some(key), Some(kind)) =
            (self.path.get_mut(self.depth), self.is_object.get_mut(self.depth))
        {
            *key = if is_object { Key::Other } else { Key::Element };
            *kind = is_object;
        }
        self.depth = self.depth.saturating_add(1);
        self.key_is_due = self.in_object();
    }

    fn close(&mut self, facts: &mut Facts) {
        let Some(depth) = self.depth.checked_sub(1) else {
            return;
        };
        self.depth = depth;
        self.key_is_due = false;
        if let Some(path) = self.path() {
            facts.closed(path);
        }
        if depth == 0 {
            facts.end_document();
        }
    }

    /// Reads on in a string; returns what lies behind it, or behind the part that is here.
    fn text<'a>(&mut self, rest: &'a [u8], facts: &mut Facts) -> &'a [u8] {
        let end = memchr2(b'"', b'\\', rest);
        self.keep(&rest[..end.unwrap_or(rest.len())]);
        let Some(end) = end else { return &[] };
        if rest[end] == b'\\' {
            // Not decoded: no word that matters has an escape in it.
            self.keep(b"\\");
            self.state = State::Escape;
        } else {
            self.state = State::Between;
            self.end_text(facts);
        }
        &rest[end + 1..]
    }

    fn end_text(&mut self, facts: &mut Facts) {
        let word = &self.word[..self.word_length];
        if self.key_is_due {
            if let Some(key) = self.depth.checked_sub(1).and_then(|at| self.path.get_mut(at)) {
                *key = Key::of(word);
            }
        } else if let Some(path) = self.path() {
            facts.text(path, word);
        }
    }

    fn scalar<'a>(&mut self, rest: &'a [u8], facts: &mut Facts) -> &'a [u8] {
        let is_word =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let end = rest.iter().position(|byte| !is_word(byte)).unwrap_or(rest.len());
        self.keep(&rest[..end]);
        let rest = &rest[end..];
        if !rest.is_empty() {
            self.state = State::Between;
            if let Some(path) = self.path() {
                facts.scalar(path, &self.word[..self.word_length]);
            }
        }
        rest
    }

    /// Keeps what there is room for.
    fn keep(&mut self, part: &[u8]) {
        let room = &mut self.word[self.word_length..];
        let length = part.len().min(room.len());
        room[..length].copy_from_slice(&part[..length]);
        self.word_length += length;
    }
}
