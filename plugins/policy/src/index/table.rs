//! A hash table of words that is read without locks while one thread at a time writes.
//!
//! Entries lie in buckets of two cache lines and never move. Who finds a bucket full goes on to
//! the next and counts itself in the full one, so that a search knows where to stop, and a
//! removal leaves nothing behind: blocks come and go all the time, and most searches are for
//! blocks that nobody holds.
//!
//! A place is free while its word is 0. A writer stores the key before the word; a reader reads
//! the key, the word, and the key again. Only if the place changed hands twice in between and
//! back to the same key can the word be another key's. That costs one badly routed request.

use super::owner_set::Few;
use crate::prefix::PrefixKey;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const PLACES: usize = 7;
/// Entries per bucket, on average, at which a table is full; more make searches longer.
const MOST_PER_BUCKET: usize = 6;

/// The key's line comes first: most searches end without reading the other.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct Bucket {
    keys: [AtomicU64; PLACES],
    /// Entries that found this bucket full on their way.
    passed: AtomicU32,
    owners: [AtomicU64; PLACES],
}

/// See the module. Reading is [`Table::get`]; everything else is for the one writer.
#[derive(Debug)]
pub(super) struct Table {
    buckets: Box<[Bucket]>,
}

/// An entry of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    bucket: usize,
    place: usize,
}

impl Table {
    /// `buckets` is rounded up to a power of two.
    pub(super) fn new(buckets: usize) -> Self {
        let buckets = buckets.next_power_of_two();
        Self { buckets: std::iter::repeat_with(Bucket::default).take(buckets).collect() }
    }

    /// Entries it takes before a larger one is due.
    pub(super) fn most(&self) -> usize {
        self.buckets.len() * MOST_PER_BUCKET
    }

    /// The owners of a block, [`Few::NOBODY`] if it is not there.
    pub(super) fn get(&self, key: PrefixKey, hash: u64) -> Few {
        let Some(Entry { bucket, place }) = self.find(key, hash) else {
            return Few::NOBODY;
        };
        let bucket = &self.buckets[bucket];
        let owners = bucket.owners[place].load(Ordering::Acquire);
        let is_same = bucket.keys[place].load(Ordering::Relaxed) == key.0;
        if is_same { Few(owners) } else { Few::NOBODY }
    }

    /// Where the block is.
    pub(super) fn find(&self, key: PrefixKey, hash: u64) -> Option<Entry> {
        for at in self.path(hash) {
            let bucket = &self.buckets[at];
            for place in 0..PLACES {
                if bucket.keys[place].load(Ordering::Acquire) == key.0
                    && bucket.owners[place].load(Ordering::Acquire) != 0
                {
                    return Some(Entry { bucket: at, place });
                }
            }
            if bucket.passed.load(Ordering::Acquire) == 0 {
                return None;
            }
        }
        None
    }

    /// Owners of an entry.
    pub(super) fn owners(&self, entry: Entry) -> Few {
        Few(self.buckets[entry.bucket].owners[entry.place].load(Ordering::Acquire))
    }

    /// Changes the owners of an entry, which must leave some.
    pub(super) fn set(&self, entry: Entry, owners: Few) {
        self.buckets[entry.bucket].owners[entry.place].store(owners.0, Ordering::Release);
    }

    /// Adds a block that is not there. The table must hold fewer than [`Table::most`].
    pub(super) fn insert(&self, key: PrefixKey, hash: u64, owners: Few) {
        for at in self.path(hash) {
            let bucket = &self.buckets[at];
            let is_free = |place: &usize| bucket.owners[*place].load(Ordering::Relaxed) == 0;
            if let Some(place) = (0..PLACES).find(is_free) {
                bucket.keys[place].store(key.0, Ordering::Release);
                bucket.owners[place].store(owners.0, Ordering::Release);
                return;
            }
            bucket.passed.fetch_add(1, Ordering::Release);
        }
    }

    /// Frees an entry of this hash.
    pub(super) fn remove(&self, entry: Entry, hash: u64) {
        self.set(entry, Few::NOBODY);
        for at in self.path(hash).take_while(|&at| at != entry.bucket) {
            self.buckets[at].passed.fetch_sub(1, Ordering::Release);
        }
    }

    /// A copy with twice the room.
    pub(super) fn grown(&self, hash: impl Fn(PrefixKey) -> u64) -> Self {
        let larger = Self::new(self.buckets.len() * 2);
        for (key, owners) in self.iter() {
            larger.insert(key, hash(key), owners);
        }
        larger
    }

    /// All entries.
    pub(super) fn iter(&self) -> impl Iterator<Item = (PrefixKey, Few)> {
        let places = self.buckets.iter().flat_map(|bucket| bucket.keys.iter().zip(&bucket.owners));
        places
            .map(|(key, owners)| (key.load(Ordering::Acquire), owners.load(Ordering::Acquire)))
            .filter(|&(_, owners)| owners != 0)
            .map(|(key, owners)| (PrefixKey(key), Few(owners)))
    }

    /// Each bucket once, from the hash's own.
    fn path(&self, hash: u64) -> impl Iterator<Item = usize> {
        let mask = self.buckets.len() - 1;
        let home = hash as usize & mask;
        (0..self.buckets.len()).map(move |step| (home + step) & mask)
    }
}

#[cfg(test)]
mod tests;
