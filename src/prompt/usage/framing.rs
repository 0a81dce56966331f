//! Where in an answer JSON documents lie: the data of server-sent events, lines, or the whole.

use super::document::Document;
use super::facts::Facts;
use memchr::memchr2;

/// How an answer is cut into JSON documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// `text/event-stream`.
    Events,
    /// One document a line.
    Lines,
    /// One document.
    Whole,
}

impl Framing {
    /// By the content type; `None` for what is not JSON.
    pub(super) fn of(content_type: &str) -> Option<Self> {
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        let is = |known: &str| essence.eq_ignore_ascii_case(known);
        if is("text/event-stream") {
            return Some(Self::Events);
        }
        let lines = [
            "application/x-ndjson",
            "application/ndjson",
            "application/jsonl",
            "application/x-jsonlines",
        ];
        if lines.into_iter().any(is) {
            return Some(Self::Lines);
        }
        let json = is("application/json") || essence.to_ascii_lowercase().ends_with("+json");
        json.then_some(Self::Whole)
    }
}

/// Where in a line the next byte lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// At its start, this many bytes into the byte order mark that may open a stream.
    Mark(u8),
    /// This many bytes into the name of the field; so far it is [`FIELD`].
    Name(u8),
    /// Behind the colon: one space does not count.
    Colon,
    /// In data.
    Data,
    /// In a line that says nothing to us.
    Skip,
}

const FIELD: &[u8] = b"data:";
const MARK: &[u8] = b"\xEF\xBB\xBF";

/// Splits an answer into lines and gives the documents what belongs to them.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    framing: Framing,
    place: Place,
    after_return: bool,
}

impl Lines {
    pub(super) fn new(framing: Framing) -> Self {
        Self { framing, place: Place::Mark(0), after_return: false }
    }

    pub(super) fn framing(&self) -> Framing {
        self.framing
    }

    pub(super) fn push(&mut self, chunk: &[u8], document: &mut Document, facts: &mut Facts) {
        if self.framing == Framing::Whole {
            return document.push(chunk, facts);
        }
        let mut rest = chunk;
        while let Some(first) = rest.first() {
            // The second half of CR LF ends no second line.
            if std::mem::take(&mut self.after_return) && *first == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let end = memchr2(b'\n', b'\r', rest);
            self.within(&rest[..end.unwrap_or(rest.len())], document, facts);
            let Some(end) = end else { return };
            self.after_return = rest[end] == b'\r';
            self.end_line(document, facts);
            rest = &rest[end + 1..];
        }
    }

    /// A stretch of one line.
    fn within(&mut self, mut part: &[u8], document: &mut Document, facts: &mut Facts) {
        if self.framing == Framing::Lines {
            return document.push(part, facts);
        }
        while let Some(byte) = part.first() {
            match self.place {
                Place::Data => return document.push(part, facts),
                Place::Skip => return,
                Place::Mark(at) => {
                    if MARK.get(usize::from(at)) == Some(byte) {
                        self.place = Place::Mark(at + 1);
                        part = &part[1..];
                    } else {
                        self.place = Place::Name(0);
                    }
                }
                // Nearly always it is here as a whole.
                Place::Name(0) if part.starts_with(FIELD) => {
                    self.place = Place::Colon;
                    part = &part[FIELD.len()..];
                }
                Place::Name(at) => {
                    self.place = match FIELD.get(usize::from(at)) {
                        Some(b':') if *byte == b':' => Place::Colon,
                        Some(wanted) if wanted == byte => Place::Name(at + 1),
                        Some(_) | None => Place::Skip,
                    };
                    part = &part[1..];
                }
                Place::Colon => {
                    self.place = Place::Data;
                    part = part.strip_prefix(b" ").unwrap_or(part);
                }
            }
        }
    }

    fn end_line(&mut self, document: &mut Document, facts: &mut Facts) {
        let ends_document = match (self.framing, self.place) {
            // A blank line ends an event.
            (Framing::Events, Place::Mark(_) | Place::Name(0)) => true,
            (Framing::Events, Place::Name(_) | Place::Colon | Place::Data | Place::Skip) => false,
            (Framing::Lines, _) => true,
            (Framing::Whole, _) => false,
        };
        if ends_document {
            document.reset(facts);
        } else {
            // Lines of one event's data are joined by a line end.
            document.push(b"\n", facts);
        }
        self.place = Place::Name(0);
    }
}
