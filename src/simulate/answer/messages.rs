//! Answers in the manner of Anthropic's Messages API: named events, and no `[DONE]`.

use super::{Answer, Progress};
use serde_json::{Value, json};
use std::fmt::Write;

impl Answer {
    /// The events for the tokens after the first `sent`.
    pub(super) fn message_events(&self, sent: u32, progress: Progress) -> String {
        let mut events = Vec::new();
        if sent == 0 {
            let block = match &self.ask.tool {
                Some(tool) => self.tool_use(tool, json!({})),
                None => json!({"type": "text", "text": ""}),
            };
            let mut message = self.message_envelope(&json!([]), &Value::Null);
            message["usage"] = self.message_usage(Progress { generated: 0, ..progress });
            events.push(json!({"type": "message_start", "message": message}));
            events.push(json!({"type": "content_block_start", "index": 0, "content_block": block}));
        }
        let text = self.text(sent, progress.generated);
        let delta = match &self.ask.tool {
            Some(_) => {
                let part = self.argument_part(sent, progress, &text);
                json!({"type": "input_json_delta", "partial_json": part})
            }
            None => json!({"type": "text_delta", "text": text}),
        };
        events.push(json!({"type": "content_block_delta", "index": 0, "delta": delta}));
        if progress.finished {
            events.push(json!({"type": "content_block_stop", "index": 0}));
            events.push(json!({
                "type": "message_delta",
                "delta": {"stop_reason": self.stop_reason(), "stop_sequence": null},
                "usage": {"output_tokens": progress.generated},
            }));
            events.push(json!({"type": "message_stop"}));
        }
        let mut rendered = String::new();
        for event in events {
            let name = event["type"].as_str().unwrap_or_default();
            // Writing to a string cannot fail.
            let _ = write!(rendered, "event: {name}\ndata: {event}\n\n");
        }
        rendered
    }

    /// The whole answer as one document.
    pub(super) fn message(&self, progress: Progress) -> String {
        let text = self.text(0, progress.generated);
        let block = match &self.ask.tool {
            Some(tool) => self.tool_use(tool, json!({"text": text})),
            None => json!({"type": "text", "text": text}),
        };
        let mut message = self.message_envelope(&json!([block]), &json!(self.stop_reason()));
        message["usage"] = self.message_usage(progress);
        message.to_string()
    }

    fn message_envelope(&self, content: &Value, stop_reason: &Value) -> Value {
        json!({
            "id": self.id, "type": "message", "role": "assistant", "model": self.model,
            "content": content, "stop_reason": stop_reason, "stop_sequence": null,
        })
    }

    fn tool_use(&self, name: &str, input: Value) -> Value {
        json!({"type": "tool_use", "id": self.call_id(), "name": name, "input": input})
    }

    fn stop_reason(&self) -> &'static str {
        if self.ask.tool.is_some() { "tool_use" } else { "max_tokens" }
    }

    /// Cached tokens are no input tokens here.
    fn message_usage(&self, progress: Progress) -> Value {
        json!({
            "input_tokens": self.prompt_tokens.saturating_sub(progress.cached_tokens),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": progress.cached_tokens,
            "output_tokens": progress.generated,
        })
    }
}
