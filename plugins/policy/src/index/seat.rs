//! One worker's place in an index, and the only way to change what it holds.

use super::Inner;
use super::limits::{Capacity, Cause};
use super::share::{Place, Share, Tick};
use crate::fleet::Slot;
use crate::prefix::PrefixKey;
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::Ordering;

/// Blocks dropped under one lock beyond those a request made count itself: a capacity that shrank
/// is followed in such steps, and a life that is over, so that no request waits for all of it.
pub(super) const STEP: usize = 1024;

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
    /// Held while a life's blocks leave, so that the slot is vacant only when all have.
    leaving: Mutex<()>,
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
        Self { slot, leaving: Mutex::default(), state: Mutex::new(state) }
    }

    pub(super) fn lock<'a>(&'a self, index: &'a Inner) -> Seated<'a> {
        Seated { index, slot: self.slot, state: self.state.lock() }
    }

    /// Drops everything; credits given so far will settle without effect. Nothing happens after
    /// [`Life::Over`].
    pub(super) fn clear(&self, index: &Inner, next: Life, cause: Cause) {
        if let Some(mut leaving) = self.leave(index, next, cause) {
            while leaving.step() {}
        }
    }

    /// The next life begins, and owns nothing.
    pub(super) fn leave<'a>(
        &'a self,
        index: &'a Inner,
        next: Life,
        cause: Cause,
    ) -> Option<Leaving<'a>> {
        let alone = self.leaving.lock();
        let mut seated = self.lock(index);
        if seated.state.life == Life::Over {
            return None;
        }
        seated.state.life = next;
        let share = std::mem::replace(&mut seated.state.share, Share::new(index.seed));
        drop(seated);
        let keys = share.keys().collect();
        Some(Leaving { seat: self, index, cause, keys, _alone: alone })
    }
}

/// What a worker held in a life that is over. Until it is gone, readers may still find some of it.
pub(super) struct Leaving<'a> {
    seat: &'a Seat,
    index: &'a Inner,
    cause: Cause,
    keys: Vec<PrefixKey>,
    _alone: MutexGuard<'a, ()>,
}

impl Leaving<'_> {
    /// Drops at most [`STEP`] blocks; `false` if none are left.
    pub(super) fn step(&mut self) -> bool {
        let step = self.keys.split_off(self.keys.len().saturating_sub(STEP));
        let seated = self.seat.lock(self.index);
        for &key in &step {
            // Held again in the life that runs: that one's by now.
            if !seated.state.share.holds(key) {
                self.index.owners.remove(key, self.seat.slot);
            }
        }
        self.index.entries.release(step.len() as u64);
        self.index.evictions.add(self.cause, step.len() as u64);
        !self.keys.is_empty()
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
        for _ in 0..extra.saturating_add(STEP) {
            let fits = self.state.share.counted() <= self.state.capacity.blocks();
            if fits || !self.evict_coldest(Cause::Capacity) {
                return;
            }
        }
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
