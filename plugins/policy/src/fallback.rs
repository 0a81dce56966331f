//! Rung 6: no owner takes it. A fleet with one living worker always routes.

use crate::admission;
use crate::candidates::{self, Candidate};
use crate::decision::{CacheDecision, Reason, Trace};
use crate::gate;
use crate::least_load::{Draw, Ties, least_pressured};
use crate::request::Held;
use crate::saturation;
use crate::scene::{Choice, Scene, Seen};
use std::cmp::Ordering;

/// How good a worker is; only the best tier that has one is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    RoomAndShort,
    Room,
    Short,
    Any,
}

/// Chooses outside the candidates; `None` only if nobody is routable.
pub(crate) fn place(
    scene: Scene<'_>,
    candidates: &[Candidate<'_>],
    trace: &mut Trace,
) -> Option<Choice> {
    let reason = reason(scene, candidates);
    let at = match (stay(scene, candidates, trace), scene.rules.min_load_choices) {
        (Some(owner), _) => owner,
        (None, Some(_)) => least_pressured_of_some(scene)?,
        (None, None) => shortest_line(scene, reason)?,
    };
    let cache = cache_decision(trace);
    trace.affinity_lost = 0 < trace.gate_rejected && trace.fleet_all_queued && !is_owner(scene, at);
    Some(Choice { at, reason, cache })
}

/// The saturation pin where no owner has room. Nobody is below the floor, and nobody could
/// begin at once: the request waits wherever it goes, and going elsewhere costs a prefill on top.
fn stay(scene: Scene<'_>, candidates: &[Candidate<'_>], trace: &Trace) -> Option<usize> {
    let floor = scene.rules.saturation_queue_floor?;
    if candidates.is_empty()
        || saturation::is_someone_below(scene, floor, trace)
        || could_someone_begin(scene)
    {
        return None;
    }
    saturation::least_pressured_owner(scene, candidates)
}

/// Is there a tier with room in this fleet?
fn could_someone_begin(scene: Scene<'_>) -> bool {
    let mut someone = false;
    each_with_tier(scene, |_, tier, _| someone |= tier <= Tier::Room);
    someone
}

/// With candidates, all of them were gated or had no room: some rung above would have chosen.
fn reason(scene: Scene<'_>, candidates: &[Candidate<'_>]) -> Reason {
    if !candidates.is_empty() {
        return Reason::Diverted;
    }
    let least = scene.rules.min_matched_tokens.unwrap_or(0);
    match scene.request.prompt {
        Some(prompt) if least <= prompt.input_tokens => Reason::Home,
        Some(_) | None => Reason::LeastLoad,
    }
}

fn cache_decision(trace: &Trace) -> CacheDecision {
    if trace.gate_rejected == 0 {
        CacheDecision::CacheMiss
    } else if trace.fleet_all_queued {
        CacheDecision::AllQueued
    } else if 0 < trace.admission_evaluated {
        CacheDecision::CacheMiss
    } else {
        CacheDecision::CacheWorkerQueued
    }
}

fn is_owner(scene: Scene<'_>, at: usize) -> bool {
    let Some(prompt) = scene.request.prompt else {
        return false;
    };
    let held = prompt.holdings.iter().find(|held| held.at == at);
    held.is_some_and(|held| candidates::is_owner(&prompt, held, scene.rules))
}

/// The least `L + u` of the best tier; ties go to the home, or in turn where there is none.
///
/// A prompt too short for affinity counts whole everywhere: what little is held of it would bring
/// every equal one to the same worker.
fn shortest_line(scene: Scene<'_>, reason: Reason) -> Option<usize> {
    let (request, mean) = (scene.request, scene.request.mean_uncached());
    let has_home = reason != Reason::LeastLoad;
    let mut best = Tier::Any;
    let mut ties = Ties::default();
    each_with_tier(scene, |at, tier, uncached_tokens| {
        if best < tier {
            return;
        }
        best = tier;
        let line = scene.fleet.line(at, request.now, mean);
        let own = if has_home { uncached_tokens } else { request.input_tokens() };
        ties.offer((tier, line.saturating_add(own)), at);
    });
    match request.prompt {
        Some(prompt) if has_home => {
            let rank = |&at: &usize| scene.fleet.home_rank(prompt.home, at);
            // The first of equals, so that the smaller id wins.
            ties.positions.iter().copied().rev().max_by_key(rank)
        }
        Some(_) | None => ties.in_turn(request.turn),
    }
}

fn least_pressured_of_some(scene: Scene<'_>) -> Option<usize> {
    let mut best = Tier::Any;
    let mut drawn = Draw::new(scene.request.dice, scene.rules.min_load_choices);
    each_with_tier(scene, |at, tier, _| match tier.cmp(&best) {
        Ordering::Greater => {}
        Ordering::Equal => drawn.offer(at),
        Ordering::Less => {
            best = tier;
            drawn.restart();
            drawn.offer(at);
        }
    });
    least_pressured(scene, &drawn.positions).map(|(at, _)| at)
}

/// Visits position, tier and uncached tokens of every fleet worker, by position.
///
/// Where a floor is set, a queue that reaches it at a worker with native load is a lack of room,
/// whatever its KV cache says: what is free now goes to those who wait already. Preferring such
/// workers scattered a whole fleet's prefixes for good in a burst that queued all of it.
fn each_with_tier(scene: Scene<'_>, mut visit: impl FnMut(usize, Tier, u64)) {
    let (mut held, input_tokens) = (Held::new(scene.request), scene.request.input_tokens());
    for (at, worker) in scene.members() {
        let seen = scene.see(at, worker);
        let uncached_tokens = held.at(at).map_or(input_tokens, |held| held.uncached_tokens);
        let room = admission::has_room(scene, &seen, uncached_tokens);
        let short = scene.rules.worker_queue_limit.is_none_or(|limit| {
            gate::admits(gate::queue_depth(&seen), gate::scaled(limit, seen.ranks, scene.rules))
        });
        visit(at, tier(room && !is_taken(scene, &seen), short), uncached_tokens);
    }
}

/// Is what is free at this worker spoken for by those who wait there?
fn is_taken(scene: Scene<'_>, seen: &Seen<'_>) -> bool {
    scene.rules.saturation_queue_floor.is_some_and(|floor| {
        let floor = gate::scaled(floor, seen.ranks, scene.rules);
        admission::is_native(seen) && gate::queue_depth(seen).is_some_and(|queue| floor <= queue)
    })
}

fn tier(room: bool, short: bool) -> Tier {
    match (room, short) {
        (true, true) => Tier::RoomAndShort,
        (true, false) => Tier::Room,
        (false, true) => Tier::Short,
        (false, false) => Tier::Any,
    }
}

#[cfg(test)]
mod tests;
