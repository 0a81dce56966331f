//! What holds for every body.

use super::super::json::{self, Scanner};
use super::super::text::Text;
use super::super::{Dialect, encoding, read};
use super::{BLOCK_BYTES, chat, is_object, prompt};
use fastrand::Rng;
use proptest::prelude::*;
use serde_json::{Value, json};

const DIALECTS: [Dialect; 8] = Dialect::ALL;

fn text() -> impl Strategy<Value = String> {
    prop_oneof![".{0,40}", "[a-c\"\\\\/\n\t\u{1}é漢😀]{0,24}"]
}

fn role() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("system".to_owned()),
        Just("user".to_owned()),
        Just("assistant".to_owned()),
        Just("tool".to_owned())
    ]
}

fn part() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => text().prop_map(|text| json!({"type": "text", "text": text})),
        1 => text().prop_map(|url| json!({"type": "image_url", "image_url": {"url": url, "detail": "low"}})),
        1 => (text(), text()).prop_map(|(id, said)| json!({"type": "tool_result", "tool_use_id": id, "content": said})),
        1 => (text(), text()).prop_map(|(name, input)| json!({"type": "tool_use", "name": name, "input": {"b": input, "a": [1, null]}})),
    ]
}

fn turn() -> impl Strategy<Value = Value> {
    let content = prop_oneof![
        text().prop_map(Value::from),
        prop::collection::vec(part(), 0..4).prop_map(Value::from)
    ];
    (role(), content, prop::option::of(text())).prop_map(|(role, content, call)| {
        let mut turn = json!({"role": role, "content": content});
        if let Some(name) = call {
            turn["tool_calls"] = json!([{"id": "c", "type": "function", "function": {"name": name, "arguments": "{}"}}]);
        }
        turn
    })
}

fn body() -> impl Strategy<Value = Value> {
    (prop::collection::vec(turn(), 0..5), text(), text()).prop_map(|(turns, model, tool)| {
        let parameters =
            json!({"type": "object", "properties": {"a": {"type": "string"}, "Z": 1.5e3}});
        json!({
            "model": model,
            "messages": turns,
            "system": tool,
            "tools": [{"type": "function", "function": {"name": tool, "parameters": parameters}}],
            "temperature": 0.5,
        })
    })
}

/// Spells a value in one of the many ways JSON has. Members change places where engines read
/// them into records; inside `parameters` and `input` they stay.
fn spell(value: &Value, ordered: bool, rng: &mut Rng, out: &mut String) {
    space(rng, out);
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            if !ordered {
                rng.shuffle(&mut members);
            }
            out.push('{');
            for (at, (key, member)) in members.into_iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                space(rng, out);
                spell_text(key, rng, out);
                space(rng, out);
                out.push(':');
                spell(member, ordered || key == "parameters" || key == "input", rng, out);
            }
            out.push('}');
        }
        Value::Array(elements) => {
            out.push('[');
            for (at, element) in elements.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                spell(element, ordered, rng, out);
            }
            out.push(']');
        }
        Value::String(text) => spell_text(text, rng, out),
        Value::Null | Value::Bool(_) | Value::Number(_) => out.push_str(&value.to_string()),
    }
    space(rng, out);
}

fn space(rng: &mut Rng, out: &mut String) {
    let spaces = ["", "", "", " ", "\n", "\r\n\t"];
    out.push_str(spaces[rng.usize(..spaces.len())]);
}

fn spell_text(text: &str, rng: &mut Rng, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            _ if rng.u8(..4) == 0 => {
                let mut units = [0; 2];
                for unit in letter.encode_utf16(&mut units) {
                    let spelled = if rng.bool() {
                        format!("\\u{unit:04x}")
                    } else {
                        format!("\\u{unit:04X}")
                    };
                    out.push_str(&spelled);
                }
            }
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '/' if rng.bool() => out.push_str("\\/"),
            letter if letter < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(letter))),
            letter => out.push(letter),
        }
    }
    out.push('"');
}

fn spelled(value: &Value, seed: u64) -> String {
    let mut out = String::new();
    spell(value, false, &mut Rng::with_seed(seed), &mut out);
    out
}

/// What JSON says of a turn that is text alone.
fn turns(turns: &[(String, String)]) -> Vec<u8> {
    let turns: Vec<_> =
        turns.iter().map(|(role, content)| json!({"role": role, "content": content})).collect();
    chat(json!({"messages": turns}).to_string())
}

proptest! {
    #[test]
    fn spelling_does_not_change_the_keys(body in body(), seeds in any::<[u64; 2]>()) {
        let (one, other) = (spelled(&body, seeds[0]), spelled(&body, seeds[1]));
        for dialect in [Dialect::Chat, Dialect::Messages] {
            let (one, other) = (read(dialect, one.as_bytes()), read(dialect, other.as_bytes()));
            prop_assert!(is_object(&one));
            prop_assert_eq!(one.model.as_deref(), body["model"].as_str());
            prop_assert_eq!(&one.model, &other.model);
            prop_assert_eq!(one.keys(BLOCK_BYTES, "m1"), other.keys(BLOCK_BYTES, "m1"));
        }
        prop_assert_eq!(chat(&one), chat(&other));
    }

    #[test]
    fn a_conversation_that_grows_keeps_its_old_bytes(body in body(), more in turn(), seeds in any::<[u64; 2]>()) {
        let mut grown = body.clone();
        grown["messages"].as_array_mut().expect("a list").push(more);
        for dialect in [Dialect::Chat, Dialect::Messages] {
            let old = prompt(dialect, spelled(&body, seeds[0])).expect("there are tools");
            let new = prompt(dialect, spelled(&grown, seeds[1])).expect("there are tools");
            prop_assert!(old.len() < new.len() && new.starts_with(&old));
        }
    }

    #[test]
    fn text_of_the_last_turn_that_grows_keeps_its_old_bytes(body in body(), (one, more) in (text(), text())) {
        let with = |content: &str| {
            let mut body = body.clone();
            body["messages"].as_array_mut().expect("a list").push(json!({"role": "assistant", "content": content}));
            chat(body.to_string())
        };
        let grown = with(&[one.as_str(), &more].concat());
        prop_assert!(grown.starts_with(&with(&one)));
    }

    #[test]
    fn other_conversations_have_other_bytes(
        one in prop::collection::vec((role(), text()), 1..5),
        other in prop::collection::vec((role(), text()), 1..5),
    ) {
        prop_assert_eq!(turns(&one) == turns(&other), one == other);
    }

    #[test]
    fn text_moved_between_neighbours_is_another_conversation(words in prop::collection::vec(text(), 2..6), at in any::<[usize; 2]>()) {
        let joined = |at: usize| {
            let (head, tail) = words.split_at(1 + at % (words.len() - 1));
            [("user".to_owned(), head.concat()), ("user".to_owned(), tail.concat())]
        };
        let (one, other) = (joined(at[0]), joined(at[1]));
        prop_assert_eq!(turns(&one) == turns(&other), one == other);
    }

    #[test]
    fn the_scanner_agrees_with_a_parser_on_every_valid_object(body in body(), seed in any::<u64>(), cut in any::<prop::sample::Index>()) {
        let body = spelled(&body, seed);
        // Any byte less, and it is no object any more.
        let at = cut.index(body.trim_end().len());
        prop_assert!(!is_object(&read(Dialect::Chat, &body.as_bytes()[..at])));
        prop_assert!(is_object(&read(Dialect::Chat, body.as_bytes())));
    }

    #[test]
    fn bytes_of_any_kind_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for dialect in DIALECTS {
            read(dialect, &bytes).keys(BLOCK_BYTES, "m1");
        }
        for coding in ["gzip", "zstd", "br", "gzip, br"] {
            let _ = encoding::decode(coding, &bytes, 1000);
        }
    }

    #[test]
    fn bodies_with_a_byte_changed_do_no_harm(body in body(), at in any::<prop::sample::Index>(), byte in any::<u8>(), seed in any::<u64>()) {
        let mut body = spelled(&body, seed).into_bytes();
        let at = at.index(body.len());
        body[at] = byte;
        for dialect in DIALECTS {
            let envelope = read(dialect, &body);
            envelope.keys(BLOCK_BYTES, "m1");
            // What a parser takes for an object, the scanner must take for one too.
            if serde_json::from_slice::<serde_json::Map<String, Value>>(&body).is_ok() {
                prop_assert!(is_object(&envelope));
            }
        }
    }

    #[test]
    fn elements_are_the_same_with_and_without_their_members(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"a\"", "\"b\":1", "1", "{}", "{\"c\":[2]}", " ", "{\"d\" : \"}\" }", "\"",
        ]), 0..12),
    ) {
        let text = format!("[{}]", pieces.concat());
        let Ok(array) = Scanner::new(text.as_bytes()).value() else { return Ok(()) };
        let members = |one: json::Value<'_>| -> Vec<(Vec<u8>, Vec<u8>)> {
            let members = one.members().map_while(Result::ok);
            members.map(|(key, member)| (key.raw().to_vec(), member.raw().to_vec())).collect()
        };
        let apart: Vec<_> = array.elements().map(|one| (one.raw(), members(one))).collect();
        let take = |told: &mut Vec<_>, key: Text<'_>, member: json::Value<'_>| {
            told.push((key.raw().to_vec(), member.raw().to_vec()));
        };
        let together = array.elements().with(take);
        let together: Vec<_> = together.map(|(one, told)| (one.raw(), told)).collect();
        prop_assert_eq!(apart, together);
    }

    #[test]
    fn structure_of_any_kind_does_no_harm(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"", "\\", "\"messages\":", "\"role\":", "\"content\":", "\"prompt\":", "\"text\"", "1", "null", " ",
            "\"tools\":", "\"function\":", "\"type\":\"image_url\"", "\\ud83d", "\"input_ids\":",
        ]), 0..60),
    ) {
        let inner = pieces.concat();
        for body in [inner.clone(), format!("{{{inner}}}"), format!(r#"{{"messages":[{inner}],"prompt":[{inner}],"tools":[{inner}]}}"#)] {
            for dialect in DIALECTS {
                read(dialect, body.as_bytes()).keys(BLOCK_BYTES, "m1");
            }
        }
    }
}
