//! Cost selection: what each worker would cost, and what made the difference.

use super::rungs::Told;
use super::text::{counted, grouped};
use super::{Case, RungResult, Setting};
use serde::{Deserialize, Serialize};
use serde_json::Number;
use tidegate_policy::decision::{Cost, CostTrace, Decision, Reason};
use tidegate_policy::rules::CostRules;

/// What a worker would cost this request, in tokens of the fleet's prefill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostView {
    /// Worker id.
    pub worker: String,
    /// Uncached tokens ahead of it there.
    pub line: u64,
    /// Prompt tokens it would have to compute; with `line` the predicted wait.
    pub uncached_tokens: u64,
    /// What computing them costs everybody else.
    pub price: u64,
    /// Wait and price, for the worker's speed and the home's bonus: the lowest wins.
    pub score: u64,
    /// Is it the home of a prompt that nobody holds?
    pub is_home: bool,
    /// Was it compared: has it room, or has nobody?
    pub compared: bool,
    /// In a sentence.
    pub why: String,
}

/// By id.
pub(super) fn views(case: &Case<'_>, decision: &Decision) -> Vec<CostView> {
    let Some(trace) = &decision.trace.cost else { return Vec::new() };
    let compared: Vec<usize> = trace.compared().map(|cost| cost.at).collect();
    let view = |cost: &Cost| {
        let compared = compared.binary_search(&cost.at).is_ok();
        CostView {
            worker: case.fleet.workers()[cost.at].id.to_string(),
            line: cost.line,
            uncached_tokens: cost.uncached_tokens,
            price: clipped(cost.price),
            score: clipped(cost.score),
            is_home: trace.home == Some(cost.at),
            compared,
            why: why(decision, trace, cost, compared),
        }
    };
    trace.costs.iter().map(view).collect()
}

/// JSON numbers end at 64 bits.
fn clipped(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn why(decision: &Decision, trace: &CostTrace, cost: &Cost, compared: bool) -> String {
    let home = if trace.home == Some(cost.at) { ", the home" } else { "" };
    if cost.at == decision.at {
        return format!("CHOSEN{home}");
    }
    if !compared {
        return format!("no room{home}");
    }
    let best = trace.chosen.score;
    match cost.score.checked_sub(best) {
        None => format!("near tie{home}: less, but not by enough"),
        Some(0) => format!("tie{home}"),
        Some(more) => {
            let percent = more.saturating_mul(100) / best.max(1);
            format!("{} % more{home}", grouped(clipped(percent)))
        }
    }
}

/// The settings, fractions only where there are some.
pub(super) fn settings(rules: &CostRules) -> Vec<Setting> {
    let setting = |name: &str, value: f64| Setting {
        name: name.to_owned(),
        value: if value.fract() == 0.0 {
            Some(Number::from(value as u64))
        } else {
            Number::from_f64(value)
        },
    };
    vec![
        setting("price_worker", rules.price_worker.get()),
        setting("price_fleet", rules.price_fleet.get()),
        setting("tie_percent", rules.tie_percent.get().into()),
        setting("speed_snap", rules.speed_snap.get()),
        setting("home_bonus", rules.home_bonus.get()),
        setting("home_bonus_foreign", rules.home_bonus_foreign.get()),
    ]
}

/// The two steps before the choice, and the choice.
pub(super) fn rungs(case: &Case<'_>, decision: &Decision, trace: &CostTrace) -> [Told; 3] {
    [owners(case, trace), admission(trace), choice(case, decision, trace)]
}

fn owners(case: &Case<'_>, trace: &CostTrace) -> Told {
    let input = case.request.input_tokens();
    let deepest = trace.costs.iter().min_by_key(|cost| cost.uncached_tokens);
    let held = |cost: &Cost| {
        case.request.prompt.is_some_and(|prompt| {
            prompt.holdings.iter().any(|held| held.at == cost.at && 0 < held.blocks)
        })
    };
    let holders = trace.costs.iter().filter(|cost| held(cost)).count() as u64;
    match deepest.filter(|_| 0 < holders) {
        Some(best) => {
            let most = grouped(input.saturating_sub(best.uncached_tokens));
            let worker = &case.fleet.workers()[best.at].id;
            let count = counted(holders, "worker");
            (RungResult::Passed, format!("{count} with some of it, {worker} holds {most} tokens"))
        }
        None => {
            let home = trace.home.map_or_else(String::new, |at| {
                format!("; its home is {}", case.fleet.workers()[at].id)
            });
            (RungResult::Closed, format!("no worker that can take it holds any of it{home}"))
        }
    }
}

fn admission(trace: &CostTrace) -> Told {
    let full = trace.costs.iter().filter(|cost| !cost.has_room).count();
    let all = counted(trace.costs.len() as u64, "worker");
    if full == trace.costs.len() {
        return (RungResult::Closed, format!("{all}, none with room: all are compared"));
    }
    match full {
        0 => (RungResult::Passed, format!("{all} with room")),
        full => (RungResult::Passed, format!("{full} of {all} without room")),
    }
}

fn choice(case: &Case<'_>, decision: &Decision, trace: &CostTrace) -> Told {
    let chosen = &trace.chosen;
    let what = match decision.reason {
        Reason::Owner => "an owner",
        Reason::Diverted => "away from its owners",
        Reason::Home => "nobody holds it, its home",
        Reason::LeastCost
        | Reason::CacheCandidate
        | Reason::SaturationPin
        | Reason::LeastLoad
        | Reason::RoundRobin
        | Reason::Scout
        | Reason::Exploit
        | Reason::Pinned
        | Reason::GreedyFallback => "nobody holds it",
    };
    let why = format!(
        "{what}: {} has the least cost, {} ahead and {} to compute, at a price of {}; the mean line \
         is {}",
        case.fleet.workers()[decision.at].id,
        counted(chosen.line, "token"),
        grouped(chosen.uncached_tokens),
        grouped(clipped(chosen.price)),
        grouped(trace.mean_line),
    );
    (RungResult::Decided, why)
}
