//! May anybody take a request of the model, and if not, is it worth waiting?

use super::model::ModelFleet;
use super::queue::{LONGEST, SHORTEST};
use std::time::Duration;
use tidegate_policy::rules::Rules;
use tidegate_policy::{fleet as policy, gate};

impl ModelFleet {
    /// Has every routable worker a fresh queue at or above `shed_queue_limit`?
    ///
    /// What this edge has sent since a report counts too, as it does at the gate: a report that is
    /// below the limit lets in as many as bring the queue back to it, and not all who come, or wait,
    /// until the next one. Where a report says that nobody waits, and not how many run at most, what was
    /// sent counts as running.
    pub fn is_saturated(&self) -> bool {
        let Some(limit) = self.config.shed_queue_limit else { return false };
        let (now, default) = (self.clock.now(), Rules::default());
        let rules = self.config.policy.cache_aware().unwrap_or(&default);
        let fleet = self.snapshot();
        let workers = fleet.workers().iter();
        let mut routable =
            workers.filter(|worker| worker.can_prefill() && worker.live.is_routable()).peekable();
        let is_full = |worker: &policy::Worker| {
            gate::queue_of(worker, now, rules).is_some_and(|queue| limit.get() <= queue)
        };
        routable.peek().is_some() && routable.all(is_full)
    }

    /// Is there somebody whose next answer, or next report, may make room? The answer a half-open
    /// breaker waits for is one.
    pub fn is_worth_waiting_for(&self) -> bool {
        let fleet = self.snapshot();
        fleet.workers().iter().filter(|row| row.can_prefill()).any(|row| {
            let may = || self.worker(row.slot).is_some_and(|worker| worker.lasting.may_make_room());
            row.live.is_routable() || may()
        })
    }

    /// When reports may say that it is saturated no more.
    pub fn next_reports_in(&self) -> Duration {
        self.config.load_reports.interval.clamp(SHORTEST, LONGEST)
    }

    /// When the first of the workers that are not routable may be again, as far as that is known: an
    /// open breaker's cool-down ends, a health page is asked again, a full worker finishes something.
    pub fn routable_in(&self) -> Duration {
        let health = &self.config.health;
        let back = self.workers().iter().filter_map(|worker| worker.lasting.back_in(health)).min();
        back.unwrap_or(health.interval).clamp(SHORTEST, LONGEST)
    }
}
