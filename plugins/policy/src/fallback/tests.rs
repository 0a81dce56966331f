use super::*;
use crate::decide;
use crate::decision::Decision;
use crate::fleet::{Fleet, Slot};
use crate::rules::Rules;
use crate::testing::{Ask, alike, ask, fleet, full, gate, native, queue, sent, some, worker};
use std::collections::BTreeSet;

fn run(fleet: &Fleet, ask: &Ask, rules: &Rules) -> Decision {
    decide(fleet, &ask.request(), rules).unwrap()
}

#[test]
fn tiers_are_room_and_short_then_room_then_short_then_anyone() {
    let rules = gate(4, None);
    let mut workers = vec![
        worker("d_neither", full(9)),
        worker("c_short", full(0)),
        worker("b_room", native(9, 0)),
        worker("a_both", native(0, 0)),
    ];
    for expected in ["a_both", "b_room", "c_short", "d_neither"] {
        let fleet = fleet(workers.clone());
        let decision = run(&fleet, &ask(4_096), &rules);
        assert_eq!(fleet.workers()[decision.at].id.as_str(), expected);
        workers.pop();
    }
}

#[test]
fn tiers_hold_for_a_random_draw_too() {
    let rules = Rules { min_load_choices: some(2), ..gate(4, None) };
    let fleet = fleet([
        worker("a", full(0)),
        worker("b", native(9, 0)),
        worker("c", native(3, 50_000)),
        worker("d", native(9, 0)),
    ]);
    for dice in 0..20 {
        assert_eq!(run(&fleet, &Ask { dice, ..ask(4_096) }, &rules).at, 2);
    }
}

#[test]
fn the_shortest_line_and_the_least_own_work_win() {
    let fleet = fleet([
        sent(worker("a", None), (1, 3_000), (0, 0)),
        sent(worker("b", None), (9, 2_000), (0, 0)),
        sent(worker("c", None), (1, 2_500), (0, 0)),
    ]);
    assert_eq!(run(&fleet, &ask(4_096), &Rules::default()).at, 1);
    // 600 matched tokens make no candidate, but they count.
    let decision = run(&fleet, &ask(4_096).held(2, 3_496), &Rules::default());
    assert_eq!((decision.at, decision.uncached_tokens), (2, 3_496));
    assert_eq!(decision.reason, Reason::Home);
}

#[test]
fn foreign_requests_are_worth_the_mean_or_else_this_prompt() {
    let fleet = fleet([worker("a", queue(2, 4)), sent(worker("b", None), (1, 5_000), (0, 0))]);
    let with_mean = |mean_uncached_tokens| Ask { mean_uncached_tokens, ..ask(2_000) };
    assert_eq!(run(&fleet, &with_mean(0), &Rules::default()).at, 0);
    assert_eq!(run(&fleet, &with_mean(2_400), &Rules::default()).at, 0);
    assert_eq!(run(&fleet, &with_mean(2_600), &Rules::default()).at, 1);
}

#[test]
fn a_cold_prefix_goes_home_and_stays_there() {
    let fleet = alike(8, None);
    let homes: BTreeSet<usize> = (0..200)
        .map(|home| {
            let at = |turn| run(&fleet, &Ask { home, turn, ..ask(4_096) }, &Rules::default()).at;
            assert_eq!(at(0), at(1));
            let best = (0..8).max_by_key(|&worker| fleet.home_rank(home, worker));
            assert_eq!(Some(at(0)), best);
            at(0)
        })
        .collect();
    assert_eq!(homes.len(), 8);
}

#[test]
fn the_next_best_home_is_taken_when_the_home_failed() {
    let fleet = alike(8, None);
    let home = run(&fleet, &ask(4_096), &Rules::default()).at;
    let slot = fleet.workers()[home].slot;
    let retry = run(&fleet, &Ask { excluded: vec![slot], ..ask(4_096) }, &Rules::default()).at;
    let best = (0..8).filter(|&at| at != home).max_by_key(|&at| fleet.home_rank(0, at));
    assert_eq!(Some(retry), best);
}

#[test]
fn short_prompts_and_none_rotate_over_the_idle() {
    let fleet = alike(4, None);
    let short = |turn| run(&fleet, &Ask { turn, ..ask(1_023) }, &Rules::default());
    assert_eq!([0, 1, 2, 3, 4].map(|turn| short(turn).at), [0, 1, 2, 3, 0]);
    assert_eq!(short(0).reason, Reason::LeastLoad);
    let none =
        |turn| decide(&fleet, &Ask { turn, ..ask(0) }.promptless(), &Rules::default()).unwrap();
    assert_eq!([0, 1, 2, 3, 4].map(|turn| none(turn).at), [0, 1, 2, 3, 0]);
    assert_eq!((none(0).reason, none(0).uncached_tokens), (Reason::LeastLoad, 0));
    assert_eq!(none(0).cache, Some(CacheDecision::CacheMiss));
}

#[test]
fn equal_short_prompts_rotate_though_one_worker_holds_them() {
    let fleet = alike(3, None);
    let held = |turn| run(&fleet, &Ask { turn, ..ask(1_023).held(1, 0) }, &Rules::default());
    assert_eq!([0, 1, 2].map(|turn| held(turn).at), [0, 1, 2]);
    assert_eq!([0, 1].map(|turn| held(turn).uncached_tokens), [1_023, 0]);
}

#[test]
fn a_prompt_at_the_threshold_has_a_home() {
    let fleet = alike(4, None);
    assert_eq!(run(&fleet, &ask(1_024), &Rules::default()).reason, Reason::Home);
    let off = Rules { min_matched_tokens: None, ..Rules::default() };
    assert_eq!(run(&fleet, &ask(1), &off).reason, Reason::Home);
}

#[test]
fn counts_alone_order_a_fleet_even_without_any_prompt() {
    let fleet = fleet([worker("a", queue(3, 4)), worker("b", queue(2, 4))]);
    let decision = decide(&fleet, &ask(0).promptless(), &Rules::default()).unwrap();
    assert_eq!(decision.at, 1);
}

#[test]
fn as_many_choices_as_workers_are_an_exact_minimum() {
    let fleet = fleet((0..6).map(|at| worker(&format!("w{at}"), queue(6 - at, 4))));
    for dice in 0..20 {
        let rules = Rules { min_load_choices: some(6), ..Rules::default() };
        assert_eq!(run(&fleet, &Ask { dice, ..ask(4_096) }, &rules).at, 5);
    }
}

#[test]
fn two_choices_avoid_the_busiest_and_spread_over_the_rest() {
    let fleet = fleet((0..6).map(|at| worker(&format!("w{at}"), queue(at, 4))));
    let rules = Rules { min_load_choices: some(2), ..Rules::default() };
    let chosen: BTreeSet<usize> =
        (0..200).map(|dice| run(&fleet, &Ask { dice, ..ask(4_096) }, &rules).at).collect();
    assert_eq!(chosen.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
}

#[test]
fn labels_are_asked_for_in_the_order_of_the_rules() {
    let trace = |gate_rejected, fleet_all_queued, admission_evaluated| Trace {
        gate_rejected,
        fleet_all_queued,
        admission_evaluated,
        ..Trace::default()
    };
    assert_eq!(cache_decision(&trace(0, true, 1)), CacheDecision::CacheMiss);
    assert_eq!(cache_decision(&trace(1, true, 1)), CacheDecision::AllQueued);
    assert_eq!(cache_decision(&trace(1, false, 1)), CacheDecision::CacheMiss);
    assert_eq!(cache_decision(&trace(1, false, 0)), CacheDecision::CacheWorkerQueued);
}

#[test]
fn affinity_is_lost_only_off_every_owner_while_all_queue() {
    let rules = gate(4, Some(4));
    let ask = ask(4_096).held(0, 0);
    let off = fleet([worker("a", full(9)), worker("b", queue(9, 4))]);
    let lost = run(&off, &ask, &rules);
    assert_eq!((lost.at, lost.reason), (1, Reason::Diverted));
    assert!(lost.trace.affinity_lost);
    let kept = fleet([worker("a", full(9)), worker("b", full(9))]);
    let kept = run(&kept, &ask, &rules);
    assert_eq!((kept.at, kept.trace.affinity_lost), (0, false));
    let someone_free = fleet([worker("a", full(9)), worker("b", native(0, 0))]);
    assert!(!run(&someone_free, &ask, &rules).trace.affinity_lost);
}

#[test]
fn where_nobody_could_begin_the_owner_keeps_the_request() {
    let ask = ask(4_096).held(0, 0);
    let beside = |other| fleet([worker("a", full(9)), worker("b", other)]);
    // Room behind a queue is no room, if a floor says that waiting is the same everywhere.
    assert_eq!(run(&beside(native(9, 0)), &ask, &gate(4, Some(4))).at, 0);
    assert_eq!(run(&beside(native(9, 0)), &ask, &gate(4, None)).at, 1);
    assert_eq!(run(&beside(native(3, 0)), &ask, &gate(4, Some(2))).at, 0);
    // Somebody below the floor can begin, and so can, for all we know, who does not say.
    assert_eq!(run(&beside(native(1, 0)), &ask, &gate(4, Some(2))).at, 1);
    assert_eq!(run(&beside(queue(3, 0)), &ask, &gate(4, Some(2))).at, 1);
    // An owner behind an open gate, too full to be asked, keeps it as well.
    let open = fleet([worker("a", full(3)), worker("b", native(3, 0))]);
    let kept = run(&open, &ask, &gate(4, Some(2)));
    assert_eq!((kept.at, kept.reason, kept.trace.admission_rejected), (0, Reason::Diverted, 1));
}

#[test]
fn one_living_worker_is_always_routed_to_and_none_is_no_decision() {
    let fleet = alike(2, full(99));
    let rules = gate(1, Some(1));
    fleet.workers()[0].live.set_routable(false);
    assert_eq!(run(&fleet, &ask(4_096), &rules).at, 1);
    let nobody = Ask { excluded: vec![Slot(1)], ..ask(4_096) };
    assert_eq!(decide(&fleet, &nobody.request(), &rules), None);
    let drawn = Rules { min_load_choices: some(2), ..rules };
    assert_eq!(decide(&fleet, &nobody.request(), &drawn), None);
}
