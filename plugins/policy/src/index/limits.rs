//! What bounds an index, and what the bounds cost.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

/// KV tokens supposed of a worker that says nothing about its capacity, already doubled: too
/// small is expensive, too large is cheap.
pub const UNKNOWN_CAPACITY_TOKENS: u64 = 2 * 524_288;

/// Bytes of a token where nothing better is known.
const BYTES_PER_TOKEN: u64 = 4;

/// Bounds of one index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most (block, worker) pairs; what exceeds `u32::MAX - 1` counts as that.
    pub max_entries: u64,
    /// Believed capacity, in blocks, of workers whose capacity is unknown.
    pub unknown_capacity: u64,
    /// A number clients do not know, different in each process: it scatters the keys, so that
    /// nobody can choose prompts that crowd one part of a hash table.
    pub seed: u64,
}

impl Limits {
    /// The bounds for blocks of this size, with [`UNKNOWN_CAPACITY_TOKENS`].
    pub fn new(max_entries: u64, block_bytes: NonZeroU32, seed: u64) -> Self {
        let unknown = UNKNOWN_CAPACITY_TOKENS * BYTES_PER_TOKEN / u64::from(block_bytes.get());
        Self { max_entries, unknown_capacity: unknown.max(1), seed }
    }
}

/// Why a (block, worker) pair was dropped; label of the eviction counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The worker's believed capacity is used up.
    Capacity,
    /// The index is full: least recently used of all workers.
    Global,
    /// The index is full of blocks in flight: never credited.
    Full,
    /// The worker restarted or its cache was flushed.
    Forgotten,
    /// The worker left the fleet.
    Removed,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Capacity, Self::Global, Self::Full, Self::Forgotten, Self::Removed];

    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Global => "global",
            Self::Full => "full",
            Self::Forgotten => "forgotten",
            Self::Removed => "removed",
        }
    }
}

/// Size of an index and what it has dropped so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// (Block, worker) pairs held now.
    pub entries: u64,
    /// Different blocks held now.
    pub blocks: u64,
    /// Pairs dropped, in the order of [`Cause::ALL`].
    pub evictions: [u64; Cause::ALL.len()],
}

impl Stats {
    /// Pairs dropped for this cause.
    pub fn evicted(&self, cause: Cause) -> u64 {
        self.evictions[cause as usize]
    }
}

/// Counters behind [`Stats::evictions`].
#[derive(Debug, Default)]
pub(super) struct Evictions([AtomicU64; Cause::ALL.len()]);

impl Evictions {
    pub(super) fn add(&self, cause: Cause, pairs: u64) {
        self.0[cause as usize].fetch_add(pairs, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> [u64; Cause::ALL.len()] {
        self.0.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

/// How many blocks a worker is believed to hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Capacity {
    start: u64,
    believed: f64,
}

/// Corrections move a capacity at most this factor from where it started, up or down.
const SPREAD: f64 = 16.0;
/// Weight of one response's correction.
const GAIN: f64 = 0.1;

impl Capacity {
    /// Starts at this many blocks, at least 1.
    pub(super) fn new(blocks: u64) -> Self {
        let start = blocks.max(1);
        Self { start, believed: start as f64 }
    }

    /// Whole blocks, at least 1.
    pub(super) fn blocks(self) -> u64 {
        self.believed as u64
    }

    /// Starts anew if the worker now says something else; what was learned is kept otherwise.
    pub(super) fn restart(&mut self, blocks: u64) {
        if self.start != blocks.max(1) {
            *self = Self::new(blocks);
        }
    }

    /// Believed over start: what responses have taught.
    pub(super) fn correction(self) -> f64 {
        self.believed / self.start as f64
    }

    /// Applies what an earlier process was taught; nonsense changes nothing.
    pub(super) fn set_correction(&mut self, factor: f64) {
        if factor.is_finite() {
            let start = self.start as f64;
            self.believed = (start * factor.clamp(1.0 / SPREAD, SPREAD)).max(1.0);
        }
    }

    /// `capacity *= 1 + 0.1 * (reported - predicted) / input` (section 2 of the rules). All in
    /// tokens; what exceeds the input counts as the input, since reports are foreign numbers.
    pub(super) fn correct(&mut self, predicted: u64, reported: u64, input: u64) {
        if input == 0 {
            return;
        }
        let [predicted, reported] = [predicted, reported].map(|tokens| tokens.min(input) as f64);
        let factor = 1.0 + GAIN * (reported - predicted) / input as f64;
        let start = self.start as f64;
        self.believed = (self.believed * factor).clamp((start / SPREAD).max(1.0), start * SPREAD);
    }
}

#[cfg(test)]
mod tests;
