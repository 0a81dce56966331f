//! The only helpers of the socket tests: an engine that does as told, an edge in a process of its
//! own, and a client that sees bytes.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs
)]

pub mod browser;
pub mod client;
pub mod edge;
pub mod engine;
pub mod lists;
pub mod metrics;
pub mod relay;

use std::time::Duration;

/// How long anything may take before a test gives up; never waited for in full when it works.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Fails the test when `what` takes longer than [`PATIENCE`].
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not within {PATIENCE:?}"),
    }
}

/// Asks again until the answer is there.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    within(what, async {
        loop {
            if let Some(value) = ask().await {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}
