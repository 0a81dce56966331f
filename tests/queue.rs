//! Requests that nobody may take now wait at the edge, bounded and in turn.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::sync::Arc;
use support::client::{Answer, Connection, chat, post, request};
use support::edge::Edge;
use support::engine::{Engine, Reply, Step, engines, event, sha256, stream_end, stream_head};
use support::until;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;

const CHAT: &str = "/v1/chat/completions";

/// One model whose workers take one request each.
fn one_each(queue: &str, urls: &[String]) -> String {
    let rows = urls.iter().enumerate();
    let rows: String = rows
        .map(|(i, url)| format!("        - {{id: w{i}, url: \"{url}\", max_inflight: 1}}\n"))
        .collect();
    format!("  models:\n    - name: m\n      {queue}\n      workers:\n{rows}")
}

/// Answers each request when it is told to.
fn on_demand(engine: &Engine) -> Arc<Notify> {
    let finish = Arc::new(Notify::new());
    let wait = Arc::clone(&finish);
    engine.answer(move |_| {
        let mut steps = vec![Step::Wait(Arc::clone(&wait))];
        steps.extend(Reply::completion().steps);
        Reply::steps(steps)
    });
    finish
}

/// A client at this address that has sent a prompt.
async fn sends(edge: &Edge, client: u8, prompt: &str) -> Connection {
    let mut connection = Connection::open_from([127, 0, 1, client], edge.traffic).await;
    connection.send(&request("POST", CHAT, chat("m", prompt).as_bytes())).await;
    connection
}

async fn has(engine: &Engine, count: usize) {
    until("requests", || async { (engine.received().len() == count).then_some(()) }).await;
}

async fn wait(edge: &Edge, count: f64) {
    until("those who wait", || async {
        (edge.metrics().await.sum("tidegate_queue_waiting", &[]) == count).then_some(())
    })
    .await;
}

async fn left(edge: &Edge, outcome: &str) -> f64 {
    let label = format!("outcome=\"{outcome}\"");
    edge.metrics().await.sum("tidegate_queue_requests_total", &["model=\"m\"", &label])
}

fn is_error(answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status, answer.error_code().as_str()), (status, code), "{}", answer.text());
    let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&seconds), "{seconds}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_waits_until_a_worker_is_free() {
    let engine = Engine::start().await;
    let finish = on_demand(&engine);
    let edge =
        Edge::start(&one_each("queue: {max_requests: 5, max_wait: 20s}", &[engine.url()])).await;
    let mut first = sends(&edge, 1, "first").await;
    has(&engine, 1).await;
    let mut second = sends(&edge, 1, "second").await;
    wait(&edge, 1.0).await;
    assert_eq!(engine.received().len(), 1);
    finish.notify_one();
    assert_eq!(first.answer().await.status, 200);
    has(&engine, 2).await;
    finish.notify_one();
    let answer = second.answer().await;
    assert_eq!((answer.status, answer.header("x-tidegate-worker")), (200, Some("w0")));
    edge.booked(2).await;
    let decisions = edge.admin("/v1/decisions").await.json();
    assert!(decisions["decisions"][0]["queued_ms"].is_u64(), "{decisions}");
    assert!(decisions["decisions"][1]["queued_ms"].is_null(), "the first did not wait");
    assert_eq!(left(&edge, "taken").await, 1.0);
    wait(&edge, 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_queue_nobody_waits() {
    let engine = Engine::start().await;
    let finish = on_demand(&engine);
    let edge = Edge::start(&one_each("aliases: []", &[engine.url()])).await;
    let mut first = sends(&edge, 1, "first").await;
    has(&engine, 1).await;
    is_error(&sends(&edge, 1, "second").await.answer().await, 503, "no_routable_worker");
    finish.notify_one();
    assert_eq!(first.answer().await.status, 200);
    assert!(!edge.metrics().await.has("tidegate_queue_waiting"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_refuses_and_a_long_wait_ends() {
    let engine = Engine::start().await;
    let _finish = on_demand(&engine);
    let edge =
        Edge::start(&one_each("queue: {max_requests: 1, max_wait: 1s}", &[engine.url()])).await;
    let _first = sends(&edge, 1, "first").await;
    has(&engine, 1).await;
    let mut second = sends(&edge, 1, "second").await;
    wait(&edge, 1.0).await;
    is_error(&sends(&edge, 2, "third").await.answer().await, 429, "fleet_saturated");
    is_error(&second.answer().await, 503, "queue_timeout");
    assert_eq!((left(&edge, "full").await, left(&edge, "timeout").await), (1.0, 1.0));
    let page = edge.booked(2).await;
    assert_eq!(page.sum("tidegate_requests_total", &["outcome=\"shed\""]), 2.0);
    assert_eq!(engine.received().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_take_turns() {
    let engine = Engine::start().await;
    let finish = on_demand(&engine);
    let edge =
        Edge::start(&one_each("queue: {max_requests: 9, max_wait: 20s}", &[engine.url()])).await;
    let mut clients = vec![sends(&edge, 9, "0").await];
    has(&engine, 1).await;
    for (at, (client, prompt)) in
        [(1, "a1"), (1, "a2"), (1, "a3"), (1, "a4"), (2, "b1"), (2, "b2"), (3, "c1")]
            .into_iter()
            .enumerate()
    {
        clients.push(sends(&edge, client, prompt).await);
        wait(&edge, 1.0 + at as f64).await;
    }
    for served in 1..=8 {
        has(&engine, served).await;
        finish.notify_one();
    }
    for mut client in clients {
        assert_eq!(client.answer().await.status, 200);
    }
    let bodies = engine.received().into_iter().map(|of| String::from_utf8(of.body).unwrap());
    let order: Vec<String> = bodies
        .map(|body| {
            let body: serde_json::Value = serde_json::from_str(&body).unwrap();
            body["messages"][0]["content"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(order, ["0", "a1", "a2", "b1", "c1", "a3", "b2", "a4"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_waits_no_more() {
    let engine = Engine::start().await;
    let finish = on_demand(&engine);
    let edge =
        Edge::start(&one_each("queue: {max_requests: 9, max_wait: 60s}", &[engine.url()])).await;
    let mut first = sends(&edge, 1, "first").await;
    has(&engine, 1).await;
    let leaving = sends(&edge, 1, "leaving").await;
    wait(&edge, 1.0).await;
    let mut staying = sends(&edge, 1, "staying").await;
    wait(&edge, 2.0).await;
    drop(leaving);
    wait(&edge, 1.0).await;
    assert_eq!(left(&edge, "left").await, 1.0);
    finish.notify_one();
    assert_eq!(first.answer().await.status, 200);
    has(&engine, 2).await;
    finish.notify_one();
    assert_eq!(staying.answer().await.status, 200);
    let page = edge.booked(3).await;
    assert_eq!(page.sum("tidegate_requests_total", &["outcome=\"cancelled\""]), 1.0);
    assert!(
        !engine.received().iter().any(|of| String::from_utf8_lossy(&of.body).contains("leaving"))
    );
    assert_eq!(edge.workers().await[0]["in_flight"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http2_stream_that_is_reset_waits_no_more() {
    let engine = Engine::start().await;
    let _finish = on_demand(&engine);
    let queue = "queue: {max_requests: 9, max_wait: 60s}";
    let edge = Edge::start_h2c(&one_each(queue, &[engine.url()])).await;
    let _first = sends(&edge, 1, "first").await;
    has(&engine, 1).await;
    let stream = TcpStream::connect(edge.traffic).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let ask = http::Request::post(format!("http://{}{CHAT}", edge.traffic));
    let ask = ask.body(Full::new(Bytes::from(chat("m", "leaving")))).unwrap();
    let answer = tokio::spawn(sender.send_request(ask));
    wait(&edge, 1.0).await;
    answer.abort();
    wait(&edge, 0.0).await;
    let page = edge.booked(1).await;
    assert_eq!(page.sum("tidegate_requests_total", &["outcome=\"cancelled\""]), 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_waits_for_a_saturated_fleet_too() {
    let engine = Engine::start().await;
    engine.set_queue(5, 8);
    let edge = Edge::start(&format!(
        "  load_reports: {{interval: 20ms, format: get_load}}\n  models:\n    - name: m\n      \
         shed_queue_limit: 5\n      queue: {{max_requests: 9, max_wait: 20s}}\n      workers:\n        \
         - {{id: w0, url: \"{}\"}}\n",
        engine.url()
    ))
    .await;
    edge.reports_are("fresh").await;
    let mut client = sends(&edge, 1, "hello").await;
    wait(&edge, 1.0).await;
    let asked = explained(&edge).await;
    assert_eq!(asked["refusal"], "fleet_saturated", "{asked}");
    assert_eq!(asked["queue"]["waiting"], 1);
    assert_eq!(asked["queue"]["max_requests"], 9);
    engine.set_queue(4, 8);
    assert_eq!(client.answer().await.status, 200);
}

/// A fleet whose queue is one request below its limit by a report that no other follows.
async fn nearly_saturated(engine: &Engine) -> Edge {
    engine.set_queue(4, 8);
    let edge = Edge::start(&format!(
        "  load_reports: {{interval: 1h, max_age: 1h, timeout: 5s, frozen_after: 24h, format: get_load}}\n  models:\n    - name: m\n      \
         shed_queue_limit: 5\n      queue: {{max_requests: 9, max_wait: 60s}}\n      workers:\n        \
         - {{id: w0, url: \"{}\"}}\n",
        engine.url()
    ))
    .await;
    edge.reports_are("fresh").await;
    edge
}

async fn streams(edge: &Edge, client: u8) -> Connection {
    let mut connection = Connection::open_from([127, 0, 1, client], edge.traffic).await;
    let body = chat("m", "hello").replacen('{', "{\"stream\":true,", 1);
    connection.send(&request("POST", CHAT, body.as_bytes())).await;
    connection
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_byte_makes_room_without_another_report() {
    let engine = Engine::start().await;
    let (go_on, wait_here) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begin, end) = (Arc::clone(&go_on), Arc::clone(&wait_here));
    engine.answer(move |_| {
        let (begin, end) = (Step::Wait(Arc::clone(&begin)), Step::Wait(Arc::clone(&end)));
        Reply::steps(vec![stream_head(), begin, event("word"), end, stream_end()])
    });
    let edge = nearly_saturated(&engine).await;
    let _first = streams(&edge, 1).await;
    has(&engine, 1).await;
    let _second = streams(&edge, 2).await;
    wait(&edge, 1.0).await;
    go_on.notify_one();
    has(&engine, 2).await;
    wait(&edge, 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_its_worker_makes_room_without_another_report() {
    let engine = Engine::start().await;
    engine.answer(|_| Reply::steps(vec![Step::Hang]));
    let edge = nearly_saturated(&engine).await;
    for round in 1..20 {
        let first = streams(&edge, 1).await;
        has(&engine, 2 * round - 1).await;
        let second = streams(&edge, 2).await;
        wait(&edge, 1.0).await;
        drop(first);
        has(&engine, 2 * round).await;
        drop(second);
        edge.booked(2 * round).await;
    }
}

async fn explained(edge: &Edge) -> serde_json::Value {
    post(edge.admin, "/v1/explain", &chat("m", "hello")).await.json()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_is_served_by_what_a_reload_brings() {
    let (engines, urls) = engines(2).await;
    let finish = on_demand(&engines[0]);
    let queue = "queue: {max_requests: 9, max_wait: 60s}";
    let edge = Edge::start(&one_each(queue, &urls[..1])).await;
    let mut first = sends(&edge, 1, "first").await;
    has(&engines[0], 1).await;
    let mut second = sends(&edge, 1, "second").await;
    wait(&edge, 1.0).await;
    let mut third = sends(&edge, 2, "third").await;
    wait(&edge, 2.0).await;
    let more = one_each(queue, &urls[..1]).replacen("max_inflight: 1", "max_inflight: 2", 1);
    assert_eq!(edge.reload(&more).await.status, 200);
    has(&engines[0], 2).await;
    wait(&edge, 1.0).await;
    // Another worker, which has nothing to do.
    assert_eq!(edge.reload(&one_each(queue, &urls)).await.status, 200);
    let answer = third.answer().await;
    assert_eq!((answer.status, answer.header("x-tidegate-worker")), (200, Some("w1")));
    assert_eq!((engines[0].received().len(), engines[1].received().len()), (2, 1));
    finish.notify_one();
    finish.notify_one();
    for client in [&mut first, &mut second] {
        assert_eq!(client.answer().await.status, 200);
    }
    assert_eq!(left(&edge, "taken").await, 2.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_is_not_let_out_to_a_worker_that_a_reload_removed() {
    let (engines, urls) = engines(2).await;
    let finish = on_demand(&engines[0]);
    engines[1].set_healthy(false);
    let queue = "queue: {max_requests: 9, max_wait: 60s}";
    let health = "  health: {interval: 20ms, rise: 1}\n";
    let edge = Edge::start(&format!("{health}{}", one_each(queue, &urls[..1]))).await;
    let mut first = sends(&edge, 1, "first").await;
    has(&engines[0], 1).await;
    let mut second = sends(&edge, 1, "second").await;
    wait(&edge, 1.0).await;
    assert_eq!(edge.reload(&format!("{health}{}", one_each(queue, &urls[1..]))).await.status, 200);
    finish.notify_one();
    assert_eq!(first.answer().await.status, 200);
    edge.booked(1).await;
    wait(&edge, 1.0).await;
    engines[1].set_healthy(true);
    assert_eq!(second.answer().await.status, 200);
    assert_eq!((engines[0].received().len(), engines[1].received().len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_model_that_is_gone_is_told_so_at_once() {
    let engine = Engine::start().await;
    let finish = on_demand(&engine);
    let urls = [engine.url()];
    let body = one_each("queue: {max_requests: 9, max_wait: 60s}", &urls);
    let edge = Edge::start(&body).await;
    let mut first = sends(&edge, 1, "first").await;
    has(&engine, 1).await;
    let mut waiting = [sends(&edge, 1, "second").await, sends(&edge, 2, "third").await];
    wait(&edge, 2.0).await;
    assert_eq!(edge.reload(&body.replace("name: m", "name: n")).await.status, 200);
    for client in &mut waiting {
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.error_code().as_str()), (404, "model_not_found"));
    }
    finish.notify_one();
    assert_eq!(first.answer().await.status, 200);
    assert_eq!(engine.received().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_name_that_is_another_models_now_goes_there() {
    let (engines, urls) = engines(2).await;
    let finish = on_demand(&engines[0]);
    // Unprobed, the other model's worker can take requests at once.
    let body = |urls| {
        let queue = "queue: {max_requests: 9, max_wait: 60s}";
        format!("  health: {{enabled: false}}\n{}", one_each(queue, urls))
    };
    let edge = Edge::start(&body(&urls[..1])).await;
    let mut first = sends(&edge, 1, "first").await;
    has(&engines[0], 1).await;
    let mut second = sends(&edge, 1, "second").await;
    wait(&edge, 1.0).await;
    let other = body(&urls[1..]).replace("name: m", "name: n\n      aliases: [m]");
    assert_eq!(edge.reload(&other).await.status, 200);
    assert_eq!(second.answer().await.status, 200);
    assert_eq!((engines[0].received().len(), engines[1].received().len()), (1, 1));
    finish.notify_one();
    assert_eq!(first.answer().await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_while_a_breakers_probe_is_out_waits_for_its_outcome() {
    let engine = Engine::start().await;
    engine.answer(|_| Reply::json(500, "{}"));
    let queue = one_each("queue: {max_requests: 9, max_wait: 60s}", &[engine.url()]);
    let edge = Edge::start(&format!(
        "  health: {{enabled: false}}\n  breaker: {{threshold: 1, cool_down: 20ms}}\n{}",
        queue.replace("max_inflight: 1", "max_inflight: 9")
    ))
    .await;
    assert_eq!(sends(&edge, 1, "failing").await.answer().await.status, 500);
    until("the end of the cool-down", || async {
        (edge.workers().await[0]["breaker"] == "half_open").then_some(())
    })
    .await;
    let finish = on_demand(&engine);
    let mut probe = sends(&edge, 1, "probe").await;
    has(&engine, 2).await;
    let mut waiting = [sends(&edge, 1, "second").await, sends(&edge, 2, "third").await];
    wait(&edge, 2.0).await;
    assert_eq!(engine.received().len(), 2);
    finish.notify_one();
    assert_eq!(probe.answer().await.status, 200);
    // Closed: they need not wait for each other.
    has(&engine, 4).await;
    finish.notify_waiters();
    for client in &mut waiting {
        assert_eq!(client.answer().await.status, 200);
    }
}

/// Begins a body in chunks whose JSON value ends above what can be sent twice; then it waits, and the
/// rest is the worker's to get.
async fn sends_in_chunks(edge: &Edge) -> (Connection, String) {
    let prompt = chat("m", &"x".repeat(100_000));
    let mut connection = Connection::open(edge.traffic).await;
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{prompt}\r\n",
        prompt.len()
    );
    connection.send(head.as_bytes()).await;
    (connection, prompt)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_with_its_body_unread_waits_no_more_and_one_that_stays_loses_none_of_it()
 {
    let engine = Engine::start().await;
    let finish = on_demand(&engine);
    let edge =
        Edge::start(&one_each("queue: {max_requests: 9, max_wait: 60s}", &[engine.url()])).await;
    let mut first = sends(&edge, 1, "first").await;
    has(&engine, 1).await;
    let (leaving, _) = sends_in_chunks(&edge).await;
    wait(&edge, 1.0).await;
    let (mut staying, mut body) = sends_in_chunks(&edge).await;
    wait(&edge, 2.0).await;
    staying.send(b"3\r\n   \r\n").await;
    drop(leaving);
    wait(&edge, 1.0).await;
    assert_eq!(left(&edge, "left").await, 1.0);
    finish.notify_one();
    assert_eq!(first.answer().await.status, 200);
    staying.send(b"1\r\n \r\n0\r\n\r\n").await;
    has(&engine, 2).await;
    finish.notify_one();
    assert_eq!(staying.answer().await.status, 200);
    body.push_str("    ");
    assert_eq!(engine.received()[1].body_sha256, sha256(body.as_bytes()));
    let page = edge.booked(3).await;
    assert_eq!(page.sum("tidegate_requests_total", &["outcome=\"cancelled\""]), 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_may_half_close_waits_on_with_its_body_unread_until_it_is_reset() {
    let engine = Engine::start().await;
    let finish = on_demand(&engine);
    let queue = one_each("queue: {max_requests: 9, max_wait: 60s}", &[engine.url()]);
    let edge = Edge::start(&format!("  http: {{half_close: tolerate}}\n{queue}")).await;
    let mut first = sends(&edge, 1, "first").await;
    has(&engine, 1).await;
    let (mut staying, _) = sends_in_chunks(&edge).await;
    staying.send(b"0\r\n\r\n").await;
    staying.stream.shutdown().await.unwrap();
    wait(&edge, 1.0).await;
    let (leaving, _) = sends_in_chunks(&edge).await;
    wait(&edge, 2.0).await;
    leaving.stream.set_zero_linger().unwrap();
    drop(leaving);
    wait(&edge, 1.0).await;
    finish.notify_one();
    assert_eq!(first.answer().await.status, 200);
    has(&engine, 2).await;
    finish.notify_one();
    assert_eq!(staying.answer().await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_that_takes_the_queue_away_keeps_who_waits() {
    let engine = Engine::start().await;
    let finish = on_demand(&engine);
    let urls = [engine.url()];
    let edge = Edge::start(&one_each("queue: {max_requests: 9, max_wait: 60s}", &urls)).await;
    let mut first = sends(&edge, 1, "first").await;
    has(&engine, 1).await;
    let mut second = sends(&edge, 1, "second").await;
    wait(&edge, 1.0).await;
    assert_eq!(edge.reload(&one_each("aliases: []", &urls)).await.status, 200);
    is_error(&sends(&edge, 2, "third").await.answer().await, 503, "no_routable_worker");
    finish.notify_one();
    assert_eq!(first.answer().await.status, 200);
    has(&engine, 2).await;
    finish.notify_one();
    assert_eq!(second.answer().await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_is_served_before_the_process_leaves() {
    let engine = Engine::start().await;
    let finish = on_demand(&engine);
    let queue = "queue: {max_requests: 9, max_wait: 60s}";
    let body = format!("  shutdown: {{drain_delay: 0s}}\n{}", one_each(queue, &[engine.url()]));
    let mut edge = Edge::start(&body).await;
    let mut first = sends(&edge, 1, "first").await;
    has(&engine, 1).await;
    let mut second = sends(&edge, 1, "second").await;
    wait(&edge, 1.0).await;
    edge.signal("TERM");
    edge.logs("SIGTERM").await;
    finish.notify_one();
    assert_eq!(first.answer().await.status, 200);
    has(&engine, 2).await;
    finish.notify_one();
    assert_eq!(second.answer().await.status, 200);
    assert_eq!(edge.exit_code().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_may_come_back_soon_nobody_waits() {
    let engine = Engine::start().await;
    engine.set_healthy(false);
    let queue = "queue: {max_requests: 9, max_wait: 60s}";
    let edge = Edge::start_unready(&one_each(queue, &[engine.url()])).await;
    is_error(&sends(&edge, 1, "hello").await.answer().await, 503, "no_routable_worker");
}
