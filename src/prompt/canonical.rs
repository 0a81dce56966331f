//! JSON that is part of the prompt as JSON: definitions of tools, calls of tools, parts of a kind
//! not known here.
//!
//! White space and escapes do not count. In the envelope, which engines parse into records of
//! their own, the order of members does not count either; deeper, in a tool's schema or a call's
//! arguments, it does, because there the engine's prompt keeps it.

use super::json::{Kind, Scanner, Value};
use super::sink::{PromptSink, QUOTE, Writer};
use super::text::{NAME_BYTES, Text};
use smallvec::SmallVec;

/// Members of one envelope object that are put in order; a larger object is kept as written.
const MAX_SORTED: usize = 64;

/// Writes an object with its members in order of name, and the objects in it likewise, `levels`
/// deep; any other value as it is.
pub(super) fn envelope<S: PromptSink>(out: &mut Writer<'_, S>, value: Value<'_>, levels: u8) {
    if levels == 0 || value.kind() != Kind::Object {
        return opaque(out, value);
    }
    let Some(members) = sorted(value) else {
        return opaque(out, value);
    };
    out.bytes(b"{");
    for (key, member) in members {
        string(out, key);
        out.bytes(b":");
        envelope(out, member, levels - 1);
        out.bytes(b",");
    }
    out.bytes(b"}");
}

type Sorted<'a> = SmallVec<[(Text<'a>, Value<'a>); 16]>;

/// The members that count, by name; the last of those with the same name. `None`: too many.
fn sorted(value: Value<'_>) -> Option<Sorted<'_>> {
    let mut members = Sorted::new();
    for member in value.members().map_while(Result::ok) {
        if MAX_SORTED <= members.len() {
            return None;
        }
        if !is_bookkeeping(member.0) {
            members.push(member);
        }
    }
    // Last first among equals, and the sort is stable: the first of equals then is the last.
    members.reverse();
    members.sort_by(|left, right| left.0.order(right.0));
    members.dedup_by(|later, kept| later.0.order(kept.0).is_eq());
    Some(members)
}

/// What clients attach for the server, not for the model: it changes from turn to turn while the
/// engine's prompt does not.
fn is_bookkeeping(key: Text<'_>) -> bool {
    let mut buffer = [0; NAME_BYTES];
    matches!(key.name(&mut buffer), b"cache_control" | b"signature" | b"status")
}

/// Writes a value as written, but for white space and escapes.
pub(super) fn opaque<S: PromptSink>(out: &mut Writer<'_, S>, value: Value<'_>) {
    let mut scanner = Scanner::new(value.raw());
    loop {
        scanner.space();
        match scanner.peek() {
            None => return,
            Some(byte @ (b'{' | b'}' | b'[' | b']' | b',' | b':')) => {
                out.tag(byte);
                scanner.pass();
            }
            Some(byte) => match scanner.value() {
                Ok(token) => match token.text() {
                    Some(text) => string(out, text),
                    None => out.bytes(token.raw()),
                },
                // A byte JSON has no use for stands for itself.
                Err(_) => {
                    out.tag(byte);
                    scanner.pass();
                }
            },
        }
    }
}

fn string<S: PromptSink>(out: &mut Writer<'_, S>, text: Text<'_>) {
    out.tag(QUOTE);
    out.text(text);
    out.tag(QUOTE);
}
