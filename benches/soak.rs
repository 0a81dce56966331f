//! The soak of `tests/soak.rs` at full size: `cargo bench --bench soak -- SECONDS [SEED]`.
//!
//! First 10,000 requests while one of eight workers is killed and restarted every second; then, for the
//! given time, engines and clients that behave badly, beside 2,000 connections that say nothing and
//! 1,000 that say it slowly, while 200 workers come and go by reload. It ends with an error if a
//! request was not counted, anything is in flight or left behind at the end, or a request failed that
//! no worker had taken.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "../tests/support/mod.rs"]
mod support;

#[path = "../tests/support/soak.rs"]
mod soak;

use soak::{Engines, Enough, Manners, dawdlers, is_settled, settings, size, traffic};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::edge::Edge;

const IDLE: usize = 2000;
const SLOW: usize = 1000;
const INDEX_BOUND: u32 = 4000;

#[tokio::main]
async fn main() {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse::<u64>().ok());
    let (seconds, seed) = (numbers.next().unwrap_or(30), numbers.next().unwrap_or(7));
    println!("{seconds} s, seed {seed}");
    kills(seed).await;
    everything(Duration::from_secs(seconds), seed).await;
}

async fn kills(seed: u64) {
    let engines = Engines::start(8, Manners::Good, seed).await;
    let edge = Edge::start(&settings(&engines.urls(8), INDEX_BOUND)).await;
    edge.all_healthy().await;
    let stop = Arc::new(AtomicBool::new(false));
    let killing = engines.killing(Duration::from_secs(1), &stop);
    let outcome = traffic(&edge, &engines, 4, Enough::Requests(10_000)).await;
    stop.store(true, Ordering::Relaxed);
    let kills = killing.await.unwrap();
    println!("{kills} kills, {outcome:?}");
    assert!(outcome.only_lost_with_their_workers(), "{outcome:?}");
    is_settled(&edge, outcome.sent, f64::from(INDEX_BOUND)).await;
}

async fn everything(time: Duration, seed: u64) {
    let engines = Engines::start(8, Manners::Bad, seed).await;
    let urls = engines.urls(200);
    let edge = Edge::start(&settings(&urls, INDEX_BOUND)).await;
    let mut sent = 0;
    let mut sizes = Vec::new();
    for time in [Duration::from_secs(3), time] {
        let dawdlers = dawdlers(&edge, IDLE, SLOW).await;
        let stop = Arc::new(AtomicBool::new(false));
        let killing = engines.killing(Duration::from_secs(1), &stop);
        let (outcome, reloads) = tokio::join!(
            async {
                let outcome = traffic(&edge, &engines, 32, Enough::Time(time)).await;
                stop.store(true, Ordering::Relaxed);
                outcome
            },
            soak::reloading(&edge, &urls, INDEX_BOUND, &stop)
        );
        println!("{} kills, {reloads} reloads, {outcome:?}", killing.await.unwrap());
        sent += outcome.sent;
        drop(dawdlers);
        is_settled(&edge, sent, f64::from(INDEX_BOUND)).await;
        engines.kill_all();
        sizes.push(size(&edge).await);
        engines.revive_all().await;
    }
    println!("threads, files and KiB after each round: {sizes:?}");
    assert_eq!((sizes[0].0, sizes[0].1), (sizes[1].0, sizes[1].1), "threads and files");
}
