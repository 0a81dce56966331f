//! What the values of an answer mean, in every dialect.

use super::super::Dialect;

/// Token counts an engine has stated; `None` is not stated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt, cached ones included.
    pub prompt_tokens: Option<u64>,
    /// Those of them the engine found in its cache.
    pub cached_tokens: Option<u64>,
    /// Tokens generated, reasoning included.
    pub completion_tokens: Option<u64>,
}

/// A member's name, as far as it matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Key {
    #[default]
    Other,
    /// The elements of an array.
    Element,
    Arguments,
    CacheCreation,
    CacheRead,
    CachedTokens,
    Choices,
    CompletionTokens,
    Content,
    ContentBlock,
    Delta,
    Details,
    Error,
    FinishReason,
    FunctionCall,
    InputTokens,
    Message,
    MetaInfo,
    Name,
    Output,
    OutputIds,
    PartialJson,
    PromptTokens,
    Reasoning,
    Refusal,
    Response,
    Status,
    StopReason,
    Text,
    Thinking,
    ToolCalls,
    Type,
    Usage,
}

impl Key {
    pub(super) fn of(name: &[u8]) -> Self {
        match name {
            b"arguments" => Self::Arguments,
            b"cache_creation_input_tokens" => Self::CacheCreation,
            b"cache_read_input_tokens" => Self::CacheRead,
            b"cached_tokens" => Self::CachedTokens,
            b"choices" => Self::Choices,
            b"completion_tokens" | b"output_tokens" => Self::CompletionTokens,
            b"content" => Self::Content,
            b"content_block" => Self::ContentBlock,
            b"delta" => Self::Delta,
            b"prompt_tokens_details" | b"input_tokens_details" => Self::Details,
            b"error" => Self::Error,
            b"finish_reason" => Self::FinishReason,
            b"function_call" => Self::FunctionCall,
            b"input_tokens" => Self::InputTokens,
            b"message" => Self::Message,
            b"meta_info" => Self::MetaInfo,
            b"name" => Self::Name,
            b"output" => Self::Output,
            b"output_ids" => Self::OutputIds,
            b"partial_json" => Self::PartialJson,
            b"prompt_tokens" => Self::PromptTokens,
            b"reasoning_content" | b"reasoning" => Self::Reasoning,
            b"refusal" => Self::Refusal,
            b"response" => Self::Response,
            b"status" => Self::Status,
            b"stop_reason" => Self::StopReason,
            b"text" => Self::Text,
            b"thinking" => Self::Thinking,
            b"tool_calls" => Self::ToolCalls,
            b"type" => Self::Type,
            b"usage" => Self::Usage,
            _ => Self::Other,
        }
    }
}

/// What has been learned so far.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    dialect: Dialect,
    content_events: u64,
    /// Whether the current document has been counted.
    counted: bool,
    counts: Counts,
    finished: bool,
    failed: bool,
}

/// Stated counts. Streams state them again and again while they grow, and some state zero first
/// or last: the largest is the one that holds.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    prompt: Option<u64>,
    /// Anthropic: the prompt without what was read from or written to the cache.
    input: Option<u64>,
    cache_read: Option<u64>,
    cache_creation: Option<u64>,
    cached: Option<u64>,
    completion: Option<u64>,
    /// Completion tokens of the finished members of a batch.
    batch: Option<u64>,
}

impl Facts {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            content_events: 0,
            counted: false,
            counts: Counts::default(),
            finished: false,
            failed: false,
        }
    }

    pub(super) fn content_events(&self) -> u64 {
        self.content_events
    }

    pub(super) fn failed(&self) -> bool {
        self.failed
    }

    pub(super) fn finished_normally(&self) -> bool {
        self.finished && !self.failed
    }

    pub(super) fn usage(&self) -> Usage {
        let counts = self.counts;
        let beside =
            counts.cache_read.unwrap_or(0).saturating_add(counts.cache_creation.unwrap_or(0));
        Usage {
            prompt_tokens: counts.prompt.or(counts.input.map(|input| input.saturating_add(beside))),
            cached_tokens: counts.cached.or(counts.cache_read),
            completion_tokens: sum(counts.batch, counts.completion),
        }
    }

    /// An object or an array begins.
    pub(super) fn opened(&mut self, path: &[Key]) {
        use Key::{
            Choices, Content, Delta, Element, Error, FinishReason, FunctionCall, Message, MetaInfo,
            Response, ToolCalls,
        };
        match of_answer(path) {
            [Choices, Element, Delta | Message, ToolCalls | Content, Element]
            | [Choices, Element, Delta | Message, FunctionCall] => self.content(),
            [MetaInfo, FinishReason] => self.finished = true,
            [Error] | [Response, Error] => self.failed = true,
            _ => {}
        }
    }

    /// An object or an array has ended.
    pub(super) fn closed(&mut self, path: &[Key]) {
        if path == [Key::Element] {
            self.counts.batch = sum(self.counts.batch, self.counts.completion.take());
        }
    }

    /// A string has ended; `word` is its beginning.
    pub(super) fn text(&mut self, path: &[Key], word: &[u8]) {
        if !word.is_empty() {
            self.marker(of_answer(path), word);
            if self.is_content(of_answer(path)) {
                self.content();
            }
        }
    }

    /// Whether text at this place was generated.
    fn is_content(&self, path: &[Key]) -> bool {
        use Key::{
            Arguments, Choices, Content, ContentBlock, Delta, Element, Message, Name, Output,
            PartialJson, Reasoning, Refusal, Text, Thinking,
        };
        match path {
            [Choices, Element, Delta | Message, Content | Reasoning | Refusal]
            | [Choices, Element, Text]
            | [Delta, Text | Thinking | PartialJson]
            | [ContentBlock, Text | Name]
            | [Content, Element, Text | Thinking | Name]
            | [Output, Element, Content, Element, Text]
            | [Output, Element, Arguments] => true,
            [Delta] => self.dialect == Dialect::Responses,
            [Text] => self.dialect == Dialect::Generate,
            _ => false,
        }
    }

    /// Text that says how the answer ended.
    fn marker(&mut self, path: &[Key], word: &[u8]) {
        use Key::{
            Choices, Delta, Element, Error, FinishReason, MetaInfo, Response, Status, StopReason,
            Type,
        };
        match path {
            [Choices, Element, FinishReason]
            | [MetaInfo, FinishReason]
            | [MetaInfo, FinishReason, Type]
            | [StopReason]
            | [Delta, StopReason] => match word {
                b"abort" | b"error" => self.failed = true,
                _ => self.finished = true,
            },
            [Type] => match word {
                b"message_stop" | b"response.completed" | b"response.incomplete" => {
                    self.finished = true
                }
                b"response.failed" | b"response.cancelled" | b"error" => self.failed = true,
                _ => {}
            },
            [Status] | [Response, Status] if self.dialect == Dialect::Responses => match word {
                b"completed" | b"incomplete" => self.finished = true,
                b"failed" | b"cancelled" => self.failed = true,
                _ => {}
            },
            [Error] => self.failed = true,
            _ => {}
        }
    }

    /// A number or a bare word has ended.
    pub(super) fn scalar(&mut self, path: &[Key], word: &[u8]) {
        use Key::{
            CacheCreation, CacheRead, CachedTokens, CompletionTokens, Details, Element,
            InputTokens, Message, MetaInfo, OutputIds, PromptTokens, Response, Usage,
        };
        let counts = &mut self.counts;
        let field = match of_answer(path) {
            // The whole of `[DONE]` is an array with one bare word in it.
            [] if path == [Element] && word == b"DONE" => {
                self.finished = true;
                return;
            }
            [OutputIds, Element] => return self.content(),
            [Usage, rest @ ..] | [Response | Message, Usage, rest @ ..] | [MetaInfo, rest @ ..] => {
                match rest {
                    [PromptTokens] => &mut counts.prompt,
                    [InputTokens] => &mut counts.input,
                    [CompletionTokens] => &mut counts.completion,
                    [CachedTokens] | [Details, CachedTokens] => &mut counts.cached,
                    [CacheRead] => &mut counts.cache_read,
                    [CacheCreation] => &mut counts.cache_creation,
                    _ => return,
                }
            }
            _ => return,
        };
        *field = (*field).max(number(word));
    }

    pub(super) fn end_document(&mut self) {
        self.counted = false;
    }

    fn content(&mut self) {
        if !self.counted {
            self.counted = true;
            self.content_events += 1;
        }
    }
}

/// `None`: it is no natural number, or one that nobody counts up to.
fn number(word: &[u8]) -> Option<u64> {
    word.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if 9 < digit {
            return None;
        }
        number.checked_mul(10)?.checked_add(digit.into())
    })
}

/// A batch is answered by an array of answers.
fn of_answer(path: &[Key]) -> &[Key] {
    path.strip_prefix(&[Key::Element]).unwrap_or(path)
}

fn sum(left: Option<u64>, right: Option<u64>) -> Option<u64> {
    match (left, right) {
        (Some(left), Some(right)) => Some(left.saturating_add(right)),
        (one, None) | (None, one) => one,
    }
}
