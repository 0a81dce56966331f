use super::*;
use crate::testing::{Ask, alike, ask};
use proptest::prelude::*;

#[test]
fn matched_tokens_are_the_matched_share_rounded_down() {
    let fleet = alike(2, None);
    let holders = [Holder { slot: Slot(1), blocks: 2 }, Holder { slot: Slot(0), blocks: 9 }];
    let found = holdings(&fleet, &holders, 100, 3);
    let tokens: Vec<(usize, u64)> =
        found.iter().map(|holding| (holding.at, holding.uncached_tokens)).collect();
    assert_eq!(tokens, [(0, 0), (1, 34)]);
}

#[test]
fn holders_of_nothing_and_strangers_are_dropped() {
    let holders = [Holder { slot: Slot(0), blocks: 0 }, Holder { slot: Slot(9), blocks: 5 }];
    assert!(holdings(&alike(1, None), &holders, 100, 3).is_empty());
}

#[test]
fn a_worker_that_holds_nothing_computes_the_whole_prompt() {
    let ask = ask(100).held(1, 30);
    assert_eq!([0, 1, 2].map(|at| ask.request().uncached_tokens(at)), [100, 30, 100]);
    assert_eq!(ask.promptless().uncached_tokens(1), 0);
}

#[test]
fn the_mean_is_this_prompt_before_there_is_one_and_never_zero() {
    assert_eq!(Ask { mean_uncached_tokens: 7, ..ask(100) }.request().mean_uncached(), 7);
    assert_eq!(ask(100).request().mean_uncached(), 100);
    assert_eq!(ask(100).promptless().mean_uncached(), 1);
}

proptest! {
    #[test]
    fn dice_stay_below_their_sides(seed: u64, sides in 1..=u64::MAX) {
        let mut dice = Dice::new(seed);
        for _ in 0..10 {
            prop_assert!(dice.below(sides) < sides);
        }
        prop_assert_eq!(dice.below(0), 0);
    }
}

#[test]
fn holdings_are_found_by_ascending_position() {
    let ask = ask(100).held(1, 10).held(4, 40);
    let request = ask.request();
    let tokens = |held: Option<&Holding>| held.map(|held| held.uncached_tokens);
    let mut all = Held::new(&request);
    assert_eq!(
        [0, 1, 2, 4, 5].map(|at| tokens(all.at(at))),
        [None, Some(10), None, Some(40), None]
    );
    let mut skipping = Held::new(&request);
    assert_eq!([3, 4].map(|at| tokens(skipping.at(at))), [None, Some(40)]);
}
