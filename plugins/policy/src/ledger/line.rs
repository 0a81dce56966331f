//! The line of one worker and its sums: what the ledger's lock guards.

use super::{MOST_TOKENS, Outstanding, Streaming};
use crate::fleet::Millis;
use std::collections::VecDeque;

/// Below this many uncached tokens, a prompt too short for affinity by default, a first byte measures
/// latency, not prefill speed.
const SPEED_MIN_TOKENS: u64 = 1_024;
/// Without another sample, what was measured is forgotten after five minutes: who was slow gets few
/// requests, and none from which it could be seen that it has recovered.
pub(super) const SPEED_LASTS: u64 = 300_000;
/// First bytes seen before a speed is believed.
const SPEED_MIN_SAMPLES: u64 = 4;
/// What one sample leaves of the sums before it.
const SPEED_KEEP: f64 = 0.95;
/// Whole answers seen before the best of them is believed: most decode for long.
const PROOF_MIN_SAMPLES: u64 = 16;
/// What one whole answer leaves of the best before it.
const PROOF_KEEP: f64 = 0.9995;

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) sequence: u64,
    pub(super) uncached_tokens: u64,
    pub(super) dispatched: Millis,
    pub(super) streaming: Streaming,
}

/// Wide enough never to saturate, so that what was added can be taken off again exactly.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    uncached_tokens: u128,
    requests: u64,
}

impl Sum {
    fn add(&mut self, entry: &Entry) {
        self.uncached_tokens += u128::from(entry.uncached_tokens);
        self.requests += 1;
    }

    fn subtract(&mut self, entry: &Entry) {
        self.uncached_tokens -= u128::from(entry.uncached_tokens);
        self.requests -= 1;
    }

    pub(super) fn clipped(&self) -> Outstanding {
        Outstanding {
            uncached_tokens: self.uncached_tokens.min(MOST_TOKENS.into()) as u64,
            requests: self.requests,
        }
    }
}

/// What the lock guards. Invariant: `all`, `since` and `unstreamed` are sums over `entries`, which
/// are in the order of their sequence numbers.
#[derive(Debug, Default)]
pub(super) struct Line {
    entries: VecDeque<Entry>,
    pub(super) next: u64,
    /// Entries from here on were sent after the last published report's poll.
    reported: u64,
    pub(super) all: Sum,
    pub(super) since: Sum,
    pub(super) unstreamed: u64,
    pub(super) last_first_byte: Millis,
    speed: SpeedSums,
    proof: SpeedProof,
}

impl Line {
    pub(super) fn push(&mut self, entry: Entry) {
        self.all.add(&entry);
        if self.reported <= entry.sequence {
            self.since.add(&entry);
        }
        self.unstreamed += u64::from(entry.is_unstreamed());
        self.entries.push_back(entry);
    }

    fn forget(&mut self, entry: &Entry) {
        self.all.subtract(entry);
        if self.reported <= entry.sequence {
            self.since.subtract(entry);
        }
        self.unstreamed -= u64::from(entry.is_unstreamed());
    }

    pub(super) fn position(&self, sequence: u64) -> Option<usize> {
        self.entries.binary_search_by_key(&sequence, |entry| entry.sequence).ok()
    }

    /// Each entry is cleared once, so this is constant time per dispatch.
    pub(super) fn clear_through(&mut self, sequence: u64) {
        while let Some(&entry) = self.entries.front().filter(|entry| entry.sequence <= sequence) {
            self.entries.pop_front();
            self.forget(&entry);
        }
    }

    /// Clears unstreamed heads that `speed` has prefilled by now.
    pub(super) fn expect(&mut self, speed: u64, now: Millis) {
        while let Some(&head) = self.entries.front().filter(|head| head.is_unstreamed()) {
            let (tokens, since) = self.head();
            let Some(ms) = (u128::from(tokens) * 1000).checked_div(speed.into()) else { return };
            let done = Millis(since.0.saturating_add(u64::try_from(ms).unwrap_or(u64::MAX)));
            if now < done {
                return;
            }
            self.entries.pop_front();
            self.forget(&head);
            self.last_first_byte = done;
        }
    }

    /// Moves what lies on the shorter side; a line is some hundred small entries at most.
    pub(super) fn remove(&mut self, sequence: u64) {
        if let Some(entry) = self.position(sequence).and_then(|at| self.entries.remove(at)) {
            self.forget(&entry);
        }
    }

    pub(super) fn start_report(&mut self, sequence: u64) {
        self.reported = sequence;
        self.since = Sum::default();
        let first = self.entries.partition_point(|entry| entry.sequence < sequence);
        for entry in self.entries.range(first..) {
            self.since.add(entry);
        }
    }

    /// Tokens of the head of the line, and since when the worker can have been at it.
    pub(super) fn head(&self) -> (u64, Millis) {
        self.entries.front().map_or((0, self.last_first_byte), |head| {
            (head.uncached_tokens, head.dispatched.max(self.last_first_byte))
        })
    }

    /// The worker's speed, if this first byte says something about it: behind others, unstreamed or
    /// short, a request's time is not its prefill's.
    ///
    /// Inside: `None` while there are too few.
    pub(super) fn measure(&mut self, sequence: u64, now: Millis) -> Option<Option<u64>> {
        let head = *self.entries.front()?;
        let told = head.sequence == sequence
            && head.streaming == Streaming::Streamed
            && SPEED_MIN_TOKENS <= head.uncached_tokens;
        if !told {
            return None;
        }
        let (tokens, since) = self.head();
        self.speed.add(tokens, now.0.saturating_sub(since.0), now);
        Some(self.speed.tokens_per_second())
    }
}

impl Line {
    /// The least speed of the worker by a whole answer: what would have prefilled it in all its time.
    pub(super) fn prove(&mut self, entry: &Entry, now: Millis) -> Option<u64> {
        if !entry.is_unstreamed() || entry.uncached_tokens < SPEED_MIN_TOKENS {
            return None;
        }
        let elapsed = now.0.saturating_sub(entry.dispatched.0).max(1);
        self.proof.add(entry.uncached_tokens as f64 * 1000.0 / elapsed as f64);
        self.proof.tokens_per_second()
    }
}

impl Entry {
    pub(super) fn is_unstreamed(&self) -> bool {
        match self.streaming {
            Streaming::Streamed => false,
            Streaming::Unstreamed => true,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct SpeedSums {
    tokens: f64,
    milliseconds: f64,
    samples: u64,
    last: Millis,
}

impl SpeedSums {
    fn add(&mut self, tokens: u64, milliseconds: u64, now: Millis) {
        if SPEED_LASTS < now.0.saturating_sub(self.last.0) {
            *self = Self::default();
        }
        self.last = now;
        self.tokens = self.tokens * SPEED_KEEP + tokens as f64;
        self.milliseconds = self.milliseconds * SPEED_KEEP + milliseconds as f64;
        self.samples += 1;
    }

    fn tokens_per_second(&self) -> Option<u64> {
        if self.samples < SPEED_MIN_SAMPLES || self.milliseconds <= 0.0 {
            return None;
        }
        Some(((self.tokens * 1000.0 / self.milliseconds) as u64).max(1))
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct SpeedProof {
    best: f64,
    samples: u64,
}

impl SpeedProof {
    fn add(&mut self, tokens_per_second: f64) {
        self.best = tokens_per_second.max(self.best * PROOF_KEEP);
        self.samples += 1;
    }

    fn tokens_per_second(&self) -> Option<u64> {
        (PROOF_MIN_SAMPLES <= self.samples).then_some((self.best as u64).max(1))
    }
}
