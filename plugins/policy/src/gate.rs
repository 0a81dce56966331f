//! Rung 2: the queue gate, and re-admission when it closes on a fleet that queues everywhere.
//!
//! Fails open: what is unknown is admitted. It runs before hard admission, so that a gated worker is
//! never evaluated for capacity.

use crate::candidates::Candidate;
use crate::decision::{Trace, Verdict};
use crate::fleet::{Millis, Report, Worker};
use crate::rules::Rules;
use crate::scene::{Scene, Seen};
use std::num::NonZeroU64;

/// Splits the candidates into admitted and gated and looks at the fleet if none is admitted.
pub(crate) fn apply(scene: Scene<'_>, candidates: &mut [Candidate<'_>]) -> Trace {
    let mut trace = Trace::default();
    let Some(limit) = scene.rules.worker_queue_limit else {
        return trace;
    };
    for candidate in candidates.iter_mut() {
        if admits(candidate.queue, scaled(limit, candidate.seen.ranks, scene.rules)) {
            continue;
        }
        candidate.verdict = Verdict::Gated;
        trace.gate_rejected += 1;
        trace.best_rejected_blocks = trace.best_rejected_blocks.max(candidate.blocks);
    }
    let someone_admitted = candidates.iter().any(Candidate::survives);
    trace.fleet_all_queued = !someone_admitted && is_fleet_all_queued(scene, limit);
    trace.gate_inert = is_inert(scene, candidates);
    readmit(scene.rules, candidates, &mut trace);
    trace
}

/// Everybody queues and no floor is set: depth decides among all candidates again.
fn readmit(rules: &Rules, candidates: &mut [Candidate<'_>], trace: &mut Trace) {
    let all_gated = 0 < trace.gate_rejected && candidates.iter().all(Candidate::is_gated);
    if !all_gated || !trace.fleet_all_queued || rules.saturation_queue_floor.is_some() {
        return;
    }
    trace.queue_gate_fell_back = true;
    for candidate in candidates {
        candidate.verdict = Verdict::Lost;
    }
}

/// The queue of a worker as the gate sees it; `None` = unknown.
pub(crate) fn queue_depth(seen: &Seen<'_>) -> Option<u64> {
    let report = seen.report?;
    let waiting = report.waiting?;
    Some(waiting.saturating_add(queued_since(report, waiting, seen.since.requests)))
}

/// The queue the gate looks at, for whoever sheds or explains a decision; `None` = unknown.
pub fn queue_of(worker: &Worker, now: Millis, rules: &Rules) -> Option<u64> {
    queue_depth(&Seen::of(0, worker, now, rules))
}

/// How many of the requests sent since the report was taken found no free slot.
fn queued_since(report: &Report, waiting: u64, sent_since: u64) -> u64 {
    match (report.max_running, report.running) {
        (Some(most), Some(running)) => sent_since.saturating_sub(most.saturating_sub(running)),
        (None, _) | (_, None) if 0 < waiting => sent_since,
        (None, _) | (_, None) => 0,
    }
}

/// Does the gate let a request pass at a worker with this queue? At the limit is closed.
pub(crate) fn admits(queue: Option<u64>, limit: u64) -> bool {
    queue.is_none_or(|queue| queue < limit)
}

/// The limit or floor of a worker with so many ranks, requests.
pub fn scaled(bound: NonZeroU64, ranks: u32, rules: &Rules) -> u64 {
    if rules.scale_with_dp {
        bound.get().saturating_mul(u64::from(ranks.max(1)))
    } else {
        bound.get()
    }
}

/// Not empty, and every worker is rejected; ends at the first that is not.
fn is_fleet_all_queued(scene: Scene<'_>, limit: NonZeroU64) -> bool {
    scene.members().next().is_some() && !is_any_below(scene, limit, admits)
}

/// Is the queue of a fleet worker below the bound, as `is_below` sees what is unknown? Ends at the
/// first. Of a worker that reported a longer queue nothing else is read: what was sent since only
/// adds to it, and outside the fleet it would say nothing either way.
pub(crate) fn is_any_below(
    scene: Scene<'_>,
    bound: NonZeroU64,
    is_below: fn(Option<u64>, u64) -> bool,
) -> bool {
    let (fleet, now) = (scene.fleet, scene.request.now);
    fleet.workers().iter().enumerate().any(|(at, worker)| {
        let bound = scaled(bound, worker.ranks, scene.rules);
        if fleet.reported_queue(at, now).is_some_and(|waiting| bound <= waiting) {
            return false;
        }
        let member = scene.member(at);
        member.is_some_and(|worker| is_below(queue_depth(&scene.see(at, worker)), bound))
    })
}

/// Has no fleet worker a fresh queue? Ends at the first that has one.
fn is_inert(scene: Scene<'_>, candidates: &[Candidate<'_>]) -> bool {
    let now = scene.request.now;
    if candidates.iter().any(|candidate| candidate.queue.is_some()) {
        return false;
    }
    scene.fleet.queues_fresh_until() <= now
        || !scene
            .members()
            .any(|(_, worker)| worker.fresh(now).is_some_and(|report| report.waiting.is_some()))
}

#[cfg(test)]
mod tests;
