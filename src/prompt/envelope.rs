//! The members of a body that matter, found in one pass over it.

use super::json::{Broken, Members, Value};
use super::sink::{PromptSink, Writer};
use super::text::NAME_BYTES;
use super::{Dialect, canonical, chat, completions, generate, messages, responses};
use std::borrow::Cow;
use std::num::NonZeroU32;
use tidegate_policy::prefix::{PrefixHasher, PrefixKeys, Root};

/// What a body turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// A JSON object.
    Object,
    /// Anything else: nothing in it was read.
    NotObject,
}

/// How large a prompt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptSize {
    /// Prompt bytes written.
    pub bytes: u64,
    /// Tokens, if the prompt was given as token ids.
    pub exact_tokens: Option<u64>,
}

/// The keys of a prompt; [`PrefixKeys::bytes`] is its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptKeys {
    /// One key per block.
    pub keys: PrefixKeys,
    /// Tokens, if the prompt was given as token ids: then no estimate is needed, and none should
    /// be learned from it.
    pub exact_tokens: Option<u64>,
}

/// A request body, read: borrows from the body.
#[derive(Clone, Debug)]
pub struct Envelope<'a> {
    /// Whether the body is a JSON object; if not, every other field is empty.
    pub body_kind: BodyKind,
    /// The model asked for: the last one, if the body names several.
    pub model: Option<Cow<'a, str>>,
    /// Whether the client asked for a stream of events.
    pub streamed: bool,
    /// The client's own route, as the JSON it wrote.
    pub route: Option<&'a [u8]>,
    dialect: Dialect,
    fields: Fields<'a>,
}

/// Members by name; of several with one name the last, and null is absent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fields<'a> {
    model: Option<Value<'a>>,
    stream: Option<Value<'a>>,
    route: Option<Value<'a>>,
    lora_path: Option<Value<'a>>,
    lora_name: Option<Value<'a>>,
    cache_salt: Option<Value<'a>>,
    extra_key: Option<Value<'a>>,
    pub(super) tools: Option<Value<'a>>,
    pub(super) functions: Option<Value<'a>>,
    pub(super) system: Option<Value<'a>>,
    pub(super) instructions: Option<Value<'a>>,
    pub(super) messages: Option<Value<'a>>,
    pub(super) input: Option<Value<'a>>,
    pub(super) prompt: Option<Value<'a>>,
    pub(super) text: Option<Value<'a>>,
    pub(super) input_ids: Option<Value<'a>>,
    pub(super) image_data: Option<Value<'a>>,
}

impl<'a> Fields<'a> {
    fn of(body: &'a [u8]) -> Result<Self, Broken> {
        let mut fields = Self::default();
        Members::of_body(body, |key, value| {
            let mut buffer = [0; NAME_BYTES];
            if let Some(field) = fields.slot(key.name(&mut buffer)) {
                *field = Some(value).filter(|value| !value.is_null());
            }
        })?;
        Ok(fields)
    }

    fn slot(&mut self, name: &[u8]) -> Option<&mut Option<Value<'a>>> {
        Some(match name {
            b"model" => &mut self.model,
            b"stream" => &mut self.stream,
            b"route" => &mut self.route,
            b"lora_path" => &mut self.lora_path,
            b"lora_name" => &mut self.lora_name,
            b"cache_salt" => &mut self.cache_salt,
            b"extra_key" => &mut self.extra_key,
            b"tools" => &mut self.tools,
            b"functions" => &mut self.functions,
            b"system" => &mut self.system,
            b"instructions" => &mut self.instructions,
            b"messages" => &mut self.messages,
            b"input" => &mut self.input,
            b"prompt" => &mut self.prompt,
            b"text" => &mut self.text,
            b"input_ids" => &mut self.input_ids,
            b"image_data" => &mut self.image_data,
            _ => return None,
        })
    }
}

/// Reads a body, decoded if it came compressed. One pass; nothing is copied but a model name
/// with escapes in it.
pub fn read(dialect: Dialect, body: &[u8]) -> Envelope<'_> {
    let fields = Fields::of(body);
    let body_kind = if fields.is_ok() { BodyKind::Object } else { BodyKind::NotObject };
    let fields = fields.unwrap_or_default();
    Envelope {
        body_kind,
        model: fields.model.and_then(Value::text).map(|model| model.lossy()),
        streamed: fields.stream.is_some_and(Value::is_true),
        route: fields.route.map(Value::raw),
        dialect,
        fields,
    }
}

impl Envelope<'_> {
    /// Writes the prompt's bytes in canonical order and spelling. `None`: there is no prompt, or
    /// an empty one, and what the sink has received means nothing.
    pub fn write_prompt<S: PromptSink>(&self, sink: &mut S) -> Option<PromptSize> {
        let mut out = Writer::new(sink);
        let written = match self.dialect {
            Dialect::Chat => chat::write(&mut out, &self.fields),
            Dialect::Completions => completions::write(&mut out, &self.fields),
            Dialect::Responses => responses::write(&mut out, &self.fields),
            Dialect::Messages => messages::write(&mut out, &self.fields),
            Dialect::Generate => generate::write(&mut out, &self.fields),
            Dialect::NoPrompt | Dialect::Models | Dialect::Other => None,
        }?;
        out.flush();
        let size = PromptSize { bytes: out.total(), exact_tokens: written.tokens() };
        Some(size).filter(|size| 0 < size.bytes)
    }

    /// The prompt's keys under the configured name of a model, not the alias the client used.
    /// `None`: there is no prompt, or an empty one.
    pub fn keys(&self, block_bytes: NonZeroU32, model: &str) -> Option<PromptKeys> {
        let mut hasher = PrefixHasher::new(block_bytes, self.root(model));
        let size = self.write_prompt(&mut hasher)?;
        Some(PromptKeys { keys: hasher.finish(), exact_tokens: size.exact_tokens })
    }

    fn root(&self, model: &str) -> Root {
        let Fields { lora_path, lora_name, cache_salt, extra_key, .. } = self.fields;
        let mut root = Root::new(model);
        if let Some(adapter) = lora_path.or(lora_name) {
            root = root.adapter(&spelled(adapter));
        }
        if let Some(salt) = cache_salt {
            root = root.cache_salt(&spelled(salt));
        }
        if let Some(key) = extra_key {
            root = root.extra_key(&spelled(key));
        }
        root
    }
}

/// A value's canonical bytes. Short in practice; at most as long as the body.
fn spelled(value: Value<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut out = Writer::new(&mut bytes);
    canonical::opaque(&mut out, value);
    out.flush();
    bytes
}

/// What a dialect wrote.
#[derive(Clone, Copy, Debug)]
pub(super) enum Written {
    /// Text, whose tokens are not known.
    Text,
    /// This many token ids.
    Ids(u64),
}

impl Written {
    fn tokens(self) -> Option<u64> {
        match self {
            Self::Text => None,
            Self::Ids(tokens) => Some(tokens),
        }
    }
}
