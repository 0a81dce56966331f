//! What is asked: one request, with time, dice and what the index knows given as data.

use crate::fleet::{Fleet, ForeignShare, Millis, Slot, Worker};
use smallvec::SmallVec;

/// What the prefix index says of one worker: it holds this many blocks of the prompt, contiguous
/// from block 0; at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Whose.
    pub slot: Slot,
    /// `matched(worker)` of the rules.
    pub blocks: u32,
}

/// A holder in terms of one snapshot and one prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Position in [`Fleet::workers`].
    pub at: usize,
    /// Matched blocks, contiguous from block 0.
    pub blocks: u32,
    /// Tokens of the prompt the worker would have to compute.
    pub uncached_tokens: u64,
}

/// So many are sorted; more are put in place.
const FEW: usize = 32;

/// Holdings of one request; most prompts have few owners.
pub type Holdings = SmallVec<[Holding; 8]>;

/// Translates the index's answer to this snapshot: `matched_tokens = input_tokens * matched /
/// query_blocks`, rounded down. Workers that left the fleet are dropped. Sorted by position.
pub fn holdings(
    fleet: &Fleet,
    holders: &[Holder],
    input_tokens: u64,
    query_blocks: u32,
) -> Holdings {
    let mut tokens = Uncached { input_tokens, query_blocks, last: (0, input_tokens) };
    let held = holders.iter().filter(|holder| 0 < holder.blocks);
    let held = held.filter_map(|holder| Some((fleet.at(holder.slot)?, holder.blocks)));
    if holders.len() <= FEW {
        let mut found: Holdings = held.map(|(at, blocks)| tokens.holding(at, blocks)).collect();
        found.sort_unstable_by_key(|holding| holding.at);
        return found;
    }
    // What a fleet has in common: put in place, since to sort a thousand takes longer than to decide.
    let mut by_position = vec![0; fleet.workers().len()];
    held.for_each(|(at, blocks)| by_position[at] = blocks);
    let mut found = Holdings::with_capacity(holders.len());
    let held = by_position.iter().enumerate().filter(|(_, blocks)| 0 < **blocks);
    held.for_each(|(at, &blocks)| found.push(tokens.holding(at, blocks)));
    found
}

/// Uncached tokens by matched blocks. Neighbours often match alike, so the last answer is kept: wide
/// numbers divide slowly.
struct Uncached {
    input_tokens: u64,
    query_blocks: u32,
    last: (u32, u64),
}

impl Uncached {
    fn holding(&mut self, at: usize, blocks: u32) -> Holding {
        if self.last.0 != blocks {
            let matched = u128::from(self.input_tokens) * u128::from(blocks.min(self.query_blocks))
                / u128::from(self.query_blocks.max(1));
            let matched = u64::try_from(matched).unwrap_or(u64::MAX);
            self.last = (blocks, self.input_tokens.saturating_sub(matched));
        }
        Holding { at, blocks, uncached_tokens: self.last.1 }
    }
}

/// Holdings looked up by ascending position: each is read once.
pub(crate) struct Held<'a> {
    rest: &'a [Holding],
    /// Position of the first of them.
    next: usize,
}

impl<'a> Held<'a> {
    pub(crate) fn new(request: &Request<'a>) -> Self {
        let mut held = Self { rest: &[], next: usize::MAX };
        held.go_on(request.prompt.map_or(&[][..], |prompt| prompt.holdings));
        held
    }

    /// What the worker at this position holds, which is beyond those asked for before.
    #[inline]
    pub(crate) fn at(&mut self, at: usize) -> Option<&'a Holding> {
        if at < self.next { None } else { self.reach(at) }
    }

    fn reach(&mut self, at: usize) -> Option<&'a Holding> {
        while let [held, rest @ ..] = self.rest {
            if at < held.at {
                break;
            }
            self.go_on(rest);
            if held.at == at {
                return Some(held);
            }
        }
        None
    }

    fn go_on(&mut self, rest: &'a [Holding]) {
        self.next = rest.first().map_or(usize::MAX, |held| held.at);
        self.rest = rest;
    }
}

/// The part of a request that prefill works on.
#[derive(Clone, Copy, Debug)]
pub struct Prompt<'a> {
    /// Prompt tokens, estimated or exact.
    pub input_tokens: u64,
    /// Every worker that holds a block of it, sorted by position.
    pub holdings: &'a [Holding],
    /// Home key: the prefix key where `min_matched_tokens` are reached, or the hash of an
    /// affinity header's value.
    pub home: u64,
    /// Blocks down to the one where `min_matched_tokens` are reached: who matches as many holds the
    /// home block. `None`: the prompt has no home.
    pub home_blocks: Option<u32>,
}

/// One request as the decision sees it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The instant of the decision.
    pub now: Millis,
    /// `None`: nothing to match, or a path without a prompt.
    pub prompt: Option<Prompt<'a>>,
    /// Workers that already failed this request.
    pub excluded: &'a [Slot],
    /// Randomness of this decision.
    pub dice: u64,
    /// Counts requests of the model; ties that rotate rotate by it.
    pub turn: u64,
    /// EWMA of the uncached tokens at chosen workers, per model; 0 = none yet.
    pub mean_uncached_tokens: u64,
    /// Part of the fleet's requests that other edges sent.
    pub foreign_share: ForeignShare,
}

impl Request<'_> {
    /// A look at a fleet that no request is behind.
    pub(crate) fn of_nobody(now: Millis) -> Self {
        Self {
            now,
            prompt: None,
            excluded: &[],
            dice: 0,
            turn: 0,
            mean_uncached_tokens: 0,
            foreign_share: ForeignShare::default(),
        }
    }

    /// May this request go to `worker`? Healthy and all that, able to prefill, not failed yet.
    pub fn may_use(&self, worker: &Worker) -> bool {
        worker.can_prefill() && !self.excluded.contains(&worker.slot) && worker.live.is_routable()
    }

    /// The fleet of the rules, with positions: the workers this request may go to.
    pub fn members<'f>(&self, fleet: &'f Fleet) -> impl Iterator<Item = (usize, &'f Worker)> {
        fleet.workers().iter().enumerate().filter(|(_, worker)| self.may_use(worker))
    }

    /// Prompt tokens; 0 without a prompt.
    pub fn input_tokens(&self) -> u64 {
        self.prompt.map_or(0, |prompt| prompt.input_tokens)
    }

    /// Tokens the worker at this position would have to compute, without any threshold.
    pub fn uncached_tokens(&self, at: usize) -> u64 {
        let Some(prompt) = self.prompt else { return 0 };
        let holding = prompt.holdings.binary_search_by_key(&at, |holding| holding.at).ok();
        holding.map_or(prompt.input_tokens, |held| prompt.holdings[held].uncached_tokens)
    }

    /// `ubar`: what a request is worth where only their number is known, at least 1.
    pub fn mean_uncached(&self) -> u64 {
        let mean = self.mean_uncached_tokens;
        if 0 < mean { mean } else { self.input_tokens().max(1) }
    }
}

/// The dice of a model's request number `turn` if a seed was given: the same for the same seed, and
/// unrelated to those of other turns.
pub fn seeded_dice(seed: u64, turn: u64) -> u64 {
    scramble(scramble(seed).wrapping_add(turn))
}

/// A sequence of random numbers from one `u64` (splitmix64).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.0)
    }

    /// Uniform in `0..1`.
    pub(crate) fn uniform(&mut self) -> f64 {
        const UNIT: f64 = 1.0 / (1_u64 << 53) as f64;
        (self.roll() >> 11) as f64 * UNIT
    }

    /// Standard normal (Box and Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        // `1 - u` is never 0.
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Uniform in `0..sides` but for a bias of `sides / 2^64`; 0 if there are no sides.
    pub(crate) fn below(&mut self, sides: u64) -> u64 {
        (u128::from(self.roll()) * u128::from(sides)).wrapping_shr(64) as u64
    }
}

/// The finaliser of splitmix64: every bit of the result depends on every bit of `bits`.
pub(crate) fn scramble(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests;
