use super::*;
use proptest::prelude::*;

fn chain(len: u64) -> Vec<PrefixKey> {
    (1..=len).map(PrefixKey).collect()
}

fn found(map: &OwnerMap, keys: &[PrefixKey]) -> Vec<(u16, u32)> {
    let mut out = vec![Holder { slot: Slot(999), blocks: 999 }];
    map.holders(keys, &mut out);
    let mut out: Vec<_> = out.iter().map(|holder| (holder.slot.0, holder.blocks)).collect();
    out.sort_unstable();
    out
}

#[test]
fn a_look_up_replaces_what_was_in_the_list() {
    let map = OwnerMap::new(Seed(1));
    assert_eq!(found(&map, &chain(5)), []);
    assert_eq!(found(&map, &[]), []);
}

proptest! {
    #[test]
    fn every_holder_is_found_with_its_depth(
        len in 1u64..300,
        depths in prop::collection::vec(0u64..320, 0..40),
    ) {
        let map = OwnerMap::new(Seed(7));
        let keys = chain(len);
        let mut expected = Vec::new();
        for (slot, depth) in (0u16..).zip(depths) {
            for &key in &chain(depth) {
                map.add(key, Slot(slot));
            }
            let blocks = depth.min(len) as u32;
            if 0 < blocks {
                expected.push((slot, blocks));
            }
        }
        prop_assert_eq!(found(&map, &keys), expected);
    }
}

#[test]
fn a_thousand_holders_of_different_depths_are_found() {
    let map = OwnerMap::new(Seed(7));
    for slot in 0..1000 {
        for &key in &chain(u64::from(slot) + 1) {
            map.add(key, Slot(slot));
        }
    }
    let expected: Vec<_> = (0..1000).map(|slot| (slot, u32::from(slot).min(799) + 1)).collect();
    assert_eq!(found(&map, &chain(800)), expected);
}

#[test]
fn blocks_without_owners_are_gone() {
    let map = OwnerMap::new(Seed(7));
    map.add(PrefixKey(1), Slot(1));
    map.add(PrefixKey(1), Slot(1));
    map.add(PrefixKey(1), Slot(2));
    map.remove(PrefixKey(1), Slot(1));
    map.remove(PrefixKey(1), Slot(1));
    assert_eq!(found(&map, &chain(1)), [(2, 1)]);
    map.remove(PrefixKey(1), Slot(2));
    map.remove(PrefixKey(2), Slot(2));
    assert_eq!(map.blocks(), 0);
}

#[test]
fn owners_may_become_many_and_few_again() {
    let map = OwnerMap::new(Seed(7));
    let slots: Vec<u16> = (0..9).collect();
    let owners = |map: &OwnerMap| found(map, &chain(1)).into_iter().map(|(slot, _)| slot);
    for round in 0..3 {
        for &slot in &slots {
            map.add(PrefixKey(1), Slot(slot));
            map.add(PrefixKey(1), Slot(slot));
            assert!(owners(&map).eq(0..=slot), "round {round}");
        }
        for &slot in &slots {
            map.remove(PrefixKey(1), Slot(slot));
            map.remove(PrefixKey(1), Slot(slot));
            assert!(owners(&map).eq(slot + 1..9), "round {round}");
        }
        assert_eq!((map.blocks(), map.many.len()), (0, 0));
    }
}

#[test]
fn tables_grow_with_the_blocks() {
    let map = OwnerMap::new(Seed(7));
    let keys = chain(20_000);
    keys.iter().for_each(|&key| map.add(key, Slot(1)));
    assert_eq!((map.blocks(), map.pairs()), (20_000, 20_000));
    assert_eq!(found(&map, &keys), [(1, 20_000)]);
    keys.iter().for_each(|&key| map.remove(key, Slot(1)));
    assert_eq!((map.blocks(), map.pairs()), (0, 0));
}
