//! A JSON reader that is pushed to: bytes come cut anywhere, and nothing is kept but the way to
//! the value being read.
//!
//! Every value near the surface is told to [`Facts`] with its path. It is no validator: text
//! that is no JSON gives some values or none.

use super::super::near;
use super::facts::{Facts, Key};

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
        while !rest.is_empty() {
            rest = match self.state {
                State::Between => self.between(rest, facts),
                State::Text => self.text(rest, facts),
                State::Escape => {
                    self.state = State::Text;
                    &rest[1..]
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

    /// The way to the current value; `None` if it lies too deep, or where nothing matters.
    fn path(&self) -> Option<&[Key]> {
        self.path.get(..self.depth).filter(|path| path.last() != Some(&Key::Other))
    }

    /// Reads on between values. One that is here as a whole, as nearly all are, is told at once.
    fn between<'a>(&mut self, bytes: &'a [u8], facts: &mut Facts) -> &'a [u8] {
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            at += 1;
            match byte {
                b'"' => {
                    let text = &bytes[at..];
                    // Escapes may stay in it: no word that matters has any.
                    let end = near::find(b'"', text).filter(|end| !text[..*end].ends_with(b"\\"));
                    let Some(end) = end else {
                        self.begin(State::Text);
                        return text;
                    };
                    let word = &text[..end.min(WORD)];
                    at += end + 1;
                    if self.key_is_due {
                        self.name(word);
                        // Nearly always its colon is next.
                        if bytes.get(at) == Some(&b':') {
                            self.key_is_due = false;
                            at += 1;
                        }
                    } else {
                        self.end_text(word, facts);
                    }
                }
                b':' => self.key_is_due = false,
                b',' => self.key_is_due = self.in_object(),
                b'{' => self.open(true, facts),
                b'[' => self.open(false, facts),
                b'}' | b']' => self.close(facts),
                b' ' | b'\t' | b'\n' | b'\r' => {}
                _ => {
                    let Some(end) = end_of_scalar(&bytes[at..]) else {
                        self.begin(State::Scalar);
                        self.keep(&bytes[at - 1..]);
                        return &[];
                    };
                    let word = &bytes[at - 1..at + end];
                    self.end_scalar(&word[..word.len().min(WORD)], facts);
                    at += end;
                }
            }
        }
        &[]
    }

    /// What is kept of a value that may be cut begins.
    fn begin(&mut self, state: State) {
        self.word_length = 0;
        self.state = state;
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
        let end = near::find2(b'"', b'\\', rest);
        self.keep(&rest[..end.unwrap_or(rest.len())]);
        let Some(end) = end else { return &[] };
        if rest[end] == b'\\' {
            // Not decoded: no word that matters has an escape in it.
            self.keep(b"\\");
            self.state = State::Escape;
        } else {
            self.state = State::Between;
            let word = self.word;
            self.end_text(&word[..self.word_length], facts);
        }
        &rest[end + 1..]
    }

    fn end_text(&mut self, word: &[u8], facts: &mut Facts) {
        if self.key_is_due {
            self.name(word);
        } else if let Some(path) = self.path() {
            facts.text(path, word);
        }
    }

    fn name(&mut self, word: &[u8]) {
        if let Some(key) = self.depth.checked_sub(1).and_then(|at| self.path.get_mut(at)) {
            *key = Key::of(word);
        }
    }

    fn scalar<'a>(&mut self, rest: &'a [u8], facts: &mut Facts) -> &'a [u8] {
        let end = end_of_scalar(rest);
        self.keep(&rest[..end.unwrap_or(rest.len())]);
        let Some(end) = end else { return &[] };
        self.state = State::Between;
        let word = self.word;
        self.end_scalar(&word[..self.word_length], facts);
        &rest[end..]
    }

    fn end_scalar(&self, word: &[u8], facts: &mut Facts) {
        if let Some(path) = self.path() {
            facts.scalar(path, word);
        }
    }

    /// Keeps what there is room for.
    fn keep(&mut self, part: &[u8]) {
        let room = &mut self.word[self.word_length..];
        let length = part.len().min(room.len());
        room[..length].copy_from_slice(&part[..length]);
        self.word_length += length;
    }
}

/// The first byte that is none of a number or a bare word.
fn end_of_scalar(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| !IN_SCALAR[usize::from(*byte)])
}

/// One look for a byte instead of a handful of comparisons.
const IN_SCALAR: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] =
            (byte as u8).is_ascii_alphanumeric() || matches!(byte as u8, b'+' | b'-' | b'.');
        byte += 1;
    }
    table
};
