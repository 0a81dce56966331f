//! Pressure: who is busier, by one measure for a whole compared set.
//!
//! The set's source is what all of its workers can answer, so that the order is total: comparing
//! some pairs by tokens and others by requests can go round in circles.

use crate::decision::PressureSource;
use crate::fleet::Report;
use crate::ledger::Outstanding;
use crate::scene::Seen;

/// Compared field by field, ascending; fields a source does not use are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pressure {
    estimate_ms: u64,
    waiting_uncached_tokens: u64,
    waiting: u64,
    running: u64,
    local: Outstanding,
}

/// A report that answers everything hard admission and the guard ask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Native {
    pub(crate) running: u64,
    pub(crate) max_running: u64,
    pub(crate) total_tokens: u64,
    pub(crate) max_total_tokens: u64,
    pub(crate) estimate_ms: Option<u64>,
}

impl Native {
    /// All six fields there, both maxima above zero.
    pub(crate) fn of(report: &Report) -> Option<Self> {
        report.waiting?;
        report.waiting_uncached_tokens?;
        Some(Self {
            running: report.running?,
            max_running: report.max_running.filter(|&most| 0 < most)?,
            total_tokens: report.total_tokens?,
            max_total_tokens: report.max_total_tokens.filter(|&most| 0 < most)?,
            estimate_ms: report.estimated_prefill_queue_ms,
        })
    }
}

/// The source of a set, given its workers' fresh reports; an empty set is `router_local`.
pub(crate) fn source<'r>(reports: impl Iterator<Item = Option<&'r Report>>) -> PressureSource {
    reports.map(best_source).max().unwrap_or(PressureSource::RouterLocal)
}

fn best_source(report: Option<&Report>) -> PressureSource {
    let Some(report) = report else {
        return PressureSource::RouterLocal;
    };
    match Native::of(report) {
        Some(Native { estimate_ms: Some(_), .. }) => PressureSource::EstimatedPrefillQueueMs,
        Some(Native { estimate_ms: None, .. }) => PressureSource::NativeQueueTokens,
        None if report.waiting.is_some() && report.running.is_some() => {
            PressureSource::ReportedQueue
        }
        None => PressureSource::RouterLocal,
    }
}

/// One worker's pressure by a set's source. A worker outside the set may lack what the source needs:
/// it then counts as the most pressured.
pub(crate) fn of(source: PressureSource, seen: &Seen<'_>) -> Pressure {
    let local = Pressure { local: seen.local, ..Pressure::default() };
    let known = |field: fn(&Report) -> Option<u64>| seen.report.and_then(field).unwrap_or(u64::MAX);
    let queue = || Pressure {
        waiting: known(|report| report.waiting).saturating_add(seen.since.requests),
        running: known(|report| report.running),
        ..local
    };
    let native = || Pressure { waiting_uncached_tokens: waiting_uncached(seen), ..queue() };
    match source {
        PressureSource::EstimatedPrefillQueueMs => {
            Pressure { estimate_ms: known(|report| report.estimated_prefill_queue_ms), ..native() }
        }
        PressureSource::NativeQueueTokens => native(),
        PressureSource::ReportedQueue => queue(),
        PressureSource::RouterLocal => local,
    }
}

/// Reported uncached tokens in the queue, with what was sent since.
pub(crate) fn waiting_uncached(seen: &Seen<'_>) -> u64 {
    let reported = seen.report.and_then(|report| report.waiting_uncached_tokens);
    reported.unwrap_or(u64::MAX).saturating_add(seen.since.uncached_tokens)
}

#[cfg(test)]
mod tests;
