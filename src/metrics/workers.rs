//! Series of a model's fleet: its workers', and what is estimated for the whole model.
//!
//! Counters and the in-flight gauge are handles made once per worker. What a worker *is* at one
//! instant (its report, its age, who owns how much) is written by [`WorkerMetrics::show`] when the
//! page is about to be read, so that an age is right and an unknown number has no series at all.
//! When a worker's last handle is dropped its series leave with it.

use super::Outcome;
use super::register::Register;
use parking_lot::Mutex;
use prometheus::{
    Gauge, GaugeVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, core::Collector,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How a poll for a load report ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollResult {
    /// A readable report.
    Ok,
    /// The worker has no such page.
    Absent,
    /// 401 or 403.
    Unauthorized,
    /// An answer that is no report.
    Unreadable,
    /// No answer in time.
    Timeout,
    /// No connection, or a broken one.
    Unreachable,
}

impl PollResult {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Ok,
        Self::Absent,
        Self::Unauthorized,
        Self::Unreadable,
        Self::Timeout,
        Self::Unreachable,
    ];

    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Absent => "absent",
            Self::Unauthorized => "unauthorized",
            Self::Unreadable => "unreadable",
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
        }
    }
}

/// What is known of a worker's load, and if nothing, why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReportState {
    /// A report young enough to act on.
    Fresh,
    /// A report that is too old, or frozen.
    Stale,
    /// No report ever came.
    #[default]
    Never,
    /// The worker wants credentials.
    Unauthorized,
    /// The last answer was no report.
    Unreadable,
    /// The worker has no load report, or is not asked.
    Absent,
}

impl ReportState {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Fresh, Self::Stale, Self::Never, Self::Unauthorized, Self::Unreadable, Self::Absent];

    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Stale => "stale",
            Self::Never => "never",
            Self::Unauthorized => "unauthorized",
            Self::Unreadable => "unreadable",
            Self::Absent => "absent",
        }
    }
}

/// One worker at the instant the page is read; `None` = unknown, and has no series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkerView {
    /// What is known of its load.
    pub state: ReportState,
    /// Since the poll that brought the last report was sent.
    pub age: Option<Duration>,
    /// Requests queued, if the report is fresh.
    pub waiting: Option<u64>,
    /// Requests being computed, if the report is fresh.
    pub running: Option<u64>,
    /// KV cache in use, 0 to 1, if the report is fresh.
    pub kv_usage: Option<f64>,
    /// Prompt blocks the index believes it holds.
    pub owned_blocks: u64,
    /// 0 closed, 1 open, 2 half-open.
    pub breaker: i64,
    /// Do its probes pass?
    pub healthy: bool,
    /// Does it take no new requests?
    pub draining: bool,
    /// The part of its warm-up that is over, if it warms up.
    pub warmth: Option<f64>,
}

/// The families.
#[derive(Clone, Debug)]
pub struct WorkerFamilies(Arc<Families>);

#[derive(Debug)]
struct Families {
    in_flight: IntGaugeVec,
    requests: IntCounterVec,
    breaker: IntGaugeVec,
    polls: IntCounterVec,
    waiting: IntGaugeVec,
    running: IntGaugeVec,
    kv_usage: GaugeVec,
    owned_blocks: IntGaugeVec,
    healthy: IntGaugeVec,
    draining: IntGaugeVec,
    warmth: GaugeVec,
    age: GaugeVec,
    state: IntGaugeVec,
    bytes_per_token: GaugeVec,
    /// Models that use each worker id: two models may name the same engine alike.
    ids: Mutex<BTreeMap<Arc<str>, usize>>,
}

impl WorkerFamilies {
    pub(super) fn register(registry: &mut Register) -> prometheus::Result<Self> {
        let families = Families {
            in_flight: ints(registry, IN_FLIGHT, &["worker"])?,
            requests: counters(registry, REQUESTS, &["worker", "outcome"])?,
            breaker: ints(registry, BREAKER, &["worker"])?,
            polls: counters(registry, POLLS, &["worker", "outcome"])?,
            waiting: ints(registry, WAITING, &["model", "worker"])?,
            running: ints(registry, RUNNING, &["model", "worker"])?,
            kv_usage: floats(registry, KV_USAGE, &["model", "worker"])?,
            owned_blocks: ints(registry, OWNED_BLOCKS, &["model", "worker"])?,
            healthy: ints(registry, HEALTHY, &["model", "worker"])?,
            draining: ints(registry, DRAINING, &["model", "worker"])?,
            warmth: floats(registry, WARMTH, &["model", "worker"])?,
            age: floats(registry, AGE, &["model", "worker"])?,
            state: ints(registry, STATE, &["model", "worker", "state"])?,
            bytes_per_token: floats(registry, BYTES_PER_TOKEN, &["model"])?,
            ids: Mutex::default(),
        };
        Ok(Self(Arc::new(families)))
    }

    /// One worker's handles.
    pub fn worker(&self, model: &str, worker: &str) -> WorkerMetrics {
        let families = Arc::clone(&self.0);
        let (model, worker): (Arc<str>, Arc<str>) = (model.into(), worker.into());
        *families.ids.lock().entry(Arc::clone(&worker)).or_default() += 1;
        WorkerMetrics {
            in_flight: families.in_flight.with_label_values(&[&*worker]),
            requests: Outcome::ALL
                .map(|outcome| families.requests.with_label_values(&[&*worker, outcome.as_str()])),
            polls: PollResult::ALL
                .map(|result| families.polls.with_label_values(&[&*worker, result.as_str()])),
            families,
            model,
            worker,
            is_retired: AtomicBool::new(false),
        }
    }

    /// A model is no longer configured, so there is no estimate for it.
    pub fn model_left(&self, model: &str) {
        // A series that was never written is no error.
        let _ = self.0.bytes_per_token.remove_label_values(&[model]);
    }

    /// The gauge of a model's bytes per token.
    pub fn bytes_per_token(&self, model: &str) -> Gauge {
        self.0.bytes_per_token.with_label_values(&[model])
    }
}

/// One worker's handles; dropping or retiring them removes its series.
#[derive(Debug)]
pub struct WorkerMetrics {
    in_flight: IntGauge,
    requests: [IntCounter; Outcome::ALL.len()],
    polls: [IntCounter; PollResult::ALL.len()],
    families: Arc<Families>,
    model: Arc<str>,
    worker: Arc<str>,
    is_retired: AtomicBool,
}

impl WorkerMetrics {
    /// A request left for the worker.
    pub fn dispatched(&self) {
        self.in_flight.inc();
    }

    /// A request is over.
    pub fn finished(&self, outcome: Outcome) {
        self.in_flight.dec();
        self.requests[outcome as usize].inc();
    }

    /// A poll for a load report is over.
    pub fn polled(&self, result: PollResult) {
        self.polls[result as usize].inc();
    }

    /// Writes what is true now.
    pub fn show(&self, view: &WorkerView) {
        let families = &self.families;
        let labels = [&*self.model, &*self.worker];
        set_int(&families.waiting, &labels, view.waiting);
        set_int(&families.running, &labels, view.running);
        set_int(&families.owned_blocks, &labels, Some(view.owned_blocks));
        set_int(&families.healthy, &labels, Some(u64::from(view.healthy)));
        set_int(&families.draining, &labels, Some(u64::from(view.draining)));
        set_float(&families.warmth, &labels, view.warmth);
        set_float(&families.kv_usage, &labels, view.kv_usage);
        set_float(&families.age, &labels, view.age.map(|age| age.as_secs_f64()));
        families.breaker.with_label_values(&[&*self.worker]).set(view.breaker);
        for state in ReportState::ALL {
            let labels = [&*self.model, &*self.worker, state.as_str()];
            families.state.with_label_values(&labels).set(i64::from(state == view.state));
        }
    }
}

impl WorkerMetrics {
    /// Removes its series; what is counted from now on is seen by nobody.
    pub fn retire(&self) {
        if self.is_retired.swap(true, Ordering::Relaxed) {
            return;
        }
        let families = &self.families;
        let labels = [&*self.model, &*self.worker];
        // A series that was never written is no error: there is nothing to remove.
        let _ = families.waiting.remove_label_values(&labels);
        let _ = families.running.remove_label_values(&labels);
        let _ = families.kv_usage.remove_label_values(&labels);
        let _ = families.owned_blocks.remove_label_values(&labels);
        let _ = families.healthy.remove_label_values(&labels);
        let _ = families.draining.remove_label_values(&labels);
        let _ = families.warmth.remove_label_values(&labels);
        let _ = families.age.remove_label_values(&labels);
        for state in ReportState::ALL {
            let _ = families.state.remove_label_values(&[labels[0], labels[1], state.as_str()]);
        }
        // The lock covers the removal: a new worker of the same id must not lose its series.
        let mut ids = families.ids.lock();
        let Some(users) = ids.get_mut(&self.worker) else {
            return;
        };
        *users -= 1;
        if 0 < *users {
            return;
        }
        ids.remove(&self.worker);
        let _ = families.in_flight.remove_label_values(&[labels[1]]);
        let _ = families.breaker.remove_label_values(&[labels[1]]);
        for outcome in Outcome::ALL {
            let _ = families.requests.remove_label_values(&[labels[1], outcome.as_str()]);
        }
        for result in PollResult::ALL {
            let _ = families.polls.remove_label_values(&[labels[1], result.as_str()]);
        }
    }
}

impl Drop for WorkerMetrics {
    fn drop(&mut self) {
        self.retire();
    }
}

type Name = (&'static str, &'static str);

const IN_FLIGHT: Name = ("in_flight", "Requests sent to the worker whose answer is not over.");
const REQUESTS: Name = (
    "worker_requests_total",
    "Attempts at the worker by how they ended; over workers and outcomes at least requests_total less what the edge refused, for a retried request counts once per worker.",
);
const BREAKER: Name = ("breaker_state", "0 closed, 1 open, 2 half-open.");
const POLLS: Name = ("report_polls_total", "Polls for load reports by how they ended.");
const WAITING: Name = (
    "worker_queue_waiting",
    "Requests queued at the worker by its fresh report; no series if unknown.",
);
const RUNNING: Name = (
    "worker_running",
    "Requests computed at the worker by its fresh report; no series if unknown.",
);
const KV_USAGE: Name =
    ("worker_kv_usage_ratio", "KV cache in use by the fresh report, 0 to 1; no series if unknown.");
const OWNED_BLOCKS: Name = (
    "worker_owned_blocks",
    "Prompt blocks the index believes the worker holds; they add up to index_entries.",
);
const HEALTHY: Name = ("worker_healthy", "1 if the worker's probes pass, else 0.");
const DRAINING: Name = ("worker_draining", "1 if the worker takes no new requests, else 0.");
const WARMTH: Name = (
    "worker_warmth_ratio",
    "The part of the worker's warm-up that is over, 0 to 1; no series if it does not warm up.",
);
const AGE: Name = (
    "report_age_seconds",
    "Since the poll that brought the worker's last report was sent; no series if there never was one.",
);
const STATE: Name =
    ("report_state", "1 for the present state of the worker's report, else 0; one 1 per worker.");
const BYTES_PER_TOKEN: Name = (
    "bytes_per_token",
    "Prompt bytes per token, as prompts are estimated by; corrected from reported prompt tokens.",
);

fn opts((name, help): Name) -> Opts {
    Opts::new(name, help).namespace("tidegate")
}

fn registered<C: Collector + Clone + 'static>(
    registry: &mut Register,
    family: C,
) -> prometheus::Result<C> {
    registry.register(Box::new(family.clone()))?;
    Ok(family)
}

fn ints(registry: &mut Register, name: Name, labels: &[&str]) -> prometheus::Result<IntGaugeVec> {
    registered(registry, IntGaugeVec::new(opts(name), labels)?)
}

fn floats(registry: &mut Register, name: Name, labels: &[&str]) -> prometheus::Result<GaugeVec> {
    registered(registry, GaugeVec::new(opts(name), labels)?)
}

fn counters(
    registry: &mut Register,
    name: Name,
    labels: &[&str],
) -> prometheus::Result<IntCounterVec> {
    registered(registry, IntCounterVec::new(opts(name), labels)?)
}

fn set_int(family: &IntGaugeVec, labels: &[&str], value: Option<u64>) {
    match value {
        Some(value) => {
            family.with_label_values(labels).set(i64::try_from(value).unwrap_or(i64::MAX))
        }
        None => drop(family.remove_label_values(labels)),
    }
}

fn set_float(family: &GaugeVec, labels: &[&str], value: Option<f64>) {
    match value {
        Some(value) => family.with_label_values(labels).set(value),
        None => drop(family.remove_label_values(labels)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn labels_sit_at_the_place_their_counter_has() {
        for (at, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, at);
        }
        for (at, result) in PollResult::ALL.into_iter().enumerate() {
            assert_eq!(result as usize, at);
        }
    }

    #[test]
    fn unknown_numbers_have_no_series_and_a_dropped_worker_leaves_none() {
        let metrics = Metrics::new().unwrap();
        let worker = metrics.workers.worker("m", "w0");
        worker.dispatched();
        worker.polled(PollResult::Timeout);
        let known = WorkerView {
            waiting: Some(3),
            age: Some(Duration::from_millis(1500)),
            ..Default::default()
        };
        worker.show(&known);
        let page = metrics.page().unwrap();
        assert!(page.contains(r#"tidegate_in_flight{worker="w0"} 1"#), "{page}");
        assert!(
            page.contains(r#"tidegate_worker_queue_waiting{model="m",worker="w0"} 3"#),
            "{page}"
        );
        assert!(
            page.contains(r#"tidegate_report_age_seconds{model="m",worker="w0"} 1.5"#),
            "{page}"
        );
        assert!(
            page.contains(r#"tidegate_report_state{model="m",state="never",worker="w0"} 1"#),
            "{page}"
        );
        assert!(
            page.contains(r#"tidegate_report_polls_total{outcome="timeout",worker="w0"} 1"#),
            "{page}"
        );
        assert!(!page.contains("worker_running{"), "unknown is not zero: {page}");

        worker.show(&WorkerView::default());
        assert!(!metrics.page().unwrap().contains("worker_queue_waiting{"));

        drop(worker);
        assert!(!metrics.page().unwrap().contains("w0"));
    }

    #[test]
    fn a_worker_id_of_two_models_keeps_its_series_until_both_are_gone() {
        let metrics = Metrics::new().unwrap();
        let (one, two) = (metrics.workers.worker("m1", "w0"), metrics.workers.worker("m2", "w0"));
        one.dispatched();
        two.dispatched();
        assert!(metrics.page().unwrap().contains(r#"tidegate_in_flight{worker="w0"} 2"#));
        one.finished(Outcome::Ok);
        drop(one);
        assert!(metrics.page().unwrap().contains(r#"tidegate_in_flight{worker="w0"} 1"#));
        two.finished(Outcome::Cancelled);
        drop(two);
        assert!(!metrics.page().unwrap().contains("w0"));
    }
}
