//! A request on its way along a learned route: what the head is told, what the other nodes are
//! booked for, and what the route's statistics learn at the end.
//!
//! The head is booked like any worker. The nodes behind it never hear of this edge, so their part
//! is kept here: while the request is under way it counts as in flight at each of them, which is
//! their queue as long as they report none.
//!
//! Dropping an [`OnRoute`] is the ending of a client that left: it teaches nothing.

use crate::fleet::{ModelFleet, Worker, clock};
use crate::metrics::Outcome;
use crate::prompt::usage::UsageReader;
use crate::state::ServedModel;
use http::HeaderValue;
use http::header::InvalidHeaderValue;
use serde_json::json;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Instant;
use tidegate_policy::learned::{Ended, Selection, Ticket};
use tidegate_policy::ledger::{self, Streaming};

/// See the module.
#[derive(Debug)]
pub(super) struct OnRoute {
    model: Arc<ServedModel>,
    ticket: Option<Ticket>,
    behind: SmallVec<[(Arc<Worker>, ledger::Ticket); 4]>,
    dispatched: Instant,
}

impl OnRoute {
    /// Books the route; the request is about to be sent to its head.
    pub(super) fn start(model: &Arc<ServedModel>, selection: &Selection) -> Option<Self> {
        let fleet = model.fleet.as_ref()?;
        let (_, routes) = fleet.learned()?;
        if let Some(metrics) = &model.routes {
            metrics.selected(selection.mode);
        }
        let tail = selection.hops.iter().skip(1).filter_map(|hop| fleet.worker(hop.slot));
        let book = |worker: &Arc<Worker>| {
            // What it has to compute is unknown; that it is one request more is not.
            let ticket = worker.live.ledger.dispatch(0, Streaming::Unstreamed, clock::now());
            (Arc::clone(worker), ticket)
        };
        Some(Self {
            model: Arc::clone(model),
            ticket: Some(routes.dispatched(selection)),
            behind: tail.map(book).collect(),
            dispatched: Instant::now(),
        })
    }

    /// The answer's last byte came at `at`.
    pub(super) fn arrived(mut self, usage: Option<&UsageReader>, at: Instant) {
        let seconds = at.saturating_duration_since(self.dispatched).as_secs_f64();
        self.end(match usage.filter(|usage| usage.is_readable()) {
            Some(usage) if !usage.is_whole() => Ended::Failed,
            // Unknown tokens are none to learn from.
            usage => Ended::Normally {
                completion_tokens: usage.and_then(UsageReader::completion_tokens).unwrap_or(0),
                seconds,
            },
        });
    }

    /// There is no whole answer.
    pub(super) fn failed(mut self, outcome: Outcome) {
        self.end(match outcome {
            Outcome::Cancelled | Outcome::Shed | Outcome::EdgeError => Ended::Aborted,
            Outcome::Ok
            | Outcome::ClientError
            | Outcome::WorkerBusy
            | Outcome::WorkerError
            | Outcome::Unreachable
            | Outcome::Timeout => Ended::Failed,
        });
    }

    fn end(&mut self, ended: Ended) {
        for (worker, ticket) in self.behind.drain(..) {
            worker.live.ledger.cancel(ticket);
        }
        let Some(ticket) = self.ticket.take() else { return };
        let Some((learned, routes)) = self.model.fleet.as_ref().and_then(|fleet| fleet.learned())
        else {
            return;
        };
        let result = routes.ended(ticket, ended, clock::now(), &learned.settings);
        if let Some(metrics) = &self.model.routes {
            metrics.sampled(result);
        }
    }
}

impl Drop for OnRoute {
    fn drop(&mut self) {
        self.end(Ended::Aborted);
    }
}

/// `x-tidegate-route` and `x-tidegate-route-signature`, for the head of the route.
pub(super) fn headers(
    fleet: &ModelFleet,
    selection: &Selection,
) -> Result<[(&'static str, HeaderValue); 2], InvalidHeaderValue> {
    let hops = selection.hops.iter().map(|hop| {
        let worker = fleet.worker(hop.slot);
        json!({
            "node": hop.node.as_str(),
            "url": worker.map(|worker| worker.config.url.to_string()),
            "start_layer": hop.start_layer,
            "end_layer": hop.end_layer,
        })
    });
    let hops = serde_json::Value::Array(hops.collect()).to_string();
    // Names may be of any script; as bytes they are what headers may carry.
    Ok([
        ("x-tidegate-route", HeaderValue::from_bytes(hops.as_bytes())?),
        ("x-tidegate-route-signature", HeaderValue::from_bytes(selection.signature.as_bytes())?),
    ])
}
