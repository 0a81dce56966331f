//! IPv6 and unix sockets, to clients and to workers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use support::client::{chat, post};
use support::edge::{Edge, model};
use support::engine::Engine;
use support::relay::{from_unix, to_unix};

const CHAT: &str = "/v1/chat/completions";

#[tokio::test(flavor = "multi_thread")]
async fn unix_sockets_are_served_and_workers_behind_them_used() {
    let engine = Engine::start().await;
    engine.set_queue(3, 1);
    let home = tempfile::tempdir().unwrap();
    let worker = home.path().join("worker.sock");
    from_unix(engine.address, &worker);
    let body = format!(
        "  load_reports: {{interval: 20ms}}\n{}",
        model(&[], &[format!("unix:{}", worker.display())])
    );
    let edge = Edge::start_listening(&body, |directory, traffic| {
        let socket = directory.join("edge.sock");
        format!("[{{address: \"{traffic}\"}}, {{address: \"unix:{}\"}}]", socket.display())
    })
    .await;
    edge.reports_are("fresh").await;
    let client = to_unix(edge.directory.path().join("edge.sock")).await;
    let answer = post(client, CHAT, &chat("m", "hello")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(engine.received()[0].header("host"), Some("localhost"));
    edge.booked(1).await;
    let decisions = edge.admin("/v1/decisions").await.json();
    assert_eq!(decisions["decisions"][0]["client"], "unix");
}

#[tokio::test(flavor = "multi_thread")]
async fn ipv6_is_served_and_workers_there_used() {
    let engine = Engine::at("[::1]:0").await;
    engine.set_queue(3, 1);
    let body = format!("  load_reports: {{interval: 20ms}}\n{}", model(&[], &[engine.url()]));
    let edge = Edge::start_listening(&body, |_, traffic| {
        format!("[{{address: \"{traffic}\"}}, {{address: \"[::1]:{}\"}}]", traffic.port())
    })
    .await;
    edge.reports_are("fresh").await;
    let client = std::net::SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, edge.traffic.port()));
    let answer = post(client, CHAT, &chat("m", "hello")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(engine.received()[0].header("x-forwarded-for"), Some("::1"));
    let host = engine.address.to_string();
    assert_eq!(engine.received()[0].header("host"), Some(host.as_str()));
}
