//! Turns, content, tools: what counts as the same, and what as another prompt.

use super::super::Dialect;
use super::super::sink::{FIELD, PART, QUOTE, TOOL, TURN};
use super::{chat, holds, prompt, said};

#[test]
fn a_conversation_has_this_layout() {
    let body = r#"{"messages":[{"role":"system","content":"Be brief."},{"content":"Hi","name":"ana","role":"user"}],
        "tools":[{"function":{"name":"f"},"type":"function"}]}"#;
    let mut layout = vec![TOOL];
    let text = |layout: &mut Vec<u8>, text: &str| {
        layout.push(QUOTE);
        layout.extend_from_slice(text.as_bytes());
        layout.push(QUOTE);
    };
    layout.push(b'{');
    text(&mut layout, "function");
    layout.extend_from_slice(b":{");
    text(&mut layout, "name");
    layout.push(b':');
    text(&mut layout, "f");
    layout.extend_from_slice(b",},");
    text(&mut layout, "type");
    layout.push(b':');
    text(&mut layout, "function");
    layout.extend_from_slice(b",}");
    layout.push(TURN);
    layout.extend_from_slice(b"system");
    layout.extend_from_slice(&[FIELD, b'c']);
    layout.extend_from_slice(b"Be brief.");
    layout.push(TURN);
    layout.extend_from_slice(b"user");
    layout.extend_from_slice(&[FIELD, b'n']);
    layout.extend_from_slice(b"ana");
    layout.extend_from_slice(&[FIELD, b'c']);
    layout.extend_from_slice(b"Hi");
    assert_eq!(chat(body), layout);
}

#[test]
fn a_string_and_one_part_of_text_are_the_same() {
    for kind in ["text", "input_text", "output_text"] {
        let part = format!(
            r#"[{{"text":"caf\u00e9","type":"{kind}","cache_control":{{"type":"ephemeral"}}}}]"#
        );
        assert_eq!(said(&part), said(r#""café""#));
    }
    assert_eq!(said(r#"[{"type":"text","text":""}]"#), said(r#""""#));
}

#[test]
fn parts_are_kept_apart() {
    let two = said(r#"[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#);
    assert_ne!(two, said(r#""ab""#));
    assert!(two.ends_with(&[b'a', PART, b'b']));
}

#[test]
fn an_image_is_its_hash_whatever_its_size_and_spelling() {
    let image = |url: &str| {
        said(&format!(
            r#"[{{"type":"text","text":"What?"}},{{"type":"image_url","image_url":{{"url":"{url}"}}}}]"#
        ))
    };
    let large = image(&"QUJD".repeat(10_000));
    assert!(large.len() < 64);
    assert_ne!(large, image(&"QUJE".repeat(10_000)));
    assert_eq!(image("https://x.test/a.png"), image("https:\\/\\/x.test\\/a.png"));
    let reordered = said(
        r#"[{"type":"text","text":"What?"}, {"image_url":{"url":"https://x.test/a.png"},"type":"image_url"}]"#,
    );
    assert_eq!(image("https://x.test/a.png"), reordered);
}

#[test]
fn sound_and_files_and_documents_are_hashed_too() {
    let secret = "UklGRiQAAABXQVZF";
    let parts = [
        format!(r#"[{{"type":"input_audio","input_audio":{{"data":"{secret}","format":"wav"}}}}]"#),
        format!(r#"[{{"type":"file","file":{{"file_data":"{secret}"}}}}]"#),
        format!(r#"[{{"type":"input_image","image_url":"{secret}"}}]"#),
        format!(r#"[{{"type":"image","source":{{"type":"base64","data":"{secret}"}}}}]"#),
        format!(r#"[{{"type":"document","source":{{"type":"base64","data":"{secret}"}}}}]"#),
        format!(r#"[{{"image_url":"{secret}"}}]"#),
    ];
    for part in parts {
        assert!(!holds(&said(&part), secret), "{part}");
    }
}

#[test]
fn content_that_is_null_absent_or_empty_is_the_same() {
    let turn = |content: &str| chat(format!(r#"{{"messages":[{{"role":"assistant"{content}}}]}}"#));
    for content in [r#","content":null"#, r#","content":"""#, r#","content":[]"#, r#","name":null"#]
    {
        assert_eq!(turn(content), turn(""), "{content}");
    }
}

#[test]
fn calls_of_tools_and_their_results_are_part_of_the_prompt() {
    let call = |name: &str, arguments: &str| {
        chat(format!(
            r#"{{"messages":[{{"role":"assistant","content":null,"tool_calls":[{{"id":"c1","type":"function",
            "function":{{"name":"{name}","arguments":"{arguments}"}}}}]}},{{"role":"tool","tool_call_id":"c1","content":"17"}}]}}"#
        ))
    };
    assert!(holds(&call("get_number", "{}"), "get_number"));
    assert_ne!(call("f", "{}"), call("g", "{}"));
    assert_ne!(call("f", "{}"), call("f", r#"{\"a\":1}"#));
}

#[test]
fn reasoning_under_two_names_is_written_once() {
    let one =
        chat(r#"{"messages":[{"role":"assistant","content":"a","reasoning_content":"why"}]}"#);
    let both = chat(
        r#"{"messages":[{"role":"assistant","reasoning":"why","reasoning_content":"why","content":"a"}]}"#,
    );
    assert_eq!(one, both);
    assert!(holds(&one, "why"));
}

#[test]
fn a_cache_mark_that_wanders_from_turn_to_turn_changes_nothing() {
    let plain = r#"{"system":[{"type":"text","text":"S"}],"tools":[{"name":"t","input_schema":{}}],
        "messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]}]}"#;
    let marked = r#"{"system":[{"type":"text","text":"S","cache_control":{"type":"ephemeral"}}],
        "tools":[{"name":"t","input_schema":{},"cache_control":{"type":"ephemeral"}}],
        "messages":[{"role":"user","content":[{"type":"text","text":"Hi","cache_control":{"type":"ephemeral"}}]}]}"#;
    assert_eq!(prompt(Dialect::Messages, plain), prompt(Dialect::Messages, marked));
}

#[test]
fn a_system_prompt_is_the_same_as_string_and_as_block() {
    let with = |system: &str| {
        prompt(
            Dialect::Messages,
            format!(r#"{{"system":{system},"messages":[{{"role":"user","content":"Hi"}}]}}"#),
        )
    };
    assert_eq!(with(r#""S""#), with(r#"[{"type":"text","text":"S"}]"#));
    assert_ne!(with(r#""S""#), with("null"));
}

#[test]
fn uses_and_results_of_tools_in_blocks_are_read() {
    let body = |input: &str, result: &str| {
        prompt(
            Dialect::Messages,
            format!(
                r#"{{"messages":[{{"role":"assistant","content":[{{"type":"tool_use","id":"t1","name":"crane","input":{input}}}]}},
                {{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t1","content":{result}}}]}}]}}"#
            ),
        )
        .unwrap()
    };
    let one = body(r#"{"lift":3}"#, r#""lifted""#);
    assert!(holds(&one, "crane") && holds(&one, "lifted"));
    assert_eq!(one, body(r#"{ "lift" : 3 }"#, r#"[{"type":"text","text":"lifted"}]"#));
    assert_ne!(one, body(r#"{"lift":4}"#, r#""lifted""#));
    let pictured =
        body("{}", r#"[{"type":"image","source":{"type":"base64","data":"UklGRiQAAABXQVZF"}}]"#);
    assert!(!holds(&pictured, "UklGRiQAAABXQVZF"));
}

#[test]
fn responses_read_a_string_as_one_turn_of_the_user() {
    let with = |input: &str| {
        prompt(Dialect::Responses, format!(r#"{{"instructions":"S","input":{input}}}"#)).unwrap()
    };
    let string = with(r#""Hi""#);
    assert_eq!(string, with(r#"[{"role":"user","content":"Hi"}]"#));
    assert_eq!(
        string,
        with(r#"[{"type":"message","role":"user","content":[{"type":"input_text","text":"Hi"}]}]"#)
    );
}

#[test]
fn responses_read_calls_outputs_and_items_of_unknown_kind() {
    let with =
        |items: &str| prompt(Dialect::Responses, format!(r#"{{"input":[{items}]}}"#)).unwrap();
    let call = with(
        r#"{"type":"function_call","id":"fc_1","status":"completed","call_id":"c1","name":"crane","arguments":"{}"}"#,
    );
    assert!(holds(&call, "function_call") && holds(&call, "crane"));
    assert_eq!(
        call,
        with(r#"{"type":"function_call","call_id":"c1","name":"crane","arguments":"{}"}"#)
    );
    let output = with(r#"{"type":"function_call_output","call_id":"c1","output":"done"}"#);
    assert!(holds(&output, "done"));
    let foreign = with(r#"{"type":"web_search_call","action":{"query":"harbour"}}"#);
    assert!(holds(&foreign, "harbour"));
}

#[test]
fn the_order_inside_a_schema_counts_and_around_it_does_not() {
    let with = |tool: &str| {
        chat(format!(r#"{{"tools":[{tool}],"messages":[{{"role":"user","content":"x"}}]}}"#))
    };
    let one = with(r#"{"type":"function","function":{"name":"f","parameters":{"a":1,"b":2}}}"#);
    assert_eq!(
        one,
        with(r#"{"function":{"parameters":{"a":1,"b":2},"name":"f"},"type":"function"}"#)
    );
    assert_ne!(
        one,
        with(r#"{"type":"function","function":{"name":"f","parameters":{"b":2,"a":1}}}"#)
    );
    let twice = with(
        r#"{"type":"x","type":"function","function":{"name":"f","parameters":{"a":1,"b":2}}}"#,
    );
    assert_eq!(one, twice, "the last of equal names counts");
}

#[test]
fn tools_and_functions_change_the_prompt() {
    let with =
        |extra: &str| chat(format!(r#"{{{extra}"messages":[{{"role":"user","content":"x"}}]}}"#));
    assert_ne!(with(r#""tools":[{"type":"function"}],"#), with(""));
    assert_ne!(with(r#""functions":[{"name":"f"}],"#), with(""));
    assert_eq!(with(r#""tools":[],"#), with(""));
    assert_eq!(with(r#""tools":null,"#), with(""));
}
