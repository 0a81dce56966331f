//! Policy `least_load`, and the draw the fallback shares with it: the least pressured of k workers.
//!
//! Looking at all of them would make every edge of a fleet choose the same idle worker at once;
//! drawing k keeps them from herding.

use crate::decision::{Decision, PressureSource, Reason, Trace};
use crate::fleet::Fleet;
use crate::pressure;
use crate::request::{Dice, Request};
use crate::rules::Rules;
use crate::scene::Scene;
use smallvec::SmallVec;
use std::num::NonZeroU32;

/// Positions of some workers; spills to the heap only in a large fleet that ties or is drawn whole.
pub(crate) type Positions = SmallVec<[usize; 32]>;

/// The least pressured of `choices` workers drawn at random; of all, if unset or not fewer than there
/// are. Ties rotate with the request's turn. `None`: nobody is routable.
pub fn least_load(
    fleet: &Fleet,
    request: &Request<'_>,
    choices: Option<NonZeroU32>,
) -> Option<Decision> {
    let rules = Rules::default();
    let scene = Scene { fleet, request, rules: &rules };
    let mut drawn = Draw::new(request.dice, choices);
    for (at, _) in scene.members() {
        drawn.offer(at);
    }
    let (at, pressure_source) = least_pressured(scene, &drawn.positions)?;
    Some(Decision {
        at,
        reason: Reason::LeastLoad,
        cache: None,
        uncached_tokens: request.uncached_tokens(at),
        trace: Trace { pressure_source, ..Trace::default() },
    })
}

/// The least pressured of these workers, by the source of all of them.
pub(crate) fn least_pressured(
    scene: Scene<'_>,
    positions: &[usize],
) -> Option<(usize, PressureSource)> {
    let (workers, now) = (scene.fleet.workers(), scene.request.now);
    let source = pressure::source(positions.iter().map(|&at| workers[at].fresh(now)));
    let mut least = Ties::default();
    for &at in positions {
        least.offer(pressure::of(source, &scene.see(at, &workers[at])), at);
    }
    Some((least.in_turn(scene.request.turn)?, source))
}

/// A sample of fixed size from workers that come one by one, each equally likely (reservoir).
pub(crate) struct Draw {
    dice: Dice,
    size: u64,
    offered: u64,
    pub(crate) positions: Positions,
}

impl Draw {
    /// `None` draws everybody.
    pub(crate) fn new(dice: u64, size: Option<NonZeroU32>) -> Self {
        Self {
            dice: Dice::new(dice),
            size: size.map_or(u64::MAX, |size| u64::from(size.get())),
            offered: 0,
            positions: Positions::new(),
        }
    }

    pub(crate) fn offer(&mut self, at: usize) {
        self.offered += 1;
        if self.offered <= self.size {
            self.positions.push(at);
            return;
        }
        let place = self.dice.below(self.offered);
        if place < self.size {
            self.positions[place as usize] = at;
        }
    }

    /// Forgets whom it was offered.
    pub(crate) fn restart(&mut self) {
        self.offered = 0;
        self.positions.clear();
    }
}

/// The workers with the least key so far.
pub(crate) struct Ties<K> {
    least: Option<K>,
    pub(crate) positions: Positions,
}

impl<K> Default for Ties<K> {
    fn default() -> Self {
        Self { least: None, positions: Positions::new() }
    }
}

impl<K: Ord> Ties<K> {
    pub(crate) fn offer(&mut self, key: K, at: usize) {
        match &self.least {
            Some(least) if *least < key => {}
            Some(least) if *least == key => self.positions.push(at),
            Some(_) | None => {
                self.least = Some(key);
                self.positions.clear();
                self.positions.push(at);
            }
        }
    }

    /// One of them; the next turn takes the next one.
    pub(crate) fn in_turn(&self, turn: u64) -> Option<usize> {
        let count = u64::try_from(self.positions.len()).ok().filter(|&count| 0 < count)?;
        self.positions.get((turn % count) as usize).copied()
    }
}

#[cfg(test)]
mod tests;
