//! Policy `round_robin`: in turn, by weight.
//!
//! Pure: the turn alone says whose it is. Workers of equal weight come strictly in turn. Otherwise
//! turns step by the golden section over a circle on which each worker has an arc as long as its
//! weight, which spreads the turns of a heavy one and keeps every share within a few turns.

use crate::decision::{Decision, Reason, Trace};
use crate::fleet::{Fleet, Worker};
use crate::least_load::least_load;
use crate::request::Request;

/// Golden section of 2^64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The worker whose turn it is; a request without a prompt goes to the least load under any policy.
/// `None`: nobody is routable.
pub fn round_robin(fleet: &Fleet, request: &Request<'_>) -> Option<Decision> {
    if request.prompt.is_none() {
        return least_load(fleet, request, None);
    }
    let weights = || request.members(fleet).map(|(at, worker)| (at, weight(worker)));
    let common = weights().fold(0, |common, (_, weight)| common_divisor(common, weight)).max(1);
    let (count, circle) = weights()
        .fold((0, 0), |(count, circle), (_, weight)| (count + 1, circle + weight / common));
    let mut place = match circle {
        0 => return None,
        _ if circle == count => request.turn % circle,
        _ => golden_step(request.turn, circle),
    };
    let mut last = None;
    for (at, weight) in weights() {
        last = Some(at);
        if place < weight / common {
            break;
        }
        place -= weight / common;
    }
    let at = last?;
    Some(Decision {
        at,
        reason: Reason::RoundRobin,
        cache: None,
        uncached_tokens: request.uncached_tokens(at),
        trace: Trace::default(),
    })
}

fn weight(worker: &Worker) -> u64 {
    u64::from(worker.weight.max(1))
}

/// Where on a circle of this length a turn comes to lie.
fn golden_step(turn: u64, circle: u64) -> u64 {
    ((u128::from(turn.wrapping_mul(GOLDEN)) * u128::from(circle)) >> 64) as u64
}

fn common_divisor(mut one: u64, mut other: u64) -> u64 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

#[cfg(test)]
mod tests;
