//! Where the request goes: the decision, and its dispatch.

use super::attempt::Attempt;
use super::context::RequestContext;
use super::failure;
use super::reply::Refusal;
use super::request_filter;
use super::route::OnRoute;
use super::waiting;
use crate::config::{self, Scheme};
use crate::fleet::{ModelFleet, Whose, Worker, WorkerAddress};
use crate::routing::{self, Attempted, Choice, Placed, Unroutable};
use crate::state::ServedModel;
use pingora::Result;
use pingora::upstreams::peer::HttpPeer;
use pingora_proxy::Session;
use tidegate_policy::decision::Reason;
use tidegate_policy::fleet::Fleet;
use tidegate_policy::ledger::Streaming;

/// Why a request is dispatched to nobody.
pub(super) enum Unable {
    /// Another moment may be better.
    Now(Refusal),
    /// No moment is.
    Ever(Refusal),
}

/// Called once per attempt.
pub(super) async fn choose(
    session: &mut Session,
    ctx: &mut RequestContext,
) -> Result<Box<HttpPeer>> {
    loop {
        let Some(model) = ctx.model.fleet.clone() else {
            let wait = ctx.running.config.dns_interval;
            return Err(failure::refusing(ctx, Refusal::NoRoutableWorker(wait)));
        };
        // Who failed somewhere came before those who wait, and who names a route waits for nobody
        // else's.
        let queue = model.config.queue.as_ref().filter(|_| ctx.attempts == 0 && ctx.pin.is_none());
        // Nobody overtakes those who wait.
        let behind = queue.filter(|_| !model.queue.is_empty() && model.is_worth_waiting_for());
        let wait = match behind {
            Some(settings) => Ok(settings),
            None => match dispatched(ctx, Whose::Pinned) {
                Ok(peer) => return Ok(peer),
                Err(Unable::Ever(refusal)) => return Err(failure::refusing(ctx, refusal)),
                Err(Unable::Now(refusal)) => {
                    queue.filter(|_| model.is_worth_waiting_for()).ok_or(refusal)
                }
            },
        };
        if !ctx.state.is_in_force(&ctx.running) {
            // The workers of its own configuration may be gone for good, and others have come.
            request_filter::renew(session, ctx).map_err(|why| failure::refusing(ctx, why))?;
            continue;
        }
        let settings = wait.map_err(|refusal| failure::refusing(ctx, refusal))?;
        if let Some(peer) = waiting::for_a_worker(session, ctx, &model, settings).await? {
            return Ok(peer);
        }
    }
}

/// Asks the policy and books the request where it says.
pub(super) fn dispatched(ctx: &mut RequestContext, whose: Whose) -> Result<Box<HttpPeer>, Unable> {
    let failed = ctx.excluded.len();
    let peer = ask(ctx, whose);
    if peer.is_err() {
        // The others only stopped being routable between the look and the dispatch.
        ctx.excluded.truncate(failed);
    }
    peer
}

fn ask(ctx: &mut RequestContext, whose: Whose) -> Result<Box<HttpPeer>, Unable> {
    let Some(model) = ctx.model.fleet.clone() else {
        return Err(Unable::Ever(Refusal::Internal));
    };
    if model.is_saturated() {
        return Err(Unable::Now(Refusal::FleetSaturated(model.next_reports_in())));
    }
    let turn = *ctx.turn.get_or_insert_with(|| model.turn());
    let tried = Attempted {
        query: ctx.query.as_mut(),
        pin: ctx.pin.as_ref(),
        excluded: &mut ctx.excluded,
        turn,
        streaming: if ctx.streamed { Streaming::Streamed } else { Streaming::Unstreamed },
        whose,
    };
    let placed = routing::place(&model, tried);
    let placed = placed.map_err(|why| unable(why, &model, ctx.attempts))?;
    let Placed { fleet, choice, booking, address } = placed;
    let peer = Box::new(peer(booking.worker(), address, &model.config));
    log_decision(&ctx.model, &fleet, &choice);
    let route = choice.route.as_deref().and_then(|route| OnRoute::start(&ctx.model, route));
    ctx.attempts += 1;
    ctx.attempt = Some(Attempt::new(booking, route.map(Box::new)));
    ctx.routed = Some((fleet, choice));
    Ok(peer)
}

fn unable(why: Unroutable, model: &ModelFleet, attempts: u32) -> Unable {
    match why {
        Unroutable::Pin(error) if error.is_invalid() => {
            Unable::Ever(Refusal::InvalidRoute(error.to_string()))
        }
        // Who failed already was reachable for nobody; who was never there is not routable.
        Unroutable::NoWorker | Unroutable::NoRoute | Unroutable::Pin(_) if 0 < attempts => {
            Unable::Now(Refusal::WorkerUnreachable)
        }
        Unroutable::NoWorker => Unable::Now(Refusal::NoRoutableWorker(model.routable_in())),
        Unroutable::NoRoute | Unroutable::Pin(_) => {
            Unable::Now(Refusal::NoRoute { why: why.to_string(), wait: model.routable_in() })
        }
    }
}

fn peer(worker: &Worker, address: WorkerAddress, model: &config::Model) -> HttpPeer {
    let url = &worker.config.url;
    let tls = url.scheme == Scheme::Https;
    let sni = if tls { worker.server_name() } else { String::new() };
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

fn log_decision(model: &ServedModel, fleet: &Fleet, choice: &Choice) {
    let decision = &choice.decision;
    let name = model.fleet.as_ref().map_or("", |fleet| &fleet.config.name);
    if let Some(route) = &choice.route {
        log::debug!("route selected: {}, {}", route.mode.as_str(), route.signature);
    }
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
