//! One request's hold on the worker it was sent to.

use super::Inner;
use super::seat::{Life, Seat, Seated};
use super::share::Place;
use crate::prefix::PrefixKey;
use std::sync::Arc;

/// The blocks of a request in flight, credited to its worker and pinned there.
///
/// Settle it with [`Credit::refused`] or [`Credit::completed`]. Dropped unsettled — the client
/// left, the stream broke — it unpins as follows. After the first byte the worker has prefilled
/// the prompt, so that is a completion. Before, nobody knows how far it came: the blocks that
/// only unfinished requests have asked for stay credited, since a client that comes back is best
/// served there, and are the first to be evicted, so that a crowd of impatient clients cannot
/// push out what is known to be cached.
///
/// A worker that was forgotten or removed meanwhile is not touched by any of this.
#[must_use = "a dropped credit counts as a cancelled request"]
pub struct Credit {
    pinned: Option<Pinned>,
}

pub(super) struct Pinned {
    pub(super) index: Arc<Inner>,
    pub(super) seat: Arc<Seat>,
    pub(super) life: Life,
    /// From the root.
    pub(super) places: Vec<Place>,
    pub(super) has_first_byte: bool,
}

impl Credit {
    pub(super) fn new(pinned: Option<Pinned>) -> Self {
        Self { pinned }
    }

    /// Blocks credited and pinned; fewer than the prompt's only if the index is full of blocks
    /// in flight, or the worker is gone.
    pub fn blocks(&self) -> usize {
        self.pinned.as_ref().map_or(0, |pinned| pinned.places.len())
    }

    /// The first content of the answer came: the prompt is prefilled and counts against the
    /// worker's capacity from now on.
    pub fn first_byte(&mut self) {
        if let Some(pinned) = &mut self.pinned {
            if pinned.has_first_byte {
                return;
            }
            pinned.has_first_byte = true;
            pinned.with_seat(Pinned::count);
        }
    }

    /// The worker never accepted the request: takes back every block that no other request has
    /// pinned or brought to a first byte.
    pub fn refused(mut self) {
        if let Some(pinned) = self.pinned.take() {
            pinned.with_seat(Pinned::take_back);
        }
    }

    /// The answer is complete: the blocks become the most recent ones, block 0 last.
    pub fn completed(mut self) {
        if let Some(pinned) = self.pinned.take() {
            pinned.with_seat(Pinned::complete);
        }
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        let Some(pinned) = self.pinned.take() else {
            return;
        };
        if pinned.has_first_byte {
            pinned.with_seat(Pinned::complete);
        } else {
            pinned.with_seat(Pinned::abandon);
        }
    }
}

impl std::fmt::Debug for Credit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credit").field("blocks", &self.blocks()).finish_non_exhaustive()
    }
}

impl Pinned {
    /// Pins the beginning of the chain that the worker holds. `None` if the worker is gone.
    pub(super) fn held(index: Arc<Inner>, seat: Arc<Seat>, keys: &[PrefixKey]) -> Option<Self> {
        let mut places = Vec::with_capacity(keys.len());
        let life = {
            let mut seated = seat.lock(&index);
            let share = &mut seated.state.share;
            places.extend((0..).zip(keys).map_while(|(depth, &key)| share.pin(key, depth)));
            seated.state.life
        };
        let pinned = Self { index, seat, life, places, has_first_byte: false };
        match life {
            Life::Epoch(_) => Some(pinned),
            Life::Over => None,
        }
    }

    /// Adds the rest of the chain, as far as the reserved entries go. `None` if nothing is held
    /// then, or the worker has been forgotten since.
    pub(super) fn with_rest(mut self, rest: &[PrefixKey], mut reserved: u64) -> Option<Self> {
        let mut seat = self.seat.lock(&self.index);
        let is_same_life = seat.state.life == self.life;
        let deeper = u32::try_from(self.places.len()).unwrap_or(u32::MAX)..;
        for (depth, &key) in deeper.zip(rest).take_while(|_| is_same_life) {
            // Another request may have added it since.
            if let Some(place) = seat.state.share.pin(key, depth) {
                self.places.push(place);
            } else if reserved == 0 {
                break;
            } else {
                reserved -= 1;
                self.places.push(seat.insert(key, depth));
            }
        }
        drop(seat);
        self.index.entries.release(reserved);
        (is_same_life && !self.places.is_empty()).then_some(self)
    }

    /// Nothing happens if the worker has been forgotten since.
    fn with_seat(&self, settle: impl FnOnce(&Self, &mut Seated<'_>)) {
        let mut seat = self.seat.lock(&self.index);
        if seat.state.life == self.life {
            settle(self, &mut seat);
        }
    }

    fn count(&self, seat: &mut Seated<'_>) {
        for &place in &self.places {
            seat.state.share.count(place);
        }
        seat.shrink(self.places.len());
    }

    fn complete(&self, seat: &mut Seated<'_>) {
        let now = seat.tick();
        let share = &mut seat.state.share;
        for &place in self.places.iter().rev() {
            share.count(place);
            if share.unpin(place) {
                share.list_newest(place, now);
            }
        }
        seat.shrink(self.places.len());
    }

    /// From the leaf, so that no block stays without the one before it.
    fn take_back(&self, seat: &mut Seated<'_>) {
        let now = seat.tick();
        for &place in self.places.iter().rev() {
            let share = &mut seat.state.share;
            if !share.unpin(place) {
                continue;
            }
            if share.is_counted(place) {
                share.list_newest(place, now);
            } else {
                seat.remove(place);
            }
        }
        seat.shrink(self.places.len());
    }

    fn abandon(&self, seat: &mut Seated<'_>) {
        let now = seat.tick();
        let share = &mut seat.state.share;
        // Counted blocks are the beginning of the chain: what is counted has a counted root.
        let known = self.places.partition_point(|&place| share.is_counted(place));
        let (known, unknown) = self.places.split_at(known);
        for &place in unknown {
            share.count(place);
            if share.unpin(place) {
                share.list_coldest(place, now);
            }
        }
        for &place in known.iter().rev() {
            if share.unpin(place) {
                share.list_newest(place, now);
            }
        }
        seat.shrink(self.places.len());
    }
}
