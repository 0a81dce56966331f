//! The global bound: how many entries there are, and whose is the least recently used.

use super::share::Tick;
use crate::fleet::Slot;
use std::sync::atomic::{AtomicU64, Ordering};

/// Entries in use and reserved, never more than the most allowed.
#[derive(Debug)]
pub(super) struct Entries {
    used: AtomicU64,
    most: AtomicU64,
}

impl Entries {
    pub(super) fn new(most: u64) -> Self {
        Self { used: AtomicU64::new(0), most: AtomicU64::new(Self::bound(most)) }
    }

    /// Places in a share are `u32`, and one value means none.
    fn bound(most: u64) -> u64 {
        most.min(u64::from(u32::MAX) - 1)
    }

    /// Another bound; entries beyond it stay until they are evicted.
    pub(super) fn set_most(&self, most: u64) {
        self.most.store(Self::bound(most), Ordering::Relaxed);
    }

    /// Entries beyond the bound.
    pub(super) fn excess(&self) -> u64 {
        self.used().saturating_sub(self.most.load(Ordering::Relaxed))
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Reserves as many of `wanted` entries as are free and says how many.
    pub(super) fn reserve(&self, wanted: u64) -> u64 {
        let most = self.most.load(Ordering::Relaxed);
        let taken = |used| wanted.min(most.saturating_sub(used));
        let before = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| Some(used + taken(used)));
        match before {
            Ok(used) | Err(used) => taken(used),
        }
    }

    pub(super) fn release(&self, entries: u64) {
        self.used.fetch_sub(entries, Ordering::Relaxed);
    }
}

/// For every slot, the last use of its least recently used block.
#[derive(Debug)]
pub(super) struct ColdEnds {
    /// `PRESENT | tick`, or 0 where nothing can be evicted.
    ticks: Box<[AtomicU64]>,
}

/// Where the least recently used block of all lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Coldest {
    pub(super) slot: Slot,
    /// Age of the coldest block of any other slot; 0 if there is none.
    pub(super) runner_up: u32,
}

/// Uses of the index since `used`; 0 for what another thread used after `now`.
pub(super) fn age(now: Tick, used: Tick) -> u32 {
    let age = now.0.wrapping_sub(used.0);
    if age <= u32::MAX / 2 { age } else { 0 }
}

impl ColdEnds {
    const PRESENT: u64 = 1 << 32;

    pub(super) fn new(slots: usize) -> Self {
        Self { ticks: std::iter::repeat_with(AtomicU64::default).take(slots).collect() }
    }

    pub(super) fn set(&self, slot: Slot, coldest: Option<Tick>) {
        let value = coldest.map_or(0, |tick| Self::PRESENT | u64::from(tick.0));
        self.ticks[usize::from(slot.0)].store(value, Ordering::Relaxed);
    }

    /// Looks at the first `slots` slots, at one small number each.
    pub(super) fn coldest(&self, slots: usize, now: Tick) -> Option<Coldest> {
        let mut coldest: Option<(u32, u16)> = None;
        let mut runner_up = 0;
        for (slot, tick) in (0u16..).zip(&self.ticks[..slots]) {
            let value = tick.load(Ordering::Relaxed);
            if value & Self::PRESENT == 0 {
                continue;
            }
            let age = age(now, Tick(value as u32));
            match coldest {
                Some((oldest, _)) if age <= oldest => runner_up = runner_up.max(age),
                Some((oldest, _)) => {
                    runner_up = oldest;
                    coldest = Some((age, slot));
                }
                None => coldest = Some((age, slot)),
            }
        }
        coldest.map(|(_, slot)| Coldest { slot: Slot(slot), runner_up })
    }
}

#[cfg(test)]
mod tests;
