//! The least score, ties included, without computing every score exactly.
//!
//! [`Rough`] rules out whoever cannot be the best or tie with it; its error is bounded, so the
//! choice is that of comparing all exact scores, which a property test holds it to.

use super::field::Field;
use super::rough::Rough;
use super::score::{Row, Terms};
use crate::least_load::Ties;
use crate::request::{Held, Prompt};
use crate::rules::{CostRules, TiePercent};
use crate::scene::Scene;
use smallvec::SmallVec;

/// Uncached tokens that are as good as equal between near ties.
const TIE_STEP: u64 = 512;
/// Rows on the stack; only a fleet that ties as a whole has more.
const NEAR: usize = 32;

/// Who it is; `None` without workers.
pub(super) fn choose(
    scene: Scene<'_>,
    rules: &CostRules,
    prompt: &Prompt<'_>,
    (field, terms): (&Field, &Terms<'_>),
) -> Option<Row> {
    let rough = Rough::new(scene, prompt, field, terms);
    let mut held = Held::new(scene.request);
    let mut scores = Scores { terms, last: None };
    let near = rough.near(scene.fleet, rules.tie_percent).map(|at| {
        let uncached = held.at(at).map_or(prompt.input_tokens, |held| held.uncached_tokens);
        let row = terms.row(at, uncached);
        (row, scores.of(&row))
    });
    let near: SmallVec<[(Row, u128); NEAR]> = near.collect();
    let best = near.iter().map(|&(_, score)| score).min()?;
    let limit = limit(best, rules.tie_percent);
    let mut ties = Ties::default();
    for (index, (row, _)) in near.iter().enumerate().filter(|(_, (_, score))| *score <= limit) {
        let requests = scene.fleet.lanes()[row.at].requests();
        ties.offer((row.uncached_tokens / TIE_STEP, requests), index);
    }
    Some(near[ties.in_turn(scene.request.turn)?].0)
}

/// The highest score with `100 * score <= (100 + percent) * best`.
fn limit(best: u128, percent: TiePercent) -> u128 {
    let percent = u128::from(percent.get());
    // In two parts, so that no product is larger than the score.
    best + best / 100 * percent + best % 100 * percent / 100
}

/// Exact scores; a worker like the last one has its score, as in an idle fleet all have.
struct Scores<'t> {
    terms: &'t Terms<'t>,
    last: Option<(Row, u128)>,
}

impl Scores<'_> {
    fn of(&mut self, row: &Row) -> u128 {
        match &self.last {
            Some((last, score)) if Row { at: row.at, ..*last } == *row => *score,
            Some(_) | None => {
                let score = self.terms.score(row);
                self.last = Some((*row, score));
                score
            }
        }
    }
}
