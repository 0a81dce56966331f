//! What clients and workers do is no warning: anybody could fill the disk with it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::net::SocketAddr;
use support::client::{Connection, chat, post, request};
use support::edge::{Edge, free_address, model, workers};
use support::engine::{Engine, Reply, Step, event, stream_head};
use support::relay::shake_hands;
use support::until;

const CHAT: &str = "/v1/chat/completions";

/// Sends bytes and leaves when the edge closes, or at once.
async fn throws(address: SocketAddr, bytes: &[u8], waits: bool) {
    let mut client = Connection::open(address).await;
    client.send(bytes).await;
    if waits {
        client.rest().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_client_and_no_worker_writes_a_warning_of_pingora() {
    let engine = Engine::start().await;
    engine.answer(|received| match String::from_utf8_lossy(&received.body).contains("cut") {
        true => Reply::steps(vec![stream_head(), event("a"), Step::Close]),
        false => Reply::steps(vec![stream_head(), event("a"), Step::Hang]),
    });
    let (tls, h2c) = (free_address(), free_address());
    let gone = [format!("http://{}", free_address())];
    let body = format!(
        "  health: {{enabled: false}}\n  timeouts: {{client_header: 300ms}}\n{}    - name: gone\n      workers:\n{}",
        model(&[], &[engine.url()]),
        workers(&gone)
    );
    let edge = Edge::start_listening(&body, |_, traffic| {
        let pem = |file| support::relay::pem(file).display().to_string();
        format!(
            "[{{address: \"{traffic}\"}}, {{address: \"{h2c}\", h2c: true}}, {{address: \"{tls}\", tls: {{cert: \"{}\", key: \"{}\"}}}}]",
            pem("one.pem"),
            pem("one.key")
        )
    })
    .await;
    throws(tls, b"GET / HTTP/1.1\r\n\r\n", true).await;
    throws(tls, &[0x16, 0x03, 0x01], false).await;
    assert!(shake_hands(tls, "two", "http/1.1").await.is_err(), "which the client ends");
    throws(h2c, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnonsense that is no frame at all", true).await;
    throws(edge.traffic, b"\x00\x01\x02\r\n\r\n", true).await;
    throws(edge.traffic, b"GET / HTTP/1.1\r\nhost: a\r\nbad header\r\n\r\n", true).await;
    throws(edge.traffic, b"GET / HTTP/1.1\r\nho", true).await;
    let hanging = request("POST", CHAT, chat("m", "hang").as_bytes());
    throws(edge.traffic, &hanging, false).await;
    let mut client = Connection::open(edge.traffic).await;
    client.send(&request("POST", CHAT, chat("m", "cut").as_bytes())).await;
    client.head().await;
    while let Ok(Some(_)) = client.try_chunk().await {}
    assert_eq!(post(edge.traffic, CHAT, &chat("gone", "hello")).await.status, 502);
    until("the requests", || async { (3 <= edge.ended().await).then_some(()) }).await;
    let log = edge.log();
    let loud: Vec<_> = log.lines().filter(|line| line.contains("pingora")).collect();
    assert!(loud.is_empty(), "{loud:#?}");
    assert!(!log.contains("ERROR"), "{log}");
}
