//! What is booked for one request at one worker at dispatch, and how each ending undoes it.
//!
//! Dropping a booking is the ending of a client that left: everything is given back, nothing is
//! held against the worker.

use crate::fleet::clock::Clock;
use crate::fleet::{InflightGuard, ModelFleet, Worker};
use crate::metrics::Outcome;
use std::sync::Arc;
use tidegate_policy::fleet::Millis;
use tidegate_policy::index::Credit;
use tidegate_policy::ledger::{Streaming, Ticket};
use tidegate_policy::prefix::PrefixKeys;

/// See the module.
#[derive(Debug)]
pub struct Booking {
    worker: Arc<Worker>,
    clock: Clock,
    inflight: Option<InflightGuard>,
    ticket: Option<Ticket>,
    credit: Option<Credit>,
}

impl Booking {
    /// Books a request at the worker that has counted it in.
    pub fn new(
        model: &ModelFleet,
        inflight: InflightGuard,
        keys: Option<&PrefixKeys>,
        uncached_tokens: u64,
        streaming: Streaming,
        now: Millis,
    ) -> Self {
        let worker = Arc::clone(inflight.worker());
        Self {
            ticket: Some(worker.live.ledger.dispatch(uncached_tokens, streaming, now)),
            credit: keys.map(|keys| model.index.credit(worker.slot, keys.keys())),
            inflight: Some(inflight),
            clock: model.clock.clone(),
            worker,
        }
    }

    /// Where.
    pub fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }

    /// The head of the worker's answer came.
    pub fn answered(&mut self, status: u16) {
        if let Some(inflight) = &mut self.inflight {
            inflight.answered(status);
        }
    }

    /// The first chunk with content came: the prompt is prefilled.
    pub fn first_content(&mut self) {
        let Some(credit) = &mut self.credit else { return };
        credit.first_byte();
        if let Some(ticket) = &self.ticket {
            self.worker.live.ledger.first_byte(ticket, self.clock.now());
        }
    }

    /// The worker never had all of the request.
    pub fn not_taken(mut self, outcome: Outcome) {
        self.take_back();
        self.broken(outcome);
    }

    /// It never had any of it, and nothing is held against it.
    pub fn stale(mut self) {
        self.take_back();
    }

    fn cancel(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.worker.live.ledger.cancel(ticket);
        }
    }

    fn take_back(&mut self) {
        self.cancel();
        if let Some(credit) = self.credit.take() {
            credit.refused();
        }
    }

    /// The answer is complete. One that turns the request away says that the worker computed
    /// nothing: neither does it hold the prompt then, nor has it prefilled what was sent before.
    pub fn finished(mut self, outcome: Outcome) {
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
            self.worker.live.ledger.finish(ticket, self.clock.now());
        }
    }

    /// The answer, or the wait for it, ended early after the worker had the request.
    pub fn broken(mut self, outcome: Outcome) {
        // First: who waits for room looks at the ledger as soon as the worker has one request less.
        self.cancel();
        if let Some(inflight) = self.inflight.take() {
            inflight.settle(outcome);
        }
    }
}

impl Drop for Booking {
    fn drop(&mut self) {
        self.cancel();
    }
}
