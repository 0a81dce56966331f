//! Work grows no faster than the body. Counted in bytes looked at, not in time.

use super::super::json::steps;
use super::super::{Dialect, read};
use super::BLOCK_BYTES;

fn work(dialect: Dialect, body: &str) -> u64 {
    steps::take();
    read(dialect, body.as_bytes()).keys(BLOCK_BYTES, "m1");
    steps::take()
}

fn chat_of(content: &str) -> String {
    format!(r#"{{"messages":[{{"role":"user","content":"{content}"}}]}}"#)
}

/// A name, who reads it, and what makes it.
type Shape = (&'static str, Dialect, fn(usize) -> String);

/// Bodies whose size is about proportional to the count they are given.
const SHAPES: [Shape; 16] = [
    ("one long message", Dialect::Chat, |n| chat_of(&"word ".repeat(n))),
    ("escaped quotes", Dialect::Chat, |n| chat_of(&r#"\""#.repeat(n))),
    ("escaped backslashes", Dialect::Chat, |n| chat_of(&r"\\".repeat(n))),
    ("code units", Dialect::Chat, |n| chat_of(&r"\ud83d".repeat(n))),
    ("many turns", Dialect::Chat, |n| {
        format!(r#"{{"messages":[{}]}}"#, vec![r#"{"role":"user","content":"x"}"#; n].join(","))
    }),
    ("many parts", Dialect::Messages, |n| {
        let parts = vec![r#"{"type":"text","text":"x"}"#; n].join(",");
        format!(r#"{{"messages":[{{"role":"user","content":[{parts}]}}]}}"#)
    }),
    ("parts in results in parts", Dialect::Messages, |n| {
        let parts = vec![
            r#"{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"x"}]}"#;
            n
        ]
        .join(",");
        format!(r#"{{"messages":[{{"role":"user","content":[{parts}]}}]}}"#)
    }),
    ("content in content", Dialect::Chat, |n| {
        let open = r#"[{"type":"tool_result","tool_use_id":"t","content":"#.repeat(n);
        format!(r#"{{"messages":[{{"role":"user","content":{open}1{}}}]}}"#, "}]".repeat(n))
    }),
    ("many tools", Dialect::Chat, |n| {
        let tools =
            vec![r#"{"type":"function","function":{"name":"f","parameters":{"a":[1]}}}"#; n]
                .join(",");
        format!(r#"{{"tools":[{tools}],"messages":[]}}"#)
    }),
    ("a tool with many members", Dialect::Chat, |n| {
        let members: Vec<_> = (0..n).map(|member| format!(r#""k{member}":1"#)).collect();
        format!(r#"{{"tools":[{{{}}}],"messages":[]}}"#, members.join(","))
    }),
    ("brackets", Dialect::Chat, |n| {
        format!(r#"{{"tools":{}{},"messages":[]}}"#, "[".repeat(n), "]".repeat(n))
    }),
    ("objects in objects", Dialect::Chat, |n| {
        format!(r#"{{"tools":[{}1{}],"messages":[]}}"#, r#"{"function":"#.repeat(n), "}".repeat(n))
    }),
    ("duplicate members", Dialect::Chat, |n| {
        format!("{{{}}}", vec![r#""messages":[1]"#; n].join(","))
    }),
    ("token ids", Dialect::Generate, |n| format!(r#"{{"input_ids":[{}1]}}"#, "12345,".repeat(n))),
    ("a batch of ids", Dialect::Completions, |n| {
        format!(r#"{{"prompt":[{}[1]]}}"#, "[12,34],".repeat(n))
    }),
    ("a batch of texts", Dialect::Completions, |n| {
        format!(r#"{{"prompt":[{}"x"]}}"#, r#""a\nb","#.repeat(n))
    }),
];

#[test]
fn ten_times_the_body_is_at_most_twelve_times_the_work() {
    for (name, dialect, shape) in SHAPES {
        let (small, large) = (work(dialect, &shape(400)), work(dialect, &shape(4000)));
        assert!(0 < small, "{name}");
        assert!(large <= 12 * small, "{name}: {small} steps become {large}");
    }
}

#[test]
fn a_byte_is_looked_at_a_fixed_number_of_times() {
    for (name, dialect, shape) in SHAPES {
        let body = shape(4000);
        let steps = work(dialect, &body);
        assert!(steps <= 16 * body.len() as u64, "{name}: {steps} steps for {} bytes", body.len());
    }
}

#[test]
fn a_body_cut_short_is_given_up_in_one_pass() {
    for (name, dialect, shape) in SHAPES {
        let body = shape(4000);
        let steps = work(dialect, &body[..body.len() - 1]);
        assert!(steps <= 4 * body.len() as u64, "{name}: {steps} steps for {} bytes", body.len());
    }
}
