//! What we know: one immutable snapshot of a model's workers and their reports.
//!
//! Everything a report said is frozen in the snapshot. What changes with every request — whether a
//! worker may be routed to, and what this edge has sent it — is read through [`Live`], so that a
//! fleet of a thousand workers is not copied for each request. Nothing here reads a clock: the
//! decision is given [`Millis`] as data.

use crate::home;
use crate::ledger::{Ledger, Outstanding};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A measured speed within this factor of the fleet's counts as the fleet's.
const SPEED_SNAP: u64 = 2;

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
    /// What is computed once per snapshot of each worker, in the same order.
    derived: Box<[Derived]>,
    /// `by_slot[slot]` = position in `workers`; `u16::MAX` = no such worker.
    by_slot: Box<[u16]>,
    vref: Option<NonZeroU64>,
    queues_fresh_until: Millis,
}

#[derive(Clone, Copy, Debug)]
struct Derived {
    /// What the head of the worker's line is computed at; `None` if no speed is known in the fleet.
    speed: Option<NonZeroU64>,
    /// The worker's part of the rendezvous hash.
    seed: u64,
    /// Until when the reported queue is fresh; the beginning of time if there is none, or if the
    /// worker cannot prefill.
    queue_fresh_until: Millis,
    /// The reported queue.
    waiting: u64,
}

impl Derived {
    fn new(worker: &Worker, vref: Option<NonZeroU64>) -> Self {
        let report = worker.report.as_ref().filter(|_| worker.can_prefill());
        let queue = report.and_then(|report| Some((report.fresh_until, report.waiting?)));
        let (queue_fresh_until, waiting) = queue.unwrap_or_default();
        Self {
            speed: effective_speed(worker.speed, vref),
            seed: home::seed(&worker.id),
            queue_fresh_until,
            waiting,
        }
    }
}

impl Fleet {
    /// Sorts the workers by id. `version` tells snapshots apart.
    pub fn new(version: u64, mut workers: Vec<Worker>) -> Self {
        workers.sort_by(|a, b| a.id.cmp(&b.id));
        let slots = workers.iter().map(|w| usize::from(w.slot.0) + 1).max().unwrap_or(0);
        let mut by_slot = vec![u16::MAX; slots].into_boxed_slice();
        for (at, worker) in (0u16..).zip(&workers) {
            by_slot[usize::from(worker.slot.0)] = at;
        }
        let vref = upper_median_speed(&workers);
        let derived: Box<[Derived]> = workers.iter().map(|w| Derived::new(w, vref)).collect();
        let queues_fresh_until =
            derived.iter().map(|worker| worker.queue_fresh_until).max().unwrap_or_default();
        Self { version, workers: workers.into(), derived, by_slot, vref, queues_fresh_until }
    }

    /// Tells snapshots apart.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// All workers, by id.
    pub fn workers(&self) -> &[Worker] {
        &self.workers
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

    /// The speed the worker at this position counts with, tokens per second: its own, or `vref` if
    /// it is unknown, or measured and within a factor 2 of it.
    pub fn speed(&self, at: usize) -> Option<u64> {
        self.derived[at].speed.map(NonZeroU64::get)
    }

    /// `L` of the worker at this position: uncached tokens ahead of a new request, see
    /// [`Ledger::line`].
    pub fn line(&self, at: usize, now: Millis, mean_uncached_tokens: u64) -> u64 {
        let worker = &self.workers[at];
        worker.live.ledger.line(now, self.speed(at), worker.fresh(now), mean_uncached_tokens)
    }

    /// Place of the worker at this position in the rendezvous order of a home key; the highest is
    /// the key's home.
    pub fn home_rank(&self, home: u64, at: usize) -> u64 {
        home::rank_of_seed(home, self.derived[at].seed, self.workers[at].weight)
    }

    /// The queue the worker at this position last reported, if it is fresh and counts; read from a
    /// few bytes per worker, because a fleet that queues everywhere is read as a whole.
    pub(crate) fn reported_queue(&self, at: usize, now: Millis) -> Option<u64> {
        let worker = &self.derived[at];
        (now < worker.queue_fresh_until).then_some(worker.waiting)
    }

    /// From here on no worker's queue is fresh, whatever is routable.
    pub(crate) fn queues_fresh_until(&self) -> Millis {
        self.queues_fresh_until
    }
}

/// `sorted[n / 2]` of the speeds that are known of workers that can prefill.
fn upper_median_speed(workers: &[Worker]) -> Option<NonZeroU64> {
    let mut speeds: Vec<u64> = workers
        .iter()
        .filter(|worker| worker.can_prefill())
        .filter_map(|worker| worker.speed)
        .map(|speed| speed.tokens_per_second)
        .collect();
    speeds.sort_unstable();
    NonZeroU64::new(speeds.get(speeds.len() / 2)?.max(&1).to_owned())
}

fn effective_speed(speed: Option<Speed>, vref: Option<NonZeroU64>) -> Option<NonZeroU64> {
    let (Some(speed), Some(reference)) = (speed, vref) else {
        return vref;
    };
    let own = NonZeroU64::new(speed.tokens_per_second).unwrap_or(NonZeroU64::MIN);
    match speed.source {
        SpeedSource::Configured | SpeedSource::Reported => Some(own),
        SpeedSource::Measured => {
            let near = reference.get() <= own.get().saturating_mul(SPEED_SNAP)
                && own.get() <= reference.get().saturating_mul(SPEED_SNAP);
            Some(if near { reference } else { own })
        }
    }
}

#[cfg(test)]
mod tests;
