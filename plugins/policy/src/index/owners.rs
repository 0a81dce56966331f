//! Which workers hold which block: the side of the index that is read without locks.

use super::owner_set::{Bits, Few, Owners};
use super::seed::Seed;
use super::table::Table;
use crate::fleet::Slot;
use crate::prefix::PrefixKey;
use crate::request::Holder;
use arc_swap::ArcSwap;
use papaya::{Guard, HashMap};
use parking_lot::Mutex;
use std::sync::Arc;

/// Writers of different shards do not meet, and a table that grows is this part of the whole.
const SHARDS: usize = 64;
const FIRST_BUCKETS: usize = 4;
/// At this many owners a bit set becomes a word again. Below what a word takes, so that one
/// worker coming and going does not change the form each time.
const FEW_AGAIN: usize = 2;

#[derive(Debug)]
struct Shard {
    table: ArcSwap<Table>,
    /// Blocks; who holds the lock is the table's writer.
    blocks: Mutex<usize>,
}

/// All blocks and their owners.
#[derive(Debug)]
pub(super) struct OwnerMap {
    seed: Seed,
    shards: Box<[Shard]>,
    /// Owners of the blocks whose word says so: what a fleet has in common.
    many: HashMap<PrefixKey, Bits, Seed>,
}

impl OwnerMap {
    pub(super) fn new(seed: Seed) -> Self {
        let shard = || Shard {
            table: ArcSwap::from_pointee(Table::new(FIRST_BUCKETS)),
            blocks: Mutex::new(0),
        };
        let shards = std::iter::repeat_with(shard).take(SHARDS).collect();
        Self { seed, shards, many: HashMap::with_hasher(seed) }
    }

    /// Different blocks.
    pub(super) fn blocks(&self) -> usize {
        self.shards.iter().map(|shard| *shard.blocks.lock()).sum()
    }

    /// All (block, worker) pairs.
    #[cfg(test)]
    pub(super) fn pairs(&self) -> u64 {
        let guard = self.many.guard();
        let tables = self.shards.iter().map(|shard| shard.table.load());
        let keys = tables.flat_map(|table| table.iter().map(|(key, _)| key).collect::<Vec<_>>());
        keys.filter_map(|key| self.owners(key, &guard))
            .map(|owners| owners.to_bits().count() as u64)
            .sum()
    }

    /// Calls for one worker must not overlap; the lock of its share sees to that.
    pub(super) fn add(&self, key: PrefixKey, slot: Slot) {
        let (shard, hash) = self.shard(key);
        let mut blocks = shard.blocks.lock();
        let table = shard.table.load();
        let Some(entry) = table.find(key, hash) else {
            *blocks += 1;
            let one = Few::from_iter([slot]);
            if *blocks <= table.most() {
                return table.insert(key, hash, one);
            }
            let larger = table.grown(|key| self.seed.hash(key));
            larger.insert(key, hash, one);
            return shard.table.store(Arc::new(larger));
        };
        let few = table.owners(entry);
        if few == Few::MANY {
            self.change_many(key, |bits| bits.insert(slot));
        } else if few.contains(slot) {
            // Owned already.
        } else if let Some(more) = few.with(slot) {
            table.set(entry, more);
        } else {
            let bits = few.iter().chain([slot]).collect();
            self.many.pin().insert(key, bits);
            table.set(entry, Few::MANY);
        }
    }

    /// As [`OwnerMap::add`].
    pub(super) fn remove(&self, key: PrefixKey, slot: Slot) {
        let (shard, hash) = self.shard(key);
        let mut blocks = shard.blocks.lock();
        let table = shard.table.load();
        let Some(entry) = table.find(key, hash) else {
            return;
        };
        let few = table.owners(entry);
        if few == Few::MANY {
            let left = self.change_many(key, |bits| bits.remove(slot));
            if let Some(few) = left {
                table.set(entry, few);
                self.many.pin().remove(&key);
            }
            return;
        }
        let left = few.without(slot);
        if left == Few::NOBODY {
            *blocks -= 1;
            table.remove(entry, hash);
        } else {
            table.set(entry, left);
        }
    }

    /// Replaces a bit set; returns what it holds if that is few again.
    fn change_many(&self, key: PrefixKey, change: impl FnOnce(&mut Bits)) -> Option<Few> {
        let many = self.many.pin();
        let mut bits = many.get(&key).cloned().unwrap_or_default();
        change(&mut bits);
        let few = (bits.count() <= FEW_AGAIN).then(|| bits.iter().collect());
        many.insert(key, bits);
        few
    }

    fn shard(&self, key: PrefixKey) -> (&Shard, u64) {
        let hash = self.seed.hash(key);
        // The high bits; the low ones choose the bucket.
        (&self.shards[(hash >> 32) as usize % SHARDS], hash)
    }

    fn owners<'g>(&'g self, key: PrefixKey, guard: &'g impl Guard) -> Option<Owners<'g>> {
        let (shard, hash) = self.shard(key);
        loop {
            let few = shard.table.load().get(key, hash);
            if few == Few::NOBODY {
                return None;
            }
            if few != Few::MANY {
                return Some(Owners::Few(few));
            }
            if let Some(bits) = self.many.get(&key, guard) {
                return Some(Owners::Many(bits));
            }
            // It became few between the two steps: the word knows better now.
        }
    }

    /// See [`super::PrefixIndex::holders`].
    pub(super) fn holders(&self, keys: &[PrefixKey], out: &mut Vec<Holder>) {
        out.clear();
        let guard = self.many.guard();
        let Some(owners) = keys.first().and_then(|&first| self.owners(first, &guard)) else {
            return;
        };
        let everybody = owners.to_bits();
        Search { map: self, guard: &guard, keys }.deepen(0, keys.len(), everybody, out);
    }
}

/// One look-up.
///
/// A worker that holds block `i` holds block `i - 1` (shares grow from the root and shrink from
/// the leaves), so the depth of each holder is found by bisection: a look-up costs the logarithm
/// of the prompt's length for every depth at which holders differ, not a step per block.
struct Search<'a, G> {
    map: &'a OwnerMap,
    guard: &'a G,
    keys: &'a [PrefixKey],
}

impl<G: Guard> Search<'_, G> {
    /// All of `who` hold block `low`; none holds block `high`.
    fn deepen(&self, mut low: usize, mut high: usize, mut who: Bits, out: &mut Vec<Holder>) {
        while low + 1 < high && !who.is_empty() {
            let middle = low + (high - low) / 2;
            let Some(owners) = self.map.owners(self.keys[middle], self.guard) else {
                high = middle;
                continue;
            };
            let deep = who.who_own(owners);
            if deep.is_empty() {
                high = middle;
                continue;
            }
            who.subtract(&deep);
            if who.is_empty() {
                (low, who) = (middle, deep);
            } else {
                self.deepen(middle, high, deep, out);
                high = middle;
            }
        }
        let blocks = u32::try_from(low + 1).unwrap_or(u32::MAX);
        out.reserve(who.count());
        out.extend(who.iter().map(|slot| Holder { slot, blocks }));
    }
}

#[cfg(test)]
mod tests;
