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
/// Workers on the stack; only a fleet that ties as a whole has more.
const NEAR: usize = 64;
/// Kinds on the stack.
const KINDS: usize = 16;

/// Who it is; `None` without workers.
pub(super) fn choose(
    scene: Scene<'_>,
    rules: &CostRules,
    prompt: &Prompt<'_>,
    (field, terms): (&Field, &Terms<'_>),
) -> Option<Row> {
    let rough = Rough::new(scene, prompt, field, terms);
    let mut held = Held::new(scene.request);
    let mut kinds = Kinds { terms, scored: SmallVec::new() };
    let mut near = SmallVec::<[(u32, u32); NEAR]>::new();
    rough.each_near(scene.fleet, rules.tie_percent, |at| {
        let uncached = held.at(at).map_or(prompt.input_tokens, |held| held.uncached_tokens);
        near.push((at as u32, kinds.of(terms.row(at, uncached))));
    });
    let best = kinds.scored.iter().map(|&(_, score)| score).min()?;
    let limit = limit(best, rules.tie_percent);
    let mut ties = Ties::default();
    for &(at, kind) in &near {
        let (row, score) = &kinds.scored[kind as usize];
        if *score <= limit {
            let at = at as usize;
            ties.offer((row.uncached_tokens / TIE_STEP, scene.fleet.lanes()[at].requests()), at);
        }
    }
    let at = ties.in_turn(scene.request.turn)?;
    Some(terms.row(at, scene.request.uncached_tokens(at)))
}

/// The highest score with `100 * score <= (100 + percent) * best`.
fn limit(best: u128, percent: TiePercent) -> u128 {
    let percent = u128::from(percent.get());
    // In two parts, so that no product is larger than the score.
    best + best / 100 * percent + best % 100 * percent / 100
}

/// Exact scores of workers that differ in more than their position: neighbours that do not are one
/// kind, and in an idle fleet all of them are.
struct Kinds<'t> {
    terms: &'t Terms<'t>,
    scored: SmallVec<[(Row, u128); KINDS]>,
}

impl Kinds<'_> {
    /// The kind of a worker that follows those before.
    fn of(&mut self, row: Row) -> u32 {
        let is_known =
            self.scored.last().is_some_and(|(last, _)| Row { at: row.at, ..*last } == row);
        if !is_known {
            self.scored.push((row, self.terms.score(&row)));
        }
        (self.scored.len() - 1) as u32
    }
}
