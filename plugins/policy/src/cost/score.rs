//! The score, exact and roughly.
//!
//! `( L + u + (price_worker * L + price_fleet * Lbar) * u / max(1, ubar) ) * vref / v`, in integers
//! that round down; the home's is multiplied by `1 - home_bonus - home_bonus_foreign * share`.
//! Tokens are at most 2^40, speeds 2^32, prices 64,000 thousandths, so nothing overflows 128 bits.

use super::field::{Field, MOST_TOKENS, Row, clipped_speed};
use crate::decision::Cost;
use crate::rules::CostRules;
use crate::scene::Scene;
use std::num::NonZeroU64;

const MILLIONTHS: u64 = 1_000_000;
/// Relative error of a rough score; six roundings are far below it.
const ROUGHNESS: f64 = 1e-9;

/// What the scores of one decision have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// Thousandths.
    price_worker: u64,
    /// `price_fleet * Lbar`, thousandths.
    fleet: u64,
    mean_line: u64,
    /// `ubar`, in the prices' thousandths.
    per: u64,
    vref: u32,
    home: Option<usize>,
    /// What the bonus leaves of the home's score, millionths.
    kept: u64,
    /// How far rounding down can take an exact score below a rough one, besides [`ROUGHNESS`].
    slack: f64,
}

impl Terms {
    pub(super) fn new(scene: Scene<'_>, rules: &CostRules, field: &Field) -> Self {
        let mean_line = field.lines.checked_div(field.rows.len() as u64).unwrap_or(0);
        let vref = clipped_speed(scene.fleet.vref().and_then(NonZeroU64::new));
        let foreign = rules.home_bonus_foreign.millionths();
        let bonus = rules.home_bonus.millionths()
            + foreign * scene.request.foreign_share.millionths() / MILLIONTHS;
        Self {
            price_worker: rules.price_worker.thousandths(),
            fleet: rules.price_fleet.thousandths() * mean_line,
            mean_line,
            per: 1000 * scene.request.mean_uncached().clamp(1, MOST_TOKENS),
            vref,
            home: field.home,
            kept: MILLIONTHS.saturating_sub(bonus),
            // Rounding takes less than 1 off the price, which the speeds multiply, and less than 1
            // off each of two products.
            slack: f64::from(vref) / f64::from(field.slowest) + 2.0,
        }
    }

    pub(super) fn mean_line(&self) -> u64 {
        self.mean_line
    }

    /// `price_worker * L + price_fleet * Lbar`, thousandths.
    fn lines(&self, row: &Row) -> u64 {
        self.price_worker * row.line + self.fleet
    }

    /// What a token of prefill costs everybody else there, thousandths.
    pub(super) fn token_price(&self, row: &Row) -> u128 {
        u128::from(self.lines(row)) * 1000 / u128::from(self.per)
    }

    /// What all its tokens cost, tokens.
    fn price(&self, row: &Row) -> u128 {
        product(self.lines(row).into(), row.uncached_tokens, self.per)
    }

    pub(super) fn score(&self, row: &Row) -> u128 {
        let cost = u128::from(row.line + row.uncached_tokens) + self.price(row);
        let score = if row.speed == self.vref {
            cost
        } else {
            product(cost, self.vref.into(), row.speed.into())
        };
        if self.home == Some(row.at()) { self.with_bonus(score) } else { score }
    }

    /// In two parts, so that no product is larger than the score.
    fn with_bonus(&self, score: u128) -> u128 {
        let (kept, one) = (u128::from(self.kept), u128::from(MILLIONTHS));
        score / one * kept + score % one * kept / one
    }

    /// Must their scores be equal?
    pub(super) fn are_alike(&self, one: &Row, other: &Row) -> bool {
        one.line == other.line
            && one.uncached_tokens == other.uncached_tokens
            && one.speed == other.speed
            && (self.home == Some(one.at())) == (self.home == Some(other.at()))
    }

    pub(super) fn cost(&self, row: &Row) -> Cost {
        Cost {
            at: row.at(),
            line: row.line,
            uncached_tokens: row.uncached_tokens,
            price: self.price(row),
            score: self.score(row),
            has_room: row.has_room,
        }
    }

    /// The score in floating point and without rounding down: never compared with another, but
    /// [`Terms::above`] it no exact one lies, and none below [`Terms::below`] it.
    #[inline]
    pub(super) fn rough(&self, row: &Row) -> f64 {
        let (line, uncached) = (row.line as f64, row.uncached_tokens as f64);
        let price = self.lines(row) as f64 * uncached / self.per as f64;
        let mut rough = line + uncached + price;
        if row.speed != self.vref {
            rough *= f64::from(self.vref) / f64::from(row.speed);
        }
        if self.home == Some(row.at()) {
            rough *= self.kept as f64 / MILLIONTHS as f64;
        }
        rough
    }

    /// The exact score of a row of this rough one is at most this.
    pub(super) fn above(&self, rough: f64) -> f64 {
        rough * (1.0 + ROUGHNESS)
    }

    /// The exact score of a row of this rough one is at least this.
    #[inline]
    pub(super) fn below(&self, rough: f64) -> f64 {
        rough * (1.0 - ROUGHNESS) - self.slack
    }
}

/// `of * times / by`, rounded down; most fit 64 bits, where division is far cheaper.
fn product(of: u128, times: u64, by: u64) -> u128 {
    let product = of * u128::from(times);
    match u64::try_from(product) {
        Ok(product) => u128::from(product / by),
        Err(_) => product / u128::from(by),
    }
}
