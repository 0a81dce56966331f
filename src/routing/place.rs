//! A request finds its worker, and its answer teaches: what the edge does around a decision.

use super::{Asked, Booking, Choice, Look, Query, Unroutable, ask};
use crate::fleet::{ModelFleet, Whose, WorkerAddress};
use smallvec::SmallVec;
use std::sync::Arc;
use tidegate_policy::fleet::{Fleet, Slot};
use tidegate_policy::learned::Pin;
use tidegate_policy::ledger::Streaming;

/// One request, as often as it is tried.
#[derive(Debug)]
pub struct Attempted<'a> {
    /// Its prompt.
    pub query: Option<&'a mut Query>,
    /// The client's own route.
    pub pin: Option<&'a Pin>,
    /// Workers that failed it.
    pub excluded: &'a mut SmallVec<[Slot; 4]>,
    /// Its [`ModelFleet::turn`], the same for every attempt.
    pub turn: u64,
    /// When its first byte comes.
    pub streaming: Streaming,
    /// Does it wait?
    pub whose: Whose,
}

/// Where a request goes now.
#[derive(Debug)]
pub struct Placed {
    /// What was chosen among.
    pub fleet: Arc<Fleet>,
    /// Who, and why.
    pub choice: Choice,
    /// It is counted there.
    pub booking: Booking,
    /// Where to connect.
    pub address: WorkerAddress,
}

/// Asks the model's policy where the request goes now, and books it there. Who stopped being
/// routable since the snapshot was read is excluded, and the policy asked again.
///
/// # Errors
/// Nobody can take it.
pub fn place(model: &ModelFleet, mut tried: Attempted<'_>) -> Result<Placed, Unroutable> {
    loop {
        let look = Look::new(model, tried.query.as_deref_mut(), tried.turn);
        let choice = decided(model, &look, &tried)?;
        let Look { fleet, now, .. } = look;
        let slot = fleet.workers()[choice.decision.at].slot;
        let worker = model.worker(slot);
        let booked = worker.and_then(|worker| {
            let address = worker.address()?;
            let keys = tried.query.as_ref().map(|query| &query.keys);
            let uncached_tokens = choice.decision.uncached_tokens;
            let inflight = worker.try_dispatch(tried.whose)?;
            let booking =
                Booking::new(model, inflight, keys, uncached_tokens, tried.streaming, now);
            Some((booking, address))
        });
        let Some((booking, address)) = booked else {
            tried.excluded.push(slot);
            continue;
        };
        if tried.query.is_some() {
            model.mean_uncached.observed(choice.decision.uncached_tokens);
        }
        return Ok(Placed { fleet, choice, booking, address });
    }
}

/// Asks without those who warm up, and with them if it may go nowhere else.
fn decided(model: &ModelFleet, look: &Look, tried: &Attempted<'_>) -> Result<Choice, Unroutable> {
    let asked = |excluded: &[Slot]| {
        ask(&Asked {
            policy: &model.config.policy,
            routes: model.learned().map(|(_, routes)| routes.as_ref()),
            fleet: &look.fleet,
            request: look.request(excluded),
            pin: tried.pin,
        })
    };
    let mut left_out = look.warming_up(model, tried.query.as_deref());
    if left_out.is_empty() {
        return asked(tried.excluded);
    }
    left_out.extend_from_slice(tried.excluded);
    asked(&left_out).or_else(|_| asked(tried.excluded))
}

/// What an answer said of its prompt, tokens.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    /// All of it.
    pub prompt_tokens: u64,
    /// What was cached; `None`: not said.
    pub cached_tokens: Option<u64>,
}

/// Learns from a finished answer how many bytes a token has, and how true the index is; returns the
/// cached tokens that were predicted, if the answer says how many there were. `uncached_tokens` is
/// the decision's, for the worker with this slot.
pub fn learn(
    model: &ModelFleet,
    query: &Query,
    (slot, uncached_tokens): (Slot, u64),
    used: Used,
) -> Option<u64> {
    if query.is_estimate {
        model.bytes_per_token.observed(query.keys.bytes(), used.prompt_tokens);
    }
    let cached = used.cached_tokens?;
    let predicted = query.input_tokens.saturating_sub(uncached_tokens);
    // In the engine's tokens, or an estimate that is off would look like a cache that is.
    let predicted = rescaled(predicted, query.input_tokens, used.prompt_tokens);
    model.index.reported(slot, predicted, cached, used.prompt_tokens);
    Some(predicted)
}

/// So many of `from` tokens, if there were `to`.
fn rescaled(tokens: u64, from: u64, to: u64) -> u64 {
    let scaled = u128::from(tokens) * u128::from(to) / u128::from(from.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}
