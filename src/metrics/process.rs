//! The edge as a whole.

use super::requests::counters;
use parking_lot::Mutex;
use prometheus::{Gauge, IntCounterVec, IntGauge, Opts, Registry};
use tidegate_policy::index::{Cause, Stats};

/// Handles; there is one of each.
#[derive(Debug)]
pub struct ProcessMetrics {
    /// Counts configurations applied since the start; 1 = the first.
    pub config_generation: IntGauge,
    /// When the running configuration was applied, seconds since 1970.
    pub config_last_reload: Gauge,
    /// (block, worker) pairs in all prefix indexes.
    pub index_entries: IntGauge,
    /// Pairs that left an index, by cause.
    pub index_evictions: IntCounterVec,
    /// Requests between their head and the end of their answer.
    pub requests_in_progress: IntGauge,
    /// Two scrapes at once must not both add what one of them saw.
    index_totals: Mutex<()>,
}

impl ProcessMetrics {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Self> {
        let metrics = Self {
            config_generation: IntGauge::new(
                "tidegate_config_generation",
                "Configurations applied since the start; 1 is the first.",
            )?,
            config_last_reload: Gauge::new(
                "tidegate_config_last_reload_timestamp_seconds",
                "When the running configuration was applied, seconds since 1970.",
            )?,
            index_entries: IntGauge::new(
                "tidegate_index_entries",
                "(block, worker) pairs in the prefix indexes of all models.",
            )?,
            index_evictions: counters(
                "tidegate_index_evictions_total",
                "Pairs that left a prefix index, by cause.",
                &["cause"],
            )?,
            requests_in_progress: IntGauge::with_opts(Opts::new(
                "tidegate_requests_in_progress",
                "Requests between their head and the end of their answer.",
            ))?,
            index_totals: Mutex::new(()),
        };
        registry.register(Box::new(metrics.config_generation.clone()))?;
        registry.register(Box::new(metrics.config_last_reload.clone()))?;
        registry.register(Box::new(metrics.index_entries.clone()))?;
        registry.register(Box::new(metrics.index_evictions.clone()))?;
        registry.register(Box::new(metrics.requests_in_progress.clone()))?;
        Ok(metrics)
    }

    /// Writes the totals of all indexes into their series.
    pub fn show_indexes(&self, indexes: &[Stats]) {
        let _alone = self.index_totals.lock();
        let entries: u64 = indexes.iter().map(|index| index.entries).sum();
        self.index_entries.set(i64::try_from(entries).unwrap_or(i64::MAX));
        for (place, cause) in Cause::ALL.iter().enumerate() {
            let total: u64 = indexes.iter().map(|index| index.evictions[place]).sum();
            let shown = self.index_evictions.with_label_values(&[cause.as_str()]);
            shown.inc_by(total.saturating_sub(shown.get()));
        }
    }
}
