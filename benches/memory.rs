//! What a connection and a stream cost in memory: `cargo bench --bench memory -- [COUNT]`.
//!
//! Resident memory of an edge's process before and after that many clients are there, and again when
//! they are gone. Each client is two descriptors of this process and three of the edge's.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "../tests/support/mod.rs"]
mod support;

use support::client::{Connection, chat, request};
use support::edge::{Edge, model, resident_kib};
use support::engine::{Engine, Reply, Step, event, stream_head};
use support::until;

const CHAT: &str = "/v1/chat/completions";

#[tokio::main]
async fn main() {
    let count = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(5000);
    let engine = Engine::start().await;
    let keys =
        "  timeouts: {client_header: 10m, client_idle: 10m}\n  access_log: {enabled: false}\n";
    let edge = Edge::start(&format!("{keys}{}", model(&[], &[engine.url()]))).await;
    let ask =
        |bytes: usize| request("POST", CHAT, chat("m", &"word ".repeat(bytes / 5)).as_bytes());
    // What is allocated once, for the first requests, is nobody's.
    hold(&edge, count / 10, Some(&ask(100))).await;
    println!("{count} clients; an edge nobody uses: {} KiB", resident_kib(edge.pid()));
    report("connections that have said nothing", &edge, count, None).await;
    report("connections kept after an answer", &edge, count, Some(&ask(100))).await;
    engine.answer(|_| Reply::steps(vec![stream_head(), event("word"), Step::Hang]));
    report("streams of a prompt of 100 bytes", &edge, count, Some(&ask(100))).await;
    report("streams of a prompt of 20 KB", &edge, count, Some(&ask(20_000))).await;
}

async fn report(what: &str, edge: &Edge, count: usize, ask: Option<&[u8]>) {
    let before = resident_kib(edge.pid());
    let clients = hold(edge, count, ask).await;
    let during = resident_kib(edge.pid());
    drop(clients);
    until("their end", || async {
        let page = edge.metrics().await;
        (page.sum("tidegate_in_flight", &[]) == 0.0).then_some(())
    })
    .await;
    let each = (during.saturating_sub(before)) as f64 / count as f64;
    println!(
        "{what}: {each:.1} KiB each, {during} KiB in all, {} KiB when they are gone",
        resident_kib(edge.pid())
    );
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
