//! Scores in floating point and without rounding down, to rule out most workers at little cost.
//!
//! They decide nothing: who may be the best, or tie with it, is scored exactly.

use super::field::{Field, Numbers};
use super::score::Terms;
use crate::fleet::{Fleet, clipped_speed};
use crate::ledger::MOST_TOKENS;
use crate::request::Prompt;
use crate::rules::TiePercent;
use crate::scene::Scene;
use smallvec::SmallVec;

/// Workers whose least score is kept, so that the second look passes most of a large fleet over.
const GROUP: usize = 32;

/// Relative error of two rough scores; some ten roundings are far below it.
const ROUGHNESS: f64 = 1e-9;

/// Rough scores of the workers that are compared; infinite for the others.
#[derive(Debug)]
pub(super) struct Rough {
    scores: Numbers,
    /// Of each [`GROUP`].
    group_least: SmallVec<[f64; 8]>,
}

impl Rough {
    pub(super) fn new(
        scene: Scene<'_>,
        prompt: &Prompt<'_>,
        field: &Field,
        terms: &Terms<'_>,
    ) -> Self {
        let (lines, ratios) = (&field.lines, scene.fleet.ratios());
        let mut scores = Numbers::from_elem(f64::INFINITY, lines.len());
        let formula = Formula::new(terms, prompt.input_tokens);
        for ((score, line), ratio) in scores.iter_mut().zip(lines).zip(ratios) {
            *score = formula.score(*line) * ratio;
        }
        for held in prompt.holdings {
            let formula = Formula::new(terms, held.uncached_tokens);
            scores[held.at] = formula.score(lines[held.at]) * ratios[held.at];
        }
        if let Some(home) = field.home {
            scores[home] *= terms.kept();
        }
        for &at in &field.full {
            scores[at] = f64::INFINITY;
        }
        Self { group_least: scores.chunks(GROUP).map(least).collect(), scores }
    }

    /// Visits the positions of all whose exact scores can be the least or tie with it, ascending.
    ///
    /// An exact score is at most its rough one, so the least is at most that of the least rough one.
    /// Rounding takes less than 1 off the price, which the speeds multiply, and less than 1 off each
    /// of two products.
    pub(super) fn each_near(
        &self,
        fleet: &Fleet,
        percent: TiePercent,
        mut visit: impl FnMut(usize),
    ) {
        let limit = least(&self.group_least) * (1.0 + f64::from(percent.get()) / 100.0);
        let slack =
            f64::from(clipped_speed(fleet.vref())) / f64::from(clipped_speed(fleet.slowest()));
        let reach = (limit + slack + 2.0) * (1.0 + ROUGHNESS);
        let groups = self.group_least.iter().zip(self.scores.chunks(GROUP)).enumerate();
        // Nested loops: one chain of iterators takes longer.
        for (group, (_, scores)) in groups.filter(|&(_, (&least, _))| least <= reach) {
            for (at, _) in scores.iter().enumerate().filter(|&(_, &score)| score <= reach) {
                visit(group * GROUP + at);
            }
        }
    }
}

/// The formula for so many tokens to compute, as a line over `L`.
struct Formula {
    at_zero: f64,
    slope: f64,
}

impl Formula {
    fn new(terms: &Terms<'_>, uncached_tokens: u64) -> Self {
        let uncached = uncached_tokens.min(MOST_TOKENS) as f64;
        let means = uncached / terms.per as f64;
        Self {
            at_zero: uncached + terms.fleet.rough(means),
            slope: 1.0 + terms.price_worker as f64 * means,
        }
    }

    fn score(&self, line: f64) -> f64 {
        self.at_zero + self.slope * line
    }
}

/// Four at a time: one after the other, each comparison would wait for the last.
fn least(scores: &[f64]) -> f64 {
    let lesser = |one: f64, other: f64| if one < other { one } else { other };
    let (fours, rest) = scores.as_chunks::<4>();
    let mut least = [f64::INFINITY; 4];
    for four in fours {
        for (least, score) in least.iter_mut().zip(four) {
            *least = lesser(*score, *least);
        }
    }
    least.iter().chain(rest).copied().fold(f64::INFINITY, lesser)
}
