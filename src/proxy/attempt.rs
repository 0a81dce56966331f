//! One request at one worker: what was booked for it, and what Pingora's side knows of it.
//!
//! Dropping an attempt is the ending of a client that left: everything is given back, nothing is
//! held against the worker.

use super::patience::Patience;
use super::route::OnRoute;
use crate::fleet::Worker;
use crate::metrics::Outcome;
use crate::routing::Booking;
use std::sync::Arc;
use std::time::Instant;
use tidegate_policy::fleet::Slot;

/// See the module.
#[derive(Debug)]
pub(super) struct Attempt {
    /// When the request was written; `None` from the first head of an answer on, an interim one
    /// included.
    pub(super) unanswered_since: Option<Instant>,
    pub(super) head_seen: bool,
    pub(super) patience: Option<Patience>,
    /// Under the policy `learned`.
    pub(super) route: Option<Box<OnRoute>>,
    booking: Booking,
}

impl Attempt {
    pub(super) fn new(booking: Booking, route: Option<Box<OnRoute>>) -> Self {
        Self { unanswered_since: None, head_seen: false, patience: None, route, booking }
    }

    pub(super) fn worker(&self) -> &Arc<Worker> {
        self.booking.worker()
    }

    pub(super) fn slot(&self) -> Slot {
        self.worker().slot
    }

    /// The head of the worker's answer came.
    pub(super) fn answered(&mut self, status: u16) {
        self.head_seen = true;
        self.unanswered_since = None;
        self.booking.answered(status);
    }

    /// The first chunk with content came.
    pub(super) fn first_content(&mut self) {
        self.booking.first_content();
    }

    /// The worker never had all of the request.
    pub(super) fn not_taken(mut self, outcome: Outcome) {
        self.leave_route(outcome);
        self.booking.not_taken(outcome);
    }

    /// A pooled connection had been closed; nothing is held against the worker, but the other
    /// connections of its pool are as old.
    pub(super) fn stale(self) {
        self.worker().leave_pool();
        self.booking.stale();
    }

    /// The answer is complete.
    pub(super) fn finished(mut self, outcome: Outcome) {
        self.leave_route(outcome);
        self.booking.finished(outcome);
    }

    /// The answer, or the wait for it, ended early after the worker had the request.
    pub(super) fn broken(mut self, outcome: Outcome) {
        self.leave_route(outcome);
        self.booking.broken(outcome);
    }

    fn leave_route(&mut self, outcome: Outcome) {
        if let Some(route) = self.route.take() {
            route.failed(outcome);
        }
    }
}
