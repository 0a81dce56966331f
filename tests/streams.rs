//! Answers pass as they come, and a client that leaves takes its request from the worker.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};
use support::client::{Connection, chat, request};
use support::edge::{Edge, workers};
use support::engine::{Engine, Reply, Step, event, stream_end, stream_head};
use support::until;
use tokio::sync::Notify;

/// A client that leaves must close the worker's connection within this.
const LEAVING: Duration = Duration::from_millis(500);

async fn edge_of(engine: &Engine) -> Edge {
    let yaml = format!("  models:\n    - name: m\n      workers:\n{}", workers(&[engine.url()]));
    Edge::start(&yaml).await
}

fn ask() -> Vec<u8> {
    request("POST", "/v1/chat/completions", chat("m", "hello").as_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_event_does_not_wait_for_the_second() {
    let engine = Engine::start().await;
    let second = Arc::new(Notify::new());
    let wait = Arc::clone(&second);
    engine.answer(move |_| {
        Reply::steps(vec![
            stream_head(),
            event("one"),
            Step::Wait(Arc::clone(&wait)),
            event("two"),
            stream_end(),
        ])
    });
    let edge = edge_of(&engine).await;
    let mut client = Connection::open(edge.traffic).await;
    client.send(&ask()).await;
    assert_eq!(client.head().await.status, 200);
    let first = String::from_utf8(client.chunk().await.unwrap()).unwrap();
    assert!(first.contains("one") && !first.contains("two"), "{first}");
    // Only now may the engine go on: had the edge buffered, this line would never be reached.
    second.notify_one();
    let mut rest = String::new();
    while let Some(chunk) = client.chunk().await {
        rest.push_str(&String::from_utf8(chunk).unwrap());
    }
    assert!(rest.contains("two") && rest.ends_with("data: [DONE]\n\n"), "{rest}");
}

/// Leaves at the given point and checks that the worker sees it, and nobody is blamed.
async fn leaving(reply: Reply, chunks_first: usize) {
    let engine = Engine::start().await;
    engine.answer(move |_| reply.clone());
    let edge = edge_of(&engine).await;
    let mut client = Connection::open(edge.traffic).await;
    client.send(&ask()).await;
    until("the request at the worker", || async { (engine.received().len() == 1).then_some(()) })
        .await;
    if 0 < chunks_first {
        client.head().await;
        for _ in 0..chunks_first {
            client.chunk().await;
        }
    }
    let left = Instant::now();
    drop(client);
    until("the worker's connection to close", || async { (engine.abandoned() == 1).then_some(()) })
        .await;
    assert!(left.elapsed() <= LEAVING, "{:?}", left.elapsed());
    let page = edge.booked(1).await;
    assert_eq!(page.sum("tidegate_requests_total", &["outcome=\"cancelled\""]), 1.0);
    assert_eq!(page.sum("tidegate_in_flight", &[]), 0.0);
    assert_eq!(page.sum("tidegate_breaker_state", &[]), 0.0);
    assert_eq!(page.sum("tidegate_worker_requests_total", &["outcome=\"cancelled\""]), 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_before_the_first_token_frees_the_worker() {
    leaving(Reply::hang(), 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_in_mid_stream_frees_the_worker() {
    leaving(Reply::steps(vec![stream_head(), event("one"), event("two"), Step::Hang]), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_a_plain_answer_frees_the_worker() {
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"
        .to_vec();
    leaving(Reply::steps(vec![Step::Write(head), Step::Hang]), 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_in_mid_stream_gives_no_proper_end() {
    let engine = Engine::start().await;
    engine.answer(|_| Reply::steps(vec![stream_head(), event("one"), Step::Close]));
    let edge = edge_of(&engine).await;
    let mut client = Connection::open(edge.traffic).await;
    client.send(&ask()).await;
    assert_eq!(client.head().await.status, 200);
    let mut text = String::new();
    let cut = loop {
        match client.try_chunk().await {
            Ok(Some(chunk)) => text.push_str(&String::from_utf8(chunk).unwrap()),
            Ok(None) => break false,
            Err(()) => break true,
        }
    };
    assert!(cut, "the end must not look proper");
    assert!(text.contains("one") && !text.contains("[DONE]"), "{text}");
    let page = edge.booked(1).await;
    assert_eq!(page.sum("tidegate_requests_total", &["outcome=\"worker_error\""]), 1.0);
    assert_eq!(engine.received().len(), 1, "never generated twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_of_a_stream_is_counted() {
    let engine = Engine::start().await;
    let usage = r#"data: {"choices":[],"usage":{"prompt_tokens":70,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":64}}}"#;
    engine.answer(move |_| {
        Reply::steps(vec![
            stream_head(),
            event("a"),
            support::engine::chunk(&format!("{usage}\n\n")),
            stream_end(),
        ])
    });
    let edge = edge_of(&engine).await;
    let mut client = Connection::open(edge.traffic).await;
    client.send(&ask()).await;
    assert_eq!(client.answer().await.status, 200);
    let page = edge.booked(1).await;
    assert_eq!(page.sum("tidegate_tokens_total", &["kind=\"prompt\""]), 70.0);
    assert_eq!(page.sum("tidegate_tokens_total", &["kind=\"cached\""]), 64.0);
    assert_eq!(page.sum("tidegate_prompt_cached_tokens_total", &[]), 64.0);
    assert_eq!(page.sum("tidegate_tokens_total", &["kind=\"completion\""]), 3.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stops_reading_is_dropped_and_its_worker_freed() {
    let engine = Engine::start().await;
    // More than all the sockets on the way can hold.
    let text = "word ".repeat(100_000);
    engine.answer(move |_| {
        let mut steps = vec![stream_head()];
        steps.extend(std::iter::repeat_with(|| event(&text)).take(100));
        steps.push(stream_end());
        Reply::steps(steps)
    });
    let timeouts = "  timeouts: {client_stall: 300ms}\n";
    let models = format!("  models:\n    - name: m\n      workers:\n{}", workers(&[engine.url()]));
    let edge = Edge::start(&format!("{timeouts}{models}")).await;
    let mut client = Connection::open(edge.traffic).await;
    client.send(&ask()).await;
    assert_eq!(client.head().await.status, 200);
    let page = edge.booked(1).await;
    assert_eq!(page.sum("tidegate_requests_total", &["outcome=\"cancelled\""]), 1.0);
    assert_eq!(page.sum("tidegate_in_flight", &[]), 0.0);
    assert_eq!(page.sum("tidegate_breaker_state", &[]), 0.0);
    // Who reads gets everything.
    let mut client = Connection::open(edge.traffic).await;
    client.send(&ask()).await;
    let answer = client.answer().await;
    assert!(answer.text().ends_with("data: [DONE]\n\n"));
    assert_eq!(answer.text().matches("data: ").count(), 101);
}
