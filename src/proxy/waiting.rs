//! A request that nobody may take now waits in its model's queue, if the model has one.
//!
//! It leaves with a worker, when `max_wait` is over, or at once when its client does. Only the client
//! of a body that was not read to its end (in chunks, and too large to be sent twice) is not watched:
//! reading on would take from the worker what it has to get.

use super::body::RequestBody;
use super::context::RequestContext;
use super::failure;
use super::reply::Refusal;
use super::upstream_peer::{self, Unable};
use crate::config;
use crate::fleet::{Client, ModelFleet, Place};
use crate::metrics::{QueueMetrics, QueueOutcome};
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result};
use pingora_proxy::Session;
use std::sync::Arc;
use std::time::Instant;
use tokio::time::sleep;

/// Waits for a worker.
pub(super) async fn for_a_worker(
    session: &mut Session,
    ctx: &mut RequestContext,
    model: &Arc<ModelFleet>,
    settings: &config::Queue,
) -> Result<Box<HttpPeer>> {
    let served = Arc::clone(&ctx.model);
    let most = usize::try_from(settings.max_requests.get()).unwrap_or(usize::MAX);
    let Some(place) = model.queue.join(client(session), most) else {
        tell(served.queue.as_ref(), QueueOutcome::Full);
        let wait = model.queue.expected_wait(settings.max_wait);
        return Err(failure::refusing(ctx, Refusal::FleetSaturated(wait)));
    };
    let stay = Stay::new(served.queue.as_ref());
    let is_watched = !matches!(ctx.body, RequestBody::Opening { .. });
    let end = tokio::select! {
        biased;
        offered = offer(&place, ctx) => End::Offered(offered),
        error = gone(session), if is_watched => End::Gone(error),
        () = sleep(settings.max_wait) => End::Late,
    };
    ctx.queued = Some(stay.since.elapsed());
    match end {
        End::Offered(Ok(peer)) => {
            place.taken();
            stay.ended(QueueOutcome::Taken);
            Ok(peer)
        }
        End::Offered(Err(refusal)) => Err(failure::refusing(ctx, refusal)),
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
    Offered(Result<Box<HttpPeer>, Refusal>),
    Gone(Box<Error>),
    Late,
}

/// Asks whenever it may help, once the request's turn has come.
async fn offer(place: &Place, ctx: &mut RequestContext) -> Result<Box<HttpPeer>, Refusal> {
    place.called().await;
    loop {
        match upstream_peer::dispatched(ctx) {
            Ok(peer) => return Ok(peer),
            Err(Unable::Now(_)) => place.changed().await,
            Err(Unable::Ever(refusal)) => return Err(refusal),
        }
    }
}

/// Returns when the client is gone.
async fn gone(session: &mut Session) -> Box<Error> {
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

/// A wait as the metrics see it; one that is dropped has ended with its client.
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
