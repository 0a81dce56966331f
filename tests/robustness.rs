//! What clients and workers do that no specification foresees leaves the edge as it was.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fmt::Write as _;
use support::client::{Connection, chat, exchange, get, post, request};
use support::edge::{Edge, workers};
use support::engine::{Engine, Reply};
use support::until;

fn cache_aware(urls: &[String]) -> String {
    format!(
        "  models:\n    - name: m\n      aliases: [default]\n      policy: cache_aware\n      \
         cache_aware: {{min_matched_tokens: 16}}\n      workers:\n{}",
        workers(urls)
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_turns_a_request_away_does_not_own_its_prompt() {
    for (status, owned) in [(200, true), (400, false), (429, false), (503, false)] {
        let engine = Engine::start().await;
        engine.answer(move |_| Reply::json(status, "{}"));
        let edge = Edge::start(&cache_aware(&[engine.url()])).await;
        let body = chat("m", &"word ".repeat(500));
        let answer = post(edge.traffic, "/v1/chat/completions", &body).await;
        assert_eq!(answer.status, status);
        until("the end of the request", || async {
            (edge.workers().await[0]["in_flight"] == 0).then_some(())
        })
        .await;
        let blocks = edge.workers().await[0]["owned_blocks"].as_u64().unwrap();
        assert_eq!(0 < blocks, owned, "{status}: {blocks} blocks");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_announces_and_does_not_send_keeps_nobody_out() {
    let engine = Engine::start().await;
    let limits = "  limits: {max_body_bytes: 1MiB, max_buffered_bytes: 1MiB}\n";
    let edge = Edge::start(&format!("{limits}{}", cache_aware(&[engine.url()]))).await;
    let mut announcing = Connection::open(edge.traffic).await;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n\
                content-length: 1048576\r\n\r\n{";
    announcing.send(head.as_bytes()).await;
    assert_eq!(announcing.head().await.status, 100, "its body is being read");
    let answer = post(edge.traffic, "/v1/chat/completions", &chat("m", "hello")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_in_chunks_ends_at_the_limit_even_if_it_is_no_json() {
    let engine = Engine::start().await;
    let limits = "  limits: {max_body_bytes: 1MiB}\n";
    let edge = Edge::start(&format!("{limits}{}", cache_aware(&[engine.url()]))).await;
    let mut bytes = b"POST /v1/audio/transcriptions HTTP/1.1\r\nhost: x\r\n\
                      transfer-encoding: chunked\r\n\r\n"
        .to_vec();
    let mut chunk = String::new();
    write!(chunk, "{:x}\r\n{}\r\n", 1 << 16, "-".repeat(1 << 16)).unwrap();
    for _ in 0..17 {
        bytes.extend_from_slice(chunk.as_bytes());
    }
    let mut client = Connection::open(edge.traffic).await;
    client.send(&bytes).await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.error_code().as_str()), (413, "body_too_large"));
    assert_eq!(engine.received().len(), 0, "the worker never had a whole request");
    let page = edge.metrics().await;
    assert!(page.sum("tidegate_worker_requests_total", &["outcome=\"worker_error\""]) == 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_writes_all_of_a_refused_body_before_it_reads_sees_the_answer() {
    let engine = Engine::start().await;
    let limits = "  limits: {max_body_bytes: 1KiB}\n";
    let edge = Edge::start(&format!("{limits}{}", cache_aware(&[engine.url()]))).await;
    let bytes = request("POST", "/v1/chat/completions", &vec![b'x'; 20 << 20]);
    let answer = exchange(edge.traffic, &bytes).await;
    assert_eq!((answer.status, answer.error_code().as_str()), (413, "body_too_large"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_after_which_the_edge_closes_says_so() {
    let engine = Engine::start().await;
    engine.answer(|_| Reply::close());
    let edge = Edge::start(&cache_aware(&[engine.url()])).await;
    let answer = post(edge.traffic, "/v1/chat/completions", &chat("m", "hello")).await;
    assert_eq!(answer.status, 502);
    assert_eq!(answer.header("connection"), Some("close"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_is_found_by_its_percent_encoded_name() {
    let engine = Engine::start().await;
    let config = cache_aware(&[engine.url()]).replace("name: m", "name: org/m");
    let edge = Edge::start(&config).await;
    for path in ["/v1/models/org/m", "/v1/models/org%2Fm"] {
        let answer = get(edge.traffic, path).await;
        assert_eq!((answer.status, answer.json()["id"].as_str()), (200, Some("org/m")), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transfer_encoding_that_two_parties_may_read_in_two_ways_is_refused() {
    let engine = Engine::start().await;
    let edge = Edge::start(&cache_aware(&[engine.url()])).await;
    for codings in [
        "transfer-encoding: gzip, chunked",
        "transfer-encoding: chunked, chunked",
        "transfer-encoding: identity\r\ntransfer-encoding: chunked",
    ] {
        let head =
            format!("POST /v1/completions HTTP/1.1\r\nhost: x\r\n{codings}\r\n\r\n0\r\n\r\n");
        let answer = exchange(edge.traffic, head.as_bytes()).await;
        assert_eq!(
            (answer.status, answer.error_code().as_str()),
            (400, "bad_request"),
            "{codings}"
        );
    }
    assert_eq!(engine.received().len(), 0);
    let answer = exchange(edge.traffic, &request("POST", "/v1/completions", b"{}")).await;
    assert_eq!(answer.status, 200);
}
