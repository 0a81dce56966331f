//! Rung 3: hard admission. A worker that says it has no slot or no KV room is not asked.
//!
//! Slots are asked about only where no gate is set. A gate says how many requests may wait for a
//! slot, and an engine lets one wait only when its slots are taken: to ask for a free one as well
//! would close every gate at the first waiting request, whatever its limit, and scatter the prefixes
//! of a busy fleet.

use crate::candidates::Candidate;
use crate::decision::{Trace, Verdict};
use crate::pressure::{self, Native};
use crate::scene::{Scene, Seen};

/// Puts out the candidates without room and chooses the pressure source of those it looked at.
pub(crate) fn apply(scene: Scene<'_>, candidates: &mut [Candidate<'_>], trace: &mut Trace) {
    let evaluated = candidates.iter().filter(|candidate| candidate.survives());
    trace.pressure_source = pressure::source(evaluated.map(|candidate| candidate.seen.report));
    for candidate in candidates.iter_mut().filter(|candidate| candidate.survives()) {
        trace.admission_evaluated += 1;
        if !has_room(scene, &candidate.seen, candidate.uncached_tokens) {
            trace.admission_rejected += 1;
            candidate.verdict = Verdict::NoRoom;
        }
    }
}

/// Would the worker take the request now? One without native load is believed to.
pub(crate) fn has_room(scene: Scene<'_>, seen: &Seen<'_>, uncached_tokens: u64) -> bool {
    let Some(native) = seen.report.and_then(Native::of) else {
        return true;
    };
    let pending = || pressure::waiting_uncached(seen).saturating_add(uncached_tokens);
    has_slot(scene, native)
        && native.total_tokens.saturating_add(scene.request.input_tokens())
            <= native.max_total_tokens
        && scene.rules.max_pending_prefill_tokens.is_none_or(|most| pending() <= most)
}

/// A free slot, or a gate that bounds the wait for one.
fn has_slot(scene: Scene<'_>, native: Native) -> bool {
    scene.rules.worker_queue_limit.is_some() || native.running < native.max_running
}

/// Does the worker's report say what room it has?
pub(crate) fn is_native(seen: &Seen<'_>) -> bool {
    seen.report.and_then(Native::of).is_some()
}

#[cfg(test)]
mod tests;
