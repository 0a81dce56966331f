use super::*;
use crate::decision::PressureSource;
use crate::testing::{Ask, alike, ask, fleet, native, queue, sent, some, worker};

fn chosen(fleet: &Fleet, ask: &Ask, choices: Option<NonZeroU32>) -> usize {
    least_load(fleet, &ask.request(), choices).unwrap().at
}

#[test]
fn the_least_pressured_of_all_is_chosen_whatever_the_dice() {
    let fleet = fleet((0..40).map(|at| worker(&format!("w{at:02}"), queue(50 - at, 4))));
    for dice in 0..50 {
        assert_eq!(chosen(&fleet, &Ask { dice, ..ask(10) }, None), 39);
        assert_eq!(chosen(&fleet, &Ask { dice, ..ask(10) }, some(40)), 39);
        assert_eq!(chosen(&fleet, &Ask { dice, ..ask(10) }, some(u32::MAX)), 39);
    }
}

#[test]
fn ties_rotate() {
    let fleet =
        fleet([worker("a", queue(1, 4)), worker("b", queue(9, 4)), worker("c", queue(1, 4))]);
    let at = |turn| chosen(&fleet, &Ask { turn, ..ask(10) }, None);
    assert_eq!([at(0), at(1), at(2), at(u64::MAX)], [0, 2, 0, 2]);
}

#[test]
fn one_choice_is_random_and_even() {
    let fleet = alike(8, queue(1, 4));
    let mut shares = [0_u32; 8];
    for dice in 0..8_000 {
        shares[chosen(&fleet, &Ask { dice, ..ask(10) }, some(1))] += 1;
    }
    assert!(shares.iter().all(|share| (850..=1_150).contains(share)), "{shares:?}");
}

#[test]
fn pairs_are_drawn_evenly() {
    let fleet = fleet((0..5).map(|at| worker(&format!("w{at}"), queue(at, 4))));
    let mut shares = [0_u32; 5];
    for dice in 0..10_000 {
        shares[chosen(&fleet, &Ask { dice, ..ask(10) }, some(2))] += 1;
    }
    // Of ten pairs four have worker 0 in them, three more worker 1, and so on.
    for (share, want) in shares.into_iter().zip([4_000_u32, 3_000, 2_000, 1_000, 0]) {
        assert!(share.abs_diff(want) <= 200, "{shares:?}");
    }
}

#[test]
fn only_the_drawn_are_compared() {
    let fleet = fleet([worker("a", native(0, 1)), worker("b", None)]);
    let source = |choices| {
        let decision = least_load(&fleet, &ask(10).request(), choices).unwrap();
        (decision.at, decision.trace.pressure_source)
    };
    assert_eq!(source(None).1, PressureSource::RouterLocal);
    assert!(
        [(0, PressureSource::NativeQueueTokens), (1, PressureSource::RouterLocal)]
            .contains(&source(some(1)))
    );
}

#[test]
fn without_reports_the_own_work_decides() {
    let fleet = fleet([
        sent(worker("a", None), (1, 500), (0, 0)),
        sent(worker("b", None), (9, 400), (0, 0)),
    ]);
    assert_eq!(chosen(&fleet, &ask(10), None), 1);
}

#[test]
fn the_answer_names_the_tokens_to_compute_and_is_not_cache_aware() {
    let decision = least_load(&alike(1, None), &ask(100).held(0, 30).request(), None).unwrap();
    assert_eq!((decision.reason, decision.cache), (Reason::LeastLoad, None));
    assert_eq!(decision.uncached_tokens, 30);
}

#[test]
fn nobody_routable_is_no_decision() {
    let fleet = alike(1, None);
    fleet.workers()[0].live.set_routable(false);
    assert_eq!(least_load(&fleet, &ask(10).request(), None), None);
}
