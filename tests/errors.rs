//! Every error the edge makes itself: status, code, shape, and how it is counted.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;
use support::client::{Answer, Connection, chat, exchange, get, post, request, request_with};
use support::edge::{Edge, free_address, workers};
use support::engine::{Engine, Reply, Step, event, stream_head};
use support::relay::to_tls;
use support::until;

const CHAT: &str = "/v1/chat/completions";

fn models(settings: &str, urls: &[String]) -> String {
    format!("{settings}  models:\n    - name: m\n      workers:\n{}", workers(urls))
}

fn is_error(answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status, answer.error_code().as_str()), (status, code), "{}", answer.text());
    let error = &answer.json()["error"];
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()));
    assert!(error["type"].is_string() && error["param"].is_null());
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert!(answer.header("x-request-id").is_some_and(|id| !id.is_empty()));
}

async fn counted(edge: &Edge, outcome: &str) {
    let label = format!("outcome=\"{outcome}\"");
    until("the request to be counted", || async {
        let page = edge.metrics().await;
        (0.0 < page.sum("tidegate_requests_total", &[&label])).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_model_is_not_found() {
    let engine = Engine::start().await;
    let edge = Edge::start(&models("", &[engine.url()])).await;
    let answer = post(edge.traffic, CHAT, &chat("nobody", "hello")).await;
    is_error(&answer, 404, "model_not_found");
    is_error(&get(edge.traffic, "/v1/models/nobody").await, 404, "model_not_found");
    counted(&edge, "client_error").await;
    let page = edge.metrics().await;
    assert!(
        0.0 < page.sum("tidegate_requests_total", &["model=\"other\""]),
        "no client text in labels"
    );
    assert!(engine.received().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_a_model_needs_a_default_one() {
    let engine = Engine::start().await;
    let yaml = format!(
        "  models:\n    - name: a\n      workers:\n{row}    - name: b\n      workers:\n{row}",
        row = workers(&[engine.url()])
    );
    let edge = Edge::start(&yaml).await;
    is_error(&post(edge.traffic, CHAT, r#"{"messages":[]}"#).await, 400, "bad_request");
    is_error(&post(edge.traffic, CHAT, "no json").await, 400, "bad_request");
    let answer = post(edge.traffic, CHAT, &chat("b", "hello")).await;
    assert_eq!(answer.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_no_json_goes_to_the_default_model() {
    let engine = Engine::start().await;
    let edge = Edge::start(&models("", &[engine.url()])).await;
    let answer = post(edge.traffic, CHAT, "[1, 2").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("x-tidegate-decision"), Some("least_load"));
    assert_eq!(engine.received()[0].body, b"[1, 2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stops_in_its_body_times_out() {
    let engine = Engine::start().await;
    let edge =
        Edge::start(&models("  timeouts: {client_body_idle: 100ms}\n", &[engine.url()])).await;
    let mut client = Connection::open(edge.traffic).await;
    client
        .send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
        .await;
    is_error(&client.answer().await, 408, "request_timeout");
    assert!(client.rest().await.is_empty(), "and the connection is closed");
    counted(&edge, "client_error").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stops_in_its_head_is_cut_off() {
    let engine = Engine::start().await;
    let edge = Edge::start(&models("  timeouts: {client_header: 200ms}\n", &[engine.url()])).await;
    let mut client = Connection::open(edge.traffic).await;
    client.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost:").await;
    assert!(client.rest().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_over_the_limit_is_refused() {
    let engine = Engine::start().await;
    let edge = Edge::start(&models("  limits: {max_header_bytes: 2KiB}\n", &[engine.url()])).await;
    let long = format!("x-long: {}\r\n", "a".repeat(2_100));
    let answer = exchange(edge.traffic, &request_with("POST", CHAT, &long, b"{}")).await;
    is_error(&answer, 431, "headers_too_large");
    assert!(engine.received().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_grows_over_the_limit_is_refused_before_it_ends() {
    let engine = Engine::start().await;
    let edge = Edge::start(&models("  limits: {max_header_bytes: 2KiB}\n", &[engine.url()])).await;
    let mut client = Connection::open(edge.traffic).await;
    client.send(&request("POST", CHAT, chat("m", "hello").as_bytes())).await;
    assert_eq!(client.answer().await.status, 200);
    // A body in the same read is none of the head.
    let long = chat("m", &"a".repeat(10_000));
    client.send(&request("POST", CHAT, long.as_bytes())).await;
    assert_eq!(client.answer().await.status, 200);
    client.send(b"POST /v1/chat/completions HTTP/1.1\r\n").await;
    client.send(format!("x-long: {}", "a".repeat(100_000)).as_bytes()).await;
    is_error(&client.answer().await, 431, "headers_too_large");
    assert!(client.rest().await.is_empty());
    let page = edge.booked(3).await;
    assert_eq!(page.sum("tidegate_requests_total", &["outcome=\"client_error\""]), 1.0);
    assert_eq!(engine.received().len(), 2);
}

/// What is no HTTP/1 head, or none that Pingora takes.
const ILLEGIBLE: [&str; 7] = [
    "GET /x HTTP/1.1\r\nhost: e\r\nno colon\r\n\r\n",
    "GET /x HTTP/1.1\r\nhost: e\r\nx y: z\r\n\r\n",
    "GET /x HTTP/9.1\r\nhost: e\r\n\r\n",
    "GET /x\r\n\r\n",
    "POST /x HTTP/1.1\r\nhost: e\r\ntransfer-encoding: gzip\r\n\r\n",
    "POST /x HTTP/1.1\r\nhost: e\r\ncontent-length: 1, 2\r\n\r\n",
    "\x16\x03\x01\x02\0\x01\0\x01\r\n\r\n",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_head_nobody_can_read_is_told_so_in_the_edges_way_and_counted() {
    let engine = Engine::start().await;
    let edge = Edge::start(&models("", &[engine.url()])).await;
    let many: String = (0..300).map(|at| format!("x-{at}: v\r\n")).collect();
    let many = format!("GET /x HTTP/1.1\r\nhost: e\r\n{many}\r\n");
    let heads: Vec<&str> = ILLEGIBLE.into_iter().chain([many.as_str()]).collect();
    for (at, head) in heads.iter().enumerate() {
        let mut client = Connection::open(edge.traffic).await;
        if at % 2 == 1 {
            // On a connection that had a request before.
            client.send(&request("GET", "/v1/models", b"")).await;
            assert_eq!(client.answer().await.status, 200);
        }
        client.send(head.as_bytes()).await;
        let answer = client.answer().await;
        is_error(&answer, 400, "bad_request");
        assert_eq!(answer.header("connection"), Some("close"), "{head}");
        assert!(client.rest().await.is_empty(), "nothing of Pingora's behind it: {head}");
    }
    let page = edge.booked(heads.len() + heads.len() / 2).await;
    let labels = ["model=\"other\"", "status_class=\"4xx\"", "outcome=\"client_error\""];
    assert_eq!(page.sum("tidegate_requests_total", &labels), heads.len() as f64);
    assert_eq!(page.sum("tidegate_requests_in_progress", &[]), 0.0);
    let decisions = edge.admin("/v1/decisions").await.text();
    assert_eq!(decisions.matches("\"error\":\"bad_request\"").count(), heads.len());
    assert!(engine.received().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_refused_over_tls_or_in_the_middle_of_sending_sees_the_answer() {
    let engine = Engine::start().await;
    let edge = Edge::start_tls(&models("", &[engine.url()])).await;
    let mut client = Connection::open(to_tls(edge.traffic).await).await;
    client.send(ILLEGIBLE[0].as_bytes()).await;
    is_error(&client.answer().await, 400, "bad_request");
    let edge = Edge::start(&models("", &[engine.url()])).await;
    let mut client = Connection::open(edge.traffic).await;
    let body = "x".repeat(300_000);
    client.send(format!("{}{body}", ILLEGIBLE[0]).as_bytes()).await;
    is_error(&client.answer().await, 400, "bad_request");
}

#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_framing_is_refused_and_the_connection_closed() {
    let engine = Engine::start().await;
    let edge = Edge::start(&models("", &[engine.url()])).await;
    let heads: [&[u8]; 6] = [
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: e\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: e\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: e\r\nx-a: b\r\n folded\r\ncontent-length: 2\r\n\r\n{}",
        b"POST /v1/chat/completions HTTP/1.1\nhost: e\ncontent-length: 2\n\n{}",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: e\r\ncontent-length: +2\r\n\r\n{}",
        b"POST /v1/chat/completions HTTP/1.0\r\nhost: e\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ];
    for head in heads {
        let mut client = Connection::open(edge.traffic).await;
        client.send(head).await;
        is_error(&client.answer().await, 400, "bad_request");
        assert!(client.rest().await.is_empty());
    }
    assert!(engine.received().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_refuse_connections_are_unreachable() {
    let urls = [format!("http://{}", free_address()), format!("http://{}", free_address())];
    let edge = Edge::start(&models("  health: {enabled: false}\n", &urls)).await;
    let answer = post(edge.traffic, CHAT, &chat("m", "hello")).await;
    is_error(&answer, 502, "worker_unreachable");
    assert!(!answer.text().contains("127.0.0.1"), "worker addresses never leave the edge");
    counted(&edge, "unreachable").await;
    let page = edge.metrics().await;
    assert_eq!(page.sum("tidegate_worker_requests_total", &["outcome=\"unreachable\""]), 2.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_closes_without_an_answer_is_not_asked_twice() {
    let engine = Engine::start().await;
    engine.answer(|_| Reply::close());
    let edge = Edge::start(&models("", &[engine.url()])).await;
    let answer = post(edge.traffic, CHAT, &chat("m", "hello")).await;
    is_error(&answer, 502, "worker_closed");
    assert_eq!(engine.received().len(), 1);
    counted(&edge, "worker_error").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_routable_is_said_with_retry_after() {
    let engine = Engine::start().await;
    engine.set_healthy(false);
    let edge = Edge::start_unready(&models("", &[engine.url()])).await;
    let answer = post(edge.traffic, CHAT, &chat("m", "hello")).await;
    is_error(&answer, 503, "no_routable_worker");
    assert!(answer.header("retry-after").is_some());
    assert_eq!(get(edge.admin, "/readyz").await.status, 503);
    assert_eq!(get(edge.admin, "/livez").await.status, 200);
    counted(&edge, "edge_error").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_saturated_fleet_sheds() {
    let engine = Engine::start().await;
    engine.set_queue(5, 8);
    let yaml = format!(
        "  load_reports: {{interval: 20ms, format: get_load}}\n  models:\n    - name: m\n      shed_queue_limit: 5\n      workers:\n{}",
        workers(&[engine.url()])
    );
    let edge = Edge::start(&yaml).await;
    edge.reports_are("fresh").await;
    let answer = post(edge.traffic, CHAT, &chat("m", "hello")).await;
    is_error(&answer, 429, "fleet_saturated");
    assert!(answer.header("retry-after").is_some());
    counted(&edge, "shed").await;
    engine.set_queue(4, 8);
    until("room", || async {
        let answer = post(edge.traffic, CHAT, &chat("m", "hello")).await;
        (answer.status == 200).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_a_first_byte_times_out() {
    let engine = Engine::start().await;
    engine.answer(|_| Reply::hang());
    let edge = Edge::start(&models("  timeouts: {first_byte: 200ms}\n", &[engine.url()])).await;
    let answer = post(edge.traffic, CHAT, &chat("m", "hello")).await;
    is_error(&answer, 504, "first_byte_timeout");
    counted(&edge, "timeout").await;
    assert_eq!(engine.received().len(), 1, "never asked twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_first_byte_limit_does_not_cut_streams() {
    let engine = Engine::start().await;
    let go_on = Arc::new(tokio::sync::Notify::new());
    let wait = Arc::clone(&go_on);
    engine.answer(move |_| {
        Reply::steps(vec![
            stream_head(),
            event("a"),
            Step::Wait(Arc::clone(&wait)),
            support::engine::stream_end(),
        ])
    });
    let edge = Edge::start(&models("  timeouts: {first_byte: 150ms}\n", &[engine.url()])).await;
    let mut client = Connection::open(edge.traffic).await;
    client.send(&request("POST", CHAT, chat("m", "hello").as_bytes())).await;
    client.head().await;
    client.chunk().await;
    // Longer than first_byte, far shorter than stream_idle.
    tokio::time::sleep(std::time::Duration::from_millis(400)).await;
    go_on.notify_one();
    while client.chunk().await.is_some() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interim_answer_is_no_first_byte_of_a_stream() {
    let engine = Engine::start().await;
    let go_on = Arc::new(tokio::sync::Notify::new());
    let wait = Arc::clone(&go_on);
    engine.answer(move |_| {
        let mut reply = Reply::raw(b"HTTP/1.1 102 Processing\r\n\r\n");
        reply.steps.push(Step::Wait(Arc::clone(&wait)));
        reply.steps.extend(Reply::completion().steps);
        reply
    });
    let edge = Edge::start(&models("  timeouts: {stream_idle: 100ms}\n", &[engine.url()])).await;
    let mut client = Connection::open(edge.traffic).await;
    client.send(&request("POST", CHAT, chat("m", "hello").as_bytes())).await;
    until("the request", || async { (engine.received().len() == 1).then_some(()) }).await;
    // Longer than stream_idle, far shorter than first_byte.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    go_on.notify_one();
    assert_eq!(client.answer().await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_stops_is_cut_and_said_to_have_timed_out() {
    let engine = Engine::start().await;
    engine.answer(|_| Reply::steps(vec![stream_head(), event("one"), Step::Hang]));
    let edge = Edge::start(&models("  timeouts: {stream_idle: 200ms}\n", &[engine.url()])).await;
    let mut client = Connection::open(edge.traffic).await;
    client.send(&request("POST", CHAT, chat("m", "hello").as_bytes())).await;
    client.head().await;
    while let Ok(chunk) = client.try_chunk().await {
        assert!(chunk.is_some(), "the end must not look proper");
    }
    counted(&edge, "timeout").await;
    edge.booked(1).await;
    let decisions = edge.admin("/v1/decisions").await.json();
    let text = decisions.to_string();
    assert!(text.contains("stream_idle_timeout"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engines_own_errors_pass_unchanged() {
    let engine = Engine::start().await;
    let edge = Edge::start(&models("", &[engine.url()])).await;
    for (status, outcome) in
        [(400, "client_error"), (429, "worker_busy"), (503, "worker_busy"), (500, "worker_error")]
    {
        engine.answer(move |_| Reply::json(status, r#"{"error":"mine"}"#));
        let answer = post(edge.traffic, CHAT, &chat("m", "hello")).await;
        assert_eq!((answer.status, answer.text().as_str()), (status, r#"{"error":"mine"}"#));
        counted(&edge, outcome).await;
    }
    assert_eq!(engine.received().len(), 4, "no status is retried");
}
