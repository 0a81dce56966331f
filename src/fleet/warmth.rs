//! Since when a worker warms up.

use super::clock::millis;
use super::model::ModelFleet;
use super::worker::Worker;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_policy::fleet::Millis;

/// When a worker, or the last worker of a model, began to warm up; 0 = never.
#[derive(Debug, Default)]
pub(super) struct WarmSince(AtomicU64);

impl WarmSince {
    /// It begins now.
    pub(super) fn begin(&self, now: Millis) {
        // The clock's first millisecond is as good as its second.
        self.0.fetch_max(now.0.max(1), Ordering::Relaxed);
    }

    fn get(&self) -> Option<Millis> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&since| since != 0).map(Millis)
    }
}

impl ModelFleet {
    /// May any worker be warming up? Asked before all of them are.
    pub fn may_warm_up(&self, now: Millis) -> bool {
        self.passed(self.last_warm_since(), now).is_some()
    }

    /// The part of its warm-up that is over, 0 to 1; `None`: it does not warm up.
    pub fn warmth(&self, worker: &Worker, now: Millis) -> Option<f64> {
        self.passed(&worker.lasting.warm_since, now)
    }

    fn passed(&self, since: &WarmSince, now: Millis) -> Option<f64> {
        let whole = millis(self.config.warmup).0;
        let passed = now.0.saturating_sub(since.get()?.0);
        (passed < whole).then(|| passed as f64 / whole as f64)
    }
}
