//! What of each worker is computed once per snapshot, so that a decision that looks at all of a
//! thousand workers reads little and divides less.

use super::{Live, Millis, Report, Speed, SpeedSource, Worker};
use crate::ledger::ReportedWork;
use crate::pressure::Native;
use crate::rules::SpeedSnap;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

/// All that cost selection reads of a worker besides [`Live`]: one cache line, beside its
/// neighbours'.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Lane {
    live: Arc<Live>,
    work: ReportedWork,
    /// The beginning of time if there is no report.
    fresh_until: Millis,
    /// A prompt of so many tokens and more has no room while the report is fresh.
    room: u64,
    /// What the head of the worker's line is computed at, tokens per second; 0 if no speed is known
    /// in the fleet.
    speed: u32,
}

impl Lane {
    pub(super) fn new(worker: &Worker, vref: Option<NonZeroU64>, snap: SpeedSnap) -> Self {
        let report = worker.report.as_ref();
        Self {
            // Nobody is ever sent to a worker that cannot prefill: a closed one stands for it.
            live: if worker.can_prefill() { Arc::clone(&worker.live) } else { Arc::default() },
            work: report.map_or_else(|| ReportedWork::of(&Report::default()), ReportedWork::of),
            fresh_until: report.map_or(Millis::default(), |report| report.fresh_until),
            room: report.map_or(u64::MAX, room),
            speed: effective_speed(worker.speed, vref, snap)
                .map_or(0, |speed| clipped(speed.get())),
        }
    }

    #[inline]
    pub(super) fn speed(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.speed)
    }

    pub(super) fn ratio(&self, vref: Option<NonZeroU64>) -> f64 {
        let vref = clipped_speed(vref.map(NonZeroU64::get));
        f64::from(vref) / f64::from(self.speed.max(1))
    }

    /// Able to prefill and routable now.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.live.is_routable()
    }

    /// `L`, tokens.
    #[inline]
    pub(crate) fn line(&self, now: Millis, mean_uncached_tokens: u64) -> u64 {
        let work = (now < self.fresh_until).then_some(&self.work);
        self.live.ledger.line(now, self.speed, work, mean_uncached_tokens)
    }

    /// Is there a prompt that its report leaves no room for?
    pub(super) fn may_be_full(&self) -> bool {
        self.room < u64::MAX
    }

    /// Does it pass hard admission with a prompt of so many tokens, as far as is known?
    ///
    /// Where requests of this edge wait, their tokens are in the line and the score has the wait for
    /// a slot; owners left out for it as well scatter a busy fleet's prefixes (`burst` with native
    /// load: geometric mean of TTFT 5.9 s instead of 4.8).
    #[inline]
    pub(crate) fn has_room(&self, now: Millis, input_tokens: u64) -> bool {
        input_tokens < self.room
            || self.fresh_until <= now
            || 0 < self.live.ledger.outstanding().requests
    }

    /// Requests of this edge there without a first byte.
    pub(crate) fn requests(&self) -> u64 {
        self.live.ledger.outstanding().requests
    }
}

/// Hard admission turned round: the shortest prompt without room; `u64::MAX` where the report does
/// not say, which no prompt reaches, nor where requests wait already.
fn room(report: &Report) -> u64 {
    let Some(native) = Native::of(report).filter(|_| report.waiting == Some(0)) else {
        return u64::MAX;
    };
    if native.max_running <= native.running || native.max_total_tokens < native.total_tokens {
        return 0;
    }
    (native.max_total_tokens - native.total_tokens).saturating_add(1)
}

/// A speed as it is divided by: 2^32 tokens per second and more are alike, and so are all workers
/// of a fleet without a known speed.
pub(crate) fn clipped_speed(speed: Option<u64>) -> u32 {
    speed.map_or(1, clipped)
}

fn clipped(speed: u64) -> u32 {
    u32::try_from(speed).unwrap_or(u32::MAX)
}

fn effective_speed(
    speed: Option<Speed>,
    vref: Option<NonZeroU64>,
    snap: SpeedSnap,
) -> Option<NonZeroU64> {
    let (Some(speed), Some(reference)) = (speed, vref) else {
        return vref;
    };
    let own = NonZeroU64::new(speed.tokens_per_second).unwrap_or(NonZeroU64::MIN);
    match speed.source {
        SpeedSource::Configured | SpeedSource::Reported => Some(own),
        SpeedSource::Measured if snap.is_near(own.get(), reference.get()) => Some(reference),
        SpeedSource::Measured => Some(own),
        // It may be as fast as the others all the same.
        SpeedSource::Proven if own <= reference || snap.is_near(own.get(), reference.get()) => {
            Some(reference)
        }
        SpeedSource::Proven => Some(own),
    }
}

/// `sorted[n / 2]` of the speeds that are known of workers that can prefill.
pub(super) fn upper_median_speed(workers: &[Worker]) -> Option<NonZeroU64> {
    let mut speeds: Vec<u64> = workers
        .iter()
        .filter(|worker| worker.can_prefill())
        .filter_map(|worker| worker.speed)
        .map(|speed| speed.tokens_per_second)
        .collect();
    speeds.sort_unstable();
    NonZeroU64::new(speeds.get(speeds.len() / 2)?.max(&1).to_owned())
}

/// Reports of those who can prefill, without the ones older than the newest one's sending allows.
fn current(workers: &[Worker]) -> impl Iterator<Item = &Report> {
    let reports = || {
        let workers = workers.iter().filter(|worker| worker.can_prefill());
        workers.filter_map(|worker| worker.report.as_ref())
    };
    let newest = reports().map(|report| report.captured_at).max().unwrap_or_default();
    reports().filter(move |report| newest < report.fresh_until)
}

/// Part of the requests at a fleet's workers that other edges sent, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForeignShare(u32);

impl ForeignShare {
    /// To the next millionth; `None` unless `0 <= value <= 1`.
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then(|| Self((value * 1e6).round() as u32))
    }

    pub(crate) fn millionths(self) -> u64 {
        self.0.into()
    }

    /// What the workers' reports show beyond `own_in_flight`.
    pub(super) fn of(workers: &[Worker]) -> Self {
        let (mut all, mut foreign) = (0u128, 0u128);
        for report in current(workers) {
            let (Some(running), Some(waiting)) = (report.running, report.waiting) else { continue };
            let requests = running.saturating_add(waiting);
            all += u128::from(requests);
            foreign += u128::from(requests.saturating_sub(report.own_in_flight));
        }
        // At most a million: foreign requests are among all.
        Self((foreign * 1_000_000).checked_div(all).unwrap_or(0) as u32)
    }
}

/// Part of a fleet's KV cache that requests hold, running or waiting, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KvShare(u32);

impl KvShare {
    pub(crate) fn millionths(self) -> u64 {
        self.0.into()
    }

    /// What the workers' native reports say; nothing without any.
    pub(super) fn of(workers: &[Worker]) -> Self {
        let known = current(workers).filter_map(|report| {
            let capacity = report.max_total_tokens?;
            Some((report.total_tokens?.min(capacity), capacity))
        });
        let (held, all) = known.fold((0u128, 0u128), |(held, all), (tokens, capacity)| {
            (held + u128::from(tokens), all + u128::from(capacity))
        });
        Self((held * 1_000_000).checked_div(all).unwrap_or(0) as u32)
    }
}

/// The reported queue, in a few bytes: a fleet that queues everywhere is read as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Queue {
    /// The beginning of time if there is none, or if the worker cannot prefill.
    pub(super) fresh_until: Millis,
    pub(super) waiting: u64,
}

impl Queue {
    pub(super) fn of(worker: &Worker) -> Self {
        let report = worker.report.as_ref().filter(|_| worker.can_prefill());
        let queue = report.and_then(|report| Some((report.fresh_until, report.waiting?)));
        let (fresh_until, waiting) = queue.unwrap_or_default();
        Self { fresh_until, waiting }
    }
}
