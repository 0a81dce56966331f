#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn an_unknown_worker_starts_at_two_guesses() {
    let limits = Limits::new(10, NonZeroU32::new(512).unwrap(), 0);
    assert_eq!(limits.unknown_capacity, 8192);
    let huge_blocks = Limits::new(10, NonZeroU32::MAX, 0);
    assert_eq!(huge_blocks.unknown_capacity, 1);
}

#[test]
fn fewer_cached_tokens_than_predicted_shrink_and_more_grow() {
    let mut capacity = Capacity::new(1000);
    capacity.correct(1000, 0, 1000);
    assert_eq!(capacity.blocks(), 900);
    capacity.correct(500, 1000, 1000);
    assert_eq!(capacity.blocks(), 945);
    capacity.correct(250, 250, 1000);
    assert_eq!(capacity.blocks(), 945);
}

#[test]
fn foreign_numbers_move_it_by_a_tenth_at_most() {
    let mut capacity = Capacity::new(1000);
    capacity.correct(0, u64::MAX, 10);
    assert_eq!(capacity.blocks(), 1100);
    capacity.correct(u64::MAX, 0, 0);
    assert_eq!(capacity.blocks(), 1100);
}

#[test]
fn corrections_stay_within_a_factor_of_the_start() {
    let mut capacity = Capacity::new(1600);
    (0..1000).for_each(|_| capacity.correct(9, 0, 9));
    assert_eq!(capacity.blocks(), 100);
    (0..1000).for_each(|_| capacity.correct(0, 9, 9));
    assert_eq!(capacity.blocks(), 25_600);
    let mut tiny = Capacity::new(0);
    (0..1000).for_each(|_| tiny.correct(9, 0, 9));
    assert_eq!(tiny.blocks(), 1);
}

#[test]
fn only_a_new_figure_discards_what_was_learned() {
    let mut capacity = Capacity::new(1000);
    capacity.correct(1, 0, 1);
    capacity.restart(1000);
    assert_eq!(capacity.blocks(), 900);
    capacity.restart(2000);
    assert_eq!(capacity.blocks(), 2000);
}

#[test]
fn causes_index_their_counters() {
    let evictions = Evictions::default();
    for (cause, pairs) in Cause::ALL.into_iter().zip(1..) {
        evictions.add(cause, pairs);
    }
    let stats = Stats { evictions: evictions.read(), ..Stats::default() };
    assert_eq!(Cause::ALL.map(|cause| stats.evicted(cause)), [1, 2, 3, 4, 5]);
}
