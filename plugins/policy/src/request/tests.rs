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
fn many_holders_are_read_as_few_are() {
    let fleet = alike(90, None);
    let holder = |slot: u16| Holder { slot: Slot(slot), blocks: u32::from(slot % 4) };
    // In no order, with holders of nothing and one that left.
    let many: Vec<Holder> = (0..91).rev().map(holder).filter(|of| of.slot.0 % 5 < 4).collect();
    let one_by_one: Vec<Holding> = (0..90)
        .filter_map(|at| many.iter().find(|holder| fleet.at(holder.slot) == Some(at)))
        .flat_map(|holder| holdings(&fleet, &[*holder], 1_000, 3))
        .collect();
    assert_eq!(holdings(&fleet, &many, 1_000, 3).to_vec(), one_by_one);
    assert_eq!(one_by_one.len(), 54);
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

#[test]
fn seeded_dice_come_again_and_are_spread_evenly_over_turns() {
    assert_eq!(seeded_dice(7, 3), seeded_dice(7, 3));
    assert_ne!(seeded_dice(7, 3), seeded_dice(8, 3));
    const TURNS: u64 = 4000;
    for seed in [0, 1, u64::MAX] {
        let draws =
            (0..TURNS).map(|turn| crate::learned::Draws::from_dice(seeded_dice(seed, turn)));
        let draws: Vec<_> = draws.collect();
        let share = |of: fn(&crate::learned::Draws) -> bool| {
            draws.iter().filter(|draws| of(draws)).count() as f64 / TURNS as f64
        };
        assert!((share(|draws| draws.explore < 0.3) - 0.3).abs() < 0.02);
        assert!((share(|draws| draws.pick < 0.5) - 0.5).abs() < 0.03);
        assert!((share(|draws| draws.explore < 0.5 && draws.pick < 0.5) - 0.25).abs() < 0.03);
    }
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
