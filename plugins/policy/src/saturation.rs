//! Rung 5: the saturation pin. Where everybody would make the request wait, diverting it saves
//! nothing and costs a prefill: back to an owner.
//!
//! Unknown is not idle here, the opposite of the gate: only a worker that is provably below the floor
//! vetoes a pin.

use crate::admission;
use crate::candidates::{Candidate, Key};
use crate::decision::{CacheDecision, PressureSource, Reason, Trace, Verdict};
use crate::gate;
use crate::pressure::{self, Pressure};
use crate::rules::PinOrder;
use crate::scene::{Choice, Scene};
use std::num::NonZeroU64;

/// The order of owners to pin to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PinKey {
    Pressure(Pressure, usize),
    Locality(Key),
}

/// Pins to a gated owner with room, if the floor allows. Asked only when no candidate survived.
pub(crate) fn pin(
    scene: Scene<'_>,
    candidates: &mut [Candidate<'_>],
    trace: &mut Trace,
) -> Option<Choice> {
    let floor = scene.rules.saturation_queue_floor?;
    let pinnable = candidates.iter().any(|owner| can_take(scene, owner));
    if !pinnable || is_someone_below(scene, floor, trace) {
        return None;
    }
    let gated = candidates.iter().filter(|candidate| candidate.is_gated());
    let source = pressure::source(gated.map(|candidate| candidate.seen.report));
    let chosen = candidates
        .iter_mut()
        .filter(|owner| can_take(scene, owner))
        .min_by_key(|owner| pin_key(scene.rules.pin_order, owner, source))?;
    let at = chosen.seen.at;
    trace.pin_pressure_source = Some(source);
    for owner in candidates.iter_mut().filter(|candidate| candidate.is_gated()) {
        owner.verdict = verdict(scene, owner, at);
    }
    Some(Choice { at, reason: Reason::SaturationPin, cache: CacheDecision::AllQueued })
}

/// The owner a pin would take if gate and room were no question.
pub(crate) fn least_pressured_owner(
    scene: Scene<'_>,
    candidates: &[Candidate<'_>],
) -> Option<usize> {
    let source = pressure::source(candidates.iter().map(|candidate| candidate.seen.report));
    let within = candidates.iter().filter(|owner| is_short_enough(scene, owner));
    within
        .min_by_key(|owner| pin_key(scene.rules.pin_order, owner, source))
        .map(|owner| owner.seen.at)
}

/// A gated owner with room whose queue is not beyond `pin_max_queue`.
fn can_take(scene: Scene<'_>, owner: &Candidate<'_>) -> bool {
    owner.is_gated() && is_short_enough(scene, owner) && has_room(scene, owner)
}

fn is_short_enough(scene: Scene<'_>, owner: &Candidate<'_>) -> bool {
    scene.rules.pin_max_queue.is_none_or(|most| owner.queue.is_none_or(|queue| queue <= most))
}

fn has_room(scene: Scene<'_>, owner: &Candidate<'_>) -> bool {
    admission::has_room(scene, &owner.seen, owner.uncached_tokens)
}

fn verdict(scene: Scene<'_>, owner: &Candidate<'_>, chosen: usize) -> Verdict {
    if owner.seen.at == chosen {
        Verdict::Chosen
    } else if !has_room(scene, owner) {
        Verdict::NoRoom
    } else if !is_short_enough(scene, owner) {
        Verdict::Gated
    } else {
        Verdict::Lost
    }
}

fn pin_key(order: PinOrder, owner: &Candidate<'_>, source: PressureSource) -> PinKey {
    match order {
        PinOrder::Pressure => PinKey::Pressure(pressure::of(source, &owner.seen), owner.seen.at),
        PinOrder::Locality => PinKey::Locality(owner.key(source)),
    }
}

/// Is a fleet worker provably below the floor? Where all of them are at the limit, none is below a
/// floor that is no higher.
pub(crate) fn is_someone_below(scene: Scene<'_>, floor: NonZeroU64, trace: &Trace) -> bool {
    let limit = scene.rules.worker_queue_limit;
    if trace.fleet_all_queued && limit.is_some_and(|limit| floor <= limit) {
        return false;
    }
    gate::is_any_below(scene, floor, |queue, floor| queue.is_some_and(|queue| queue < floor))
}

#[cfg(test)]
mod tests;
