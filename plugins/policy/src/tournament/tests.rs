use crate::decide;
use crate::decision::{CacheDecision, Decision, Reason, Verdict};
use crate::fleet::Report;
use crate::rules::{Factor, Rules};
use crate::testing::{ask, fleet, gate, native, queue, sent, verdicts, worker};

/// The owners `a` and `b` with these reports and tokens to compute.
fn duel(a: (Report, u64), b: (Report, u64), rules: &Rules) -> Decision {
    let fleet = fleet([worker("a", a.0), worker("b", b.0)]);
    decide(&fleet, &ask(8_192).held(0, a.1).held(1, b.1).request(), rules).unwrap()
}

fn guard(abs_tokens: u64, rel: f64) -> Rules {
    Rules {
        pressure_abs_tokens: abs_tokens,
        pressure_rel: Factor::new(rel).unwrap(),
        ..Rules::default()
    }
}

fn estimated(tokens: u64, ms: u64) -> Report {
    Report { estimated_prefill_queue_ms: Some(ms), ..native(1, tokens) }
}

#[test]
fn the_deepest_owner_wins() {
    let decision = duel((native(1, 0), 200), (native(1, 0), 100), &Rules::default());
    assert_eq!(decision.at, 1);
    assert_eq!(decision.reason, Reason::CacheCandidate);
    assert_eq!(decision.cache, Some(CacheDecision::CacheHit));
    assert_eq!(decision.uncached_tokens, 100);
    assert_eq!(verdicts(&decision), [Verdict::Chosen, Verdict::Lost]);
}

#[test]
fn the_calmer_of_equally_deep_ones_wins_then_the_smaller_id() {
    let off = Rules { pressure_guard: false, ..Rules::default() };
    assert_eq!(duel((queue(2, 4), 100), (queue(1, 4), 100), &off).at, 1);
    assert_eq!(duel((queue(1, 4), 100), (queue(1, 4), 100), &off).at, 0);
}

#[test]
fn the_margin_is_inclusive() {
    let busy = || native(1, 50_000);
    let at_margin = duel((busy(), 100), (native(1, 0), 1_124), &Rules::default());
    assert_eq!((at_margin.at, at_margin.trace.guard_compared), (1, 1));
    let beyond = duel((busy(), 100), (native(1, 0), 1_125), &Rules::default());
    assert_eq!((beyond.at, beyond.trace.guard_compared), (0, 0));
    assert_eq!(beyond.trace.considered[1].verdict, Verdict::OutsideMargin);
}

#[test]
fn the_margin_is_measured_from_the_deepest_not_from_the_present_winner() {
    let fleet = fleet([
        worker("a", native(1, 90_000)),
        worker("b", native(1, 9_000)),
        worker("c", native(1, 0)),
    ]);
    let ask = ask(8_192).held(0, 0).held(1, 1_000).held(2, 1_500);
    let decision = decide(&fleet, &ask.request(), &Rules::default()).unwrap();
    assert_eq!(decision.at, 1);
    assert_eq!(decision.trace.considered[2].verdict, Verdict::OutsideMargin);
}

#[test]
fn the_guard_needs_more_than_the_absolute_difference() {
    let rules = guard(100, 1.5);
    let at = |tokens| duel((native(1, tokens), 100), (native(1, 10), 200), &rules);
    assert_eq!((at(110).at, at(110).trace.guard_overrides), (0, 0));
    assert_eq!((at(111).at, at(111).trace.guard_overrides), (1, 1));
}

#[test]
fn the_guard_needs_more_than_the_factor() {
    let rules = guard(100, 1.5);
    let at = |tokens| duel((native(1, tokens), 100), (native(1, 1_000), 200), &rules).at;
    assert_eq!(at(1_500), 0);
    assert_eq!(at(1_501), 1);
}

#[test]
fn the_guard_counts_what_was_sent_since() {
    let busy = sent(worker("a", native(1, 0)), (1, 2_000), (1, 2_000));
    let fleet = fleet([busy, worker("b", native(1, 0))]);
    let ask = ask(8_192).held(0, 100).held(1, 200);
    assert_eq!(decide(&fleet, &ask.request(), &Rules::default()).unwrap().at, 1);
}

#[test]
fn a_challenger_under_material_pressure_loses_without_an_override() {
    let decision = duel((native(1, 0), 100), (native(1, 50_000), 200), &Rules::default());
    assert_eq!(decision.at, 0);
    assert_eq!((decision.trace.guard_compared, decision.trace.guard_overrides), (1, 0));
}

#[test]
fn estimates_count_only_if_their_threshold_is_set() {
    let on = Rules { pressure_abs_ms: Some(100), ..Rules::default() };
    let at = |ms, rules: &Rules| duel((estimated(0, ms), 100), (estimated(0, 10), 200), rules).at;
    assert_eq!(at(9_999, &Rules::default()), 0);
    assert_eq!(at(110, &on), 0);
    assert_eq!(at(111, &on), 1);
}

#[test]
fn two_measures_that_disagree_leave_it_to_depth() {
    let on = Rules { pressure_abs_ms: Some(100), ..Rules::default() };
    let decision = duel((estimated(0, 9_000), 100), (estimated(50_000, 0), 200), &on);
    assert_eq!((decision.at, decision.trace.guard_overrides), (0, 0));
}

#[test]
fn without_a_native_source_the_guard_looks_at_nothing() {
    let decision = duel((native(1, 50_000), 100), (queue(1, 4), 200), &Rules::default());
    assert_eq!((decision.at, decision.trace.guard_compared), (0, 0));
}

#[test]
fn the_guard_can_be_switched_off() {
    let off = Rules { pressure_guard: false, ..Rules::default() };
    let decision = duel((native(1, 50_000), 100), (native(1, 0), 200), &off);
    assert_eq!((decision.at, decision.trace.guard_compared), (0, 0));
}

#[test]
fn a_readmitted_winner_is_counted_as_all_queued() {
    let decision = duel((queue(9, 4), 100), (queue(5, 4), 3_000), &gate(4, None));
    assert_eq!((decision.at, decision.reason), (0, Reason::CacheCandidate));
    assert_eq!(decision.cache, Some(CacheDecision::AllQueued));
    assert_eq!(decision.trace.gate_rejected, 2);
}
