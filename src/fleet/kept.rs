//! What a model's fleet hands on to its fleet under the next configuration, besides its workers.
//!
//! Whatever is learned about a model as a whole belongs here, or a reload would lose it.

use super::queue::Queue;
use super::tokens::{BytesPerToken, MeanUncached};
use super::warmth::WarmSince;
use crate::config;
use crate::metrics::Metrics;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tidegate_policy::index::{Limits, PrefixIndex};
use tidegate_policy::learned::Routes;
use tokio::sync::Notify;

/// See the module.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) index: PrefixIndex,
    pub(super) bytes_per_token: Arc<BytesPerToken>,
    pub(super) mean_uncached: Arc<MeanUncached>,
    pub(super) turn: Arc<AtomicU64>,
    /// `None`: the policy never was `learned`.
    pub(super) routes: Option<Arc<Routes>>,
    /// When one of its workers last began to warm up.
    pub(super) warm_since: Arc<WarmSince>,
    /// Those who wait for a worker.
    pub(super) queue: Arc<Queue>,
    /// Something a snapshot holds is not true any more.
    pub(super) changed: Arc<Notify>,
}

impl Kept {
    /// Of a model nobody knew.
    pub(super) fn new(model: &str, index: &config::Index, metrics: &Metrics) -> Self {
        let limits = limits(index);
        let gauge = metrics.workers.bytes_per_token(model);
        Self {
            index: PrefixIndex::new(limits),
            bytes_per_token: Arc::new(BytesPerToken::new(gauge)),
            mean_uncached: Arc::default(),
            turn: Arc::default(),
            routes: None,
            warm_since: Arc::default(),
            queue: Arc::default(),
            changed: Arc::default(),
        }
    }
}

/// The bounds of a model's index.
pub(super) fn limits(index: &config::Index) -> Limits {
    let block_bytes = NonZeroU32::new(index.block_bytes).unwrap_or(NonZeroU32::MIN);
    Limits::new(index.max_entries, block_bytes, fastrand::u64(..))
}
