//! How busy a model's fleet is as a whole: what the dashboard draws over time and warns of.

use super::model::ModelFleet;
use std::num::NonZeroU64;
use tidegate_policy::fleet::{Millis, Worker};
use tidegate_policy::gate;
use tidegate_policy::rules::{Rules, Selection};

/// A fleet at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetLoad {
    /// Requests queued, of the workers with a fresh report; `None`: there is none.
    pub waiting: Option<u64>,
    /// Requests being computed, likewise.
    pub running: Option<u64>,
    /// Requests this edge sent whose answer is not over.
    pub in_flight: u64,
    /// Workers a request may be sent to for prefill.
    pub routable: usize,
    /// Every one of them is known to have [`FleetLoad::bound`] requests waiting, or more.
    pub is_saturated: bool,
    /// From this queue on a worker makes requests wait: the floor, else the limit, else 1.
    pub bound: u64,
    /// A gate is configured and no worker has a fresh queue.
    pub is_gate_inert: bool,
    /// A worker that computes fewer requests at once than `saturation_queue_floor`, and how many.
    pub below_floor: Option<(String, u64)>,
}

impl ModelFleet {
    /// How busy it is now.
    pub fn load(&self) -> FleetLoad {
        let (now, fleet) = (self.clock.now(), self.snapshot());
        let ladder = self.config.policy.cache_aware().filter(|rules| match rules.selection {
            Selection::Ladder => true,
            Selection::Cost(_) => false,
        });
        let view = View { now, ladder };
        let members: Vec<&Worker> = fleet
            .workers()
            .iter()
            .filter(|worker| worker.can_prefill() && worker.live.is_routable())
            .collect();
        let fresh = || members.iter().filter_map(|worker| worker.fresh(now));
        let sum = |counts: Vec<u64>| (!counts.is_empty()).then(|| counts.into_iter().sum::<u64>());
        let in_flight = self.workers().iter().map(|worker| u64::from(worker.standing().in_flight));
        let limit = ladder.and_then(|rules| rules.worker_queue_limit);
        FleetLoad {
            waiting: sum(fresh().filter_map(|report| report.waiting).collect()),
            running: sum(fresh().filter_map(|report| report.running).collect()),
            in_flight: in_flight.sum(),
            routable: members.len(),
            is_saturated: !members.is_empty() && members.iter().all(|worker| view.waits(worker)),
            bound: view.bound().get(),
            is_gate_inert: limit.is_some()
                && !members.is_empty()
                && fresh().all(|report| report.waiting.is_none()),
            below_floor: view.below_floor(&members),
        }
    }
}

/// What a worker is looked at with.
struct View<'a> {
    now: Millis,
    ladder: Option<&'a Rules>,
}

impl View<'_> {
    fn bound(&self) -> NonZeroU64 {
        self.ladder
            .and_then(|rules| rules.saturation_queue_floor.or(rules.worker_queue_limit))
            .unwrap_or(NonZeroU64::MIN)
    }

    /// Is it known to make a request wait?
    fn waits(&self, worker: &Worker) -> bool {
        let (queue, bound) = match self.ladder {
            Some(rules) => (
                gate::queue_of(worker, self.now, rules),
                gate::scaled(self.bound(), worker.ranks, rules),
            ),
            None => (worker.fresh(self.now).and_then(|report| report.waiting), self.bound().get()),
        };
        queue.is_some_and(|queue| bound <= queue)
    }

    fn below_floor(&self, members: &[&Worker]) -> Option<(String, u64)> {
        let rules = self.ladder?;
        let floor = rules.saturation_queue_floor?;
        members.iter().find_map(|worker| {
            let slots = worker.fresh(self.now)?.max_running?;
            (slots < gate::scaled(floor, worker.ranks, rules))
                .then(|| (worker.id.to_string(), slots))
        })
    }
}
