//! A request between its arrival and the end of its answer.

use super::super::engine::Job;
use super::edge::Edge;
use crate::fleet::{ModelFleet, Whose};
use crate::metrics::Outcome;
use crate::routing::{self, Attempted, Booking, Placed, Query, Used};
use smallvec::SmallVec;
use std::time::Duration;
use tidegate_policy::fleet::Slot;
use tidegate_policy::ledger::Streaming;

/// A request that is to be sent.
pub(super) struct Sendable {
    pub(super) edge: usize,
    pub(super) query: Option<Query>,
    pub(super) streaming: Streaming,
    pub(super) job: Job,
}

/// A request that an engine has.
pub(super) struct Open {
    pub(super) edge: usize,
    pub(super) engine: u32,
    query: Option<Query>,
    streaming: Streaming,
    booking: Booking,
    uncached_tokens: u64,
    prompt_tokens: u32,
    arrived: Duration,
    first_token: Option<Duration>,
}

impl Open {
    pub(super) fn new(placed: Placed, sent: Sendable, engine: u32, arrived: Duration) -> Self {
        Self {
            edge: sent.edge,
            engine,
            query: sent.query,
            streaming: sent.streaming,
            uncached_tokens: placed.choice.decision.uncached_tokens,
            booking: placed.booking,
            prompt_tokens: sent.job.prompt_tokens,
            arrived,
            first_token: None,
        }
    }

    pub(super) fn is_streamed(&self) -> bool {
        self.streaming == Streaming::Streamed
    }

    /// The engine has its first token; the edge sees it only if the answer is streamed.
    pub(super) fn first_token(&mut self, at: Duration) {
        self.first_token = Some(at);
        if self.is_streamed() {
            self.booking.answered(200);
            self.booking.first_content();
        }
    }

    /// From its arrival to the engine's first token.
    pub(super) fn first_token_after(&self) -> Duration {
        self.first_token.unwrap_or_default().saturating_sub(self.arrived)
    }

    /// The answer is whole.
    pub(super) fn finished(mut self, fleet: &ModelFleet, cached_tokens: u32) {
        let slot = self.booking.worker().slot;
        if !self.is_streamed() {
            // A whole answer is content, and comes at once.
            self.booking.answered(200);
            self.booking.first_content();
        }
        self.booking.finished(Outcome::Ok);
        let Some(query) = &self.query else { return };
        let used = Used {
            prompt_tokens: self.prompt_tokens.into(),
            cached_tokens: Some(cached_tokens.into()),
        };
        routing::learn(fleet, query, (slot, self.uncached_tokens), used);
    }

    /// The engine stopped.
    pub(super) fn cut(self) {
        self.booking.broken(Outcome::WorkerError);
    }
}

/// The attempts of one request.
pub(super) struct Attempts {
    excluded: SmallVec<[Slot; 4]>,
    turn: u64,
    left: u32,
}

impl Attempts {
    pub(super) fn new(fleet: &ModelFleet) -> Self {
        let left = fleet.config.retries.max_attempts.get();
        Self { excluded: SmallVec::new(), turn: fleet.turn(), left }
    }

    /// The next worker; `None` if nobody is left.
    pub(super) fn next(&mut self, edge: &Edge, sendable: &mut Sendable) -> Option<Placed> {
        self.left = self.left.checked_sub(1)?;
        let tried = Attempted {
            query: sendable.query.as_mut(),
            pin: None,
            excluded: &mut self.excluded,
            turn: self.turn,
            streaming: sendable.streaming,
            whose: Whose::Pinned,
        };
        routing::place(&edge.fleet, tried).ok()
    }

    /// Nobody listened there.
    pub(super) fn refused(&mut self, placed: Placed) {
        let worker = placed.booking.worker();
        self.excluded.push(worker.slot);
        worker.refused();
        placed.booking.not_taken(Outcome::Unreachable);
    }
}
