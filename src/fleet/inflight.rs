//! A request at a worker, counted for as long as this guard lives.

use super::breaker::{Ticket, Verdict};
use super::worker::Worker;
use crate::metrics::Outcome;
use std::sync::Arc;

/// Made by [`Worker::try_dispatch`]. Dropped without [`InflightGuard::settle`] it counts as
/// cancelled, which says nothing about the worker.
#[derive(Debug)]
pub struct InflightGuard {
    worker: Arc<Worker>,
    ticket: Ticket,
    outcome: Outcome,
    status: Option<u16>,
}

impl InflightGuard {
    pub(super) fn new(worker: Arc<Worker>, ticket: Ticket) -> Self {
        Self { worker, ticket, outcome: Outcome::Cancelled, status: None }
    }

    /// The worker.
    pub fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }

    /// The status of the worker's answer, once its head is there. Only its 503s for a long time
    /// open the breaker, and only this tells them from 429 and 529.
    pub fn answered(&mut self, status: u16) {
        self.status = Some(status);
    }

    /// Books how the attempt ended, with the breaker and the counters.
    pub fn settle(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }

    fn verdict(&self) -> Verdict {
        match self.outcome {
            Outcome::Ok => Verdict::Success,
            Outcome::WorkerError | Outcome::Unreachable | Outcome::Timeout => Verdict::Failure,
            Outcome::WorkerBusy if self.status == Some(503) => Verdict::Unavailable,
            Outcome::WorkerBusy | Outcome::ClientError => Verdict::Answered,
            Outcome::Cancelled | Outcome::Shed | Outcome::EdgeError => Verdict::Nothing,
        }
    }
}

impl Drop for InflightGuard {
    fn drop(&mut self) {
        self.worker.lasting.release(self.ticket, self.verdict(), self.outcome);
    }
}
