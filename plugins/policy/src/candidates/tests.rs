use super::*;
use crate::Fleet;
use crate::fleet::{Role, Slot, Worker};
use crate::testing::{Ask, alike, ask, fleet, native, queue, scene, some, worker};

fn found(fleet: &Fleet, ask: &Ask, rules: &Rules) -> Vec<usize> {
    let request = ask.request();
    find(scene(fleet, &request, rules)).iter().map(|candidate| candidate.seen.at).collect()
}

/// A fleet in which all hold the prompt.
fn all_own(count: usize) -> (Fleet, Ask) {
    let ask = (0..count).fold(ask(8_192), |ask, at| ask.held(at, 100));
    (alike(count, None), ask)
}

#[test]
fn a_match_at_the_threshold_counts_and_one_below_does_not() {
    let fleet = alike(2, None);
    let ask = ask(4_096).held(0, 4_096 - 1_024).held(1, 4_096 - 1_023);
    assert_eq!(found(&fleet, &ask, &Rules::default()), [0]);
    let off = Rules { min_matched_tokens: None, ..Rules::default() };
    assert_eq!(found(&fleet, &ask, &off), [0, 1]);
}

#[test]
fn the_ratio_is_a_second_threshold() {
    let rules = Rules { min_match_ratio: Ratio::new(0.5), ..Rules::default() };
    let ask = ask(4_096).held(0, 2_048).held(1, 2_049);
    assert_eq!(found(&alike(2, None), &ask, &rules), [0]);
}

#[test]
fn an_empty_prompt_has_no_ratio() {
    let half = Ratio::new(0.5);
    let rules = Rules { min_matched_tokens: None, min_match_ratio: half, ..Rules::default() };
    assert!(found(&alike(1, None), &ask(0).held(0, 0), &rules).is_empty());
}

#[test]
fn workers_the_request_may_not_use_are_no_candidates() {
    let decode = Worker { role: Role::Decode, ..worker("b", None) };
    let drained = worker("c", None);
    drained.live.set_routable(false);
    let fleet = fleet([worker("a", None), decode, drained, worker("d", None)]);
    let mut ask = (0..4).fold(ask(4_096), |ask, at| ask.held(at, 0));
    ask.excluded = vec![Slot(3)];
    assert_eq!(found(&fleet, &ask, &Rules::default()), [0]);
}

#[test]
fn a_holding_of_nobody_is_ignored() {
    assert_eq!(found(&alike(1, None), &ask(4_096).held(0, 0).held(7, 0), &Rules::default()), [0]);
}

#[test]
fn the_best_come_first_by_depth_then_pressure_then_id() {
    let fleet = fleet([
        worker("a", queue(5, 4)),
        worker("b", queue(2, 4)),
        worker("c", queue(2, 4)),
        worker("d", queue(9, 4)),
    ]);
    let ask = ask(4_096).held(0, 100).held(1, 100).held(2, 100).held(3, 50);
    assert_eq!(found(&fleet, &ask, &Rules::default()), [3, 1, 2, 0]);
}

#[test]
fn eight_are_kept_in_a_small_fleet_a_twentieth_in_a_large_one_and_never_more_than_32() {
    for (size, kept) in
        [(5, 5), (8, 8), (9, 8), (160, 8), (161, 9), (200, 10), (640, 32), (700, 32)]
    {
        let (fleet, ask) = all_own(size);
        assert_eq!(found(&fleet, &ask, &Rules::default()).len(), kept, "fleet of {size}");
    }
}

#[test]
fn unroutable_workers_do_not_widen_the_share() {
    let (fleet, ask) = all_own(200);
    for worker in &fleet.workers()[..40] {
        worker.live.set_routable(false);
    }
    assert_eq!(found(&fleet, &ask, &Rules::default()).len(), 8);
}

#[test]
fn the_bounds_can_be_set() {
    let (fleet, ask) = all_own(50);
    let bounds = |least, most| Rules {
        candidate_min_workers: some(least).unwrap(),
        candidate_max_workers: some(most).unwrap(),
        ..Rules::default()
    };
    assert_eq!(found(&fleet, &ask, &bounds(1, 32)).len(), 3);
    assert_eq!(found(&fleet, &ask, &bounds(20, 32)).len(), 20);
    assert_eq!(found(&fleet, &ask, &bounds(20, 4)).len(), 4);
    assert_eq!(found(&fleet, &ask, &bounds(99, 999)).len(), 32);
}

#[test]
fn the_best_are_kept_whatever_their_place() {
    let depth = |at: usize| ((at * 37) % 100) as u64;
    let ask = (0..100).fold(ask(8_192), |ask, at| ask.held(at, depth(at)));
    let kept = found(&alike(100, native(1, 1)), &ask, &Rules::default());
    let mut best: Vec<usize> = (0..100).collect();
    best.sort_by_key(|&at| depth(at));
    assert_eq!(kept, best[..8]);
}

#[test]
fn among_more_equals_than_are_kept_the_calmest_win() {
    let calm = [31, 57, 58, 80, 93, 94, 95, 99];
    let load = |at: usize| queue(if calm.contains(&at) { 0 } else { 5 }, 4);
    let fleet = fleet((0..100).map(|at| worker(&format!("w{at:03}"), load(at))));
    let ask = (0..100).fold(ask(8_192), |ask, at| ask.held(at, 7));
    assert_eq!(found(&fleet, &ask, &Rules::default()), calm);
}
