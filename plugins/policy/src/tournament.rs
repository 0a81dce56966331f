//! Rung 4: the near-tie tournament among candidates that passed.
//!
//! "Materially more pressured" is no order (it is not transitive), so it decides duels in the order
//! of the candidates and never sorts.

use crate::candidates::Candidate;
use crate::decision::{CacheDecision, PressureSource, Reason, Trace, Verdict};
use crate::pressure::{self, Native};
use crate::rules::Rules;
use crate::scene::{Choice, Scene};
use std::cmp::Ordering;

/// Lets the survivors within the margin compete; `None` if there is no survivor.
pub(crate) fn play(
    scene: Scene<'_>,
    candidates: &mut [Candidate<'_>],
    trace: &mut Trace,
) -> Option<Choice> {
    let first = candidates.iter().position(Candidate::survives)?;
    let reach = candidates[first].uncached_tokens.saturating_add(scene.rules.switch_margin_tokens);
    let mut winner = first;
    for at in first + 1..candidates.len() {
        if !candidates[at].survives() {
            continue;
        }
        if reach < candidates[at].uncached_tokens {
            candidates[at].verdict = Verdict::OutsideMargin;
            continue;
        }
        if challenger_wins(scene.rules, &candidates[winner], &candidates[at], trace) {
            winner = at;
        }
    }
    candidates[winner].verdict = Verdict::Chosen;
    let cache =
        if trace.queue_gate_fell_back { CacheDecision::AllQueued } else { CacheDecision::CacheHit };
    Some(Choice { at: candidates[winner].seen.at, reason: Reason::CacheCandidate, cache })
}

fn challenger_wins(
    rules: &Rules,
    winner: &Candidate<'_>,
    challenger: &Candidate<'_>,
    trace: &mut Trace,
) -> bool {
    let source = trace.pressure_source;
    let nearer = challenger.key(source) < winner.key(source);
    if !rules.pressure_guard || !is_native(source) {
        return nearer;
    }
    trace.guard_compared += 1;
    let calmer = match materially(rules, winner, challenger) {
        Ordering::Greater => true,
        Ordering::Less => false,
        Ordering::Equal => nearer,
    };
    trace.guard_overrides += u32::from(calmer != nearer);
    calmer
}

fn is_native(source: PressureSource) -> bool {
    match source {
        PressureSource::EstimatedPrefillQueueMs | PressureSource::NativeQueueTokens => true,
        PressureSource::ReportedQueue | PressureSource::RouterLocal => false,
    }
}

/// Which of two is materially more pressured; equal if neither is, or each by another measure.
fn materially(rules: &Rules, one: &Candidate<'_>, other: &Candidate<'_>) -> Ordering {
    let one_more = is_materially_above(rules, one, other);
    let other_more = is_materially_above(rules, other, one);
    one_more.cmp(&other_more)
}

fn is_materially_above(rules: &Rules, one: &Candidate<'_>, other: &Candidate<'_>) -> bool {
    let tokens = |of: &Candidate<'_>| pressure::waiting_uncached(&of.seen);
    if exceeds(tokens(one), tokens(other), rules.pressure_abs_tokens, rules) {
        return true;
    }
    let estimate =
        |of: &Candidate<'_>| of.seen.report.and_then(Native::of).and_then(|load| load.estimate_ms);
    match (rules.pressure_abs_ms, estimate(one), estimate(other)) {
        (Some(most), Some(one), Some(other)) => exceeds(one, other, most, rules),
        (None, _, _) | (_, None, _) | (_, _, None) => false,
    }
}

/// By more than `absolute` and by more than the factor; both are strict.
fn exceeds(one: u64, other: u64, absolute: u64, rules: &Rules) -> bool {
    other.saturating_add(absolute) < one && other as f64 * rules.pressure_rel.get() < one as f64
}

#[cfg(test)]
mod tests;
