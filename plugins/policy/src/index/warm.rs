//! What one worker is believed to hold, taken out of one process and put into another.

use super::limits::Cause;
use super::{Inner, PrefixIndex};
use crate::fleet::Slot;
use crate::prefix::PrefixKey;

/// One worker's side of an index.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Warm {
    /// Its blocks, the least recently used first; the block before another in a chain comes after it.
    pub keys: Vec<PrefixKey>,
    /// Believed capacity over what its report or configuration says, see [`PrefixIndex::reported`].
    pub correction: f64,
}

/// Blocks put in while a worker's lock is held once.
const RESTORE_STEP: usize = 4096;

impl PrefixIndex {
    /// What a worker holds now; blocks in flight as if they had just been used. `None` for a vacant
    /// slot.
    pub fn warm(&self, slot: Slot) -> Option<Warm> {
        let seat = self.inner.seat(slot)?;
        let seat = seat.lock(&self.inner);
        let correction = seat.state.capacity.correction();
        Some(Warm { keys: seat.state.share.coldest_first(), correction })
    }

    /// Credits a worker with what it held in another process: as used now, in that order. What it
    /// already holds stays where it is. If not all fits, the least recently used are left out.
    pub fn restore(&self, slot: Slot, warm: &Warm) {
        let Some(seat) = self.inner.seat(slot) else { return };
        seat.lock(&self.inner).state.capacity.set_correction(warm.correction);
        let most = usize::try_from(self.capacity(slot).unwrap_or(0)).unwrap_or(usize::MAX);
        let fitting = &warm.keys[warm.keys.len().saturating_sub(most)..];
        let reserved = self.inner.entries.reserve(fitting.len() as u64) as usize;
        self.inner.evictions.add(Cause::Full, (fitting.len() - reserved) as u64);
        // From the end of the chains' leaves: whatever is left out has no successor that is not.
        let fitting = &fitting[fitting.len() - reserved..];
        let mut unused = 0;
        for step in fitting.chunks(RESTORE_STEP) {
            unused += Inner::put(&self.inner, &seat, step);
        }
        self.inner.entries.release(unused);
        seat.lock(&self.inner).shrink(fitting.len());
    }
}

impl Inner {
    /// Lists these blocks as used now, the last one latest; returns how many were held already.
    fn put(&self, seat: &super::Seat, keys: &[PrefixKey]) -> u64 {
        let mut seated = seat.lock(self);
        let mut held = 0;
        for &key in keys {
            if seated.state.share.holds(key) {
                held += 1;
                continue;
            }
            let now = seated.tick();
            let place = seated.insert(key, 0);
            let share = &mut seated.state.share;
            share.count(place);
            share.unpin(place);
            share.list_newest(place, now);
        }
        held
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::Limits;
    use super::*;
    use crate::request::Holder;

    const LIMITS: Limits = Limits { max_entries: 1_000, unknown_capacity: 100, seed: 7 };

    fn chain(name: u64, blocks: u64) -> Vec<PrefixKey> {
        (0..blocks).map(|block| PrefixKey(name << 32 | block)).collect()
    }

    fn depth(index: &PrefixIndex, keys: &[PrefixKey]) -> Vec<Holder> {
        let mut holders = Vec::new();
        index.holders(keys, &mut holders);
        holders
    }

    #[test]
    fn another_index_finds_the_same_owners_at_the_same_depth() {
        let old = PrefixIndex::new(LIMITS);
        let slot = old.add().unwrap();
        let (first, second) = (chain(1, 20), chain(2, 30));
        old.credit(slot, &first).completed();
        let in_flight = old.credit(slot, &second);
        old.reported(slot, 100, 0, 100);
        let warm = old.warm(slot).unwrap();
        assert_eq!(warm.keys.len(), 50);
        let new = PrefixIndex::new(Limits { seed: 8, ..LIMITS });
        let there = new.add().unwrap();
        new.restore(there, &warm);
        for keys in [&first, &second] {
            assert_eq!(depth(&new, keys), depth(&old, keys));
        }
        assert_eq!(new.capacity(there), old.capacity(slot));
        assert_eq!(new.warm(there).unwrap(), warm);
        assert_eq!(new.stats().entries, 50);
        drop(in_flight);
    }

    #[test]
    fn the_most_recent_are_kept_where_not_all_fit_and_chains_stay_whole() {
        let old = PrefixIndex::new(LIMITS);
        let slot = old.add().unwrap();
        let (cold, hot) = (chain(1, 40), chain(2, 50));
        old.credit(slot, &cold).completed();
        old.credit(slot, &hot).completed();
        let warm = old.warm(slot).unwrap();
        for limits in
            [Limits { unknown_capacity: 60, ..LIMITS }, Limits { max_entries: 60, ..LIMITS }]
        {
            let new = PrefixIndex::new(limits);
            let there = new.add().unwrap();
            new.restore(there, &warm);
            assert_eq!(depth(&new, &hot), [Holder { slot: there, blocks: 50 }]);
            assert_eq!(depth(&new, &cold), [Holder { slot: there, blocks: 10 }]);
            assert_eq!(new.stats().entries, 60);
        }
    }

    #[test]
    fn what_is_held_already_is_not_put_in_twice() {
        let index = PrefixIndex::new(LIMITS);
        let slot = index.add().unwrap();
        let keys = chain(1, 20);
        index.credit(slot, &keys).completed();
        let warm = index.warm(slot).unwrap();
        index.restore(slot, &warm);
        assert_eq!(index.stats().entries, 20);
        assert_eq!(index.owned(slot), 20);
        index.restore(Slot(9), &warm);
        assert_eq!(index.stats().entries, 20);
    }

    #[test]
    fn a_nonsensical_correction_changes_nothing() {
        let index = PrefixIndex::new(LIMITS);
        let slot = index.add().unwrap();
        for (correction, capacity) in
            [(f64::NAN, 100), (f64::INFINITY, 100), (-3.0, 6), (1e9, 1_600)]
        {
            index.restore(slot, &Warm { keys: Vec::new(), correction });
            assert_eq!(index.capacity(slot), Some(capacity), "{correction}");
            index.restore(slot, &Warm { keys: Vec::new(), correction: 1.0 });
        }
    }
}
