//! Answers, read on the side: whether content began, how much of it there was, what it cost.
//!
//! The bytes pass through [`UsageReader::push`] as they come from the network, cut anywhere. Not
//! one of them is kept: a fixed number of bytes of state remembers where in an event the last
//! piece ended. What cannot be read (compressed, of another type) is unknown, never zero.

mod document;
mod facts;
mod framing;

pub use facts::Usage;

use super::Dialect;
use document::Document;
use facts::Facts;
use framing::{Framing, Lines};

/// Reads one answer.
#[derive(Clone, Debug)]
pub struct UsageReader {
    lines: Option<Lines>,
    document: Document,
    facts: Facts,
}

impl UsageReader {
    /// For an answer with these `content-type` and `content-encoding` headers to a request of
    /// this dialect.
    pub fn new(
        content_type: Option<&str>,
        content_encoding: Option<&str>,
        dialect: Dialect,
    ) -> Self {
        let readable = content_encoding.is_none_or(super::encoding::is_identity);
        let framing = content_type.filter(|_| readable).and_then(Framing::of);
        Self {
            lines: framing.map(Lines::new),
            document: Document::default(),
            facts: Facts::new(dialect),
        }
    }

    /// Whether anything can be learned from this answer.
    pub fn is_readable(&self) -> bool {
        self.lines.is_some()
    }

    /// Reads the next piece of the answer.
    pub fn push(&mut self, chunk: &[u8]) {
        if let Some(lines) = &mut self.lines {
            lines.push(chunk, &mut self.document, &mut self.facts);
        }
    }

    /// Events with content so far; a plain answer has one. A role alone, a comment, a ping or the
    /// start of a message is no content; text, reasoning and the call of a tool are.
    pub fn content_events(&self) -> u64 {
        self.facts.content_events()
    }

    /// Token counts the answer has stated so far.
    pub fn usage(&self) -> Usage {
        self.facts.usage()
    }

    /// Completion tokens as stated, or else the events with content, of which engines send one a
    /// token or fewer. `None`: the answer cannot be read, or states nothing and is no stream.
    pub fn completion_tokens(&self) -> Option<u64> {
        let events = match self.lines.as_ref()?.framing() {
            Framing::Events | Framing::Lines => Some(self.content_events()),
            Framing::Whole => None,
        };
        self.usage().completion_tokens.or(events)
    }

    /// Whether an answer whose last byte came is all there was to be: a stream says so itself, a
    /// document merely speaks of no error.
    pub fn is_whole(&self) -> bool {
        match self.lines.as_ref().map(Lines::framing) {
            Some(Framing::Events | Framing::Lines) => self.finished_normally(),
            Some(Framing::Whole) => !self.facts.failed(),
            None => false,
        }
    }

    /// Whether the engine said that it is done (`[DONE]`, `message_stop`, `response.completed`, a
    /// finish reason) and neither that it gave up nor that there was an error.
    pub fn finished_normally(&self) -> bool {
        self.facts.finished_normally()
    }
}

#[cfg(test)]
mod tests;
