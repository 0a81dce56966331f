//! The least score, ties included, without computing every score exactly.
//!
//! Rough scores in floating point rule out whoever cannot be the best or tie with it: their error is
//! bounded, so the choice is that of comparing all exact scores, which a property test holds it to.

use super::field::{Field, Row};
use super::score::Terms;
use crate::least_load::Ties;
use crate::rules::{CostRules, TiePercent};
use crate::scene::Scene;

/// Uncached tokens that are as good as equal between near ties.
const TIE_STEP: u64 = 512;

/// Who it is; `None` without rows.
pub(super) fn choose<'f>(
    scene: Scene<'_>,
    rules: &CostRules,
    field: &'f Field,
    terms: &Terms,
) -> Option<&'f Row> {
    let mut exact = Exact::new(terms);
    let least = field.eligible().map(|row| terms.rough(row)).fold(f64::INFINITY, f64::min);
    let reach = terms.above(least);
    let near = field.eligible().filter(|row| terms.below(terms.rough(row)) <= reach);
    let best = near.map(|row| exact.score(row)).min()?;
    let limit = Limit::new(best, rules.tie_percent);
    let mut ties = Ties::default();
    for (index, row) in field.rows.iter().enumerate() {
        let is_eligible = row.has_room || !field.is_room;
        if is_eligible && limit.holds(terms, row, &mut exact) {
            ties.offer((row.uncached_tokens / TIE_STEP, row.requests), index);
        }
    }
    field.rows.get(ties.in_turn(scene.request.turn)?)
}

/// `100 * score <= (100 + tie_percent) * best`.
struct Limit {
    exact: u128,
    rough: f64,
}

impl Limit {
    fn new(best: u128, percent: TiePercent) -> Self {
        let percent = u128::from(percent.get());
        // In two parts, so that no product is larger than the score.
        let exact = best + best / 100 * percent + best % 100 * percent / 100;
        Self { exact, rough: exact as f64 }
    }

    fn holds(&self, terms: &Terms, row: &Row, exact: &mut Exact<'_>) -> bool {
        let rough = terms.rough(row);
        if self.rough < terms.below(rough) {
            return false;
        }
        if terms.above(rough) < self.rough {
            return true;
        }
        exact.score(row) <= self.exact
    }
}

/// Exact scores; a row like the last one has its score.
struct Exact<'t> {
    terms: &'t Terms,
    last: Option<(Row, u128)>,
}

impl<'t> Exact<'t> {
    fn new(terms: &'t Terms) -> Self {
        Self { terms, last: None }
    }

    fn score(&mut self, row: &Row) -> u128 {
        if let Some((last, score)) = &self.last
            && self.terms.are_alike(last, row)
        {
            return *score;
        }
        let score = self.terms.score(row);
        self.last = Some((*row, score));
        score
    }
}
