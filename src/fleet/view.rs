//! What an operator sees of the workers: rows of `GET /v1/workers`, and gauges.

use super::model::ModelFleet;
use super::worker::Worker;
use crate::config;
use crate::metrics::{ReportState, WorkerView};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use tidegate_policy::fleet::{Millis, Report, Role};

/// One worker of `GET /v1/workers`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkerRow {
    /// Configured name.
    pub id: String,
    /// Its model.
    pub model: String,
    /// As configured.
    pub url: String,
    /// `plain`, `prefill` or `decode`.
    pub role: &'static str,
    /// `active`, `draining`, or `removed`: no longer configured, finishing what it has.
    pub state: &'static str,
    /// Do its probes pass?
    pub healthy: bool,
    /// `closed`, `open` or `half_open`.
    pub breaker: &'static str,
    /// Requests sent whose answer is not over.
    pub in_flight: u32,
    /// Prompt blocks the index believes it holds.
    pub owned_blocks: u64,
    /// What it last said of its load.
    pub report: ReportView,
}

/// A report as it counts now; `null` = unknown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReportView {
    /// `fresh`, `stale`, `never`, `unauthorized`, `unreadable` or `absent`.
    pub state: &'static str,
    /// Since its poll was sent, milliseconds.
    pub age_ms: Option<u64>,
    /// Requests queued.
    pub waiting: Option<u64>,
    /// Requests being computed.
    pub running: Option<u64>,
    /// KV cache in use, 0 to 1.
    pub kv_usage: Option<f64>,
}

pub(super) fn rows(model: &ModelFleet) -> Vec<WorkerRow> {
    let now = model.clock.now();
    let listed = |worker: &Arc<Worker>| {
        let state = if worker.standing().draining { "draining" } else { "active" };
        row(&model.config.name, worker, state, &seen(model, worker, now), now)
    };
    model.workers().iter().map(listed).collect()
}

/// A worker that is in no snapshot any more.
pub(super) fn removed(model: &config::Model, worker: &Worker) -> WorkerRow {
    let now = worker.lasting.now();
    let report = worker.lasting.reading.lock().report(&model.load_reports);
    row(&model.name, worker, "removed", &Seen::new(report, worker, now), now)
}

pub(super) fn refresh_metrics(model: &ModelFleet) {
    let now = model.clock.now();
    for worker in model.workers() {
        worker.lasting.metrics.show(&gauges(model, worker, now));
    }
}

fn row(model: &str, worker: &Worker, state: &'static str, seen: &Seen, now: Millis) -> WorkerRow {
    let standing = worker.standing();
    WorkerRow {
        id: worker.id.to_string(),
        model: model.to_owned(),
        url: worker.config.url.to_string(),
        role: match worker.config.role {
            Role::Plain => "plain",
            Role::Prefill => "prefill",
            Role::Decode => "decode",
        },
        state,
        healthy: standing.healthy,
        breaker: standing.breaker.as_str(),
        in_flight: standing.in_flight,
        owned_blocks: worker.lasting.owned_blocks(),
        report: ReportView {
            state: seen.state.as_str(),
            age_ms: seen.age(now),
            waiting: seen.report.as_ref().and_then(|report| report.waiting),
            running: seen.report.as_ref().and_then(|report| report.running),
            kv_usage: seen.kv_usage,
        },
    }
}

/// A worker's report and what it is worth at one instant.
struct Seen {
    state: ReportState,
    report: Option<Report>,
    kv_usage: Option<f64>,
}

impl Seen {
    fn new(report: Option<Report>, worker: &Worker, now: Millis) -> Self {
        let reading = worker.lasting.reading.lock();
        let state = match &report {
            Some(report) if now < report.fresh_until => ReportState::Fresh,
            Some(_) => ReportState::Stale,
            None => reading.missing(),
        };
        Self { state, report, kv_usage: reading.kv_usage() }
    }

    fn age(&self, now: Millis) -> Option<u64> {
        self.report.as_ref().map(|report| now.0.saturating_sub(report.captured_at.0))
    }

    /// The report, if it may be acted on.
    fn fresh(&self) -> Option<&Report> {
        match self.state {
            ReportState::Fresh => self.report.as_ref(),
            ReportState::Stale
            | ReportState::Never
            | ReportState::Unauthorized
            | ReportState::Unreadable
            | ReportState::Absent => None,
        }
    }
}

fn seen(model: &ModelFleet, worker: &Worker, now: Millis) -> Seen {
    // What decisions see, not what has come in since.
    let fleet = model.snapshot();
    let report = fleet.at(worker.slot).and_then(|at| fleet.workers()[at].report.clone());
    Seen::new(report, worker, now)
}

fn gauges(model: &ModelFleet, worker: &Worker, now: Millis) -> WorkerView {
    let seen = seen(model, worker, now);
    let fresh = seen.fresh();
    let standing = worker.standing();
    WorkerView {
        state: seen.state,
        age: seen.age(now).map(Duration::from_millis),
        waiting: fresh.and_then(|report| report.waiting),
        running: fresh.and_then(|report| report.running),
        kv_usage: fresh.and(seen.kv_usage),
        owned_blocks: model.owned_blocks(worker),
        breaker: standing.breaker.number(),
        healthy: standing.healthy,
        draining: standing.draining,
        warmth: model.warmth(worker, now),
    }
}
