//! A record as an object of JSON, written member by member: there is one a request, and what serde
//! derives spends most of its time on the members' names.

use super::Record;
use serde::Serialize;

/// An object that more members may be added to.
#[derive(Debug)]
pub struct Row(Vec<u8>);

/// Most rows are shorter.
const LENGTH: usize = 512;

impl Row {
    /// All of a record but its rungs, as the access log has it.
    pub fn of(record: &Record) -> Self {
        let mut row = Self(Vec::with_capacity(LENGTH));
        row.add(r#"{"time":"#, &record.time);
        row.text(r#","request_id":"#, Some(&record.request_id));
        row.text(r#","client":"#, Some(record.client.as_deref().unwrap_or("unix")));
        row.text(r#","model":"#, Some(&record.model));
        row.text(r#","path":"#, Some(record.path));
        row.add(r#","status":"#, &record.status);
        row.text(r#","outcome":"#, Some(record.outcome.as_str()));
        row.text(r#","decision":"#, record.decision);
        row.text(r#","worker":"#, record.worker.as_ref().map(|worker| worker.as_str()));
        row.text(r#","error":"#, record.error);
        let tokens = &record.prompt_tokens;
        row.add(r#","prompt_tokens":{"estimated":"#, &tokens.estimated);
        row.add(r#","reported":"#, &tokens.reported);
        row.add(r#","matched":"#, &tokens.matched);
        row.add(r#","cached":"#, &tokens.cached);
        row.add(r#"},"completion_tokens":"#, &record.completion_tokens);
        row.add(r#","ttft_ms":"#, &record.ttft_ms);
        row.add(r#","total_ms":"#, &record.total_ms);
        row.add_known(r#","queued_ms":"#, record.queued_ms.as_ref());
        row.add(r#","attempts":"#, &record.attempts);
        row.add_known(r#","route":"#, record.route.as_ref());
        row
    }

    /// Adds a member, if it is known. `name`: with the punctuation around it.
    pub fn add_known(&mut self, name: &str, value: Option<&impl Serialize>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }

    fn text(&mut self, name: &str, text: Option<&str>) {
        // Not up to the first one: all bytes at once are seen faster, and nearly never is there one.
        let escaped = |any, byte: &u8| any | matches!(byte, 0..b' ' | b'"' | b'\\');
        match text.filter(|text| !text.as_bytes().iter().fold(false, escaped)) {
            Some(plain) => {
                self.0.extend_from_slice(name.as_bytes());
                self.0.push(b'"');
                self.0.extend_from_slice(plain.as_bytes());
                self.0.push(b'"');
            }
            None => self.add(name, &text),
        }
    }

    fn add(&mut self, name: &str, value: &impl Serialize) {
        self.0.extend_from_slice(name.as_bytes());
        // Plain values, into memory: there is nothing that fails.
        let _ = serde_json::to_writer(&mut self.0, value);
    }

    /// All of it.
    pub fn end(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::journal::tests::record;
    use crate::journal::{PromptTokens, RouteSelected};
    use serde_json::{Value, json};

    fn told(record: &Record) -> Value {
        serde_json::from_slice(&Row::of(record).end()).unwrap()
    }

    #[test]
    fn what_is_unknown_is_null_or_absent() {
        let record = Record { client: None, ..record(1_764_567_890.25) };
        let expected = json!({
            "time": 1_764_567_890.25, "request_id": "", "client": "unix", "model": "", "path": "",
            "status": 200, "outcome": "ok", "decision": null, "worker": null, "error": null,
            "prompt_tokens": {"estimated": null, "reported": null, "matched": null, "cached": null},
            "completion_tokens": null, "ttft_ms": null, "total_ms": 0, "attempts": 1,
        });
        assert_eq!(told(&record), expected);
    }

    #[test]
    fn every_member_has_its_value_whatever_is_in_its_text() {
        let (event, mode, signature) = ("route selected", "scout", "a>b".to_owned());
        let record = Record {
            request_id: "\"\\\n\u{1}é".to_owned(),
            client: Some("::1".into()),
            model: "m\"".into(),
            path: "/v1/models",
            decision: Some("home"),
            worker: Some("w\"1".into()),
            error: Some("no_route"),
            prompt_tokens: PromptTokens {
                estimated: Some(1),
                reported: Some(2),
                matched: Some(3),
                cached: Some(4),
            },
            completion_tokens: Some(5),
            ttft_ms: Some(6),
            total_ms: 7,
            queued_ms: Some(8),
            attempts: 9,
            route: Some(RouteSelected { event, mode, signature }),
            ..record(0.5)
        };
        let expected = json!({
            "time": 0.5, "request_id": "\"\\\n\u{1}é", "client": "::1", "model": "m\"",
            "path": "/v1/models", "status": 200, "outcome": "ok", "decision": "home",
            "worker": "w\"1", "error": "no_route",
            "prompt_tokens": {"estimated": 1, "reported": 2, "matched": 3, "cached": 4},
            "completion_tokens": 5, "ttft_ms": 6, "total_ms": 7, "queued_ms": 8, "attempts": 9,
            "route": {"event": event, "mode": mode, "signature": "a>b"},
        });
        assert_eq!(told(&record), expected);
    }
}
