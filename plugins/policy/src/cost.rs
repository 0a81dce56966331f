//! Cost selection: the predicted wait for this request, plus what its prefill costs everybody else.
//!
//! One rule without gate, floor or mode switch. With empty queues it is the shortest predicted time
//! to the first token; with long queues everywhere it is affinity, because what is ahead of
//! everybody is the price of every token computed twice. The mean line makes the score of each
//! worker depend on all of them, so every worker's line is read; exact scores are computed of those
//! few only that [`choice`] cannot rule out.
//!
//! # Beyond the plain formula
//!
//! Kept, each better in the simulator over at least five seeds (`tidegate simulate`, conversation
//! trace, 8 engines) without a scene that is worse by more than noise:
//! - Unstreamed answers: [`crate::ledger::Ledger::expect`] predicts their first byte, and whole
//!   answers prove a least speed where nothing else does. All unstreamed, geometric mean of TTFT:
//!   `moderate` -26 % (no prefill counters: -29 %), `hot` -25 % (-29 %), `burst` -26 % (-15 %).
//! - Engines short of KV cache: `price_fleet` grows as it fills (see `fleet_price`). `burst` -13 %.
//! - Engines short of slots: a full worker is left out only while nothing waits there, by its report
//!   or by the ledger. `burst` with native load -19 %.
//! - One long prefix that everybody asks for (`copies`): the price of the fleet locked it to one engine.
//!   Simulated `hot`, 24,576 common tokens and 256 own, 16 engines at 0.9 of capacity: geometric mean of
//!   TTFT 61 s before, 0.4 s after; two edges 44 s and 1.1 s, four edges 27 s and 2.4 s. Other traffic
//!   moves by less than its seeds do.
//! - Two or three engines, one of two eight times slower, 16 slots each: at most 1 % above the ladder
//!   and every simple policy in the geometric mean, so nothing was changed for them.
//!
//! Tried and left: both prices by free KV cache (`burst` -8 %, `saturated` +2 %); a tenfold price
//! (`saturated` p99 +20 % and more); a higher `price_fleet` for all (4 and 6 cost 4 and 6 % in `hot`);
//! a proof of speed that fades ten times as fast (`burst` without streams +18 %). Against the lock-in:
//! cutting all of the fleet's price to 0.5, 1, 2, 4 or 6 times the longest line (agents at 0.9 of
//! capacity +14 to +145 %), or `u / ubar` to 2, 4, 8, 16 or 32 (agents +5 to +170 %, and 16 and 32 keep
//! much of it); counting the shortest line elsewhere with one holder already (agents +35 to +50 %). For
//! several edges, `price_fleet * (1 + k * foreign share)`: k = 1 to 3 takes 10 to 42 % off `burst` and 15 to
//! 28 % off chat with two edges, and adds 10 to 34 % to shared system prompts and 4 to 7 % to agents.

mod choice;
mod copies;
mod field;
mod rough;
mod score;

use crate::decision::{CacheDecision, CostTrace, Decision, Reason, Trace};
use crate::fallback;
use crate::request::{Prompt, Request};
use crate::rules::{CostRules, Rules};
use crate::scene::{Choice, Scene};
use field::Field;
use score::{Row, Terms};

/// Uncached within so many tokens of the least anywhere is an owner's.
const OWNER_TOKENS: u64 = 1024;

/// How much of it is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// The chosen worker's cost.
    Chosen,
    /// Every worker's.
    Everybody,
}

/// Where the request goes; `None`: nobody is routable.
pub(crate) fn place(scene: Scene<'_>, rules: &CostRules, detail: Detail) -> Option<Decision> {
    let Some(prompt) = scene.request.prompt else {
        let mut trace = Trace::default();
        let choice = fallback::place(scene, &[], &mut trace)?;
        return Some(scene.decision(choice, trace));
    };
    let prompt = counted(prompt, scene.rules);
    let request = Request { prompt: Some(prompt), ..*scene.request };
    let (choice, trace) = weigh(Scene { request: &request, ..scene }, rules, &prompt, detail)?;
    Some(scene.decision(choice, trace))
}

/// The prompt as it is weighed: one shorter than `min_matched_tokens` counts whole everywhere. What
/// little is held of it saves next to nothing, and would bring every equal one to the same worker.
fn counted<'a>(prompt: Prompt<'a>, rules: &Rules) -> Prompt<'a> {
    let is_short = rules.min_matched_tokens.is_some_and(|least| prompt.input_tokens < least);
    Prompt { holdings: if is_short { &[] } else { prompt.holdings }, ..prompt }
}

fn weigh(
    scene: Scene<'_>,
    rules: &CostRules,
    prompt: &Prompt<'_>,
    detail: Detail,
) -> Option<(Choice, Trace)> {
    let field = Field::look(scene, prompt)?;
    let terms = Terms::new(scene, rules, prompt, &field);
    let row = choice::choose(scene, rules, prompt, (&field, &terms))?;
    let reason = reason(&field, &row);
    let cost = |at| terms.cost(&terms.row(at, scene.request.uncached_tokens(at)));
    let cost = CostTrace {
        chosen: terms.cost(&row),
        mean_line: field.mean_line,
        token_price: terms.token_price(&row),
        diverted_tokens: row.uncached_tokens.saturating_sub(field.least_uncached),
        home: field.home,
        costs: match detail {
            Detail::Chosen => Vec::new(),
            Detail::Everybody => field.members().map(cost).collect(),
        },
    };
    let choice = Choice { at: row.at, reason, cache: cache_decision(reason) };
    let best_rejected_blocks = if reason == Reason::Diverted { field.deepest } else { 0 };
    Some((choice, Trace { best_rejected_blocks, cost: Some(cost), ..Trace::default() }))
}

fn reason(field: &Field, chosen: &Row) -> Reason {
    if field.deepest == 0 {
        return if chosen.is_home { Reason::Home } else { Reason::LeastCost };
    }
    if chosen.uncached_tokens <= field.least_uncached.saturating_add(OWNER_TOKENS) {
        return Reason::Owner;
    }
    Reason::Diverted
}

fn cache_decision(reason: Reason) -> CacheDecision {
    match reason {
        Reason::Owner => CacheDecision::CacheHit,
        Reason::Diverted => CacheDecision::CacheWorkerQueued,
        Reason::CacheCandidate
        | Reason::SaturationPin
        | Reason::Home
        | Reason::LeastCost
        | Reason::LeastLoad
        | Reason::RoundRobin
        | Reason::Scout
        | Reason::Exploit
        | Reason::Pinned
        | Reason::GreedyFallback => CacheDecision::CacheMiss,
    }
}

#[cfg(test)]
mod tests;
