#![allow(clippy::unwrap_used)]

mod model;
mod stress;

use super::*;

fn index(max_entries: u64, unknown_capacity: u64) -> PrefixIndex {
    PrefixIndex::new(Limits { max_entries, unknown_capacity, seed: 11 })
}

/// A chain of `len` blocks that shares nothing with chains of another name.
fn chain(name: u64, len: u64) -> Vec<PrefixKey> {
    (0..len).map(|block| PrefixKey(name << 32 | block)).collect()
}

/// Slots and depths, sorted.
fn held(index: &PrefixIndex, keys: &[PrefixKey]) -> Vec<(u16, u32)> {
    let mut out = Vec::new();
    index.holders(keys, &mut out);
    let mut out: Vec<_> = out.iter().map(|holder| (holder.slot.0, holder.blocks)).collect();
    out.sort_unstable();
    out
}

fn evicted(index: &PrefixIndex, cause: Cause) -> u64 {
    index.stats().evicted(cause)
}

/// Nothing pinned, both sides of the index the same, no entry lost.
fn assert_at_rest(index: &PrefixIndex) {
    let mut entries = 0;
    for seat in index.inner.seats.read().taken.iter().flatten() {
        let seat = seat.lock(&index.inner);
        assert_eq!(seat.state.share.assert_consistent(), 0, "a pin is left");
        entries += seat.state.share.len() as u64;
        for key in seat.state.share.keys() {
            let slot = seat.slot();
            assert!(held(index, &[key]).contains(&(slot.0, 1)), "an owner is not found");
        }
    }
    let stats = index.stats();
    assert_eq!(stats.entries, entries);
    assert_eq!(index.inner.owners.pairs(), entries, "an owner holds nothing");
}

#[test]
fn a_worker_owns_the_prompt_from_dispatch_on() {
    let index = index(100, 100);
    let (a, b) = (index.add().unwrap(), index.add().unwrap());
    let keys = chain(1, 10);
    let on_a = index.credit(a, &keys);
    let on_b = index.credit(b, &keys[..4]);
    assert_eq!(held(&index, &keys), [(a.0, 10), (b.0, 4)]);
    assert_eq!(held(&index, &keys[..2]), [(a.0, 2), (b.0, 2)]);
    assert_eq!((on_a.blocks(), on_b.blocks()), (10, 4));
    on_a.completed();
    on_b.completed();
    assert_eq!(held(&index, &keys), [(a.0, 10), (b.0, 4)]);
    assert_eq!((index.owned(a), index.owned(b), index.stats().blocks), (10, 4, 10));
    assert_at_rest(&index);
}

#[test]
fn a_refused_credit_is_taken_back() {
    let index = index(100, 100);
    let slot = index.add().unwrap();
    index.credit(slot, &chain(1, 4)).completed();
    index.credit(slot, &chain(1, 10)).refused();
    assert_eq!(held(&index, &chain(1, 10)), [(slot.0, 4)]);
    assert_eq!(index.stats().evictions, [0; 5]);
    assert_at_rest(&index);
}

#[test]
fn a_refusal_leaves_what_others_pinned_or_completed() {
    let index = index(100, 100);
    let slot = index.add().unwrap();
    let refused = index.credit(slot, &chain(1, 10));
    let pinning = index.credit(slot, &chain(1, 6));
    index.credit(slot, &chain(1, 3)).completed();
    refused.refused();
    assert_eq!(held(&index, &chain(1, 10)), [(slot.0, 6)]);
    pinning.refused();
    assert_eq!(held(&index, &chain(1, 10)), [(slot.0, 3)]);
    assert_at_rest(&index);
}

#[test]
fn blocks_in_flight_are_not_evicted_and_count_from_the_first_byte() {
    let index = index(100, 10);
    let slot = index.add().unwrap();
    index.credit(slot, &chain(1, 8)).completed();
    let mut flying = index.credit(slot, &chain(2, 8));
    assert_eq!(held(&index, &chain(1, 8)), [(slot.0, 8)]);
    flying.first_byte();
    assert_eq!(held(&index, &chain(1, 8)), [(slot.0, 2)]);
    assert_eq!(held(&index, &chain(2, 8)), [(slot.0, 8)]);
    index.credit(slot, &chain(3, 9)).completed();
    assert_eq!(held(&index, &chain(1, 8)), []);
    assert_eq!(held(&index, &chain(2, 8)), [(slot.0, 8)]);
    assert_eq!(held(&index, &chain(3, 9)), [(slot.0, 2)]);
    assert_eq!(evicted(&index, Cause::Capacity), 6 + 2 + 7);
    flying.completed();
    assert_at_rest(&index);
}

#[test]
fn the_first_byte_counts_once() {
    let index = index(100, 10);
    let slot = index.add().unwrap();
    let mut credit = index.credit(slot, &chain(1, 8));
    credit.first_byte();
    credit.first_byte();
    credit.completed();
    assert_eq!(index.owned(slot), 8);
    assert_at_rest(&index);
}

#[test]
fn completion_makes_a_prompt_most_recent() {
    let index = index(100, 10);
    let slot = index.add().unwrap();
    index.credit(slot, &chain(1, 4)).completed();
    index.credit(slot, &chain(2, 4)).completed();
    index.credit(slot, &chain(1, 4)).completed();
    index.credit(slot, &chain(3, 4)).completed();
    assert_eq!(held(&index, &chain(1, 4)), [(slot.0, 4)]);
    assert_eq!(held(&index, &chain(2, 4)), [(slot.0, 2)]);
}

#[test]
fn a_client_that_left_before_the_first_byte_pushes_nobody_out() {
    let index = index(100, 10);
    let slot = index.add().unwrap();
    index.credit(slot, &chain(1, 6)).completed();
    drop(index.credit(slot, &chain(2, 8)));
    assert_eq!(held(&index, &chain(1, 6)), [(slot.0, 6)]);
    assert_eq!(held(&index, &chain(2, 8)), [(slot.0, 4)]);
    assert_at_rest(&index);
}

#[test]
fn a_client_that_left_after_the_first_byte_leaves_a_cached_prompt() {
    let index = index(100, 10);
    let slot = index.add().unwrap();
    index.credit(slot, &chain(1, 6)).completed();
    let mut credit = index.credit(slot, &chain(2, 8));
    credit.first_byte();
    drop(credit);
    assert_eq!(held(&index, &chain(1, 6)), [(slot.0, 2)]);
    assert_eq!(held(&index, &chain(2, 8)), [(slot.0, 8)]);
    assert_at_rest(&index);
}

#[test]
fn a_refusal_after_an_abandoned_request_keeps_the_chain_whole() {
    let index = index(100, 100);
    let slot = index.add().unwrap();
    let short = index.credit(slot, &chain(1, 3));
    drop(index.credit(slot, &chain(1, 6)));
    short.refused();
    assert_eq!(held(&index, &chain(1, 6)), [(slot.0, 6)]);
    index.set_capacity(slot, 4);
    assert_eq!(held(&index, &chain(1, 6)), [(slot.0, 4)]);
    assert_at_rest(&index);
}

#[test]
fn a_full_index_evicts_the_least_recently_used_of_all_workers() {
    let index = index(20, 100);
    let (a, b) = (index.add().unwrap(), index.add().unwrap());
    index.credit(a, &chain(1, 8)).completed();
    index.credit(b, &chain(2, 8)).completed();
    index.credit(a, &chain(1, 4)).completed();
    index.credit(a, &chain(3, 6)).completed();
    // Two of the four blocks that only the first request used.
    assert_eq!(held(&index, &chain(1, 8)), [(a.0, 6)]);
    index.credit(b, &chain(4, 6)).completed();
    // The other two, then four of the second request's.
    assert_eq!(held(&index, &chain(1, 8)), [(a.0, 4)]);
    assert_eq!(held(&index, &chain(2, 8)), [(b.0, 4)]);
    assert_eq!((index.stats().entries, evicted(&index, Cause::Global)), (20, 8));
    assert_at_rest(&index);
}

#[test]
fn an_index_full_of_blocks_in_flight_credits_what_fits() {
    let index = index(10, 100);
    let slot = index.add().unwrap();
    let first = index.credit(slot, &chain(1, 8));
    let second = index.credit(slot, &chain(2, 8));
    let third = index.credit(slot, &chain(3, 8));
    assert_eq!([first.blocks(), second.blocks(), third.blocks()], [8, 2, 0]);
    assert_eq!(held(&index, &chain(2, 8)), [(slot.0, 2)]);
    assert_eq!(evicted(&index, Cause::Full), 6 + 8);
    [first, second, third].into_iter().for_each(Credit::completed);
    assert_at_rest(&index);
}

#[test]
fn a_forgotten_worker_owns_nothing_and_its_requests_settle_without_effect() {
    let index = index(100, 100);
    let (a, b) = (index.add().unwrap(), index.add().unwrap());
    index.credit(b, &chain(1, 5)).completed();
    let mut flying: Vec<_> = (0..5).map(|_| index.credit(a, &chain(1, 10))).collect();
    index.forget(a);
    assert_eq!(held(&index, &chain(1, 10)), [(b.0, 5)]);
    let reborn = index.credit(a, &chain(1, 2));
    flying[0].first_byte();
    flying.pop().unwrap().completed();
    flying.pop().unwrap().refused();
    drop(flying);
    assert_eq!(held(&index, &chain(1, 10)), [(a.0, 2), (b.0, 5)]);
    assert_eq!(evicted(&index, Cause::Forgotten), 10);
    reborn.refused();
    assert_at_rest(&index);
}

#[test]
fn what_a_restarted_worker_held_leaves_in_steps_and_spares_what_it_holds_again() {
    let blocks = 2 * STEP as u64 + 1;
    let index = index(blocks + 10, blocks + 10);
    let slot = index.add().unwrap();
    index.credit(slot, &chain(1, blocks)).completed();
    let seat = index.inner.seat(slot).unwrap();
    let next = index.inner.next_life();
    let mut leaving = seat.leave(&index.inner, next, Cause::Forgotten).unwrap();
    assert_eq!((index.owned(slot), index.stats().entries), (0, blocks));
    assert!(leaving.step());
    assert_eq!(evicted(&index, Cause::Forgotten), STEP as u64);
    // A request comes between two steps.
    index.credit(slot, &chain(1, 8)).completed();
    assert!(leaving.step());
    assert!(!leaving.step());
    drop(leaving);
    assert_eq!(held(&index, &chain(1, blocks)), [(slot.0, 8)]);
    assert_eq!(evicted(&index, Cause::Forgotten), blocks);
    assert_at_rest(&index);
}

#[test]
fn room_is_made_in_steps() {
    let blocks = 2 * STEP as u64;
    let index = index(blocks, blocks);
    let slot = index.add().unwrap();
    index.credit(slot, &chain(1, blocks)).completed();
    assert_eq!(index.inner.evict(blocks), Some(STEP as u64));
    index.set_max_entries(10);
    assert_eq!((index.owned(slot), index.stats().entries), (10, 10));
    let credit = index.credit(slot, &chain(2, 9));
    assert_eq!(credit.blocks(), 9);
    credit.completed();
    assert_at_rest(&index);
}

#[test]
fn a_removed_worker_is_not_credited_any_more() {
    let index = index(100, 100);
    let slot = index.add().unwrap();
    let flying = index.credit(slot, &chain(1, 10));
    index.remove(slot);
    index.remove(slot);
    flying.completed();
    let late = index.credit(slot, &chain(1, 10));
    assert_eq!((late.blocks(), index.owned(slot), index.capacity(slot)), (0, 0, None));
    late.completed();
    index.forget(slot);
    index.set_capacity(slot, 5);
    index.reported(slot, 1, 1, 1);
    assert_eq!(held(&index, &chain(1, 10)), []);
    assert_eq!((index.stats().entries, evicted(&index, Cause::Removed)), (0, 10));
}

#[test]
fn a_credit_under_way_while_its_worker_is_removed_adds_nothing() {
    let index = index(100, 100);
    let slot = index.add().unwrap();
    let seat = index.inner.seat(slot).unwrap();
    index.remove(slot);
    // Neither does a restart that was noticed meanwhile bring it back.
    seat.clear(&index.inner, index.inner.next_life(), Cause::Forgotten);
    assert!(Inner::pin(&index.inner, seat, &chain(1, 4)).is_none());
    assert_eq!(index.stats().entries, 0);
}

#[test]
fn a_credit_under_way_while_its_worker_is_forgotten_adds_nothing() {
    let index = index(100, 100);
    let slot = index.add().unwrap();
    index.credit(slot, &chain(1, 2)).completed();
    let seat = index.inner.seat(slot).unwrap();
    let held = Pinned::held(Arc::clone(&index.inner), seat, &chain(1, 4)).unwrap();
    let reserved = index.inner.reserve(2);
    index.forget(slot);
    assert!(held.with_rest(&chain(1, 4)[2..], reserved).is_none());
    assert_eq!(index.owned(slot), 0);
    assert_at_rest(&index);
}

#[test]
fn a_block_added_meanwhile_is_shared_and_its_entry_given_back() {
    let index = index(100, 100);
    let slot = index.add().unwrap();
    let seat = index.inner.seat(slot).unwrap();
    let under_way = Pinned::held(Arc::clone(&index.inner), seat, &chain(1, 4)).unwrap();
    let reserved = index.inner.reserve(4);
    index.credit(slot, &chain(1, 3)).refused();
    let other = index.credit(slot, &chain(1, 3));
    let both = Credit::new(under_way.with_rest(&chain(1, 4), reserved));
    other.refused();
    assert_eq!(held(&index, &chain(1, 4)), [(slot.0, 4)]);
    both.refused();
    assert_at_rest(&index);
}

#[test]
fn vacant_slots_rest_before_they_are_used_again() {
    let index = index(100, 100);
    let first = index.add().unwrap();
    index.remove(first);
    let others: Vec<_> = (0..VACANT_SLOTS_KEPT).map(|_| index.add().unwrap()).collect();
    assert!(!others.contains(&first));
    others.iter().for_each(|&slot| index.remove(slot));
    assert_eq!(index.add(), Some(first));
    assert_eq!(index.add(), Some(Slot(VACANT_SLOTS_KEPT as u16 + 1)));
}

#[test]
fn there_are_so_many_workers_and_no_more() {
    let index = index(100, 100);
    let slots: Vec<_> = std::iter::from_fn(|| index.add()).collect();
    assert_eq!(slots.len(), MAX_WORKERS);
    index.remove(slots[7]);
    assert_eq!((index.add(), index.add()), (Some(slots[7]), None));
    let last = slots[MAX_WORKERS - 1];
    index.credit(last, &chain(1, 1)).completed();
    assert_eq!(held(&index, &chain(1, 1)), [(last.0, 1)]);
}

#[test]
fn reports_correct_the_capacity_and_never_what_is_owned() {
    let index = index(100, 10);
    let slot = index.add().unwrap();
    index.credit(slot, &chain(1, 8)).completed();
    index.reported(slot, 1000, 0, 1000);
    assert_eq!((index.capacity(slot), index.owned(slot)), (Some(9), 8));
    index.reported(slot, 1000, 0, 1000);
    index.reported(slot, 1000, 0, 1000);
    assert_eq!((index.capacity(slot), index.owned(slot)), (Some(7), 7));
    index.set_capacity(slot, 50);
    index.reported(slot, 0, 100, 100);
    index.set_capacity(slot, 50);
    assert_eq!(index.capacity(slot), Some(55));
}

#[test]
fn a_capacity_that_collapses_is_followed_in_steps() {
    let index = index(10_000, 10_000);
    let slot = index.add().unwrap();
    index.credit(slot, &chain(1, 5000)).completed();
    index.set_capacity(slot, 1);
    assert_eq!(index.owned(slot), 5000 - 1024);
    for _ in 0..10 {
        index.credit(slot, &chain(2, 1)).completed();
    }
    assert_eq!(index.owned(slot), 1);
}

#[test]
fn the_largest_prompt_is_credited_whole() {
    let len = crate::prefix::MAX_BLOCKS as u64;
    let index = index(len, 1 << 20);
    let slot = index.add().unwrap();
    index.credit(slot, &chain(1, len)).completed();
    assert_eq!(held(&index, &chain(1, len)), [(slot.0, len as u32)]);
    index.credit(slot, &chain(2, len)).completed();
    assert_eq!(held(&index, &chain(1, len)), []);
    assert_eq!((index.owned(slot), evicted(&index, Cause::Global)), (len, len));
}

#[test]
fn bounds_of_zero_hold_nothing_and_break_nothing() {
    let index = index(0, 0);
    let slot = index.add().unwrap();
    let mut credit = index.credit(slot, &chain(1, 3));
    credit.first_byte();
    credit.completed();
    index.credit(slot, &[]).completed();
    assert_eq!((index.owned(slot), index.stats().entries), (0, 0));
}

#[test]
fn keys_that_are_no_chain_break_nothing() {
    let index = index(100, 2);
    let slot = index.add().unwrap();
    let [a, b, c] = [1, 2, 3].map(PrefixKey);
    index.credit(slot, &[a, b, a, a]).completed();
    drop(index.credit(slot, &[c, a, c, b]));
    index.credit(slot, &[b, b, c]).refused();
    assert_at_rest(&index);
}

#[test]
fn the_shared_beginning_of_a_busy_fleet_is_held_by_all() {
    let index = index(1_000_000, 1000);
    let slots: Vec<_> = (0..1000).map(|_| index.add().unwrap()).collect();
    for &slot in &slots {
        let prompt = [chain(1, 3), chain(2 + u64::from(slot.0), 20)].concat();
        index.credit(slot, &prompt).completed();
    }
    let asked = [chain(1, 3), chain(502, 20)].concat();
    let found = held(&index, &asked);
    assert_eq!(found.len(), 1000);
    assert!(found.iter().all(|&(slot, blocks)| blocks == if slot == 500 { 23 } else { 3 }));
    slots.iter().for_each(|&slot| index.forget(slot));
    assert_eq!((index.stats().entries, index.stats().blocks), (0, 0));
}

#[test]
fn a_lower_bound_evicts_the_least_recently_used_and_a_higher_one_makes_room() {
    let index = index(100, 100);
    let (a, b) = (index.add().unwrap(), index.add().unwrap());
    index.credit(a, &chain(1, 30)).completed();
    index.credit(b, &chain(2, 30)).completed();
    let in_flight = index.credit(a, &chain(3, 30));
    index.set_max_entries(50);
    assert_eq!(held(&index, &chain(1, 30)), []);
    assert_eq!(held(&index, &chain(2, 30)), [(b.0, 20)]);
    index.set_max_entries(10);
    assert_eq!(index.stats().entries, 30, "what is in flight stays");
    in_flight.completed();
    index.credit(b, &chain(4, 5)).completed();
    assert!(index.stats().entries <= 30);
    index.set_max_entries(200);
    index.credit(b, &chain(5, 100)).completed();
    assert_eq!(held(&index, &chain(5, 100)), [(b.0, 100)]);
    assert_at_rest(&index);
}
