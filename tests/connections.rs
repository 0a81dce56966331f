//! Clients' connections: how many there may be, who gives way, and when a silent one ends.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::sync::Arc;
use std::time::Duration;
use support::client::{Connection, chat, exchange, post, request};
use support::edge::{Edge, model};
use support::engine::{Engine, Reply, Step, event, stream_end, stream_head};
use support::relay::{shake_hands, to_tls};
use support::{until, within};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

const CHAT: &str = "/v1/chat/completions";
const OPEN: &str = "tidegate_client_connections";
const LIMITED: &str = "tidegate_client_connections_limited_total";
const SLOW: &str = "tidegate_client_connections_slow_total";

fn limited(most: u32, rest: &str, engine: &Engine) -> String {
    format!("  limits: {{max_connections: {most}}}\n{rest}{}", model(&[], &[engine.url()]))
}

fn ask() -> Vec<u8> {
    request("POST", CHAT, chat("m", "hello").as_bytes())
}

async fn are_open(edge: &Edge, count: f64) {
    until("connections", || async { (edge.metrics().await.sum(OPEN, &[]) == count).then_some(()) })
        .await;
}

/// Whatever the test's own start left is gone.
async fn start(body: &str) -> Edge {
    let edge = Edge::start(body).await;
    are_open(&edge, 0.0).await;
    edge
}

/// An engine whose answers begin at once and end when told.
async fn streaming() -> (Engine, Arc<Notify>) {
    let engine = Engine::start().await;
    let go_on = Arc::new(Notify::new());
    let wait = Arc::clone(&go_on);
    engine.answer(move |_| {
        let wait = Step::Wait(Arc::clone(&wait));
        Reply::steps(vec![stream_head(), event("a"), wait, stream_end()])
    });
    (engine, go_on)
}

async fn streams(edge: &Edge) -> Connection {
    let mut client = Connection::open(edge.traffic).await;
    client.send(&ask()).await;
    assert_eq!(client.head().await.status, 200);
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_is_closed_at_once_while_all_others_are_at_work() {
    let (engine, go_on) = streaming().await;
    let edge = start(&limited(2, "", &engine)).await;
    let mut first = streams(&edge).await;
    let _second = streams(&edge).await;
    let mut third = Connection::open(edge.traffic).await;
    assert!(third.rest().await.is_empty());
    assert_eq!(edge.metrics().await.sum(LIMITED, &["result=\"refused\""]), 1.0);
    go_on.notify_one();
    // One of the two has its whole answer and is idle then.
    until("room", || async {
        let mut newcomer = Connection::open(edge.traffic).await;
        let sent = tokio::io::AsyncWriteExt::write_all(&mut newcomer.stream, &ask()).await;
        let mut byte = [0; 1];
        let read = tokio::io::AsyncReadExt::read(&mut newcomer.stream, &mut byte).await;
        (sent.is_ok() && matches!(read, Ok(1))).then_some(())
    })
    .await;
    assert_eq!(edge.metrics().await.sum(LIMITED, &["result=\"displaced\""]), 1.0);
    drop(first.chunk().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_gives_way_to_a_newcomer() {
    let engine = Engine::start().await;
    let edge = start(&limited(1, "", &engine)).await;
    let mut idle = Connection::open(edge.traffic).await;
    for _ in 0..3 {
        idle.send(&ask()).await;
        assert_eq!(idle.answer().await.status, 200);
    }
    edge.booked(3).await;
    let answer = post(edge.traffic, CHAT, &chat("m", "hello")).await;
    assert_eq!(answer.status, 200);
    assert!(idle.rest().await.is_empty());
    let page = edge.metrics().await;
    assert_eq!(page.sum(LIMITED, &["result=\"displaced\""]), 1.0);
    assert_eq!(page.sum(LIMITED, &["result=\"refused\""]), 0.0);
    are_open(&edge, 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_never_sends_a_request_keeps_its_place_for_client_header_only() {
    let engine = Engine::start().await;
    let edge = start(&limited(1, "  timeouts: {client_header: 300ms}\n", &engine)).await;
    let mut silent = Connection::open(edge.traffic).await;
    silent.send(b"POST /v1/chat").await;
    are_open(&edge, 1.0).await;
    let mut newcomer = Connection::open(edge.traffic).await;
    assert!(newcomer.rest().await.is_empty(), "nobody gives way");
    assert!(silent.rest().await.is_empty());
    are_open(&edge, 0.0).await;
    assert_eq!(edge.metrics().await.sum(SLOW, &["phase=\"head\""]), 1.0);
    assert_eq!(post(edge.traffic, CHAT, &chat("m", "hello")).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lower_limit_holds_from_the_next_newcomer_on() {
    let engine = Engine::start().await;
    let edge = start(&model(&[], &[engine.url()])).await;
    let mut idle = Vec::new();
    for _ in 0..4 {
        let mut client = Connection::open(edge.traffic).await;
        client.send(&ask()).await;
        assert_eq!(client.answer().await.status, 200);
        idle.push(client);
    }
    edge.booked(4).await;
    assert_eq!(edge.reload(&limited(2, "", &engine)).await.status, 200);
    let mut newcomer = Connection::open(edge.traffic).await;
    newcomer.send(&ask()).await;
    assert_eq!(newcomer.answer().await.status, 200);
    are_open(&edge, 2.0).await;
    assert_eq!(edge.metrics().await.sum(LIMITED, &["result=\"displaced\""]), 3.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tls_client_is_closed_before_its_handshake() {
    let (engine, _go_on) = streaming().await;
    let edge = Edge::start_tls(&limited(1, "", &engine)).await;
    are_open(&edge, 0.0).await;
    let silent = TcpStream::connect(edge.traffic).await.unwrap();
    are_open(&edge, 1.0).await;
    let refused = within("a refusal", shake_hands(edge.traffic, "one", "http/1.1")).await;
    assert!(refused.is_err());
    drop(silent);
    are_open(&edge, 0.0).await;
    assert!(shake_hands(edge.traffic, "one", "http/1.1").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tls_client_that_does_not_shake_hands_keeps_its_place_for_client_header_only() {
    let engine = Engine::start().await;
    let times = "  timeouts: {client_header: 2s}\n";
    let edge = Edge::start_tls(&limited(1, times, &engine)).await;
    are_open(&edge, 0.0).await;
    // The head of a record that never comes, and nothing at all.
    for (at, bytes) in [&b"\x16\x03\x01\x02\0"[..], b""].into_iter().enumerate() {
        let mut silent = Connection::open(edge.traffic).await;
        silent.send(bytes).await;
        are_open(&edge, 1.0).await;
        assert!(shake_hands(edge.traffic, "one", "http/1.1").await.is_err(), "nobody gives way");
        assert!(silent.rest().await.is_empty());
        are_open(&edge, 0.0).await;
        let slow = edge.metrics().await.sum(SLOW, &["phase=\"handshake\""]);
        assert_eq!(slow, (at + 1) as f64);
    }
    assert_eq!(edge.metrics().await.sum(SLOW, &["phase=\"head\""]), 0.0);
    let answer = post(to_tls(edge.traffic).await, CHAT, &chat("m", "hello")).await;
    assert_eq!(answer.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_that_is_over_is_not_waited_for() {
    let (engine, go_on) = streaming().await;
    let times = "  timeouts: {client_header: 2s}\n";
    let edge = Edge::start_tls(&format!("{times}{}", model(&[], &[engine.url()]))).await;
    let mut client = Connection::open(to_tls(edge.traffic).await).await;
    client.send(&ask()).await;
    assert_eq!(client.head().await.status, 200);
    // The time of one that came later is over.
    let mut later = Connection::open(edge.traffic).await;
    assert!(later.rest().await.is_empty());
    go_on.notify_one();
    while client.chunk().await.is_some() {}
    assert_eq!(edge.metrics().await.sum(SLOW, &[]), 1.0);
}

type H2 = (SendRequest<Full<Bytes>>, JoinHandle<hyper::Result<()>>);

async fn h2(edge: &Edge) -> H2 {
    let stream = TcpStream::connect(edge.traffic).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    (sender, tokio::spawn(connection))
}

async fn h2_answer((sender, _): &mut H2, edge: &Edge) -> http::Response<hyper::body::Incoming> {
    let ask = http::Request::post(format!("http://{}{CHAT}", edge.traffic));
    let ask = ask.body(Full::new(Bytes::from(chat("m", "hello")))).unwrap();
    within("h2", sender.send_request(ask)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http2_connection_without_a_stream_ends_after_client_idle() {
    let engine = Engine::start().await;
    let times = "  timeouts: {client_idle: 300ms}\n";
    let edge = Edge::start_h2c(&format!("{times}{}", model(&[], &[engine.url()]))).await;
    let mut client = h2(&edge).await;
    let answer = h2_answer(&mut client, &edge).await;
    assert_eq!(answer.status().as_u16(), 200);
    within("its body", answer.into_body().collect()).await.unwrap();
    // An error or a proper end: the edge has closed it.
    let _ = within("the end", client.1).await.unwrap();
    are_open(&edge, 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http2_connection_with_a_stream_is_not_idle() {
    let (engine, go_on) = streaming().await;
    let times = "  timeouts: {client_idle: 100ms}\n";
    let edge = Edge::start_h2c(&format!("{times}{}", model(&[], &[engine.url()]))).await;
    let mut client = h2(&edge).await;
    let answer = h2_answer(&mut client, &edge).await;
    // Many times client_idle.
    tokio::time::sleep(Duration::from_millis(600)).await;
    go_on.notify_one();
    let body = within("its body", answer.into_body().collect()).await.unwrap().to_bytes();
    assert!(body.ends_with(b"data: [DONE]\n\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http2_connection_that_opens_no_stream_ends_after_client_header() {
    let engine = Engine::start().await;
    let times = "  timeouts: {client_header: 200ms}\n";
    let edge = Edge::start_h2c(&format!("{times}{}", model(&[], &[engine.url()]))).await;
    let (_sender, connection) = h2(&edge).await;
    let _ = within("the end", connection).await.unwrap();
    let mut silent = Connection::open(edge.traffic).await;
    assert!(silent.rest().await.is_empty(), "not even a preface");
    are_open(&edge, 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http2_connection_gives_way_like_any_other() {
    let engine = Engine::start().await;
    let edge = Edge::start_h2c(&limited(1, "", &engine)).await;
    are_open(&edge, 0.0).await;
    let mut client = h2(&edge).await;
    let answer = h2_answer(&mut client, &edge).await;
    within("its body", answer.into_body().collect()).await.unwrap();
    edge.booked(1).await;
    assert_eq!(post(edge.traffic, CHAT, &chat("m", "hello")).await.status, 200);
    let _ = within("the end", client.1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn connect_is_refused_with_an_answer_and_counted() {
    let engine = Engine::start().await;
    let edge = Edge::start(&model(&[], &[engine.url()])).await;
    let answer =
        exchange(edge.traffic, b"CONNECT db.test:5432 HTTP/1.1\r\nhost: db.test:5432\r\n\r\n")
            .await;
    assert_eq!((answer.status, answer.error_code().as_str()), (400, "bad_request"));
    let page = edge.booked(1).await;
    assert_eq!(page.sum("tidegate_requests_total", &["outcome=\"client_error\""]), 1.0);
    assert!(engine.received().is_empty());
}
