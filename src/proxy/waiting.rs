//! A request that nobody may take now waits in its model's queue, if the model has one.
//!
//! It leaves with a worker, when `max_wait` is over, or at once when its client does. When its turn
//! comes it asks by the configuration in force, which may be a later one than it came with: what it
//! keeps of its own is its place and its `max_wait`.

use super::body::RequestBody;
use super::context::RequestContext;
use super::failure;
use super::hang_up::HangUp;
use super::reply::Refusal;
use super::request_filter;
use super::upstream_peer::{self, Unable};
use crate::config::{self, HalfClose};
use crate::fleet::{Client, ModelFleet, Place, Whose};
use crate::metrics::{QueueMetrics, QueueOutcome};
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result};
use pingora_proxy::Session;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;
use tokio::time::sleep;

/// Waits for a worker; `None`: its model is another one now, whose queue it is not in.
pub(super) async fn for_a_worker(
    session: &mut Session,
    ctx: &mut RequestContext,
    model: &Arc<ModelFleet>,
    settings: &config::Queue,
) -> Result<Option<Box<HttpPeer>>> {
    let served = Arc::clone(&ctx.model);
    let most = usize::try_from(settings.max_requests.get()).unwrap_or(usize::MAX);
    let Some(place) = model.queue.join(client(session), most) else {
        tell(served.queue.as_ref(), QueueOutcome::Full);
        let wait = model.queue.expected_wait(settings.max_wait);
        return Err(failure::refusing(ctx, Refusal::FleetSaturated(wait)));
    };
    let stay = Stay::new(served.queue.as_ref());
    let half_close = ctx.running.config.http.half_close;
    let mut late = pin!(sleep(settings.max_wait));
    let end = loop {
        let is_read = !matches!(ctx.body, RequestBody::Opening { .. });
        let end = tokio::select! {
            biased;
            end = offer(&place, ctx) => end,
            error = gone(session, is_read, half_close) => End::Gone(error),
            () = &mut late => End::Late,
        };
        match end {
            End::Outdated => match request_filter::renew(session, ctx) {
                Ok(()) if ctx.model.fleet.as_ref().is_some_and(|now| now.continues(model)) => {}
                Ok(()) => break End::Outdated,
                Err(refusal) => break End::Refused(refusal),
            },
            end => break end,
        }
    };
    ctx.queued = Some(ctx.queued.unwrap_or_default() + stay.since.elapsed());
    match end {
        End::Taken(peer) => {
            place.taken();
            stay.ended(QueueOutcome::Taken);
            Ok(Some(peer))
        }
        End::Outdated => Ok(None),
        End::Refused(refusal) => Err(failure::refusing(ctx, refusal)),
        End::Gone(error) => Err(error),
        End::Late => {
            stay.ended(QueueOutcome::TimedOut);
            let wait = model.queue.expected_wait(settings.max_wait);
            Err(failure::refusing(ctx, Refusal::QueueTimeout(wait)))
        }
    }
}

/// Why it waits no more.
enum End {
    Taken(Box<HttpPeer>),
    Refused(Refusal),
    /// Another configuration is in force than it goes by.
    Outdated,
    Gone(Box<Error>),
    Late,
}

/// Asks whenever it may help, once the request's turn has come.
async fn offer(place: &Place, ctx: &mut RequestContext) -> End {
    place.called().await;
    loop {
        if !ctx.state.is_in_force(&ctx.running) {
            return End::Outdated;
        }
        match upstream_peer::dispatched(ctx, Whose::Waiting) {
            Ok(peer) => return End::Taken(peer),
            Err(Unable::Now(_)) => place.changed().await,
            Err(Unable::Ever(refusal)) => return End::Refused(refusal),
        }
    }
}

/// Returns when the client is gone. Where the body was not read to its end (in chunks, and too large
/// to be sent twice), its socket is watched: reading on would take from the worker what it has to get.
async fn gone(session: &mut Session, is_read: bool, half_close: HalfClose) -> Box<Error> {
    if !is_read {
        HangUp::of(session, half_close).heard().await;
        return Error::new_down(ErrorType::ConnectionClosed);
    }
    match session.read_body_or_idle(true).await {
        Ok(_) => Error::new_down(ErrorType::ConnectionClosed),
        Err(error) => error.into_down(),
    }
}

fn client(session: &Session) -> Client {
    let address = session.client_addr()?.as_inet()?;
    Some(address.ip().to_canonical())
}

fn tell(metrics: Option<&QueueMetrics>, outcome: QueueOutcome) {
    if let Some(metrics) = metrics {
        metrics.ended(outcome);
    }
}

/// A wait as the metrics see it; one that is dropped has ended with its client, or with its model.
struct Stay<'a> {
    metrics: Option<&'a QueueMetrics>,
    outcome: QueueOutcome,
    since: Instant,
}

impl<'a> Stay<'a> {
    fn new(metrics: Option<&'a QueueMetrics>) -> Self {
        if let Some(metrics) = metrics {
            metrics.waiting.inc();
        }
        Self { metrics, outcome: QueueOutcome::Left, since: Instant::now() }
    }

    fn ended(mut self, outcome: QueueOutcome) {
        self.outcome = outcome;
    }
}

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        tell(self.metrics, self.outcome);
        if let Some(metrics) = self.metrics {
            metrics.waiting.dec();
            metrics.seconds.observe(self.since.elapsed().as_secs_f64());
        }
    }
}
