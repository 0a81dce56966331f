//! What this machine has run out of is no worker's fault.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::process::Command;
use support::client::{Connection, chat, post, request};
use support::edge::{Edge, model};
use support::engine::Engine;
use support::{until, within};

const CHAT: &str = "/v1/chat/completions";
/// Descriptors the process may have.
const MOST: usize = 150;

fn open_files(edge: &Edge) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", edge.pid())).unwrap().count()
}

/// The same command in a shell that limits its descriptors first.
fn limited(command: &mut Command) {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("ulimit -n {MOST} && exec \"$0\" \"$@\""));
    shell.arg(command.get_program()).args(command.get_args()).env_remove("RUST_LOG");
    *command = shell;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_descriptors_no_worker_is_blamed() {
    let engine = Engine::start().await;
    let keys =
        "  health: {interval: 50ms}\n  breaker: {threshold: 1}\n  load_reports: {format: none}\n";
    let edge = Edge::start_made(&format!("{keys}{}", model(&[], &[engine.url()])), limited).await;
    edge.all_healthy().await;
    let mut client = Connection::open(edge.traffic).await;
    client.send(&request("GET", "/v1/models", b"")).await;
    assert_eq!(client.answer().await.status, 200);
    // The kernel takes those for which the edge has no descriptor.
    let mut idle = Vec::new();
    for _ in 0..MOST {
        idle.push(Connection::open(edge.traffic).await);
    }
    until("no descriptor left", || {
        std::future::ready((MOST - 1 <= open_files(&edge)).then_some(()))
    })
    .await;
    edge.logs("cannot be probed now").await;
    // Between two attempts to accept, a request may find one that a probe has just given back.
    let answer = within("a request without a descriptor", async {
        loop {
            client.send(&request("POST", CHAT, chat("m", "hello").as_bytes())).await;
            let answer = client.answer().await;
            if answer.status != 200 {
                return answer;
            }
        }
    })
    .await;
    assert_eq!((answer.status, answer.error_code().as_str()), (500, "internal_error"));
    drop(idle);
    until("descriptors", || std::future::ready((open_files(&edge) < MOST / 2).then_some(()))).await;
    let row = &edge.workers().await[0];
    assert_eq!((&row["healthy"], &row["breaker"]), (&true.into(), &"closed".into()), "{row}");
    assert_eq!(post(edge.traffic, CHAT, &chat("m", "hello")).await.status, 200);
    let page = edge.metrics().await;
    for outcome in ["unreachable", "worker_error", "timeout"] {
        let label = format!("outcome=\"{outcome}\"");
        assert_eq!(page.sum("tidegate_worker_requests_total", &[&label]), 0.0, "{outcome}");
    }
}
