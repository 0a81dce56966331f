//! Rung 1: the owners that hold enough of the prompt to matter, best first.

use crate::decision::{Considered, PressureSource, Verdict};
use crate::pressure::{self, Pressure};
use crate::request::{Holding, Prompt};
use crate::rules::{Ratio, Rules};
use crate::scene::{Scene, Seen};
use smallvec::SmallVec;

/// An owner on its way down the ladder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) seen: Seen<'a>,
    pub(crate) blocks: u32,
    pub(crate) uncached_tokens: u64,
    /// The queue the gate looks at; `None` = unknown.
    pub(crate) queue: Option<u64>,
    /// `Lost` until a rung says otherwise.
    pub(crate) verdict: Verdict,
}

/// Best first.
pub(crate) type Candidates<'a> = SmallVec<[Candidate<'a>; Rules::MAX_CANDIDATES]>;

/// The order of candidates and of the tournament.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    uncached_tokens: u64,
    pressure: Pressure,
    at: usize,
}

impl Candidate<'_> {
    /// Has no rung put it out yet?
    pub(crate) fn survives(&self) -> bool {
        self.verdict == Verdict::Lost
    }

    pub(crate) fn is_gated(&self) -> bool {
        self.verdict == Verdict::Gated
    }

    pub(crate) fn key(&self, source: PressureSource) -> Key {
        Key {
            uncached_tokens: self.uncached_tokens,
            pressure: pressure::of(source, &self.seen),
            at: self.seen.at,
        }
    }

    /// Its line in the trace.
    pub(crate) fn considered(&self) -> Considered {
        Considered {
            at: self.seen.at,
            blocks: self.blocks,
            uncached_tokens: self.uncached_tokens,
            queue: self.queue,
            verdict: self.verdict,
        }
    }
}

/// The candidates of a request; none without a prompt.
pub(crate) fn find(scene: Scene<'_>) -> Candidates<'_> {
    let mut kept = Candidates::new();
    let Some(prompt) = scene.request.prompt else {
        return kept;
    };
    let owners = || {
        let held = prompt.holdings.iter().filter(move |held| is_owner(&prompt, held, scene.rules));
        held.filter_map(move |held| Some((held, scene.member(held.at)?)))
    };
    let count = owners().count();
    if count == 0 {
        return kept;
    }
    let limit = limit(scene, count);
    let source = pressure::source(owners().map(|(_, worker)| worker.fresh(scene.request.now)));
    for (held, worker) in owners() {
        let full = limit <= kept.len();
        if full && kept.last().is_some_and(|last| last.uncached_tokens < held.uncached_tokens) {
            continue;
        }
        let new = candidate(scene.see(held.at, worker), held);
        let key = new.key(source);
        let place = kept.partition_point(|better| better.key(source) < key);
        if full && place == kept.len() {
            continue;
        }
        if full {
            kept.pop();
        }
        kept.insert(place, new);
    }
    kept
}

fn candidate<'a>(seen: Seen<'a>, held: &Holding) -> Candidate<'a> {
    Candidate {
        seen,
        blocks: held.blocks,
        uncached_tokens: held.uncached_tokens,
        queue: crate::gate::queue_depth(&seen),
        verdict: Verdict::Lost,
    }
}

/// Does the worker hold enough of the prompt?
pub(crate) fn is_owner(prompt: &Prompt<'_>, held: &Holding, rules: &Rules) -> bool {
    let matched = prompt.input_tokens.saturating_sub(held.uncached_tokens);
    1 <= held.blocks
        && rules.min_matched_tokens.is_none_or(|least| least <= matched)
        && rules.min_match_ratio.is_none_or(|least| is_share(matched, prompt.input_tokens, least))
}

fn is_share(part: u64, whole: u64, least: Ratio) -> bool {
    0 < whole && least.get() <= part as f64 / whole as f64
}

/// Most candidates kept: `min(|fleet|, 32, max(8, ceil(0.05 * |fleet|)))`. With no more owners than
/// the smallest result there is, the fleet need not be counted.
fn limit(scene: Scene<'_>, owners: usize) -> usize {
    let rules = scene.rules;
    let most = (rules.candidate_max_workers.get() as usize).min(Rules::MAX_CANDIDATES);
    let few = (rules.candidate_min_workers.get() as usize).min(most);
    if owners <= few {
        return few;
    }
    let fleet = scene.members().count();
    // 0.05 * 140 is a hair above 7: products that are whole but for rounding stay whole.
    let share = (rules.candidate_ratio.get() * fleet as f64 - 1e-9).ceil() as usize;
    few.max(share).min(most).min(fleet)
}

#[cfg(test)]
mod tests;
