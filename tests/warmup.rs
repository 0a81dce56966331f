//! New and returned workers get their share of requests little by little.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use support::client::{chat, post};
use support::edge::{Edge, model};
use support::engine::{Engine, engines};
use support::until;

const CHAT: &str = "/v1/chat/completions";

fn fleet(warmup: &str, urls: &[String]) -> String {
    let keys = [&format!("warmup: {warmup}")[..], "policy: least_load"];
    format!("  load_reports: {{interval: 20ms}}\n{}", model(&keys, urls))
}

/// How many of ten requests go to a worker.
async fn of_ten(edge: &Edge, engine: &Engine) -> usize {
    let before = engine.received().len();
    for _ in 0..10 {
        assert_eq!(post(edge.traffic, CHAT, &chat("m", "hello")).await.status, 200);
    }
    engine.received().len() - before
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_newcomer_does_not_attract_everything_while_it_warms_up() {
    let (engines, urls) = engines(2).await;
    engines[0].set_queue(5, 1);
    engines[1].set_queue(0, 0);
    let edge = Edge::start(&fleet("1h", &urls[..1])).await;
    edge.reports_are("fresh").await;
    assert_eq!(edge.reload(&fleet("1h", &urls)).await.status, 200);
    edge.all_healthy().await;
    edge.reports_are("fresh").await;
    // Of its hour hardly anything is over.
    assert_eq!(of_ten(&edge, &engines[1]).await, 0);
    assert_eq!(edge.reload(&fleet("0s", &urls)).await.status, 200);
    assert_eq!(of_ten(&edge, &engines[1]).await, 10, "it is the idle one");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_was_away_warms_up_and_still_serves_if_nobody_else_can() {
    let (engines, urls) = engines(2).await;
    engines[0].set_queue(5, 1);
    engines[1].set_queue(0, 0);
    let body = format!("  health: {{interval: 50ms, fall: 1, rise: 1}}\n{}", fleet("1h", &urls));
    let edge = Edge::start(&body).await;
    edge.all_healthy().await;
    edge.reports_are("fresh").await;
    assert_eq!(of_ten(&edge, &engines[1]).await, 10, "nobody warms up at the start");
    engines[1].set_healthy(false);
    until("its absence", || async { (edge.workers().await[1]["healthy"] == false).then_some(()) })
        .await;
    engines[1].set_healthy(true);
    edge.all_healthy().await;
    assert_eq!(of_ten(&edge, &engines[1]).await, 0);
    let page = edge.metrics().await;
    assert!(page.has("tidegate_worker_warmth_ratio"));
    assert_eq!(page.sum("tidegate_worker_healthy", &["worker=\"w1\""]), 1.0);
    assert_eq!(edge.post("/v1/workers/w0/drain").await.status, 200);
    assert_eq!(of_ten(&edge, &engines[1]).await, 10);
    let page = edge.metrics().await;
    assert_eq!(page.sum("tidegate_worker_draining", &["worker=\"w0\""]), 1.0);
}
