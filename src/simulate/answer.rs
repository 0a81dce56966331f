//! What a simulated engine is asked, and its answer, in each dialect: events or one document.
//!
//! It calls a tool only if it is told that it must; the arguments are its text, whatever the tool asks for.

mod messages;

use super::engine::Progress;
use serde_json::{Value, json};
use std::fmt::Write;

/// Tokens generated if the request does not say.
const DEFAULT_OUTPUT_TOKENS: u32 = 128;

/// Generated text is this, over and over; it needs no escaping in JSON.
const FILLER: &[u8] = b"the tide comes in and the gate stays shut until there is room behind it, ";

/// The shape of request and answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
    /// `/v1/messages`
    Messages,
    /// `/generate`
    Generate,
}

impl Dialect {
    pub(super) fn of_path(path: &str) -> Option<Self> {
        match path {
            "/v1/chat/completions" => Some(Self::Chat),
            "/v1/completions" => Some(Self::Completions),
            "/v1/messages" => Some(Self::Messages),
            "/generate" => Some(Self::Generate),
            _ => None,
        }
    }
}

/// What a request says besides its prompt.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) dialect: Dialect,
    pub(super) model: Option<String>,
    pub(super) streams: bool,
    pub(super) wants_usage_event: bool,
    pub(super) output_tokens: u32,
    /// The tool it must call.
    pub(super) tool: Option<String>,
}

impl Ask {
    pub(super) fn of_body(dialect: Dialect, body: &Value) -> Self {
        let limit = match dialect {
            Dialect::Chat => body.get("max_completion_tokens").or(body.get("max_tokens")),
            Dialect::Completions | Dialect::Messages => body.get("max_tokens"),
            Dialect::Generate => body.pointer("/sampling_params/max_new_tokens"),
        };
        let tokens = limit.and_then(Value::as_u64).map(u32::try_from);
        Self {
            dialect,
            model: body.get("model").and_then(Value::as_str).map(str::to_owned),
            streams: body.get("stream") == Some(&Value::Bool(true)),
            wants_usage_event: body.pointer("/stream_options/include_usage")
                == Some(&Value::Bool(true)),
            output_tokens: tokens.map_or(DEFAULT_OUTPUT_TOKENS, |t| t.unwrap_or(u32::MAX)),
            tool: forced_tool(dialect, body).map(str::to_owned),
        }
    }
}

/// The tool `tool_choice` demands; the first one if it leaves the choice.
fn forced_tool(dialect: Dialect, body: &Value) -> Option<&str> {
    let choice = body.get("tool_choice")?;
    let name = match dialect {
        Dialect::Chat if choice == "required" => body.pointer("/tools/0/function/name"),
        Dialect::Chat => choice.pointer("/function/name"),
        Dialect::Messages if choice["type"] == "any" => body.pointer("/tools/0/name"),
        Dialect::Messages => choice.get("name"),
        Dialect::Completions | Dialect::Generate => None,
    };
    name?.as_str()
}

/// Renders one answer.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) ask: Ask,
    pub(super) id: String,
    pub(super) model: String,
    /// Simulated seconds since the start; the engine knows no date.
    pub(super) created: u64,
    pub(super) prompt_tokens: u32,
    pub(super) bytes_per_token: u32,
}

impl Answer {
    /// The events for the tokens after the first `sent`, with what opens and what ends a stream.
    pub(super) fn events(&self, sent: u32, progress: Progress) -> String {
        let text = self.text(sent, progress.generated);
        let mut events = Vec::new();
        match self.ask.dialect {
            Dialect::Messages => return self.message_events(sent, progress),
            Dialect::Chat => self.push_deltas(&mut events, sent, progress, &text),
            Dialect::Completions => {
                events.push(self.chunk(json!([{"index": 0, "text": text, "finish_reason": null}])));
            }
            Dialect::Generate => events.push(self.generated(progress)),
        }
        if progress.finished {
            self.push_end(&mut events, progress);
        }
        let mut rendered = String::new();
        for event in events {
            // Writing to a string cannot fail.
            let _ = write!(rendered, "data: {event}\n\n");
        }
        if progress.finished {
            rendered.push_str("data: [DONE]\n\n");
        }
        rendered
    }

    /// The whole answer as one document.
    pub(super) fn whole(&self, progress: Progress) -> String {
        let text = self.text(0, progress.generated);
        let choice = match self.ask.dialect {
            Dialect::Chat => json!({
                "index": 0,
                "message": self.chat_message(&text),
                "finish_reason": self.finish_reason(),
            }),
            Dialect::Completions => {
                json!({"index": 0, "text": text, "finish_reason": self.finish_reason()})
            }
            Dialect::Messages => return self.message(progress),
            Dialect::Generate => return self.generated(progress).to_string(),
        };
        let mut document = self.envelope("", json!([choice]));
        document["usage"] = self.usage(progress);
        document.to_string()
    }

    fn push_deltas(&self, events: &mut Vec<Value>, sent: u32, progress: Progress, text: &str) {
        let mut push = |delta: Value| {
            events.push(self.chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}])));
        };
        let Some(tool) = &self.ask.tool else {
            if sent == 0 {
                push(json!({"role": "assistant", "content": ""}));
            }
            return push(json!({"content": text}));
        };
        if sent == 0 {
            let call = json!({
                "index": 0, "id": self.call_id(), "type": "function",
                "function": {"name": tool, "arguments": ""},
            });
            push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        }
        let part = self.argument_part(sent, progress, text);
        push(json!({"tool_calls": [{"index": 0, "function": {"arguments": part}}]}));
    }

    fn chat_message(&self, text: &str) -> Value {
        let Some(tool) = &self.ask.tool else {
            return json!({"role": "assistant", "content": text});
        };
        let arguments = json!({"text": text}).to_string();
        let function = json!({"name": tool, "arguments": arguments});
        let call = json!({"id": self.call_id(), "type": "function", "function": function});
        json!({"role": "assistant", "content": null, "tool_calls": [call]})
    }

    /// A piece of a tool's arguments; all pieces together are one JSON object.
    fn argument_part(&self, sent: u32, progress: Progress, text: &str) -> String {
        let opening = if sent == 0 { r#"{"text":""# } else { "" };
        let end = if progress.finished { r#""}"# } else { "" };
        format!("{opening}{text}{end}")
    }

    fn call_id(&self) -> String {
        format!("call-{}", self.id)
    }

    /// All of them end at their limit.
    fn finish_reason(&self) -> &'static str {
        if self.ask.tool.is_some() { "tool_calls" } else { "length" }
    }

    fn push_end(&self, events: &mut Vec<Value>, progress: Progress) {
        let reason = self.finish_reason();
        let choice = match self.ask.dialect {
            Dialect::Chat => json!({"index": 0, "delta": {}, "finish_reason": reason}),
            Dialect::Completions => json!({"index": 0, "text": "", "finish_reason": reason}),
            // The last event of these dialects says all of it already.
            Dialect::Messages | Dialect::Generate => return,
        };
        events.push(self.chunk(json!([choice])));
        if self.ask.wants_usage_event {
            let mut event = self.chunk(json!([]));
            event["usage"] = self.usage(progress);
            events.push(event);
        }
    }

    fn chunk(&self, choices: Value) -> Value {
        self.envelope(".chunk", choices)
    }

    fn envelope(&self, chunk: &str, choices: Value) -> Value {
        let object = match self.ask.dialect {
            Dialect::Chat => format!("chat.completion{chunk}"),
            // Events and documents of this dialect have one name.
            Dialect::Completions | Dialect::Messages | Dialect::Generate => {
                "text_completion".to_owned()
            }
        };
        json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model,
            "choices": choices,
        })
    }

    fn usage(&self, progress: Progress) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": progress.generated,
            "total_tokens": u64::from(self.prompt_tokens) + u64::from(progress.generated),
            "prompt_tokens_details": {"cached_tokens": progress.cached_tokens},
        })
    }

    /// An event or document of `/generate`: always all of the text up to now.
    fn generated(&self, progress: Progress) -> Value {
        let reason = if progress.finished {
            json!({"type": "length", "length": progress.generated})
        } else {
            Value::Null
        };
        json!({
            "text": self.text(0, progress.generated),
            "meta_info": {
                "id": self.id, "finish_reason": reason, "prompt_tokens": self.prompt_tokens,
                "completion_tokens": progress.generated, "cached_tokens": progress.cached_tokens,
            },
        })
    }

    /// The tokens `from..to` of the filler.
    fn text(&self, from: u32, to: u32) -> String {
        let width = u64::from(self.bytes_per_token);
        (u64::from(from) * width..u64::from(to) * width)
            .map(|at| char::from(FILLER[(at % FILLER.len() as u64) as usize]))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn answer(dialect: Dialect, body: &Value) -> Answer {
        Answer {
            ask: Ask::of_body(dialect, body),
            id: "a-1".to_owned(),
            model: "m".to_owned(),
            created: 3,
            prompt_tokens: 100,
            bytes_per_token: 2,
        }
    }

    fn progress(generated: u32) -> Progress {
        Progress { cached_tokens: 64, generated, finished: generated == 5, ..Progress::default() }
    }

    fn data(events: &str) -> Vec<&str> {
        let events = events.split_terminator("\n\n");
        events.map(|event| event.strip_prefix("data: ").unwrap()).collect()
    }

    #[test]
    fn a_chat_stream_opens_with_the_role_and_ends_with_usage_and_done() {
        let body = json!({"stream": true, "stream_options": {"include_usage": true}});
        let answer = answer(Dialect::Chat, &body);
        let events = answer.events(0, progress(2)) + &answer.events(2, progress(5));
        let events = data(&events);
        assert_eq!(events.len(), 6);
        assert!(events[0].contains(r#""role":"assistant""#));
        assert!(events[1].contains(r#""content":"the ""#), "{}", events[1]);
        assert!(events[3].contains(r#""finish_reason":"length""#));
        let usage: Value = serde_json::from_str(events[4]).unwrap();
        assert_eq!(usage["choices"], json!([]));
        assert_eq!(usage["usage"]["prompt_tokens_details"]["cached_tokens"], 64);
        assert_eq!(usage["usage"]["completion_tokens"], 5);
        assert_eq!(events[5], "[DONE]");
    }

    #[test]
    fn a_demanded_tool_is_called_with_arguments_that_are_one_object() {
        let tool = json!({"type": "function", "function": {"name": "look"}});
        let mut body = json!({"stream": true, "tools": [tool], "tool_choice": "required"});
        let answer = answer(Dialect::Chat, &body);
        let events = answer.events(0, progress(2)) + &answer.events(2, progress(5));
        let mut arguments = String::new();
        for event in data(&events).iter().take_while(|event| **event != "[DONE]") {
            let event: Value = serde_json::from_str(event).unwrap();
            let part = event.pointer("/choices/0/delta/tool_calls/0/function/arguments");
            arguments += part.and_then(Value::as_str).unwrap_or_default();
        }
        assert_eq!(arguments, r#"{"text":"the tide c"}"#);
        assert!(events.contains(r#""finish_reason":"tool_calls""#), "{events}");
        let document: Value = serde_json::from_str(&answer.whole(progress(5))).unwrap();
        let call = &document["choices"][0]["message"]["tool_calls"][0]["function"];
        assert_eq!(call, &json!({"name": "look", "arguments": arguments}));
        body["tool_choice"] = json!("auto");
        assert_eq!(Ask::of_body(Dialect::Chat, &body).tool, None);
    }

    #[test]
    fn a_message_is_opened_filled_and_stopped_by_named_events() {
        let answer = answer(Dialect::Messages, &json!({"stream": true}));
        let events = answer.events(0, progress(2)) + &answer.events(2, progress(5));
        let names: Vec<&str> = events.lines().filter_map(|l| l.strip_prefix("event: ")).collect();
        assert_eq!(
            names,
            [
                "message_start",
                "content_block_start",
                "content_block_delta",
                "content_block_delta",
                "content_block_stop",
                "message_delta",
                "message_stop"
            ]
        );
        for count in [r#""cache_read_input_tokens":64"#, r#""input_tokens":36"#] {
            assert!(events.contains(count), "{events}");
        }
        let document: Value = serde_json::from_str(&answer.whole(progress(5))).unwrap();
        assert_eq!(document["content"], json!([{"type": "text", "text": "the tide c"}]));
        assert_eq!(document["stop_reason"], "max_tokens");
        assert_eq!(document["usage"]["output_tokens"], 5);
    }

    #[test]
    fn usage_is_no_event_unless_it_was_asked_for() {
        let answer = answer(Dialect::Completions, &json!({"stream": true}));
        assert!(!answer.events(0, progress(5)).contains("usage"));
    }

    #[test]
    fn generate_repeats_the_whole_text_and_counts_in_each_event() {
        let answer = answer(Dialect::Generate, &json!({"stream": true}));
        let events = answer.events(3, progress(5));
        let event: Value = serde_json::from_str(data(&events)[0]).unwrap();
        assert_eq!(event["text"].as_str().unwrap().len(), 10);
        assert_eq!(event["meta_info"]["cached_tokens"], 64);
        assert_eq!(data(&events).len(), 2);
    }

    #[test]
    fn a_document_carries_the_text_of_all_events() {
        let answer = answer(Dialect::Chat, &json!({}));
        let document: Value = serde_json::from_str(&answer.whole(progress(5))).unwrap();
        assert_eq!(document["object"], "chat.completion");
        assert_eq!(document["choices"][0]["message"]["content"], "the tide c");
        assert_eq!(document["usage"]["total_tokens"], 105);
    }

    #[test]
    fn the_output_length_comes_from_the_dialects_own_key() {
        for (dialect, body, tokens) in [
            (Dialect::Chat, json!({"max_completion_tokens": 7, "max_tokens": 9}), 7),
            (Dialect::Chat, json!({"max_tokens": 9}), 9),
            (Dialect::Completions, json!({"max_tokens": u64::MAX}), u32::MAX),
            (Dialect::Generate, json!({"sampling_params": {"max_new_tokens": 4}}), 4),
            (Dialect::Messages, json!({"max_tokens": 6}), 6),
            (Dialect::Generate, json!({"max_tokens": 4}), DEFAULT_OUTPUT_TOKENS),
        ] {
            assert_eq!(Ask::of_body(dialect, &body).output_tokens, tokens);
        }
    }
}
