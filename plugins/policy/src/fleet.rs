//! What we know: one immutable snapshot of a model's workers and their reports.
//!
//! Everything a report said is frozen in the snapshot. What changes with every request — whether a
//! worker may be routed to, and what this edge has sent it — is read through [`Live`], so that a
//! fleet of a thousand workers is not copied for each request. Nothing here reads a clock: the
//! decision is given [`Millis`] as data.

mod lane;

pub use lane::{ForeignShare, KvShare};

use crate::home::{self, Stake};
use crate::ledger::{Ledger, Outstanding};
use crate::rules::SpeedSnap;
use lane::{Queue, upper_median_speed};
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use lane::{Lane, clipped_speed};

/// Milliseconds on the edge's own monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub u64);

/// A worker's configured name. Ordered by its bytes, which is the last tie-break everywhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(Arc<str>);

impl WorkerId {
    /// The name as configured.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for WorkerId {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl std::fmt::Display for WorkerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A worker's stable number in its model's prefix index. Given out once per worker, kept while it
/// lives, used again only after the index has forgotten it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

/// What a worker does with a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Prefill and decode.
    #[default]
    Plain,
    /// Prefill only; decode happens at a peer.
    Prefill,
    /// Decode only: never routed to for prefill, never evidence about the prefill fleet.
    Decode,
}

/// What a worker last said about its load. Absent fields are unknown, never zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// When the poll that brought it was sent.
    pub captured_at: Millis,
    /// From here on it is stale.
    pub fresh_until: Millis,
    /// Requests in the worker's queue, summed over data-parallel ranks.
    pub waiting: Option<u64>,
    /// Requests being computed.
    pub running: Option<u64>,
    /// Most requests the worker computes at once.
    pub max_running: Option<u64>,
    /// KV tokens in use.
    pub total_tokens: Option<u64>,
    /// KV tokens there are.
    pub max_total_tokens: Option<u64>,
    /// Uncached prompt tokens of the queued requests.
    pub waiting_uncached_tokens: Option<u64>,
    /// Time to prefill the queue, milliseconds.
    pub estimated_prefill_queue_ms: Option<u64>,
    /// What this edge had outstanding at the worker when the poll was sent.
    pub own_then: Outstanding,
    /// Requests of this edge at the worker when the poll was sent, with a first byte or without.
    pub own_in_flight: u64,
}

/// A report seen from one instant.
#[derive(Clone, Copy, Debug)]
pub enum Load<'a> {
    /// A report young enough to act on.
    Fresh(&'a Report),
    /// A report that is too old: shown, never acted on.
    Stale(&'a Report),
    /// No report ever came, or the last one was unreadable.
    Never,
}

/// Where a prefill speed comes from. Measured ones are noisy and are snapped to the fleet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpeedSource {
    /// `prefill_tps` of the worker.
    Configured,
    /// The report's prefill counters.
    Reported,
    /// Own first bytes.
    Measured,
    /// Whole answers of this edge's: the worker is at least this fast.
    Proven,
}

/// Prefill tokens per second of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    /// Tokens per second, at least 1.
    pub tokens_per_second: u64,
    /// Where it comes from.
    pub source: SpeedSource,
}

/// What of a worker changes between snapshots. Laid out so that what a decision reads of a worker
/// is one cache line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Live {
    routable: AtomicBool,
    /// What this edge sent to the worker and has no first byte of.
    pub ledger: Ledger,
}

impl Live {
    pub(crate) fn with_ledger(ledger: Ledger) -> Self {
        Self { ledger, ..Self::default() }
    }

    /// Healthy, breaker closed (or its probe free), not draining, below its in-flight limit.
    pub fn is_routable(&self) -> bool {
        self.routable.load(Ordering::Relaxed)
    }

    /// Written by whoever watches health, breaker, drain and in-flight limit.
    pub fn set_routable(&self, routable: bool) {
        self.routable.store(routable, Ordering::Relaxed);
    }
}

/// One worker in a snapshot.
#[derive(Clone, Debug)]
pub struct Worker {
    /// Configured name.
    pub id: WorkerId,
    /// Its number in the prefix index.
    pub slot: Slot,
    /// What it does.
    pub role: Role,
    /// Scales `round_robin` and the rendezvous order only; at least 1.
    pub weight: u32,
    /// Data-parallel ranks, at least 1.
    pub ranks: u32,
    /// The last readable report.
    pub report: Option<Report>,
    /// Prefill speed; `None` = unknown.
    pub speed: Option<Speed>,
    /// What changes between snapshots.
    pub live: Arc<Live>,
}

impl Worker {
    /// The report as it counts at `now`.
    pub fn load(&self, now: Millis) -> Load<'_> {
        match &self.report {
            None => Load::Never,
            Some(report) if now < report.fresh_until => Load::Fresh(report),
            Some(report) => Load::Stale(report),
        }
    }

    /// The report if it may be acted on at `now`.
    pub fn fresh(&self, now: Millis) -> Option<&Report> {
        match self.load(now) {
            Load::Fresh(report) => Some(report),
            Load::Stale(_) | Load::Never => None,
        }
    }

    /// Can this worker prefill at all?
    pub fn can_prefill(&self) -> bool {
        match self.role {
            Role::Plain | Role::Prefill => true,
            Role::Decode => false,
        }
    }
}

/// One model's workers, in the order of their ids.
#[derive(Debug, Default)]
pub struct Fleet {
    version: u64,
    workers: Box<[Worker]>,
    // Computed once per snapshot of each worker, in the same order.
    lanes: Box<[Lane]>,
    stakes: Box<[Stake]>,
    queues: Box<[Queue]>,
    /// `by_slot[slot]` = position in `workers`; `u16::MAX` = no such worker.
    by_slot: Box<[u16]>,
    vref: Option<NonZeroU64>,
    slowest: Option<NonZeroU32>,
    may_be_full: bool,
    ratios: Box<[f64]>,
    foreign_share: ForeignShare,
    kv_share: KvShare,
    queues_fresh_until: Millis,
}

impl Fleet {
    /// A snapshot in which speeds snap as they do by default.
    pub fn new(version: u64, workers: Vec<Worker>) -> Self {
        Self::with_speed_snap(version, workers, SpeedSnap::default())
    }

    /// Sorts the workers by id. `version` tells snapshots apart; measured speeds within `snap` of
    /// `vref` count as `vref`.
    pub fn with_speed_snap(version: u64, mut workers: Vec<Worker>, snap: SpeedSnap) -> Self {
        workers.sort_by(|a, b| a.id.cmp(&b.id));
        let slots = workers.iter().map(|w| usize::from(w.slot.0) + 1).max().unwrap_or(0);
        let mut by_slot = vec![u16::MAX; slots].into_boxed_slice();
        for (at, worker) in (0u16..).zip(&workers) {
            by_slot[usize::from(worker.slot.0)] = at;
        }
        let vref = upper_median_speed(&workers);
        let lanes: Box<[Lane]> =
            workers.iter().map(|worker| Lane::new(worker, vref, snap)).collect();
        let queues: Box<[Queue]> = workers.iter().map(Queue::of).collect();
        Self {
            version,
            ratios: lanes.iter().map(|lane| lane.ratio(vref)).collect(),
            slowest: lanes.iter().filter_map(Lane::speed).min(),
            may_be_full: lanes.iter().any(Lane::may_be_full),
            lanes,
            stakes: workers.iter().map(|worker| Stake::new(&worker.id, worker.weight)).collect(),
            queues_fresh_until: queues.iter().map(|q| q.fresh_until).max().unwrap_or_default(),
            queues,
            by_slot,
            vref,
            foreign_share: ForeignShare::of(&workers),
            kv_share: KvShare::of(&workers),
            workers: workers.into(),
        }
    }

    /// Tells snapshots apart.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// All workers, by id.
    pub fn workers(&self) -> &[Worker] {
        &self.workers
    }

    /// The same, as cost selection reads them.
    pub(crate) fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// Position of the worker with this slot in [`Fleet::workers`].
    pub fn at(&self, slot: Slot) -> Option<usize> {
        let at = *self.by_slot.get(usize::from(slot.0))?;
        (at != u16::MAX).then_some(usize::from(at))
    }

    /// `vref`: the upper median of the known prefill speeds, tokens per second; `None` if none is.
    pub fn vref(&self) -> Option<u64> {
        self.vref.map(NonZeroU64::get)
    }

    /// `vref / v` of every worker, in order; 1 where no speed is known.
    pub(crate) fn ratios(&self) -> &[f64] {
        &self.ratios
    }

    /// The least speed any worker counts with.
    pub(crate) fn slowest(&self) -> Option<u64> {
        self.slowest.map(|speed| speed.get().into())
    }

    /// Does any report leave no room for some prompt?
    pub(crate) fn may_be_full(&self) -> bool {
        self.may_be_full
    }

    /// The speed the worker at this position counts with, tokens per second: its own, or `vref` if
    /// it is unknown, or measured and near it.
    pub fn speed(&self, at: usize) -> Option<u64> {
        self.lanes[at].speed().map(|speed| speed.get().into())
    }

    /// `L` of the worker at this position: uncached tokens ahead of a new request, see
    /// [`Ledger::line`].
    pub fn line(&self, at: usize, now: Millis, mean_uncached_tokens: u64) -> u64 {
        self.lanes[at].line(now, mean_uncached_tokens)
    }

    /// Part of the requests running and waiting at this fleet that other edges sent, by the
    /// reports; nothing once all of them are stale.
    pub fn foreign_share(&self, now: Millis) -> ForeignShare {
        if now < self.queues_fresh_until { self.foreign_share } else { ForeignShare::default() }
    }

    /// Part of the fleet's KV cache that requests hold, by the reports; nothing once all of them are
    /// stale.
    pub fn kv_share(&self, now: Millis) -> KvShare {
        if now < self.queues_fresh_until { self.kv_share } else { KvShare::default() }
    }

    /// Place of the worker at this position in the rendezvous order of a home key; the highest is
    /// the key's home.
    pub fn home_rank(&self, home: u64, at: usize) -> u64 {
        self.stakes[at].rank(home)
    }

    /// The home of a key among some of the workers; of equal ranks the smaller id.
    pub(crate) fn home(&self, home: u64, is_member: impl Fn(usize) -> bool) -> Option<usize> {
        home::first(home, &self.stakes, is_member)
    }

    /// The queue the worker at this position last reported, if it is fresh and counts; read from a
    /// few bytes per worker, because a fleet that queues everywhere is read as a whole.
    pub(crate) fn reported_queue(&self, at: usize, now: Millis) -> Option<u64> {
        let queue = &self.queues[at];
        (now < queue.fresh_until).then_some(queue.waiting)
    }

    /// From here on no worker's queue is fresh, whatever is routable.
    pub(crate) fn queues_fresh_until(&self) -> Millis {
        self.queues_fresh_until
    }
}

#[cfg(test)]
mod tests;
