//! Who holds what: one model's prefix keys and the workers believed to have them cached.
//!
//! Predictive: the worker chosen for a request is credited with its blocks at dispatch (see
//! [`Credit`]). It mirrors the engine's cache: blocks in flight are pinned, tokens count from the
//! first byte, and the least recently used leaf goes first. What responses report as cached
//! corrects the believed capacity and never what is owned.
//!
//! Reading takes no lock. Writing takes one worker's lock at a time and, within it, the lock of
//! one part of the owners' table. A (block, worker) pair takes 50 to 80 bytes, at most 100 with what
//! growing leaves behind; what an index has taken for blocks it keeps for later ones.

mod credit;
mod limits;
mod owner_set;
mod owners;
mod room;
mod seat;
mod seed;
mod share;
mod table;
mod warm;

pub use credit::Credit;
pub use limits::{Cause, Limits, Stats, UNKNOWN_CAPACITY_TOKENS};
pub use warm::Warm;

use crate::fleet::Slot;
use crate::prefix::PrefixKey;
use crate::request::Holder;
use credit::Pinned;
use limits::{Capacity, Evictions};
use owners::OwnerMap;
use parking_lot::RwLock;
use room::{ColdEnds, Entries, age};
use seat::{Life, STEP, Seat, State};
use seed::Seed;
use share::{Share, Tick};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Most workers of one model.
pub const MAX_WORKERS: usize = 16_384;

/// A slot is used again only when more than this many are vacant, the longest vacant first:
/// decisions made on an old snapshot then meet a vacant slot, not a stranger.
const VACANT_SLOTS_KEPT: usize = 64;

/// Looks for room that may find that another thread was faster.
const SPARE_ATTEMPTS: u64 = 16;

/// One model's index. Clones are the same index.
#[derive(Clone, Debug)]
pub struct PrefixIndex {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    limits: Limits,
    seed: Seed,
    owners: OwnerMap,
    seats: RwLock<Seats>,
    cold_ends: ColdEnds,
    entries: Entries,
    clock: AtomicU32,
    lives: AtomicU64,
    evictions: Evictions,
}

/// By slot; `None` = vacant.
#[derive(Debug, Default)]
struct Seats {
    taken: Vec<Option<Arc<Seat>>>,
    vacant: VecDeque<Slot>,
}

impl PrefixIndex {
    /// An empty index without workers.
    pub fn new(limits: Limits) -> Self {
        let seed = Seed(limits.seed);
        let inner = Inner {
            limits,
            seed,
            owners: OwnerMap::new(seed),
            seats: RwLock::default(),
            cold_ends: ColdEnds::new(MAX_WORKERS),
            entries: Entries::new(limits.max_entries),
            clock: AtomicU32::new(0),
            lives: AtomicU64::new(0),
            evictions: Evictions::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// A slot for a new worker, which owns nothing; `None` if there are [`MAX_WORKERS`].
    pub fn add(&self) -> Option<Slot> {
        let mut seats = self.inner.seats.write();
        let slot = seats.free_slot()?;
        let state = State {
            life: self.inner.next_life(),
            share: Share::new(self.inner.seed),
            capacity: Capacity::new(self.inner.limits.unknown_capacity),
        };
        seats.taken[usize::from(slot.0)] = Some(Arc::new(Seat::new(slot, state)));
        Some(slot)
    }

    /// Forgets a worker for good and gives its slot back. Its credits settle without effect.
    pub fn remove(&self, slot: Slot) {
        let seat = {
            let mut seats = self.inner.seats.write();
            seats.taken.get_mut(usize::from(slot.0)).and_then(Option::take)
        };
        let Some(seat) = seat else { return };
        seat.clear(&self.inner, Life::Over, Cause::Removed);
        // Only now: the slot's next worker must not meet this one's blocks.
        self.inner.seats.write().vacant.push_back(slot);
    }

    /// The worker restarted or its cache was flushed: it owns nothing. Its credits settle without
    /// effect; what was learned of its capacity stays.
    pub fn forget(&self, slot: Slot) {
        if let Some(seat) = self.inner.seat(slot) {
            seat.clear(&self.inner, self.inner.next_life(), Cause::Forgotten);
        }
    }

    /// The worker's KV capacity in blocks, from its report or configuration, slack included. Said
    /// again without change it keeps what responses have corrected.
    pub fn set_capacity(&self, slot: Slot, blocks: u64) {
        if let Some(seat) = self.inner.seat(slot) {
            let mut seat = seat.lock(&self.inner);
            seat.state.capacity.restart(blocks);
            seat.shrink(0);
        }
    }

    /// Another bound on (block, worker) pairs. A lower one evicts what is beyond it, the least
    /// recently used of all workers first; blocks in flight stay until they are not.
    pub fn set_max_entries(&self, most: u64) {
        self.inner.entries.set_most(most);
        let mut attempts = self.inner.entries.excess().saturating_add(SPARE_ATTEMPTS);
        while 0 < attempts {
            let excess = self.inner.entries.excess();
            if excess == 0 {
                return;
            }
            let Some(evicted) = self.inner.evict(excess) else { return };
            attempts = attempts.saturating_sub(evicted.max(1));
        }
    }

    /// Believed capacity in blocks; `None` for a vacant slot.
    pub fn capacity(&self, slot: Slot) -> Option<u64> {
        let seat = self.inner.seat(slot)?;
        let seat = seat.lock(&self.inner);
        Some(seat.state.capacity.blocks())
    }

    /// Corrects the believed capacity by what a response reports as cached:
    /// `capacity *= 1 + 0.1 * (reported - predicted) / input`, all in tokens, within a factor 16
    /// of where it started.
    pub fn reported(&self, slot: Slot, predicted: u64, reported: u64, input: u64) {
        if let Some(seat) = self.inner.seat(slot) {
            let mut seat = seat.lock(&self.inner);
            seat.state.capacity.correct(predicted, reported, input);
            seat.shrink(0);
        }
    }

    /// Every worker that holds block 0 of the chain, once, in no order, with the number of blocks
    /// it holds contiguously from there. Replaces the contents of `out`.
    ///
    /// Other threads may write meanwhile. Then the answer for a worker is what it held at some
    /// instant of the call.
    pub fn holders(&self, keys: &[PrefixKey], out: &mut Vec<Holder>) {
        self.inner.owners.holders(keys, out);
    }

    /// Credits the worker with the chain `keys`, all of it from block 0, for a request sent to it
    /// now. A vacant slot gives a credit of nothing.
    pub fn credit(&self, slot: Slot, keys: &[PrefixKey]) -> Credit {
        Credit::new(self.inner.seat(slot).and_then(|seat| Inner::pin(&self.inner, seat, keys)))
    }

    /// Blocks the worker holds.
    pub fn owned(&self, slot: Slot) -> u64 {
        self.inner.seat(slot).map_or(0, |seat| seat.lock(&self.inner).state.share.len() as u64)
    }

    /// Size, and what was dropped so far.
    pub fn stats(&self) -> Stats {
        Stats {
            entries: self.inner.entries.used(),
            blocks: self.inner.owners.blocks() as u64,
            evictions: self.inner.evictions.read(),
        }
    }
}

impl Seats {
    /// A slot whose place in `taken` exists and is empty.
    fn free_slot(&mut self) -> Option<Slot> {
        let keep = self.vacant.len() <= VACANT_SLOTS_KEPT;
        if keep && self.taken.len() < MAX_WORKERS {
            let slot = u16::try_from(self.taken.len()).ok()?;
            self.taken.push(None);
            return Some(Slot(slot));
        }
        self.vacant.pop_front()
    }
}

impl Inner {
    fn seat(&self, slot: Slot) -> Option<Arc<Seat>> {
        self.seats.read().taken.get(usize::from(slot.0)).cloned().flatten()
    }

    fn next_life(&self) -> Life {
        Life::Epoch(self.lives.fetch_add(1, Ordering::Relaxed))
    }

    /// Pins what the worker holds of the chain, makes room for the rest without holding its lock
    /// (room may have to come from any worker, this one too), and adds the rest.
    fn pin(self: &Arc<Self>, seat: Arc<Seat>, keys: &[PrefixKey]) -> Option<Pinned> {
        let held = Pinned::held(Arc::clone(self), seat, keys)?;
        let missing = &keys[held.places.len()..];
        let reserved = self.reserve(missing.len() as u64);
        held.with_rest(missing, reserved)
    }

    /// Reserves entries, evicting the least recently used of all workers where none are free.
    /// Fewer than wanted only if the rest is in flight, or other requests take what is evicted.
    fn reserve(&self, wanted: u64) -> u64 {
        let mut reserved = self.entries.reserve(wanted);
        let mut attempts = wanted.saturating_add(SPARE_ATTEMPTS);
        while reserved < wanted && 0 < attempts {
            let Some(evicted) = self.evict(wanted - reserved) else {
                break;
            };
            attempts = attempts.saturating_sub(evicted.max(1));
            reserved += self.entries.reserve(wanted - reserved);
        }
        self.evictions.add(Cause::Full, wanted - reserved);
        reserved
    }

    /// Evicts at most `wanted` blocks, and at most [`STEP`], of the worker with the least recently
    /// used one, as long as no other worker has a colder one. `None` if no worker has any.
    fn evict(&self, wanted: u64) -> Option<u64> {
        let wanted = wanted.min(STEP as u64);
        let now = Tick(self.clock.load(Ordering::Relaxed));
        let (seat, runner_up) = {
            let seats = self.seats.read();
            let coldest = self.cold_ends.coldest(seats.taken.len(), now)?;
            (seats.taken[usize::from(coldest.slot.0)].clone(), coldest.runner_up)
        };
        // Being removed, which makes room too.
        let Some(seat) = seat else { return Some(0) };
        let mut seated = seat.lock(self);
        let mut evicted = 0;
        while evicted < wanted {
            let coldest = seated.state.share.coldest_tick();
            let is_coldest = coldest.is_some_and(|used| runner_up <= age(now, used));
            if !is_coldest || !seated.evict_coldest(Cause::Global) {
                break;
            }
            evicted += 1;
        }
        Some(evicted)
    }
}

#[cfg(test)]
mod tests;
