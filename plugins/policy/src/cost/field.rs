//! Every worker a request may go to, each read once: counters do not change while one decision
//! compares them.

use crate::request::{Held, Prompt};
use crate::scene::Scene;
use smallvec::SmallVec;
use std::num::NonZeroU64;

/// Tokens that count: no engine computes more in a year. What is above counts as this, so that no
/// product overflows.
pub(super) const MOST_TOKENS: u64 = 1 << 40;
/// Rows on the stack; a larger fleet takes one allocation.
const ROWS: usize = 64;

/// One worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    at: u32,
    /// Requests without a first byte.
    pub(super) requests: u32,
    /// Tokens per second, at least 1.
    pub(super) speed: u32,
    /// Passes hard admission.
    pub(super) has_room: bool,
    /// `u`.
    pub(super) uncached_tokens: u64,
    /// `L`.
    pub(super) line: u64,
}

impl Row {
    /// Position in the fleet.
    pub(super) fn at(&self) -> usize {
        self.at as usize
    }
}

/// All of them, by position, and what they have in common.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) rows: SmallVec<[Row; ROWS]>,
    /// Sum of all lines, tokens.
    pub(super) lines: u64,
    /// Has anybody room? Then only those with room are compared.
    pub(super) is_room: bool,
    /// Does anybody hold any of the prompt?
    pub(super) is_held: bool,
    /// The fewest uncached tokens anywhere.
    pub(super) least_uncached: u64,
    /// The least speed.
    pub(super) slowest: u32,
    /// The rendezvous home of a prompt whose home block nobody holds.
    pub(super) home: Option<usize>,
}

impl Field {
    pub(super) fn look(scene: Scene<'_>, prompt: &Prompt<'_>) -> Self {
        let (request, lanes) = (scene.request, scene.fleet.lanes());
        let (now, mean, input_tokens) =
            (request.now, request.mean_uncached(), prompt.input_tokens.min(MOST_TOKENS));
        let mut field = Self::empty(lanes.len(), input_tokens);
        let (mut held, mut deepest) = (Held::new(request), 0);
        for (at, lane) in (0u32..).zip(lanes) {
            if !lane.is_open() || request.excluded.contains(&lane.slot) {
                continue;
            }
            let mut uncached_tokens = input_tokens;
            if let Some(held) = held.at(at as usize) {
                uncached_tokens = held.uncached_tokens.min(MOST_TOKENS);
                deepest = deepest.max(held.blocks);
            }
            let standing = lane.now(now, mean, prompt.input_tokens);
            field.add(Row {
                at,
                requests: u32::try_from(standing.requests).unwrap_or(u32::MAX),
                speed: clipped_speed(lane.speed()),
                has_room: standing.has_room,
                uncached_tokens,
                line: standing.line.min(MOST_TOKENS),
            });
        }
        field.is_held = 0 < deepest;
        if prompt.home_blocks.is_some_and(|blocks| deepest < blocks) {
            field.home = scene.fleet.home(prompt.home, |at| scene.member(at).is_some());
        }
        field
    }

    fn empty(workers: usize, input_tokens: u64) -> Self {
        Self {
            rows: SmallVec::with_capacity(workers),
            lines: 0,
            is_room: false,
            is_held: false,
            least_uncached: input_tokens,
            slowest: u32::MAX,
            home: None,
        }
    }

    fn add(&mut self, row: Row) {
        self.lines += row.line;
        self.is_room |= row.has_room;
        self.least_uncached = self.least_uncached.min(row.uncached_tokens);
        self.slowest = self.slowest.min(row.speed);
        self.rows.push(row);
    }

    /// Those that are compared.
    pub(super) fn eligible(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.has_room || !self.is_room)
    }
}

/// An unknown speed is that of a fleet without known speeds: all alike.
pub(super) fn clipped_speed(speed: Option<NonZeroU64>) -> u32 {
    speed.map_or(1, |speed| u32::try_from(speed.get()).unwrap_or(u32::MAX))
}
