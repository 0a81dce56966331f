//! Which of the present routes one request takes.

use super::enumerate::Candidate;
use super::settings::{Choice, Settings};
use super::stats::Standing;
use super::thompson;
use crate::request::Dice;
use smallvec::SmallVec;

/// How a route was chosen. At once metric label, log field, response header and test assertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A route that is not proven, to measure it.
    Scout,
    /// A proven route, as often as it is fast.
    Exploit,
    /// The client's own choice.
    Pinned,
    /// Nothing is proven: the best prior.
    GreedyFallback,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Scout, Self::Exploit, Self::Pinned, Self::GreedyFallback];

    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scout => "scout",
            Self::Exploit => "exploit",
            Self::Pinned => "pinned",
            Self::GreedyFallback => "greedy-fallback",
        }
    }
}

/// Two uniform draws, each in `0..1`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draws {
    /// Scout or not?
    pub explore: f64,
    /// Which of the proven routes?
    pub pick: f64,
}

impl Draws {
    /// Two draws from the randomness of one decision.
    pub fn from_dice(dice: u64) -> Self {
        let mut dice = Dice::new(dice);
        Self { explore: dice.uniform(), pick: dice.uniform() }
    }
}

/// A candidate and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contender<'a> {
    pub(super) candidate: &'a Candidate,
    pub(super) standing: Standing,
}

/// Which one of the contenders, by position. `None`: there are none. They come best prior first.
pub(super) fn choose(
    contenders: &[Contender<'_>],
    settings: &Settings,
    draws: Draws,
) -> Option<(usize, Mode)> {
    if contenders.is_empty() {
        return None;
    }
    let Some(best) = best_proven(contenders) else {
        return Some((0, Mode::GreedyFallback));
    };
    match settings.choice {
        Choice::Proportional => proportional(contenders, settings, draws),
        Choice::Thompson => {
            let at = thompson::choose(contenders, best, draws)?;
            let is_proven = contenders[at].standing.is_proven();
            Some((at, if is_proven { Mode::Exploit } else { Mode::Scout }))
        }
    }
}

/// With something proven.
fn proportional(
    contenders: &[Contender<'_>],
    settings: &Settings,
    draws: Draws,
) -> Option<(usize, Mode)> {
    let scout = next_scout(contenders).filter(|_| draws.explore < settings.explore_share.get());
    match scout {
        Some(at) => Some((at, Mode::Scout)),
        None => pick(&proven(contenders, settings), draws.pick).map(|at| (at, Mode::Exploit)),
    }
}

/// Each contender's part of the traffic to come, in their order; they add up to 1.
pub(super) fn expected_shares(
    contenders: &[Contender<'_>],
    settings: &Settings,
) -> SmallVec<[f64; 8]> {
    let mut expected: SmallVec<[f64; 8]> = contenders.iter().map(|_| 0.0).collect();
    match (best_proven(contenders), settings.choice) {
        (None, _) => expected.iter_mut().take(1).for_each(|greedy| *greedy = 1.0),
        (Some(_), Choice::Proportional) => share_out(&mut expected, contenders, settings),
        (Some(best), Choice::Thompson) => thompson::estimate(&mut expected, contenders, best),
    }
    expected
}

/// With something proven: the next scout has `explore_share`, the proven ones have what is left.
fn share_out(expected: &mut [f64], contenders: &[Contender<'_>], settings: &Settings) {
    let mut left = 1.0;
    if let Some(scout) = next_scout(contenders) {
        expected[scout] = settings.explore_share.get();
        left -= settings.explore_share.get();
    }
    let proven = proven(contenders, settings);
    let total: f64 = proven.iter().map(|share| share.weight).sum();
    for share in &proven {
        expected[share.at] = left * share.weight / total;
    }
}

/// A proven contender's part of the traffic, as a weight: that of the fastest is 1.
#[derive(Clone, Copy, Debug)]
struct Share {
    at: usize,
    weight: f64,
}

/// The proven ones in the order of their signatures, each with `(mean / best mean) ^ weight_alpha`.
fn proven(contenders: &[Contender<'_>], settings: &Settings) -> SmallVec<[Share; 8]> {
    let best = best_proven(contenders).unwrap_or(1.0);
    let alpha = settings.weight_alpha.get();
    let mut shares: SmallVec<[Share; 8]> = contenders
        .iter()
        .enumerate()
        .filter(|(_, contender)| contender.standing.is_proven())
        .map(|(at, arm)| Share { at, weight: (arm.standing.mean / best).powf(alpha) })
        .collect();
    let signature = |share: &Share| contenders[share.at].candidate.signature.as_str();
    shares.sort_unstable_by(|a, b| signature(a).cmp(signature(b)));
    shares
}

/// The largest proven mean, tokens per second.
pub(super) fn best_proven(contenders: &[Contender<'_>]) -> Option<f64> {
    let proven = contenders.iter().filter(|contender| contender.standing.is_proven());
    proven.map(|contender| contender.standing.mean).max_by(f64::total_cmp)
}

/// Of those that are not proven the one with the least weight, then the higher prior, then the
/// smaller signature. A scout under way counts as one unit of weight, so that a burst does not scout
/// one arm only.
fn next_scout(contenders: &[Contender<'_>]) -> Option<usize> {
    let weight = |at: usize| {
        let standing = contenders[at].standing;
        standing.weight + f64::from(standing.scouts)
    };
    let open = (0..contenders.len()).filter(|&at| !contenders[at].standing.is_proven());
    // Of equals the first is taken, and they come best prior first, then by signature.
    open.min_by(|&a, &b| weight(a).total_cmp(&weight(b)))
}

/// Where a draw falls.
fn pick(shares: &[Share], draw: f64) -> Option<usize> {
    let total: f64 = shares.iter().map(|share| share.weight).sum();
    let mut place = draw * total;
    for share in shares {
        if place < share.weight {
            return Some(share.at);
        }
        place -= share.weight;
    }
    shares.last().map(|share| share.at)
}

#[cfg(test)]
mod tests;
