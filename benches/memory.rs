//! What a connection and a stream cost in memory: `cargo bench --bench memory -- [COUNT]`.
//!
//! Resident memory of an edge's process before that many clients come, while they are there, and when
//! they are gone. Each client is two descriptors of this process and three of the edge's.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "../tests/support/mod.rs"]
mod support;

use support::client::{Connection, chat, request};
use support::edge::{Edge, model, resident_kib};
use support::engine::{Engine, Reply, Step, event, stream_head};

const CHAT: &str = "/v1/chat/completions";

#[tokio::main]
async fn main() {
    let count = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(5000);
    let ask =
        |bytes: usize| request("POST", CHAT, chat("m", &"word ".repeat(bytes / 5)).as_bytes());
    report("connections that have said nothing", count, None, Reply::completion()).await;
    report("connections kept after an answer", count, Some(&ask(100)), Reply::completion()).await;
    let stream = Reply::steps(vec![stream_head(), event("word"), Step::Hang]);
    report("streams of a prompt of 100 bytes", count, Some(&ask(100)), stream.clone()).await;
    report("streams of a prompt of 20 KB", count, Some(&ask(20_000)), stream).await;
}

/// With an edge of its own: what another one gave back would be used again unseen.
async fn report(what: &str, count: usize, ask: Option<&[u8]>, reply: Reply) {
    let engine = Engine::start().await;
    engine.answer(move |_| reply.clone());
    let keys =
        "  timeouts: {client_header: 10m, client_idle: 10m}\n  access_log: {enabled: false}\n";
    let edge = Edge::start(&format!("{keys}{}", model(&[], &[engine.url()]))).await;
    // What is allocated once, for the first requests, is nobody's.
    drop(hold(&edge, count / 50, ask).await);
    let before = resident_kib(edge.pid());
    let clients = hold(&edge, count, ask).await;
    let during = resident_kib(edge.pid());
    drop(clients);
    drop(engine);
    edge.size(edge.pid()).await;
    let each = during.saturating_sub(before) as f64 / count as f64;
    let gone = resident_kib(edge.pid());
    println!("{count} {what}: {each:.1} KiB each, {before} -> {during} -> {gone} KiB");
}

/// Clients that stay, each behind the head and the first piece of its answer if it asks.
async fn hold(edge: &Edge, count: usize, ask: Option<&[u8]>) -> Vec<Connection> {
    let mut clients = Vec::with_capacity(count);
    for _ in 0..count {
        let mut client = Connection::open(edge.traffic).await;
        if let Some(ask) = ask {
            client.send(ask).await;
            let head = client.head().await;
            assert_eq!(head.status, 200);
            match head.header("content-length") {
                Some(length) => drop(client.bytes(length.parse().unwrap()).await),
                None => drop(client.chunk().await),
            }
        }
        clients.push(client);
    }
    clients
}
