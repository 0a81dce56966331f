//! What the prompt's bytes are, and what they do not depend on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod conversations;
mod field_cases;
mod properties;
mod work;

use super::{BodyKind, Dialect, Envelope, read};
use std::num::NonZeroU32;

const BLOCK_BYTES: NonZeroU32 = NonZeroU32::new(512).unwrap();

/// The prompt's bytes, if there is a prompt.
fn prompt(dialect: Dialect, body: impl AsRef<[u8]>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let size = read(dialect, body.as_ref()).write_prompt(&mut bytes)?;
    assert_eq!(size.bytes, bytes.len() as u64);
    Some(bytes)
}

fn chat(body: impl AsRef<[u8]>) -> Vec<u8> {
    prompt(Dialect::Chat, body).expect("a chat with messages")
}

/// A chat of one user message whose content is this JSON.
fn said(content: &str) -> Vec<u8> {
    chat(format!(r#"{{"messages":[{{"role":"user","content":{content}}}]}}"#))
}

fn holds(bytes: &[u8], text: &str) -> bool {
    memchr::memmem::find(bytes, text.as_bytes()).is_some()
}

fn is_object(envelope: &Envelope<'_>) -> bool {
    envelope.body_kind == BodyKind::Object
}

#[test]
fn every_path_of_the_contract_has_its_dialect() {
    let posts = [
        ("/v1/chat/completions", Dialect::Chat),
        ("/v1/completions", Dialect::Completions),
        ("/v1/responses", Dialect::Responses),
        ("/v1/messages", Dialect::Messages),
        ("/generate", Dialect::Generate),
        ("/v1/embeddings", Dialect::NoPrompt),
        ("/v1/rerank", Dialect::NoPrompt),
        ("/v1/score", Dialect::NoPrompt),
        ("/v1/classify", Dialect::NoPrompt),
        ("/v1/models", Dialect::Other),
        ("/v1/messages/count_tokens", Dialect::Other),
        ("/", Dialect::Other),
    ];
    for (path, dialect) in posts {
        assert_eq!(Dialect::classify("POST", path), dialect, "{path}");
    }
    assert_eq!(Dialect::classify("GET", "/v1/models"), Dialect::Models);
    assert_eq!(Dialect::classify("GET", "/v1/models/org/name"), Dialect::Models);
    assert_eq!(Dialect::classify("GET", "/v1/models/"), Dialect::Other);
    assert_eq!(Dialect::classify("GET", "/v1/chat/completions"), Dialect::Other);
    assert_eq!(Dialect::classify("DELETE", "/v1/models"), Dialect::Other);
}

#[test]
fn no_two_dialects_share_a_label() {
    let mut labels: Vec<_> = Dialect::ALL.into_iter().map(Dialect::as_str).collect();
    labels.sort_unstable();
    labels.dedup();
    assert_eq!(labels.len(), Dialect::ALL.len());
}

#[test]
fn a_path_without_a_prompt_gives_the_model_alone() {
    let body = br#"{"model":"m1","input":["a","b"],"messages":[{"role":"user","content":"x"}]}"#;
    for dialect in Dialect::ALL {
        let envelope = read(dialect, body);
        assert_eq!(envelope.model.as_deref(), Some("m1"));
        let has_prompt = matches!(dialect, Dialect::Chat | Dialect::Messages | Dialect::Responses);
        assert_eq!(envelope.keys(BLOCK_BYTES, "m1").is_some(), has_prompt, "{dialect:?}");
    }
}

#[test]
fn everything_that_gives_another_cache_gives_other_keys() {
    let with = |extra: &str, model: &str| {
        let body = format!(r#"{{"prompt":"the same"{extra}}}"#);
        read(Dialect::Completions, body.as_bytes()).keys(BLOCK_BYTES, model).unwrap()
    };
    let all = [
        with("", "m1"),
        with("", "m2"),
        with(r#","lora_path":"a""#, "m1"),
        with(r#","lora_path":"b""#, "m1"),
        with(r#","cache_salt":"a""#, "m1"),
        with(r#","extra_key":"a""#, "m1"),
        with(r#","extra_key":["a"]"#, "m1"),
        with(r#","extra_key":"a","cache_salt":"a""#, "m1"),
    ];
    for (at, one) in all.iter().enumerate() {
        assert!(!all[..at].contains(one), "number {at}");
    }
    assert_eq!(with(r#","lora_name":"a""#, "m1"), with(r#","lora_path":"a""#, "m1"));
    assert_eq!(with(r#","lora_path":null,"cache_salt":null"#, "m1"), with("", "m1"));
    assert_eq!(with(r#","cache_salt":"\u0061""#, "m1"), with(r#","cache_salt":"a""#, "m1"));
}

#[test]
fn sampling_parameters_do_not_reach_the_keys() {
    let plain = r#"{"messages":[{"role":"user","content":"x"}]}"#;
    let tuned = r#"{"temperature":0.3,"max_tokens":9,"stream":true,"user":"u","seed":1,"stop":["x"],
        "messages":[{"role":"user","content":"x"}],"response_format":{"type":"text"}}"#;
    assert_eq!(chat(plain), chat(tuned));
}

#[test]
fn a_stream_is_asked_for_with_true_alone() {
    let streamed =
        |stream: &str| read(Dialect::Chat, format!(r#"{{"stream":{stream}}}"#).as_bytes()).streamed;
    assert!(streamed("true"));
    assert!(!streamed("false"));
    assert!(!streamed("null"));
    assert!(!read(Dialect::Chat, b"{}").streamed);
}

#[test]
fn a_clients_route_is_handed_on_as_it_was_written_and_not_copied() {
    let body = br#"{"route":1,"messages":[],"route": [ "a", "b[2-3]" ]}"#;
    let route = read(Dialect::Chat, body).route.unwrap();
    assert_eq!(route, br#"[ "a", "b[2-3]" ]"#);
    assert!(body.as_ptr_range().contains(&route.as_ptr()));
    assert_eq!(read(Dialect::Chat, br#"{"route":["a"],"route":null}"#).route, None);
    assert_eq!(read(Dialect::Chat, b"{}").route, None);
}

#[test]
fn a_model_may_be_spelled_with_escapes_and_must_be_a_string() {
    let model = |model: &str| {
        let body = format!(r#"{{"\u006dodel":{model}}}"#);
        read(Dialect::Other, body.as_bytes()).model.map(|model| model.into_owned())
    };
    assert_eq!(model(r#""m\u0031""#).as_deref(), Some("m1"));
    assert_eq!(model(r#""org\/\ud83d\ude00""#).as_deref(), Some("org/😀"));
    assert_eq!(model("7"), None);
    assert_eq!(model("null"), None);
    assert_eq!(model(r#"["m1"]"#), None);
}

#[test]
fn completions_take_the_longest_of_a_batch() {
    let text = |prompt: &str| prompt_of(Dialect::Completions, "prompt", prompt);
    assert_eq!(text(r#""alpha beta""#).unwrap(), b"alpha beta");
    assert_eq!(text(r#"["","alpha beta","gamma"]"#).unwrap(), b"alpha beta");
    // Ten escapes are no longer than two letters.
    assert_eq!(text(r#"["\u0061","alpha"]"#).unwrap(), b"alpha");
    assert_eq!(text(r#"["one","two"]"#).unwrap(), b"one");
    assert_eq!(text("[[1],[2,3],[4]]"), text("[2,3]"));
    assert_eq!(text("[ 1 ,\n2 ]").unwrap(), [1, 0, 0, 0, 2, 0, 0, 0]);
}

#[test]
fn what_is_no_prompt_is_routed_by_load() {
    let wrong = [
        "",
        "{}",
        "7",
        "true",
        "[]",
        "[[]]",
        "[{}]",
        "[-1]",
        "[1.5]",
        "[4294967296]",
        "[1,\"a\"]",
        "[null]",
    ];
    for prompt in wrong {
        for (dialect, name) in [(Dialect::Completions, "prompt"), (Dialect::Generate, "input_ids")]
        {
            assert_eq!(prompt_of(dialect, name, prompt), None, "{prompt}");
        }
    }
}

fn prompt_of(dialect: Dialect, name: &str, value: &str) -> Option<Vec<u8>> {
    prompt(dialect, format!(r#"{{"{name}":{value}}}"#))
}

#[test]
fn token_ids_are_counted_exactly() {
    let keys =
        |body: &str| read(Dialect::Generate, body.as_bytes()).keys(BLOCK_BYTES, "m1").unwrap();
    assert_eq!(keys(r#"{"input_ids":[5,6,4294967295]}"#).exact_tokens, Some(3));
    assert_eq!(keys(r#"{"input_ids":[[1],[5,6,7,8]]}"#).exact_tokens, Some(4));
    assert_eq!(keys(r#"{"text":"hello"}"#).exact_tokens, None);
}

#[test]
fn in_generate_ids_decide_when_text_is_there_too() {
    let ids = prompt(Dialect::Generate, r#"{"input_ids":[1,2]}"#);
    assert_eq!(prompt(Dialect::Generate, r#"{"text":"a","input_ids":[1,2]}"#), ids);
    assert_eq!(prompt(Dialect::Generate, r#"{"text":"a","input_ids":null}"#).unwrap(), b"a");
}

#[test]
fn images_beside_a_text_leave_the_text_a_prefix() {
    let plain = prompt(Dialect::Generate, r#"{"text":"what is this"}"#).unwrap();
    let one = prompt(Dialect::Generate, r#"{"text":"what is this","image_data":"AAAA"}"#).unwrap();
    let other =
        prompt(Dialect::Generate, r#"{"text":"what is this","image_data":"BBBB"}"#).unwrap();
    assert!(one.starts_with(&plain) && other.starts_with(&plain));
    assert_ne!(one, other);
}

#[test]
fn completions_and_generate_agree_on_the_same_text() {
    let completion = prompt(Dialect::Completions, r#"{"prompt":"same text"}"#);
    assert_eq!(completion, prompt(Dialect::Generate, r#"{"text":"same text"}"#));
}
