//! Where the request goes: the decision, and its dispatch.

use super::attempt::Attempt;
use super::context::RequestContext;
use super::failure;
use super::reply::Refusal;
use crate::config::{self, Scheme};
use crate::fleet::{ModelFleet, Worker, WorkerAddress, clock};
use crate::routing;
use crate::state::ServedModel;
use pingora::Result;
use pingora::upstreams::peer::HttpPeer;
use std::num::NonZeroU64;
use std::sync::Arc;
use tidegate_policy::decision::{Decision, Reason};
use tidegate_policy::fleet::Fleet;
use tidegate_policy::ledger::Streaming;

/// Called once per attempt.
pub(super) fn choose(ctx: &mut RequestContext) -> Result<Box<HttpPeer>> {
    let Some(model) = ctx.model.fleet.clone() else {
        return Err(failure::refusing(ctx, Refusal::NoRoutableWorker));
    };
    if model.config.shed_queue_limit.is_some_and(|limit| is_saturated(&model, limit)) {
        return Err(failure::refusing(ctx, Refusal::FleetSaturated));
    }
    let turn = *ctx.turn.get_or_insert_with(|| model.turn());
    loop {
        let (fleet, decision) = routing::choose(&model, ctx.query.as_mut(), &ctx.excluded, turn);
        let Some(decision) = decision else {
            // Who failed already was reachable for nobody; who was never there is not routable.
            let refusal = if ctx.attempts == 0 {
                Refusal::NoRoutableWorker
            } else {
                Refusal::WorkerUnreachable
            };
            return Err(failure::refusing(ctx, refusal));
        };
        let slot = fleet.workers()[decision.at].slot;
        let dispatched =
            model.worker(slot).and_then(|worker| dispatch(&model, worker, &decision, ctx));
        let Some((attempt, address)) = dispatched else {
            // It stopped being routable since the snapshot was read.
            ctx.excluded.push(slot);
            continue;
        };
        let peer = peer(&attempt.worker, address, &model.config);
        log_decision(&ctx.model, &fleet, &decision);
        if ctx.query.is_some() {
            model.mean_uncached.observed(decision.uncached_tokens);
        }
        ctx.attempts += 1;
        ctx.attempt = Some(attempt);
        ctx.routed = Some((fleet, decision));
        return Ok(Box::new(peer));
    }
}

fn dispatch(
    model: &ModelFleet,
    worker: &Arc<Worker>,
    decision: &Decision,
    ctx: &RequestContext,
) -> Option<(Attempt, WorkerAddress)> {
    let address = worker.address()?;
    let streaming = if ctx.streamed { Streaming::Streamed } else { Streaming::Unstreamed };
    let keys = ctx.query.as_ref().map(|query| &query.keys);
    let attempt = Attempt::dispatch(model, worker, keys, decision.uncached_tokens, streaming)?;
    Some((attempt, address))
}

/// Every routable worker has a fresh queue at or above the limit.
fn is_saturated(model: &ModelFleet, limit: NonZeroU64) -> bool {
    let now = clock::now();
    let fleet = model.snapshot();
    let mut routable = fleet
        .workers()
        .iter()
        .filter(|worker| worker.can_prefill() && worker.live.is_routable())
        .peekable();
    routable.peek().is_some()
        && routable.all(|worker| {
            let waiting = worker.fresh(now).and_then(|report| report.waiting);
            waiting.is_some_and(|waiting| limit.get() <= waiting)
        })
}

fn peer(worker: &Worker, address: WorkerAddress, model: &config::Model) -> HttpPeer {
    let url = &worker.config.url;
    let tls = url.scheme == Scheme::Https;
    let sni = worker.server_name().to_owned();
    let mut peer = match address {
        WorkerAddress::Tcp(address) => HttpPeer::new(address, tls, sni),
        // The path was checked with the configuration; a failure here is answered like a refusal.
        WorkerAddress::Unix(path) => HttpPeer::new_uds(&path.to_string_lossy(), tls, sni)
            .unwrap_or_else(|_| HttpPeer::new(("127.0.0.1", 0), tls, String::new())),
    };
    peer.group_key = worker.pool();
    let timeouts = &model.timeouts;
    peer.options.connection_timeout = Some(timeouts.connect);
    peer.options.total_connection_timeout = Some(timeouts.connect);
    peer.options.write_timeout = Some(timeouts.worker_write);
    peer.options.idle_timeout = Some(timeouts.worker_idle);
    // `Patience` watches first byte and stream: they differ, and Pingora has one timeout for both.
    peer.options.read_timeout = None;
    peer.options.ca = worker.authorities.clone();
    peer
}

fn log_decision(model: &ServedModel, fleet: &Fleet, decision: &Decision) {
    let name = model.fleet.as_ref().map_or("", |fleet| &fleet.config.name);
    if decision.reason == Reason::SaturationPin && model.pins.occurred().is_some() {
        log::info!(
            "{}: nobody is below the floor; pinned to {} (first, then 1 in 64)",
            name,
            fleet.workers()[decision.at].id
        );
    }
    if decision.trace.gate_inert && model.inert_gate.occurred().is_some() {
        log::warn!(
            "{name}: worker_queue_limit is set and no worker has a fresh report: the gate is inert"
        );
    }
}
