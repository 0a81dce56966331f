//! One worker's place in an index, and the only way to change what it holds.

use super::Inner;
use super::limits::{Capacity, Cause};
use super::share::{Place, Share, Tick};
use crate::fleet::Slot;
use crate::prefix::PrefixKey;
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::Ordering;

/// Blocks evicted in one operation beyond those it made count itself: a capacity that shrank is
/// followed in steps, so that no request waits for all of it.
const EVICT_STEP: usize = 1024;

/// Tells a worker's lives apart: what was credited in one life does not count in the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Epoch(u64),
    /// Removed: nothing can be credited any more.
    Over,
}

#[derive(Debug)]
pub(super) struct Seat {
    slot: Slot,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) life: Life,
    pub(super) share: Share,
    pub(super) capacity: Capacity,
}

impl Seat {
    pub(super) fn new(slot: Slot, state: State) -> Self {
        Self { slot, state: Mutex::new(state) }
    }

    pub(super) fn lock<'a>(&'a self, index: &'a Inner) -> Seated<'a> {
        Seated { index, slot: self.slot, state: self.state.lock() }
    }
}

/// A locked share together with the owners' side, which it keeps in step: owners of a block are
/// added from the root and removed from the leaves, under this lock only. Lock order: one seat at
/// a time, nothing else while it is held.
pub(super) struct Seated<'a> {
    index: &'a Inner,
    slot: Slot,
    pub(super) state: MutexGuard<'a, State>,
}

impl Seated<'_> {
    #[cfg(test)]
    pub(super) fn slot(&self) -> Slot {
        self.slot
    }

    /// Adds a block, pinned. The caller has reserved its entry.
    pub(super) fn insert(&mut self, key: PrefixKey, depth: u32) -> Place {
        let place = self.state.share.insert(key, depth);
        self.index.owners.add(key, self.slot);
        place
    }

    /// Takes out a block that is neither pinned nor listed.
    pub(super) fn remove(&mut self, place: Place) {
        let key = self.state.share.remove(place);
        self.dropped(key);
    }

    /// Evicts the least recently used block; `false` if all are pinned.
    pub(super) fn evict_coldest(&mut self, cause: Cause) -> bool {
        let Some(key) = self.state.share.take_coldest() else {
            return false;
        };
        self.dropped(key);
        self.index.evictions.add(cause, 1);
        true
    }

    /// Evicts down to the capacity, at most `extra` and a fixed number of blocks.
    pub(super) fn shrink(&mut self, extra: usize) {
        for _ in 0..extra.saturating_add(EVICT_STEP) {
            let fits = self.state.share.counted() <= self.state.capacity.blocks();
            if fits || !self.evict_coldest(Cause::Capacity) {
                return;
            }
        }
    }

    /// Drops everything; credits given so far will settle without effect.
    pub(super) fn clear(&mut self, next: Life, cause: Cause) {
        let empty = Share::new(self.index.seed);
        let share = std::mem::replace(&mut self.state.share, empty);
        self.state.life = next;
        for key in share.keys() {
            self.dropped(key);
        }
        self.index.evictions.add(cause, share.len() as u64);
    }

    /// A new time of use.
    pub(super) fn tick(&self) -> Tick {
        Tick(self.index.clock.fetch_add(1, Ordering::Relaxed).wrapping_add(1))
    }

    fn dropped(&self, key: PrefixKey) {
        self.index.owners.remove(key, self.slot);
        self.index.entries.release(1);
    }
}

impl Drop for Seated<'_> {
    /// While the lock is still held: who looks for the coldest worker sees the last word.
    fn drop(&mut self) {
        self.index.cold_ends.set(self.slot, self.state.share.coldest_tick());
    }
}
