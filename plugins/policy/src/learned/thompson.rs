//! Thompson sampling: one draw from what is believed of each route, and the largest wins.
//!
//! W. R. Thompson, "On the likelihood that one unknown probability exceeds another in view of the
//! evidence of two samples", Biometrika 25 (1933). What is believed of a route's speed is a normal
//! distribution: around its decayed mean, pulled towards the best proven mean by a quarter of a
//! sample, so that what has been forgotten is tried again whatever was last known of it; and the
//! wider, the fewer samples still count.

use super::choose::{Contender, Draws};
use super::stats::Status;
use crate::request::Dice;

/// Samples that the best proven mean counts as in the belief about another route.
const PRIOR_WEIGHT: f64 = 0.25;
/// Standard deviation of one sample over its mean; requests differ more than noise makes them.
const SAMPLE_SPREAD: f64 = 0.5;
/// Draws from which shares are estimated.
const ESTIMATE_DRAWS: u32 = 512;

/// The contender with the largest draw. `best`: the largest proven mean, tokens per second.
pub(super) fn choose(contenders: &[Contender<'_>], best: f64, draws: Draws) -> Option<usize> {
    throw(contenders, best, &mut Dice::new(draws.pick.to_bits()))
}

/// Each contender's part of the traffic to come, to a few hundredths.
pub(super) fn estimate(expected: &mut [f64], contenders: &[Contender<'_>], best: f64) {
    let mut dice = Dice::new(0);
    for _ in 0..ESTIMATE_DRAWS {
        if let Some(at) = throw(contenders, best, &mut dice) {
            expected[at] += 1.0 / f64::from(ESTIMATE_DRAWS);
        }
    }
}

fn throw(contenders: &[Contender<'_>], best: f64, dice: &mut Dice) -> Option<usize> {
    let mut fastest: Option<(usize, f64)> = None;
    for (at, contender) in contenders.iter().enumerate() {
        let speed = believed(contender, best, dice.normal());
        if fastest.is_none_or(|(_, other)| other < speed) {
            fastest = Some((at, speed));
        }
    }
    fastest.map(|(at, _)| at)
}

/// A speed that may be the route's, tokens per second: `normal` standard deviations from the mean.
fn believed(contender: &Contender<'_>, best: f64, normal: f64) -> f64 {
    let standing = &contender.standing;
    let weight = match standing.status {
        // What was measured under another topology is for display only.
        Status::Unsampled | Status::Stale => 0.0,
        Status::Decayed | Status::Proven => standing.weight,
    };
    let mean = (standing.mean * weight + best * PRIOR_WEIGHT) / (weight + PRIOR_WEIGHT);
    // A scout under way will be a sample soon.
    let samples = weight + f64::from(standing.scouts) + PRIOR_WEIGHT;
    mean * (1.0 + SAMPLE_SPREAD / samples.sqrt() * normal) * room(contender)
}

/// What the queue leaves of a route. Means were measured behind queues too, and an engine computes
/// several requests at once, so this is less than in the prior: the square root.
fn room(contender: &Contender<'_>) -> f64 {
    let (prior, idle) = (contender.candidate.prior_tps, contender.candidate.idle_tps);
    if 0.0 < idle { (prior / idle).sqrt() } else { 1.0 }
}

#[cfg(test)]
mod tests;
