//! `/v1/completions`: a prompt as text or token ids, one or several.
//!
//! A batch goes to one worker, by its longest prompt: that is where the most can be saved.

use super::envelope::{Fields, Written};
use super::json::{Kind, Value};
use super::sink::{PromptSink, Writer};

pub(super) fn write<S: PromptSink>(
    out: &mut Writer<'_, S>,
    fields: &Fields<'_>,
) -> Option<Written> {
    longest(out, fields.prompt?)
}

/// Writes the longest prompt of a value that is a prompt or a list of them; the first, if several
/// are as long. Text and ids do not mix in one list: the first element says which they are.
pub(super) fn longest<S: PromptSink>(
    out: &mut Writer<'_, S>,
    prompt: Value<'_>,
) -> Option<Written> {
    match prompt.kind() {
        Kind::Text => text(out, prompt),
        Kind::Array => match prompt.elements().next()?.kind() {
            Kind::Text => text(out, most(prompt, text_length)?),
            Kind::Array => ids(out, most(prompt, ids_length)?),
            Kind::Scalar => ids(out, prompt),
            Kind::Object => None,
        },
        Kind::Object | Kind::Scalar => None,
    }
}

fn most<'a>(batch: Value<'a>, length: impl Fn(Value<'a>) -> usize) -> Option<Value<'a>> {
    // `max_by_key` takes the last of equals.
    let mut best = None;
    for prompt in batch.elements() {
        let length = length(prompt);
        if best.is_none_or(|(longest, _)| longest < length) {
            best = Some((length, prompt));
        }
    }
    best.map(|(_, prompt)| prompt)
}

fn text_length(prompt: Value<'_>) -> usize {
    prompt.text().map_or(0, |text| text.decoded_len())
}

/// One less than the ids, if there are any.
fn ids_length(prompt: Value<'_>) -> usize {
    memchr::memchr_iter(b',', prompt.raw()).count()
}

fn text<S: PromptSink>(out: &mut Writer<'_, S>, prompt: Value<'_>) -> Option<Written> {
    out.text(prompt.text()?);
    Some(Written::Text)
}

/// Writes ids as four bytes each. `None`: one of them is no token id.
fn ids<S: PromptSink>(out: &mut Writer<'_, S>, prompt: Value<'_>) -> Option<Written> {
    let mut count = 0;
    let mut id: Option<u32> = None;
    for byte in prompt.raw() {
        match byte {
            b'0'..=b'9' => {
                id = Some(id.unwrap_or(0).checked_mul(10)?.checked_add(u32::from(byte - b'0'))?);
            }
            b',' | b']' => {
                if let Some(id) = id.take() {
                    out.bytes(&id.to_le_bytes());
                    count += 1;
                }
            }
            b'[' | b' ' | b'\t' | b'\n' | b'\r' => {}
            _ => return None,
        }
    }
    Some(Written::Ids(count))
}
