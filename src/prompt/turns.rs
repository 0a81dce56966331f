//! What conversations have in common: tools, the system prompt, turns and their content.
//!
//! A turn is `TURN role`, then its fields in a fixed order, each `FIELD letter value`. Members
//! that are not listed here do not reach the model and are left out. A field that is null or
//! absent is not written, so a turn never ends with bytes that a later turn would change.

use super::canonical;
use super::json::{Kind, Value};
use super::media;
use super::sink::{FIELD, PART, PromptSink, TOOL, TURN, Writer};
use super::text::{NAME_BYTES, Text};

/// The letter of the content field.
const CONTENT: u8 = b'c';

/// Members of a turn that reach the model, and their letters, in the order they are written.
/// Engines answer the same reasoning under two names; one letter is written once.
const FIELDS: [(&[u8], u8); 13] = [
    (b"name", b'n'),
    (b"tool_call_id", b'i'),
    (b"call_id", b'i'),
    (b"reasoning_content", b'r'),
    (b"reasoning", b'r'),
    (b"summary", b'r'),
    (b"content", CONTENT),
    (b"refusal", b'x'),
    (b"tool_calls", b't'),
    (b"function_call", b'f'),
    (b"arguments", b'a'),
    (b"input", b'a'),
    (b"output", b'o'),
];

/// Parts that are told by their type, or by a member of that name, to hold no text.
const MEDIA: [&[u8]; 15] = [
    b"image",
    b"image_url",
    b"input_image",
    b"image_embeds",
    b"computer_screenshot",
    b"audio",
    b"audio_url",
    b"input_audio",
    b"video",
    b"video_url",
    b"input_video",
    b"file",
    b"input_file",
    b"document",
    b"container_upload",
];

/// How deep content may lie in content: results of tools hold parts of their own.
const CONTENT_LEVELS: u8 = 2;

/// Levels of a tool's or a part's own envelope.
const ENVELOPE_LEVELS: u8 = 3;

/// Writes the definitions of tools or functions.
pub(super) fn tools<S: PromptSink>(out: &mut Writer<'_, S>, tools: Option<Value<'_>>) {
    for tool in tools.into_iter().flat_map(Value::elements) {
        out.tag(TOOL);
        canonical::envelope(out, tool, ENVELOPE_LEVELS - 1);
    }
}

/// Writes a turn whose role the dialect fixes: the system prompt, or a bare string.
pub(super) fn spoken<S: PromptSink>(out: &mut Writer<'_, S>, role: &str, said: Option<Value<'_>>) {
    let Some(said) = said else { return };
    out.tag(TURN);
    out.bytes(role.as_bytes());
    field(out, CONTENT, said);
}

/// Writes a list of turns; a bare string is one turn of the user.
pub(super) fn turns<S: PromptSink>(out: &mut Writer<'_, S>, turns: Option<Value<'_>>) {
    let Some(turns) = turns else { return };
    match turns.kind() {
        Kind::Array => {
            turns.elements().with(Turn::take).for_each(|(one, said)| turn(out, one, &said));
        }
        Kind::Text if turns.text().is_some_and(|text| !text.is_empty()) => {
            spoken(out, "user", Some(turns));
        }
        Kind::Text | Kind::Object | Kind::Scalar => {}
    }
}

/// What one turn says, by position in [`FIELDS`].
#[derive(Debug, Default)]
struct Turn<'a> {
    role: Option<Text<'a>>,
    kind: Option<Text<'a>>,
    fields: [Option<Value<'a>>; FIELDS.len()],
}

impl<'a> Turn<'a> {
    fn take(&mut self, key: Text<'a>, member: Value<'a>) {
        let mut buffer = [0; NAME_BYTES];
        match key.name(&mut buffer) {
            b"role" => self.role = member.text(),
            b"type" => self.kind = member.text(),
            name => {
                if let Some(at) = FIELDS.iter().position(|(known, _)| *known == name) {
                    self.fields[at] = Some(member).filter(|member| !member.is_null());
                }
            }
        }
    }

    /// Neither a role nor a field that is known: an item of a kind not listed here.
    fn is_foreign(&self) -> bool {
        self.role.is_none() && self.fields.iter().all(Option::is_none)
    }
}

fn turn<S: PromptSink>(out: &mut Writer<'_, S>, value: Value<'_>, turn: &Turn<'_>) {
    out.tag(TURN);
    if turn.is_foreign() {
        return canonical::envelope(out, value, ENVELOPE_LEVELS);
    }
    if let Some(role) = turn.role.or(turn.kind) {
        out.text(role);
    }
    let mut last = None;
    for ((_, letter), value) in FIELDS.iter().zip(turn.fields) {
        match value {
            Some(value) if last != Some(letter) => field(out, *letter, value),
            // Absent, null and empty content are one thing to an engine.
            None if *letter == CONTENT && turn.role.is_some() => name_field(out, CONTENT),
            Some(_) | None => continue,
        }
        last = Some(letter);
    }
}

fn name_field<S: PromptSink>(out: &mut Writer<'_, S>, letter: u8) {
    out.bytes(&[FIELD, letter]);
}

fn field<S: PromptSink>(out: &mut Writer<'_, S>, letter: u8, value: Value<'_>) {
    name_field(out, letter);
    content(out, value, CONTENT_LEVELS);
}

/// Content: a string, or a list of parts. One part of text is written as the string it holds.
fn content<S: PromptSink>(out: &mut Writer<'_, S>, value: Value<'_>, levels: u8) {
    match value.kind() {
        Kind::Array if 0 < levels => {
            for (at, (one, what)) in value.elements().with(Part::take).enumerate() {
                if 0 < at {
                    out.tag(PART);
                }
                part(out, one, &what, levels - 1);
            }
        }
        Kind::Array => canonical::opaque(out, value),
        Kind::Text | Kind::Object | Kind::Scalar => {
            let mut what = Part::default();
            let members = value.members().map_while(Result::ok);
            members.for_each(|(key, member)| what.take(key, member));
            part(out, value, &what, levels);
        }
    }
}

/// The members that say what a part is.
#[derive(Debug, Default)]
struct Part<'a> {
    kind: Option<Text<'a>>,
    text: Option<Text<'a>>,
    result_of: Option<Value<'a>>,
    content: Option<Value<'a>>,
    has_media: bool,
}

impl<'a> Part<'a> {
    fn take(&mut self, key: Text<'a>, member: Value<'a>) {
        let mut buffer = [0; NAME_BYTES];
        match key.name(&mut buffer) {
            b"type" => self.kind = member.text(),
            b"text" => self.text = member.text(),
            b"tool_use_id" => self.result_of = Some(member),
            b"content" => self.content = Some(member),
            name => self.has_media |= !member.is_null() && MEDIA.contains(&name),
        }
    }

    fn is_media(&self) -> bool {
        let mut buffer = [0; NAME_BYTES];
        self.has_media || self.kind.is_some_and(|kind| MEDIA.contains(&kind.name(&mut buffer)))
    }
}

fn part<S: PromptSink>(out: &mut Writer<'_, S>, value: Value<'_>, part: &Part<'_>, levels: u8) {
    if let Some(text) = value.text() {
        return out.text(text);
    }
    if value.is_null() {
        return;
    }
    match *part {
        _ if part.is_media() => media::write(out, value),
        Part { text: Some(text), .. } => out.text(text),
        Part { result_of: Some(id), content: said, .. } if 0 < levels => {
            name_field(out, b'i');
            canonical::opaque(out, id);
            if let Some(said) = said {
                name_field(out, CONTENT);
                content(out, said, levels);
            }
        }
        Part { .. } => canonical::envelope(out, value, ENVELOPE_LEVELS),
    }
}
