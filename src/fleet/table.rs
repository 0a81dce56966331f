//! Reports become a table: one immutable snapshot of a model's workers, swapped as a whole.
//!
//! A thousand workers report two thousand times a second; a snapshot is built at most once every
//! [`ModelFleet::coalesce`], with all that has come meanwhile. Nothing is built while nothing changes:
//! a report that grows stale does so by its own `fresh_until`.

use super::lasting::PassedOn;
use super::model::ModelFleet;
use super::reading::Reading;
use super::worker::Worker;
use arc_swap::{ArcSwap, Guard};
use std::sync::Arc;
use std::time::Duration;
use tidegate_policy::fleet::{self as policy, Fleet, Millis, Speed, SpeedSource};
use tidegate_policy::rules::{Rules, Selection};
use tokio::time::{MissedTickBehavior, interval, sleep};

/// Least time between two snapshots of a fleet of up to [`COALESCED`] workers.
const COALESCE: Duration = Duration::from_millis(10);
/// A snapshot of twice as many takes twice as long to build, and may come half as often.
const COALESCED: usize = 200;
/// Most that a report waits for its snapshot: a tenth of the time between two of them.
const LONGEST_COALESCE: Duration = Duration::from_millis(50);
/// How late the end of a breaker's cool-down may be noticed, and the wait between two snapshots later.
pub const REFRESH: Duration = Duration::from_millis(100);
/// Own first bytes change speeds without any report; looked at this rarely, in refreshes.
const REFRESHES_PER_LOOK: u32 = 10;
/// A believed capacity starts anew only when its worker's word changes by more than this part:
/// bytes per token drift, and a new start drops what responses have corrected.
const CAPACITY_STEP: u64 = 10;

/// The present snapshot.
#[derive(Debug)]
pub(super) struct Table {
    current: ArcSwap<Fleet>,
}

impl Table {
    /// Snapshots count on from `version`.
    pub(super) fn new(version: u64) -> Self {
        Self { current: ArcSwap::from_pointee(Fleet::new(version, Vec::new())) }
    }

    pub(super) fn load(&self) -> Guard<Arc<Fleet>> {
        self.current.load()
    }
}

/// Publishes for as long as it is polled, and notices what no event tells.
pub(super) async fn watch(model: Arc<ModelFleet>) {
    let mut ticks = interval(REFRESH);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut refreshes: u32 = 0;
    // What came while the configuration changed was seen by neither this fleet nor the one before.
    model.publish();
    loop {
        tokio::select! {
            () = model.changed().notified() => {
                model.publish();
                sleep(model.coalesce()).await;
            }
            _ = ticks.tick() => {
                refreshes = refreshes.wrapping_add(1);
                model.refresh(refreshes);
            }
        }
    }
}

impl ModelFleet {
    /// Least time between two snapshots.
    pub fn coalesce(&self) -> Duration {
        let times = self.workers().len().div_ceil(COALESCED);
        let whole = COALESCE.saturating_mul(u32::try_from(times).unwrap_or(u32::MAX));
        whole.clamp(COALESCE, LONGEST_COALESCE)
    }

    /// Notices what no event tells; every [`REFRESH`], and `count` counts these.
    pub fn refresh(&self, count: u32) {
        let now = self.clock.now();
        self.workers().iter().for_each(|worker| worker.lasting.refresh(now));
        self.expect_first_bytes(now);
        if !count.is_multiple_of(REFRESHES_PER_LOOK) {
            return;
        }
        self.prune_routes();
        if self.has_new_speeds() {
            self.publish();
        }
    }

    /// Cost selection only: the ladder counts what has no first byte, whatever speed may say.
    fn expect_first_bytes(&self, now: Millis) {
        let rules = self.config.policy.cache_aware();
        if !rules.is_some_and(|rules| matches!(rules.selection, Selection::Cost(_))) {
            return;
        }
        let snapshot = self.snapshot();
        for worker in self.workers() {
            if let Some(speed) = snapshot.at(worker.slot).and_then(|at| snapshot.speed(at)) {
                worker.live.ledger.expect(speed, now);
            }
        }
    }

    /// Builds a snapshot of what is known now and swaps it in, then tells ledgers and index.
    pub fn publish(&self) {
        let (version, now) = (self.table.load().version() + 1, self.clock.now());
        let mut marks = Vec::with_capacity(self.workers().len());
        let mut rows = Vec::with_capacity(self.workers().len());
        for worker in self.workers() {
            let mut passed_on = worker.lasting.passed_on.lock();
            let reading = worker.lasting.reading.lock();
            let row = self.row(worker, &reading, now);
            let captured_at = row.report.as_ref().map(|report| report.captured_at);
            if captured_at != passed_on.captured_at {
                passed_on.captured_at = captured_at;
                marks.extend(reading.mark().map(|mark| (worker, mark)));
            }
            drop(reading);
            self.tell_capacity(worker, &row, &mut passed_on);
            rows.push(row);
        }
        self.swap_in(version, rows);
        // After the swap: for a moment something sent is counted twice, rather than not at all.
        for (worker, mark) in marks {
            worker.live.ledger.report_published(&mark);
        }
        // What it says may have kept somebody waiting, who must not see it counted twice: nobody
        // tells again before the next report.
        self.queue.changed();
    }

    /// The same for the few requests of an earlier configuration: ledgers and index are told by the
    /// one in force.
    pub(super) fn look(&self) {
        let (version, now) = (self.table.load().version() + 1, self.clock.now());
        let row = |worker: &Arc<Worker>| self.row(worker, &worker.lasting.reading.lock(), now);
        let rows = self.workers().iter().map(row).collect();
        self.swap_in(version, rows);
    }

    fn swap_in(&self, version: u64, rows: Vec<policy::Worker>) {
        let snap = self.config.policy.cache_aware().map(Rules::speed_snap).unwrap_or_default();
        self.table.current.store(Arc::new(Fleet::with_speed_snap(version, rows, snap)));
    }

    fn row(&self, worker: &Worker, reading: &Reading, now: Millis) -> policy::Worker {
        let ranks = worker.config.dp_size.map(|ranks| ranks.get()).or(reading.ranks());
        policy::Worker {
            id: worker.id.clone(),
            slot: worker.slot,
            role: worker.config.role,
            weight: worker.config.weight.get(),
            ranks: ranks.unwrap_or(1).max(1),
            report: reading.report(&self.config.load_reports),
            speed: speed(worker, reading, now),
            live: Arc::clone(&worker.live),
        }
    }

    fn has_new_speeds(&self) -> bool {
        let (snapshot, now) = (self.snapshot(), self.clock.now());
        self.workers().iter().any(|worker| {
            let known = snapshot.at(worker.slot).and_then(|at| snapshot.workers()[at].speed);
            speed(worker, &worker.lasting.reading.lock(), now) != known
        })
    }

    /// Blocks a worker's KV cache is believed to hold: tokens as reported, else as configured,
    /// times bytes per token and slack.
    fn tell_capacity(&self, worker: &Worker, row: &policy::Worker, told: &mut PassedOn) {
        let configured = worker.config.kv_capacity_tokens.map(|tokens| tokens.get());
        let reported = row.report.as_ref().and_then(|report| report.max_total_tokens);
        let Some(tokens) = reported.filter(|tokens| 0 < *tokens).or(configured) else { return };
        let settings = &self.index_settings;
        let bytes = tokens as f64 * self.bytes_per_token.get() * settings.capacity_slack;
        // Float to integer saturates.
        let blocks = ((bytes / f64::from(settings.block_bytes.max(1))) as u64).max(1);
        if told.capacity.abs_diff(blocks) <= told.capacity / CAPACITY_STEP {
            return;
        }
        told.capacity = blocks;
        self.index.set_capacity(worker.slot, blocks);
    }
}

/// Configured, else by the engine's own counters, else by own first bytes or whole answers.
fn speed(worker: &Worker, reading: &Reading, now: Millis) -> Option<Speed> {
    let configured = worker.config.prefill_tps.map(|speed| (speed.get(), SpeedSource::Configured));
    let reported = || reading.throughput().map(|speed| (speed, SpeedSource::Reported));
    let measured = || worker.live.ledger.measured_speed(now).map(|v| (v, SpeedSource::Measured));
    let proven = || worker.live.ledger.proven_speed().map(|v| (v, SpeedSource::Proven));
    let (tokens_per_second, source) =
        configured.or_else(reported).or_else(measured).or_else(proven)?;
    Some(Speed { tokens_per_second: tokens_per_second.max(1), source })
}
