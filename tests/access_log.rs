//! One line of JSON on stderr for each request, without what clients said.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::Value;
use std::process::Stdio;
use support::client::{chat, get, post, request_with};
use support::edge::{Edge, model};
use support::engine::{Engine, Reply, chunk, event, stream_end, stream_head};
use support::until;

const CHAT: &str = "/v1/chat/completions";

/// The lines that are JSON, once there are that many.
async fn lines(edge: &Edge, count: usize) -> Vec<Value> {
    until("the access log", || async {
        let lines: Vec<Value> =
            edge.log().lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        (count <= lines.len()).then_some(lines)
    })
    .await
}

const FIELDS: [&str; 15] = [
    "attempts",
    "client",
    "completion_tokens",
    "decision",
    "error",
    "model",
    "outcome",
    "path",
    "prompt_tokens",
    "request_id",
    "status",
    "time",
    "total_ms",
    "ttft_ms",
    "worker",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_one_line_with_every_field_and_no_text_of_the_prompt() {
    let engine = Engine::start().await;
    let usage = r#"data: {"choices":[],"usage":{"prompt_tokens":70,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":64}}}"#;
    engine.answer(move |_| {
        let last = chunk(&format!("{usage}\n\n"));
        Reply::steps(vec![stream_head(), event("s3cret-answer"), last, stream_end()])
    });
    let edge = Edge::start(&model(&["aliases: [nick]"], &[engine.url()])).await;
    let body = serde_json::json!({
        "model": "nick", "stream": true, "user": "s3cret-user",
        "messages": [{"role": "user", "content": "s3cret-prompt ".repeat(40)}],
    });
    let headers = "x-request-id: id-1\r\nauthorization: Bearer s3cret-key\r\n";
    let target = "/v1/chat/completions?key=s3cret-query";
    let bytes = request_with("POST", target, headers, body.to_string().as_bytes());
    assert_eq!(support::client::exchange(edge.traffic, &bytes).await.status, 200);
    let lines = lines(&edge, 1).await;
    assert_eq!(lines.len(), 1);
    let line = lines[0].as_object().unwrap();
    let mut fields: Vec<&str> = line.keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(fields, FIELDS);
    for (field, value) in [
        ("request_id", "id-1"),
        ("client", "127.0.0.1"),
        ("model", "m"),
        ("path", CHAT),
        ("outcome", "ok"),
        ("decision", "least_cost"),
        ("worker", "w0"),
    ] {
        assert_eq!(line[field], value, "{field}");
    }
    assert_eq!((&line["status"], &line["attempts"]), (&200.into(), &1.into()));
    assert_eq!((&line["error"], &line["completion_tokens"]), (&Value::Null, &3.into()));
    let tokens = line["prompt_tokens"].as_object().unwrap();
    let mut counts: Vec<&str> = tokens.keys().map(String::as_str).collect();
    counts.sort_unstable();
    assert_eq!(counts, ["cached", "estimated", "matched", "reported"]);
    assert_eq!((&tokens["reported"], &tokens["cached"]), (&70.into(), &64.into()));
    assert_eq!(tokens["matched"], 0);
    assert!(tokens["estimated"].as_u64().is_some_and(|estimated| 100 < estimated));
    let [ttft, total] = ["ttft_ms", "total_ms"].map(|field| line[field].as_u64().unwrap());
    assert!(ttft <= total);
    assert!(line["time"].as_f64().is_some_and(|time| 1.6e9 < time));
    assert!(!edge.log().contains("s3cret"), "{}", edge.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_the_edge_answered_have_their_line_too() {
    let engine = Engine::start().await;
    let edge = Edge::start(&model(&[], &[engine.url()])).await;
    assert_eq!(post(edge.traffic, CHAT, &chat("s3cret-model", "hello")).await.status, 404);
    // A line is written when the request is over, which its client may know before.
    lines(&edge, 1).await;
    assert_eq!(get(edge.traffic, "/v1/models").await.status, 200);
    lines(&edge, 2).await;
    assert_eq!(get(edge.traffic, "/s3cret/path").await.status, 200);
    let lines = lines(&edge, 3).await;
    assert_eq!(lines[0]["error"], "model_not_found");
    assert_eq!(
        (&lines[0]["model"], &lines[0]["outcome"]),
        (&"other".into(), &"client_error".into())
    );
    assert_eq!((&lines[0]["worker"], &lines[0]["attempts"]), (&Value::Null, &0.into()));
    assert_eq!((&lines[1]["path"], &lines[1]["status"]), (&"/v1/models".into(), &200.into()));
    assert_eq!((&lines[2]["path"], &lines[2]["worker"]), (&"other".into(), &"w0".into()));
    assert!(!edge.log().contains("s3cret"), "{}", edge.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_missing_when_the_edge_leaves_at_once() {
    let engine = Engine::start().await;
    let mut edge = Edge::start(&model(&[], &[engine.url()])).await;
    for _ in 0..20 {
        assert_eq!(post(edge.traffic, CHAT, &chat("m", "hello")).await.status, 200);
    }
    edge.signal("TERM");
    assert_eq!(edge.exit_code().await, Some(0));
    assert_eq!(edge.log().matches("\"request_id\"").count(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_nobody_reads_keeps_nobody_waiting() {
    let engine = Engine::start().await;
    let yaml = model(&[], &[engine.url()]);
    // A pipe holds 64 KiB of lines of some 400 bytes.
    let edge = Edge::start_made(&yaml, |command| {
        command.stderr(Stdio::piped());
    })
    .await;
    for _ in 0..500 {
        assert_eq!(post(edge.traffic, CHAT, &chat("m", "hello")).await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_can_be_turned_off_or_sampled_away() {
    let engine = Engine::start().await;
    for setting in ["enabled: false", "sample: 0"] {
        let yaml = format!("  access_log: {{{setting}}}\n{}", model(&[], &[engine.url()]));
        let mut edge = Edge::start(&yaml).await;
        for _ in 0..5 {
            assert_eq!(post(edge.traffic, CHAT, &chat("m", "hello")).await.status, 200);
        }
        edge.booked(5).await;
        // Whatever waits to be written is, before it leaves.
        edge.signal("TERM");
        assert_eq!(edge.exit_code().await, Some(0));
        assert!(!edge.log().contains("request_id"), "{setting}: {}", edge.log());
        assert!(edge.log().contains("INFO"), "the rest of the log stays: {}", edge.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_of_one_is_every_request() {
    let engine = Engine::start().await;
    let yaml = format!("  access_log: {{sample: 1}}\n{}", model(&[], &[engine.url()]));
    let edge = Edge::start(&yaml).await;
    for _ in 0..20 {
        assert_eq!(post(edge.traffic, CHAT, &chat("m", "hello")).await.status, 200);
    }
    edge.booked(20).await;
    assert_eq!(lines(&edge, 20).await.len(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn prefix_keys_are_logged_on_request_and_tell_what_prompts_share() {
    let engine = Engine::start().await;
    let yaml = format!("  access_log: {{prefixes: true}}\n{}", model(&[], &[engine.url()]));
    let edge = Edge::start(&yaml).await;
    let beginning = "s3cret-prompt ".repeat(400);
    for (at, end) in ["one", "two"].iter().enumerate() {
        let prompt = format!("{beginning}{}", end.repeat(400));
        assert_eq!(post(edge.traffic, CHAT, &chat("m", &prompt)).await.status, 200);
        lines(&edge, at + 1).await;
    }
    let lines = lines(&edge, 2).await;
    let rows = [0, 1].map(|at| &lines[at]["prefix"]);
    let keys = rows.map(|row| row["keys"].as_array().unwrap());
    let step = rows[0]["step"].as_u64().unwrap();
    assert_eq!((step, rows[1]["step"].as_u64()), (512, Some(512)));
    let common = keys[0].iter().zip(keys[1]).take_while(|(a, b)| a == b).count();
    assert_eq!(common, beginning.len() / 512);
    assert!(common < keys[0].len() && keys[0].len() <= 32);
    assert!(!edge.log().contains("s3cret"), "{}", edge.log());
}
