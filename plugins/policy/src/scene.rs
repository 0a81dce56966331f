//! One request before one fleet under one rule set, and what the rungs read of a worker.

use crate::decision::{CacheDecision, Decision, Reason, Trace};
use crate::fleet::{Fleet, Millis, Report, Worker};
use crate::ledger::Outstanding;
use crate::request::Request;
use crate::rules::Rules;

/// What every rung is given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) fleet: &'a Fleet,
    pub(crate) request: &'a Request<'a>,
    pub(crate) rules: &'a Rules,
}

/// What a rung that decides says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) at: usize,
    pub(crate) reason: Reason,
    pub(crate) cache: CacheDecision,
}

/// One worker, its counters read once: it cannot change from one rung to the next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    /// Position in the fleet; the order of ids.
    pub(crate) at: usize,
    /// Data-parallel ranks.
    pub(crate) ranks: u32,
    /// Its report, if fresh.
    pub(crate) report: Option<&'a Report>,
    /// `local` of the rules: sent by this edge and without a first byte.
    pub(crate) local: Outstanding,
    /// The part of it that was sent after the report was taken; nothing without
    /// `dispatch_correction`.
    pub(crate) since: Outstanding,
}

impl<'a> Scene<'a> {
    /// The fleet of the rules, with positions.
    pub(crate) fn members(self) -> impl Iterator<Item = (usize, &'a Worker)> {
        self.request.members(self.fleet)
    }

    /// The worker at this position, if the request may go there.
    pub(crate) fn member(self, at: usize) -> Option<&'a Worker> {
        self.fleet.workers().get(at).filter(|worker| self.request.may_use(worker))
    }

    /// A choice of the cache-aware policy as an answer.
    pub(crate) fn decision(self, choice: Choice, trace: Trace) -> Decision {
        Decision {
            at: choice.at,
            reason: choice.reason,
            cache: Some(choice.cache),
            uncached_tokens: self.request.uncached_tokens(choice.at),
            trace,
        }
    }

    /// Reads a worker.
    pub(crate) fn see(self, at: usize, worker: &'a Worker) -> Seen<'a> {
        Seen::of(at, worker, self.request.now, self.rules)
    }
}

impl<'a> Seen<'a> {
    /// Reads the worker at this position as it counts at `now`.
    pub(crate) fn of(at: usize, worker: &'a Worker, now: Millis, rules: &Rules) -> Self {
        let ledger = &worker.live.ledger;
        let since =
            if rules.dispatch_correction { ledger.since_report() } else { Outstanding::default() };
        Seen {
            at,
            ranks: worker.ranks,
            report: worker.fresh(now),
            local: ledger.outstanding(),
            since,
        }
    }
}
