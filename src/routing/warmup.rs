//! Workers that are new, or were away, get their share of requests little by little.
//!
//! Such a worker has an empty queue and holds nothing, so it looks the cheapest to every request at
//! once. While it warms up a request is decided without it with a chance that falls from one to
//! nothing over `warmup`: the policy sees it as excluded, whichever policy that is. Never left out is
//! who holds a part of the prompt, and nobody is if nobody else can take the request.
//!
//! At the start of the edge nobody warms up: all workers are new then, and each other's measure.
//! Deliberately absent from `explain`, which tells a decision as if everybody were warm: who is left
//! out is drawn anew for each request.

use crate::fleet::ModelFleet;
use smallvec::SmallVec;
use tidegate_policy::fleet::{Fleet, Millis, Slot};
use tidegate_policy::request::{Holder, seeded_dice};

/// Most that are left out of one decision. Where more of them warm up, that is the fleet.
const MOST: usize = 32;

/// Workers a decision leaves out.
pub(super) type LeftOut = SmallVec<[Slot; 4]>;

/// A moment at which workers may warm up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment<'a> {
    pub(super) fleet: &'a Fleet,
    pub(super) now: Millis,
    pub(super) dice: u64,
    pub(super) holders: &'a [Holder],
}

/// Who is left out besides those who failed.
pub(super) fn left_out(model: &ModelFleet, moment: Moment<'_>) -> LeftOut {
    let mut left_out = LeftOut::new();
    if !model.may_warm_up(moment.now) {
        return left_out;
    }
    for row in moment.fleet.workers() {
        let Some(warmth) = model.worker(row.slot).and_then(|of| model.warmth(of, moment.now))
        else {
            continue;
        };
        let holds = moment.holders.iter().any(|holder| holder.slot == row.slot);
        if !holds && is_left_out(warmth, moment.dice, row.slot) {
            left_out.push(row.slot);
        }
        if left_out.len() == MOST {
            break;
        }
    }
    left_out
}

/// `warmth`: the part of its warm-up that is over.
fn is_left_out(warmth: f64, dice: u64, slot: Slot) -> bool {
    // Of 53 bits, as many as a float has.
    let drawn = (seeded_dice(dice, u64::from(slot.0)) >> 11) as f64 / (1_u64 << 53) as f64;
    warmth <= drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_share_grows_with_its_warmth() {
        for (warmth, share) in [(0.0, 0.0), (0.25, 0.25), (0.5, 0.5), (0.9, 0.9), (1.0, 1.0)] {
            let taken = (0..10_000).filter(|dice| !is_left_out(warmth, *dice, Slot(3))).count();
            let found = taken as f64 / 10_000.0;
            assert!((found - share).abs() < 0.02, "{warmth}: {found}");
        }
    }

    #[test]
    fn two_workers_are_left_out_independently() {
        let both = (0..10_000)
            .filter(|dice| is_left_out(0.5, *dice, Slot(0)) && is_left_out(0.5, *dice, Slot(1)));
        let share = both.count() as f64 / 10_000.0;
        assert!((share - 0.25).abs() < 0.02, "{share}");
    }
}
