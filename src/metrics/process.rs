//! The edge as a whole.

use super::register::Register;
use super::requests::counters;
use parking_lot::Mutex;
use prometheus::{Gauge, IntCounter, IntCounterVec, IntGauge, Opts};
use tidegate_policy::index::{Cause, Stats};

/// Why a client's connection was closed at `max_connections`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// It was new, and nobody gave way.
    Refused,
    /// It was idle, and a new one took its place.
    Displaced,
}

impl Limited {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Refused, Self::Displaced];

    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Displaced => "displaced",
        }
    }
}

/// What of a client took longer than `client_header`, so that its connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slow {
    /// Its TLS handshake.
    Handshake,
    /// A request's head, or the first byte of one.
    Head,
}

impl Slow {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Handshake, Self::Head];

    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Head => "head",
        }
    }
}

const APPLIED: &str = "applied";
const REJECTED: &str = "rejected";

/// Handles; there is one of each.
#[derive(Debug)]
pub struct ProcessMetrics {
    config_generation: IntGauge,
    config_last_reload: Gauge,
    config_reloads: IntCounterVec,
    /// (block, worker) pairs in all prefix indexes.
    pub index_entries: IntGauge,
    /// Pairs that left an index, by cause.
    pub index_evictions: IntCounterVec,
    /// Requests between their head and the end of their answer.
    pub requests_in_progress: IntGauge,
    /// Open connections of clients.
    pub connections: IntGauge,
    connections_limited: IntCounterVec,
    connections_slow: IntCounterVec,
    access_log_lost: IntCounter,
    /// What indexes of models that are gone evicted, by [`Cause`]. Locked while totals are written:
    /// two scrapes at once must not both add what one of them saw.
    gone: Mutex<[u64; Cause::ALL.len()]>,
}

impl ProcessMetrics {
    pub(super) fn register(registry: &mut Register) -> prometheus::Result<Self> {
        let metrics = Self {
            config_generation: IntGauge::new(
                "tidegate_config_generation",
                "Configurations applied since the start; 1 is the first.",
            )?,
            config_last_reload: Gauge::new(
                "tidegate_config_last_reload_timestamp_seconds",
                "When the running configuration was applied, seconds since 1970.",
            )?,
            config_reloads: counters(
                "tidegate_config_reloads_total",
                "Changed configurations since the start, by whether they were applied.",
                &["result"],
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
            connections: IntGauge::new(
                "tidegate_client_connections",
                "Clients' connections that are open, on all traffic listeners.",
            )?,
            connections_limited: counters(
                "tidegate_client_connections_limited_total",
                "Clients' connections closed at max_connections: refused ones were new, displaced ones idle.",
                &["result"],
            )?,
            connections_slow: counters(
                "tidegate_client_connections_slow_total",
                "Clients' connections closed because a TLS handshake or a request's head took longer than client_header.",
                &["phase"],
            )?,
            access_log_lost: IntCounter::new(
                "tidegate_access_log_lost_lines_total",
                "Access log lines dropped because who reads the log is too slow.",
            )?,
            gone: Mutex::default(),
        };
        registry.register(Box::new(metrics.config_generation.clone()))?;
        registry.register(Box::new(metrics.config_last_reload.clone()))?;
        registry.register(Box::new(metrics.config_reloads.clone()))?;
        for result in [APPLIED, REJECTED] {
            let _ = metrics.config_reloads.with_label_values(&[result]);
        }
        registry.register(Box::new(metrics.index_entries.clone()))?;
        registry.register(Box::new(metrics.index_evictions.clone()))?;
        registry.register(Box::new(metrics.requests_in_progress.clone()))?;
        registry.register(Box::new(metrics.connections.clone()))?;
        registry.register(Box::new(metrics.connections_limited.clone()))?;
        registry.register(Box::new(metrics.access_log_lost.clone()))?;
        for result in Limited::ALL {
            metrics.connections_limited.with_label_values(&[result.as_str()]);
        }
        registry.register(Box::new(metrics.connections_slow.clone()))?;
        for phase in Slow::ALL {
            metrics.connections_slow.with_label_values(&[phase.as_str()]);
        }
        Ok(metrics)
    }

    /// A client's connection was closed because there are too many.
    pub fn connections_limited(&self, result: Limited) {
        self.connections_limited.with_label_values(&[result.as_str()]).inc();
    }

    /// A client's connection was closed because it was too slow.
    pub fn connection_slow(&self, phase: Slow) {
        self.connections_slow.with_label_values(&[phase.as_str()]).inc();
    }

    /// This configuration is in force; 1 is the one of the start, which is no change.
    pub fn config_applied(&self, generation: u64, unix_seconds: f64) {
        self.config_generation.set(i64::try_from(generation).unwrap_or(i64::MAX));
        self.config_last_reload.set(unix_seconds);
        if 1 < generation {
            self.config_reloads.with_label_values(&[APPLIED]).inc();
        }
    }

    /// When the running configuration was applied, seconds since 1970.
    pub fn last_reload(&self) -> f64 {
        self.config_last_reload.get()
    }

    /// A changed configuration was not accepted.
    pub fn config_rejected(&self) {
        self.config_reloads.with_label_values(&[REJECTED]).inc();
    }

    /// An index is gone with its model; what it evicted stays counted.
    pub fn index_left(&self, index: &Stats) {
        let mut gone = self.gone.lock();
        for (total, evicted) in gone.iter_mut().zip(index.evictions) {
            *total += evicted;
        }
    }

    /// Writes the totals of all indexes into their series.
    pub fn show_indexes(&self, indexes: &[Stats]) {
        let gone = self.gone.lock();
        let entries: u64 = indexes.iter().map(|index| index.entries).sum();
        self.index_entries.set(i64::try_from(entries).unwrap_or(i64::MAX));
        for (place, cause) in Cause::ALL.iter().enumerate() {
            let now: u64 = indexes.iter().map(|index| index.evictions[place]).sum();
            let total = now + gone[place];
            let shown = self.index_evictions.with_label_values(&[cause.as_str()]);
            shown.inc_by(total.saturating_sub(shown.get()));
        }
    }

    /// Writes how many access log lines the process has lost.
    pub fn show_lost_lines(&self, lost: u64) {
        let _one_at_a_time = self.gone.lock();
        let shown = &self.access_log_lost;
        shown.inc_by(lost.saturating_sub(shown.get()));
    }
}
