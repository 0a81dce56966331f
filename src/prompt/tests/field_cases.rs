//! Bodies that broke others.

use super::super::{BodyKind, Dialect, encoding, read};
use super::{BLOCK_BYTES, chat, holds, is_object, prompt, said};
use std::io::Write;

#[test]
fn a_tool_turn_with_null_absent_and_empty_content_gives_a_prompt() {
    let body = r#"{"model":"m1","messages":[{"role":"user","content":"Fetch the secret number."},
        {"role":"assistant","content":null,"tool_calls":[{"id":"call_a1","type":"function","function":{"name":"get_number","arguments":"{}"}}]},
        {"role":"tool","tool_call_id":"call_a1","content":"17"},
        {"role":"assistant","tool_calls":[{"id":"call_a2","type":"function","function":{"name":"get_number","arguments":"{\"again\":true}"}}]},
        {"role":"tool","tool_call_id":"call_a2","content":""}]}"#;
    let bytes = chat(body);
    assert!(holds(&bytes, "17") && holds(&bytes, r#"{"again":true}"#));
}

#[test]
fn every_role_is_taken_as_it_is() {
    let with =
        |role: &str| chat(format!(r#"{{"messages":[{{"role":"{role}","content":"0.5"}}]}}"#));
    let roles = ["developer", "ipython", "latest_reminder", "user", ""];
    for (at, role) in roles.iter().enumerate() {
        assert!(roles[..at].iter().all(|other| with(other) != with(role)));
    }
}

#[test]
fn tools_without_parameters_or_of_another_kind_are_opaque() {
    let tools = [
        r#"{"type":"function","function":{"name":"list_files"}}"#,
        r#"{"type":"function","function":{"name":"stat","strict":true,"parameters":null}}"#,
        r#"{"type":"custom","custom":{"name":"shell","format":{"type":"text"}}},{"type":"web_search","max_uses":2}"#,
        r#""bash""#,
        "null",
    ];
    for tool in tools {
        let bytes = chat(format!(
            r#"{{"messages":[{{"role":"user","content":"list files"}}],"tools":[{tool}]}}"#
        ));
        assert!(holds(&bytes, "list files"), "{tool}");
    }
}

#[test]
fn extras_and_white_space_around_members_do_not_count() {
    let odd = "{ \"metadata\": {\"batch\":\"7\"},\n  \"vllm_xargs\":{\"k\":[1,{\"deep\":null}]},\n\t\"x\":{\"a\":\"\\u00e9\"},\n  \
        \"messages\":[{\"content\":\"hi\",\"role\":\"user\",\"cache_control\":{\"type\":\"ephemeral\"}}],\"model\":\"m1\",\"lora_path\":null}";
    assert_eq!(chat(odd), said(r#""hi""#));
    assert_eq!(read(Dialect::Chat, odd.as_bytes()).model.as_deref(), Some("m1"));
}

#[test]
fn numbers_of_any_spelling_are_passed_over() {
    let body = r#"{"model":"m1","prompt":"count","seed":9007199254740993,"logit_bias":{"50256":-1E2},
        "id":12345678901234567890123,"x":-0.0,"y":1e-7,"z":1e400,"n":NaN,"i":-Infinity}"#;
    assert_eq!(prompt(Dialect::Completions, body).unwrap(), b"count");
}

#[test]
fn a_lone_surrogate_has_bytes_of_its_own() {
    let cut = said(r#""log tail: ok \ud83e""#);
    assert!(cut.ends_with(b"log tail: ok \xED\xA0\xBE"));
    assert_eq!(cut, said(r#""log tail: ok \uD83E""#));
    assert!(said(r#""\udc00 summarise \ud83d\ude00""#).ends_with("\u{20}summarise 😀".as_bytes()));
    assert!(said(r#""\ud83d\ud83d\ude00""#).ends_with(b"\xED\xA0\xBD\xF0\x9F\x98\x80"));
    assert!(said(r#""\ud83d\n""#).ends_with(b"\xED\xA0\xBD\n"));
}

#[test]
fn a_broken_escape_is_no_reason_to_fail() {
    for text in [r"\q", r"\u12", r"\u12zz", r"\ud83d\u", r"\ud83d\u12"] {
        assert!(
            chat(format!(r#"{{"messages":[{{"role":"user","content":"{text}"}}]}}"#)).len() > 6
        );
    }
}

#[test]
fn a_compressed_body_gives_the_keys_of_its_twin() {
    let plain = br#"{"model":"m1","messages":[{"role":"user","content":"squeezed"}]}"#;
    let mut squeeze = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    squeeze.write_all(plain).unwrap();
    let body = encoding::decode("gzip", &squeeze.finish().unwrap(), 1 << 20).unwrap().into_owned();
    let keys = |body: &[u8]| read(Dialect::Chat, body).keys(BLOCK_BYTES, "m1").unwrap();
    assert_eq!(keys(&body), keys(plain));
}

#[test]
fn of_duplicate_keys_the_last_counts() {
    let body = r#"{"model":"m0","stream":true,"model":"m1","messages":[{"role":"user","content":"first"}],"stream":false,
        "messages":[{"role":"user","role":"user","content":"x","content":"second"}]}"#;
    let envelope = read(Dialect::Chat, body.as_bytes());
    assert_eq!(envelope.model.as_deref(), Some("m1"));
    assert!(!envelope.streamed);
    assert_eq!(chat(body), said(r#""second""#));
    let null_last = read(Dialect::Chat, br#"{"model":"m1","model":null}"#);
    assert_eq!(null_last.model, None);
}

#[test]
fn a_batch_goes_by_its_longest_prompt_and_empty_items_do_no_harm() {
    let list = prompt(Dialect::Completions, r#"{"model":"m1","prompt":["alpha beta","","gamma"]}"#);
    assert_eq!(list.unwrap(), b"alpha beta");
    let generate =
        prompt(Dialect::Generate, r#"{"text":["alpha beta","delta"],"rid":["r1","r2"]}"#);
    assert_eq!(generate.unwrap(), b"alpha beta");
}

#[test]
fn a_picture_of_eight_mebibytes_is_a_short_prompt() {
    let url = format!("data:image/png;base64,{}", "QUJD".repeat(2_228_224));
    let content = format!(
        r#"[{{"type":"text","text":"what is this"}},{{"type":"image_url","image_url":{{"url":"{url}"}}}}]"#
    );
    assert!(said(&content).len() < 64);
}

#[test]
fn white_space_and_a_byte_order_mark_around_do_not_count() {
    let inner = r#"{"model":"m1","messages":[{"role":"user","content":"padded"}]}"#;
    assert_eq!(chat(format!("\r\n\r\n \t{inner}\n\n   \r\n")), chat(inner));
    assert_eq!(chat(format!("\u{FEFF}{inner}")), chat(inner));
}

#[test]
fn what_is_no_object_is_said_to_be_none() {
    let bodies = [
        "null",
        "[]",
        "\"hi\"",
        "",
        " ",
        "{",
        "{\"",
        "{\"model\"",
        "{\"model\":",
        "{\"model\":\"m1\"",
        "{\"model\":\"m1\",}",
        "{,}",
        "{\"model\":\"m1\"}x",
        "{\"model\":\"m1\"}{}",
        "{\"model\" \"m1\"}",
        "{model:\"m1\"}",
        "{\"a\":1 \"model\":\"m1\"}",
        r#"{"model":"m1","messages":[{"role":"user""#,
        "{\"model\":\"m1\"}\0",
        "42",
        "{\"model\":}",
        "{\"a\":\"\\\"}",
    ];
    for body in bodies {
        let envelope = read(Dialect::Chat, body.as_bytes());
        assert_eq!(envelope.body_kind, BodyKind::NotObject, "{body}");
        assert_eq!(envelope.model, None, "{body}");
        assert_eq!(envelope.keys(BLOCK_BYTES, "m1"), None, "{body}");
    }
}

#[test]
fn nesting_of_any_depth_is_read() {
    let brackets = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let members = [
        format!(r#""metadata":{brackets}"#),
        format!(
            r#""tools":[{{"type":"function","function":{{"name":"f","parameters":{{"default":{brackets}}}}}}}]"#
        ),
        format!(r#""tools":{brackets}"#),
        format!(r#""input":{brackets},"prompt":{brackets},"system":{brackets}"#),
    ];
    for member in members {
        let body =
            format!(r#"{{"model":"m1",{member},"messages":[{{"role":"user","content":"x"}}]}}"#);
        assert_eq!(read(Dialect::Chat, body.as_bytes()).model.as_deref(), Some("m1"));
        for dialect in Dialect::ALL {
            prompt(dialect, &body);
        }
    }
    assert!(is_object(&read(Dialect::Chat, format!(r#"{{"messages":{brackets}}}"#).as_bytes())));
    prompt(Dialect::Chat, format!(r#"{{"messages":{brackets}}}"#));
    prompt(Dialect::Chat, format!(r#"{{"messages":[{{"role":"user","content":{brackets}}}]}}"#));
}

#[test]
fn invalid_utf_8_is_read_as_bytes() {
    let body =
        b"{\"model\":\"m\xFF\",\"messages\":[{\"role\":\"user\",\"content\":\"\xC3\x28\xFE\"}]}";
    let envelope = read(Dialect::Chat, body);
    assert_eq!(envelope.model.as_deref(), Some("m\u{FFFD}"));
    assert!(envelope.keys(BLOCK_BYTES, "m1").is_some());
}

#[test]
fn empty_prompts_have_no_keys_or_very_few_bytes() {
    let none = [
        (Dialect::Completions, r#"{"model":"m1","prompt":""}"#),
        (Dialect::Completions, r#"{"model":"m1","prompt":[]}"#),
        (Dialect::Chat, r#"{"model":"m1","messages":[]}"#),
        (Dialect::Generate, r#"{"text":""}"#),
        (Dialect::Generate, r#"{"input_ids":[]}"#),
        (Dialect::Responses, r#"{"input":""}"#),
        (Dialect::Chat, r#"{"model":"m1"}"#),
    ];
    for (dialect, body) in none {
        assert_eq!(read(dialect, body.as_bytes()).keys(BLOCK_BYTES, "m1"), None, "{body}");
    }
    assert!(said(r#""""#).len() < 16);
    assert!(said("[]").len() < 16);
    assert_eq!(prompt(Dialect::Completions, r#"{"prompt":"   \n"}"#).unwrap(), b"   \n");
}
