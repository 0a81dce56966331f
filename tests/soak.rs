//! A short soak: what was sent is counted, what went wrong harms nothing else, nothing is left behind.
//! `benches/soak.rs` is the same for as long as one likes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

#[path = "support/soak.rs"]
mod soak;

use soak::{Engines, Enough, Manners, dawdlers, is_settled, settings, size, traffic};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::edge::Edge;

const INDEX_BOUND: u32 = 4000;

#[tokio::test(flavor = "multi_thread")]
async fn while_workers_are_killed_only_requests_they_had_taken_fail() {
    let engines = Engines::start(8, Manners::Good, 1).await;
    let edge = Edge::start(&settings(&engines.urls(8), INDEX_BOUND)).await;
    edge.all_healthy().await;
    let stop = Arc::new(AtomicBool::new(false));
    let killing = engines.killing(Duration::from_millis(200), &stop);
    let outcome = traffic(&edge, &engines, 16, Enough::Requests(2000)).await;
    stop.store(true, Ordering::Relaxed);
    println!("{} kills, {outcome:?}", killing.await.unwrap());
    assert!(outcome.only_lost_with_their_workers(), "{outcome:?}");
    assert!(outcome.failures() < outcome.sent / 10, "{outcome:?}");
    let page = edge.metrics().await;
    let stale = page.sum("tidegate_retries_total", &["cause=\"stale_connection\""]);
    assert!(outcome.twice as f64 <= stale, "{stale} retries, {outcome:?}");
    is_settled(&edge, outcome.sent, f64::from(INDEX_BOUND)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_two_hundred_workers_come_and_go_by_reload_no_request_fails() {
    let engines = Engines::start(8, Manners::Good, 2).await;
    let urls = engines.urls(200);
    let edge = Edge::start(&settings(&urls, INDEX_BOUND)).await;
    let stop = Arc::new(AtomicBool::new(false));
    let (requests, reloads) = tokio::join!(
        async {
            let outcome = traffic(&edge, &engines, 16, Enough::Requests(2000)).await;
            stop.store(true, Ordering::Relaxed);
            outcome
        },
        soak::reloading(&edge, &urls, INDEX_BOUND, &stop)
    );
    println!("{reloads} reloads, {requests:?}");
    assert_eq!(requests.failures(), 0, "{requests:?}");
    assert_eq!(requests.twice, 0);
    assert!(1 < reloads);
    is_settled(&edge, requests.sent, f64::from(INDEX_BOUND)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_bad_engines_and_bad_clients_do_is_counted_and_leaves_nothing_behind() {
    let engines = Engines::start(4, Manners::Bad, 3).await;
    let edge = Edge::start(&settings(&engines.urls(4), INDEX_BOUND)).await;
    let mut sent = 0;
    let mut sizes = Vec::new();
    for requests in [200, 1500] {
        let dawdlers = dawdlers(&edge, 200, 100).await;
        let outcome = traffic(&edge, &engines, 16, Enough::Requests(requests)).await;
        println!("{outcome:?}");
        sent += outcome.sent;
        drop(dawdlers);
        is_settled(&edge, sent, f64::from(INDEX_BOUND)).await;
        engines.kill_all();
        sizes.push(size(&edge).await);
        engines.revive_all().await;
    }
    println!("threads, files and KiB after each round: {sizes:?}");
    let [early, late] = sizes[..] else { panic!("two rounds") };
    assert_eq!((early.0, early.1), (late.0, late.1), "threads and files");
    assert!(late.2 < early.2 + 32 * 1024, "{sizes:?}");
    // And it still serves.
    let outcome = traffic(&edge, &engines, 4, Enough::Requests(40)).await;
    assert!(0 < outcome.whole(200), "{outcome:?}");
}
