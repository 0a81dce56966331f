use super::*;
use crate::fleet::Slot;
use crate::testing::{Ask, alike, ask, fleet};
use proptest::prelude::*;

fn weighted(weights: &[u32]) -> Fleet {
    fleet((0..).zip(weights).map(|(at, &weight)| Worker {
        weight,
        ..crate::testing::worker(&format!("w{at:03}"), None)
    }))
}

fn turns(fleet: &Fleet, count: u64) -> Vec<usize> {
    let at = |turn| round_robin(fleet, &Ask { turn, ..ask(10) }.request()).unwrap().at;
    (0..count).map(at).collect()
}

#[test]
fn equal_workers_all_come_once_in_a_cycle() {
    for size in 1..20 {
        let mut cycle = turns(&alike(size, None), size as u64);
        cycle.sort_unstable();
        assert_eq!(cycle, (0..size).collect::<Vec<_>>());
    }
}

#[test]
fn common_factors_of_weights_do_not_make_runs() {
    assert_eq!(turns(&weighted(&[6, 6]), 4), [0, 1, 0, 1]);
}

#[test]
fn a_heavy_workers_turns_are_spread() {
    let fleet = weighted(&[3, 1, 1, 1]);
    let turns = turns(&fleet, 600);
    assert!(turns.windows(3).all(|run| run != [0, 0, 0]), "{turns:?}");
    assert!(turns.windows(4).all(|run| run.contains(&0)), "{turns:?}");
}

#[test]
fn a_failed_worker_is_left_out() {
    let fleet = alike(3, None);
    for turn in 0..9 {
        let ask = Ask { turn, excluded: vec![Slot(1)], ..ask(10) };
        assert_ne!(round_robin(&fleet, &ask.request()).unwrap().at, 1);
    }
}

#[test]
fn a_request_without_a_prompt_goes_to_the_least_load() {
    let decision = round_robin(&alike(3, None), &ask(0).promptless()).unwrap();
    assert_eq!(decision.reason, Reason::LeastLoad);
    let decision = round_robin(&alike(3, None), &ask(10).request()).unwrap();
    assert_eq!((decision.reason, decision.cache), (Reason::RoundRobin, None));
}

#[test]
fn nobody_routable_is_no_decision() {
    let fleet = alike(1, None);
    fleet.workers()[0].live.set_routable(false);
    assert_eq!(round_robin(&fleet, &ask(10).request()), None);
}

proptest! {
    #[test]
    fn every_worker_gets_its_share_within_a_few_turns(
        weights in proptest::collection::vec(1_u32..12, 1..8),
        count in 1_u64..400,
    ) {
        let fleet = weighted(&weights);
        let circle: u32 = weights.iter().sum();
        let all = turns(&fleet, count);
        for (at, &weight) in weights.iter().enumerate() {
            let own = all.iter().filter(|&&chosen| chosen == at).count() as f64;
            let share = count as f64 * f64::from(weight) / f64::from(circle);
            prop_assert!((own - share).abs() < 4.0, "{own} of {share}");
        }
    }

    #[test]
    fn any_turn_and_weight_is_somebodys(
        weights in proptest::collection::vec(any::<u32>(), 1..5),
        turn: u64,
    ) {
        let fleet = weighted(&weights);
        let decision = round_robin(&fleet, &Ask { turn, ..ask(10) }.request()).unwrap();
        prop_assert!(decision.at < weights.len());
    }
}
