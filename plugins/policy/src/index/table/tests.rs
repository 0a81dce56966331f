#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn few(owner: u16) -> Few {
    Few::from_iter([crate::fleet::Slot(owner)])
}

/// Crowds a few buckets.
fn poor_hash(key: PrefixKey) -> u64 {
    key.0 % 3
}

fn contents(table: &Table) -> BTreeMap<u64, u64> {
    table.iter().map(|(key, owners)| (key.0, owners.0)).collect()
}

#[test]
fn a_bucket_is_two_lines_and_the_keys_are_in_the_first() {
    assert_eq!(size_of::<Bucket>(), 128);
    assert_eq!(std::mem::offset_of!(Bucket, owners), 64);
}

#[test]
fn key_zero_is_a_key_like_any_other() {
    let table = Table::new(1);
    assert_eq!(table.get(PrefixKey(0), 0), Few::NOBODY);
    table.insert(PrefixKey(0), 0, few(3));
    assert_eq!(table.get(PrefixKey(0), 0), few(3));
}

#[test]
fn a_table_can_be_filled_by_one_bucket_s_keys() {
    let table = Table::new(8);
    let most = table.most() as u64;
    (0..most).for_each(|key| table.insert(PrefixKey(key), 5, few(key as u16)));
    assert!((0..most).all(|key| table.get(PrefixKey(key), 5) == few(key as u16)));
    assert_eq!(table.get(PrefixKey(most), 5), Few::NOBODY);
    assert_eq!(contents(&table), contents(&table.grown(|_| 5)));
}

#[test]
fn an_empty_table_remembers_nobody_passing() {
    let table = Table::new(2);
    for round in 0..50 {
        (0..10).for_each(|key| table.insert(PrefixKey(round * 10 + key), 1, few(1)));
        for key in 0..10 {
            let entry = table.find(PrefixKey(round * 10 + key), 1).unwrap();
            table.remove(entry, 1);
        }
    }
    let passed = |bucket: &Bucket| bucket.passed.load(Ordering::Relaxed);
    assert!(table.buckets.iter().all(|bucket| passed(bucket) == 0));
}

proptest! {
    #[test]
    fn it_is_a_map(steps in prop::collection::vec((0u64..30, 0u16..5), 0..300)) {
        let mut model = BTreeMap::new();
        let table = Table::new(6);
        for (key, owner) in steps {
            let key = PrefixKey(key);
            let hash = poor_hash(key);
            match table.find(key, hash) {
                None => {
                    table.insert(key, hash, few(owner));
                    prop_assert!(model.insert(key.0, few(owner).0).is_none());
                }
                Some(entry) if owner == 0 => {
                    table.remove(entry, hash);
                    prop_assert!(model.remove(&key.0).is_some());
                }
                Some(entry) => {
                    table.set(entry, few(owner));
                    prop_assert!(model.insert(key.0, few(owner).0).is_some());
                }
            }
            for key in 0..30 {
                let expected = model.get(&key).copied().unwrap_or(0);
                prop_assert_eq!(table.get(PrefixKey(key), poor_hash(PrefixKey(key))).0, expected);
            }
        }
        prop_assert_eq!(contents(&table.grown(poor_hash)), model);
    }
}
