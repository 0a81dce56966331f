//! One request at one worker: what was booked for it at dispatch, and how each ending undoes it.
//!
//! Dropping an attempt is the ending of a client that left: everything is given back, nothing is
//! held against the worker.

use super::patience::Patience;
use super::route::OnRoute;
use crate::fleet::{InflightGuard, ModelFleet, Worker, clock};
use crate::metrics::Outcome;
use std::sync::Arc;
use std::time::Instant;
use tidegate_policy::fleet::Slot;
use tidegate_policy::index::Credit;
use tidegate_policy::ledger::{Streaming, Ticket};
use tidegate_policy::prefix::PrefixKeys;

/// See the module.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) worker: Arc<Worker>,
    /// When the request was written; `None` from the first head of an answer on, an interim one
    /// included.
    pub(super) unanswered_since: Option<Instant>,
    pub(super) head_seen: bool,
    pub(super) patience: Option<Patience>,
    /// Under the policy `learned`.
    pub(super) route: Option<OnRoute>,
    inflight: Option<InflightGuard>,
    ticket: Option<Ticket>,
    credit: Option<Credit>,
}

impl Attempt {
    /// Books the request at the worker; `None` if it is no longer routable.
    pub(super) fn dispatch(
        model: &ModelFleet,
        worker: &Arc<Worker>,
        keys: Option<&PrefixKeys>,
        uncached_tokens: u64,
        streaming: Streaming,
    ) -> Option<Self> {
        let inflight = worker.try_dispatch()?;
        Some(Self {
            ticket: Some(worker.live.ledger.dispatch(uncached_tokens, streaming, clock::now())),
            credit: keys.map(|keys| model.index.credit(worker.slot, keys.keys())),
            inflight: Some(inflight),
            worker: Arc::clone(worker),
            unanswered_since: None,
            head_seen: false,
            patience: None,
            route: None,
        })
    }

    pub(super) fn slot(&self) -> Slot {
        self.worker.slot
    }

    /// The head of the worker's answer came.
    pub(super) fn answered(&mut self, status: u16) {
        self.head_seen = true;
        self.unanswered_since = None;
        if let Some(inflight) = &mut self.inflight {
            inflight.answered(status);
        }
    }

    /// The worker never had all of the request.
    pub(super) fn not_taken(mut self, outcome: Outcome) {
        self.take_back();
        self.broken(outcome);
    }

    /// A pooled connection had been closed; nothing is held against the worker, but the other
    /// connections of its pool are as old.
    pub(super) fn stale(mut self) {
        self.worker.leave_pool();
        self.take_back();
    }

    fn take_back(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.worker.live.ledger.cancel(ticket);
        }
        if let Some(credit) = self.credit.take() {
            credit.refused();
        }
    }

    /// The first chunk with content came: the prompt is prefilled.
    pub(super) fn first_content(&mut self) {
        if let Some(ticket) = &self.ticket {
            self.worker.live.ledger.first_byte(ticket, clock::now());
        }
        if let Some(credit) = &mut self.credit {
            credit.first_byte();
        }
    }

    /// The answer is complete. One that turns the request away says that the worker computed
    /// nothing: neither does it hold the prompt then, nor has it prefilled what was sent before.
    pub(super) fn finished(mut self, outcome: Outcome) {
        match outcome {
            Outcome::Ok => self.computed(),
            Outcome::ClientError | Outcome::WorkerBusy => self.take_back(),
            // How far the worker came is unknown; dropping says so.
            Outcome::WorkerError
            | Outcome::Unreachable
            | Outcome::Timeout
            | Outcome::Cancelled
            | Outcome::Shed
            | Outcome::EdgeError => {}
        }
        self.broken(outcome);
    }

    /// The prompt was prefilled, so what was sent before it was too; an answer to no prompt proves
    /// nothing about those in the line.
    fn computed(&mut self) {
        let Some(credit) = self.credit.take() else { return };
        credit.completed();
        if let Some(ticket) = self.ticket.take() {
            self.worker.live.ledger.finish(ticket, clock::now());
        }
    }

    /// The answer, or the wait for it, ended early after the worker had the request.
    pub(super) fn broken(mut self, outcome: Outcome) {
        if let Some(route) = self.route.take() {
            route.failed(outcome);
        }
        if let Some(inflight) = self.inflight.take() {
            inflight.settle(outcome);
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.worker.live.ledger.cancel(ticket);
        }
    }
}
