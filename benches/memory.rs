//! What a connection and a stream cost in memory: `cargo bench --bench memory -- [COUNT]`.
//!
//! Resident memory of an edge's process before that many clients come, while they are there, and when
//! they are gone. Streams go on then, and every one has to come to its end. Each client is two descriptors of this
//! process and three of the edge's.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::Duration;
use support::client::{Connection, chat, request};
use support::edge::{Edge, model, resident_kib};
use support::engine::{Engine, Reply, Step, event, stream_end, stream_head};
use tokio::sync::Notify;

const CHAT: &str = "/v1/chat/completions";

#[tokio::main]
async fn main() {
    let count = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(5000);
    files_suffice(count);
    let ask =
        |bytes: usize| request("POST", CHAT, chat("m", &"word ".repeat(bytes / 5)).as_bytes());
    report("connections that have said nothing", count, None, Answer::Whole).await;
    report("connections kept after an answer", count, Some(&ask(100)), Answer::Whole).await;
    report("streams of a prompt of 100 bytes", count, Some(&ask(100)), Answer::Stream).await;
    report("streams of a prompt of 20 KB", count, Some(&ask(20_000)), Answer::Stream).await;
}

/// The edge needs three for each client, and has this process's limit.
fn files_suffice(count: usize) {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let most = line.split_whitespace().next().unwrap().parse().unwrap_or(usize::MAX);
    let needed = 3 * count + 500;
    assert!(needed <= most, "{count} clients need `ulimit -n {needed}`, and it is {most}");
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Whole,
    Stream,
}

/// With an edge of its own: what another one gave back would be used again unseen.
async fn report(what: &str, count: usize, ask: Option<&[u8]>, answer: Answer) {
    let engine = Engine::start().await;
    let end = Arc::new(Notify::new());
    let reply = match answer {
        Answer::Whole => Reply::completion(),
        Answer::Stream => {
            let wait = Step::Wait(Arc::clone(&end));
            Reply::steps(vec![stream_head(), event("word"), wait, event("last"), stream_end()])
        }
    };
    engine.answer(move |_| reply.clone());
    let keys =
        "  timeouts: {client_header: 10m, client_idle: 10m}\n  access_log: {enabled: false}\n";
    let edge = Edge::start(&format!("{keys}{}", model(&[], &[engine.url()]))).await;
    // What is allocated once, for the first requests, is nobody's.
    drop(hold(&edge, count / 50, ask).await);
    let before = resident_kib(edge.pid());
    let mut clients = hold(&edge, count, ask).await;
    let during = resident_kib(edge.pid());
    if answer == Answer::Stream {
        all_end(&mut clients, &end).await;
    }
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

/// Lets the streams go on, each of which has to have the rest of its answer.
async fn all_end(clients: &mut [Connection], end: &Arc<Notify>) {
    let end = Arc::clone(end);
    let calling = tokio::spawn(async move {
        loop {
            end.notify_waiters();
            // Again: one that was not waiting yet has missed it.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    for client in clients {
        let mut rest = Vec::new();
        while let Some(chunk) = client.chunk().await {
            rest.extend(chunk);
        }
        let rest = String::from_utf8_lossy(&rest);
        assert!(rest.contains("last") && rest.ends_with("[DONE]\n\n"), "a stream lost {rest:?}");
    }
    calling.abort();
}
