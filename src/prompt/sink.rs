//! Where prompt bytes go, and the tags between them.
//!
//! A tag is a byte that UTF-8 never uses, so text cannot imitate one and nothing needs a length
//! in front: a message that is appended leaves every byte before it as it was.

use super::near::{self, BLOCK};
use super::text::{Text, unescape};
use memchr::memchr;
use tidegate_policy::prefix::PrefixHasher;

/// Receives the prompt's bytes in order, in pieces of any size. Only their concatenation counts.
pub trait PromptSink {
    /// The next bytes.
    fn bytes(&mut self, bytes: &[u8]);
}

impl PromptSink for Vec<u8> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl PromptSink for PrefixHasher {
    fn bytes(&mut self, bytes: &[u8]) {
        self.push(bytes);
    }
}

/// Starts a turn of the conversation; its role follows.
pub(super) const TURN: u8 = 0xFF;
/// Starts a field of a turn; a letter that names it follows.
pub(super) const FIELD: u8 = 0xFE;
/// Stands between two parts of one content.
pub(super) const PART: u8 = 0xFD;
/// Announces the hash of an image, a sound or a file: eight bytes follow.
pub(super) const HASH: u8 = 0xFC;
/// Stands on both sides of a string inside JSON that is kept as JSON.
pub(super) const QUOTE: u8 = 0xFB;
/// Starts the definition of a tool.
pub(super) const TOOL: u8 = 0xFA;

/// Bytes gathered before a sink is called.
const GATHER: usize = 1024;

/// Gathers short pieces so that the sink sees few calls; long ones pass by.
#[derive(Debug)]
pub(super) struct Writer<'s, S: PromptSink> {
    sink: &'s mut S,
    gathered: [u8; GATHER],
    length: usize,
    total: u64,
}

impl<'s, S: PromptSink> Writer<'s, S> {
    pub(super) fn new(sink: &'s mut S) -> Self {
        Self { sink, gathered: [0; GATHER], length: 0, total: 0 }
    }

    /// Bytes written so far.
    pub(super) fn total(&self) -> u64 {
        self.total + self.length as u64
    }

    pub(super) fn tag(&mut self, tag: u8) {
        self.bytes(&[tag]);
    }

    /// Text without its escapes. A short run is copied as a whole block, and with it go bytes
    /// from behind the run, which the next write covers.
    pub(super) fn text(&mut self, text: Text<'_>) {
        #[cfg(test)]
        super::json::steps::count(text.raw().len());
        let mut rest = text.raw();
        while let Some(block) = rest.first_chunk::<BLOCK>() {
            let clean = near::before(b'\\', block);
            self.block(block, clean);
            rest = &rest[clean..];
            if clean < BLOCK {
                rest = self.escapes(rest);
            } else {
                let (run, behind) = rest.split_at(memchr(b'\\', rest).unwrap_or(rest.len()));
                self.bytes(run);
                rest = behind;
            }
        }
        Text::new(rest).pieces().for_each(|piece| self.bytes(piece.bytes()));
    }

    /// Writes all escapes that `rest` starts with; returns what is behind them.
    #[inline]
    fn escapes<'a>(&mut self, mut rest: &'a [u8]) -> &'a [u8] {
        while let Some(b'\\') = rest.first() {
            let escape = unescape(rest);
            self.block(&escape.bytes, escape.length);
            rest = &rest[escape.used..];
        }
        rest
    }

    /// Writes the first `count` of these bytes; the rest may be written too, but does not count.
    #[inline]
    fn block<const BYTES: usize>(&mut self, bytes: &[u8; BYTES], count: usize) {
        const { assert!(BYTES <= GATHER, "an empty buffer has room") };
        if GATHER - BYTES < self.length {
            self.flush();
        }
        self.gathered[self.length..self.length + BYTES].copy_from_slice(bytes);
        self.length += count;
    }

    #[inline]
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        if let Some(room) = self.gathered.get_mut(self.length..end) {
            room.copy_from_slice(bytes);
            self.length = end;
        } else {
            self.overflow(bytes);
        }
    }

    fn overflow(&mut self, bytes: &[u8]) {
        self.flush();
        match self.gathered.get_mut(..bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.length = bytes.len();
            }
            None => {
                self.sink.bytes(bytes);
                self.total += bytes.len() as u64;
            }
        }
    }

    /// Hands over what was gathered.
    pub(super) fn flush(&mut self) {
        self.sink.bytes(&self.gathered[..self.length]);
        self.total += self.length as u64;
        self.length = 0;
    }
}
