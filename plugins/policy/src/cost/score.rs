//! The exact score.
//!
//! `( L + u + (price_worker * L + price_fleet * Lbar) * u / max(1, ubar) ) * vref / v`, in integers
//! that round down, but for what `copies` leaves out; the home's is multiplied by `1 - home_bonus - home_bonus_foreign * share`.
//! Lines are at most 2^41 tokens, prompts 2^40, speeds 2^32, prices 64,000 thousandths, three times that for a full fleet's, so nothing overflows 128 bits.

use super::copies::FleetPrice;
use super::field::Field;
use crate::decision::Cost;
use crate::fleet::{KvShare, clipped_speed};
use crate::ledger::MOST_TOKENS;
use crate::request::Prompt;
use crate::rules::CostRules;
use crate::scene::Scene;

const MILLIONTHS: u64 = 1_000_000;
/// Less of the KV cache is never taken as free, millionths: beyond a threefold price nothing is won
/// and p99 grows (tried: up to tenfold, and both prices).
const LEAST_FREE: u64 = MILLIONTHS / 3;

/// What the scores of one decision have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms<'a> {
    scene: Scene<'a>,
    field: &'a Field,
    /// Thousandths.
    pub(super) price_worker: u64,
    /// `price_fleet * Lbar`.
    pub(super) fleet: FleetPrice,
    /// `ubar`, in the prices' thousandths.
    pub(super) per: u64,
    vref: u32,
    /// What the bonus leaves of the home's score, millionths.
    kept: u64,
}

/// One worker's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) at: usize,
    /// `L`.
    pub(super) line: u64,
    /// `u`.
    pub(super) uncached_tokens: u64,
    /// `v`.
    pub(super) speed: u32,
    pub(super) is_home: bool,
}

impl<'a> Terms<'a> {
    pub(super) fn new(
        scene: Scene<'a>,
        rules: &CostRules,
        prompt: &Prompt<'_>,
        field: &'a Field,
    ) -> Self {
        let foreign = rules.home_bonus_foreign.millionths();
        let bonus = rules.home_bonus.millionths()
            + foreign * scene.request.foreign_share.millionths() / MILLIONTHS;
        let price_worker = rules.price_worker.thousandths();
        let price_fleet = fleet_price(rules, scene.fleet.kv_share(scene.request.now));
        let per = 1000 * scene.request.mean_uncached().clamp(1, MOST_TOKENS);
        Self {
            scene,
            price_worker,
            fleet: FleetPrice::new(field, prompt, (price_worker, price_fleet), per),
            field,
            per,
            vref: clipped_speed(scene.fleet.vref()),
            kept: MILLIONTHS.saturating_sub(bonus),
        }
    }

    /// The numbers of the worker at this position, which has so many tokens to compute.
    pub(super) fn row(&self, at: usize, uncached_tokens: u64) -> Row {
        Row {
            at,
            // Exact: see `Numbers`.
            line: self.field.lines[at] as u64,
            uncached_tokens: uncached_tokens.min(MOST_TOKENS),
            speed: clipped_speed(self.scene.fleet.speed(at)),
            is_home: self.field.home == Some(at),
        }
    }

    /// What the home's bonus leaves of its score, part of one.
    pub(super) fn kept(&self) -> f64 {
        self.kept as f64 / MILLIONTHS as f64
    }

    /// What a token of prefill costs everybody else there, thousandths.
    pub(super) fn token_price(&self, row: &Row) -> u128 {
        let lines = self.price_worker * row.line + self.fleet.whole();
        u128::from(lines) * 1000 / u128::from(self.per)
    }

    /// What all its tokens cost, tokens.
    fn price(&self, row: &Row) -> u128 {
        let worker = u128::from(self.price_worker * row.line) * u128::from(row.uncached_tokens);
        quotient(worker + self.fleet.exact(row.uncached_tokens, self.per), self.per)
    }

    pub(super) fn score(&self, row: &Row) -> u128 {
        let cost = u128::from(row.line + row.uncached_tokens) + self.price(row);
        let score = if row.speed == self.vref {
            cost
        } else {
            product(cost, self.vref.into(), row.speed.into())
        };
        if row.is_home { self.with_bonus(score) } else { score }
    }

    /// In two parts, so that no product is larger than the score.
    fn with_bonus(&self, score: u128) -> u128 {
        let (kept, one) = (u128::from(self.kept), u128::from(MILLIONTHS));
        score / one * kept + score % one * kept / one
    }

    pub(super) fn cost(&self, row: &Row) -> Cost {
        let (request, lane) = (self.scene.request, &self.scene.fleet.lanes()[row.at]);
        Cost {
            at: row.at,
            line: row.line,
            uncached_tokens: row.uncached_tokens,
            price: self.price(row),
            score: self.score(row),
            has_room: lane.has_room(request.now, request.input_tokens()),
        }
    }
}

/// `price_fleet`, in thousandths, over the part of the fleet's KV cache that is free to be reused.
///
/// A second copy evicts somebody else's prefix, the sooner the less running requests leave; with
/// empty caches, or where reports do not say, this is `price_fleet` itself. Over seven seeds of the
/// simulated `burst` the geometric mean of TTFT falls by 13 % and p99 rises by 2 %, in `saturated` by
/// 3 % and 6 %; nothing changes where a fleet has room.
fn fleet_price(rules: &CostRules, held: KvShare) -> u64 {
    let free = MILLIONTHS - held.millionths().min(MILLIONTHS);
    rules.price_fleet.thousandths() * MILLIONTHS / free.max(LEAST_FREE)
}

/// `of * times / by`, rounded down.
fn product(of: u128, times: u64, by: u64) -> u128 {
    quotient(of * u128::from(times), by)
}

/// `of / by`, rounded down; most fit 64 bits, where division is far cheaper.
fn quotient(of: u128, by: u64) -> u128 {
    match u64::try_from(of) {
        Ok(of) => u128::from(of / by),
        Err(_) => of / u128::from(by),
    }
}
