//! May anybody take a request of the model, and if not, is it worth waiting?

use super::model::ModelFleet;
use super::queue::{LONGEST, SHORTEST};
use std::time::Duration;

impl ModelFleet {
    /// Has every routable worker a fresh queue at or above `shed_queue_limit`?
    pub fn is_saturated(&self) -> bool {
        let Some(limit) = self.config.shed_queue_limit else { return false };
        let now = self.clock.now();
        let fleet = self.snapshot();
        let workers = fleet.workers().iter();
        let mut routable =
            workers.filter(|worker| worker.can_prefill() && worker.live.is_routable()).peekable();
        routable.peek().is_some()
            && routable.all(|worker| {
                let waiting = worker.fresh(now).and_then(|report| report.waiting);
                waiting.is_some_and(|waiting| limit.get() <= waiting)
            })
    }

    /// Is there somebody whose next answer, or next report, may make room?
    pub fn is_worth_waiting_for(&self) -> bool {
        let fleet = self.snapshot();
        fleet.workers().iter().filter(|row| row.can_prefill()).any(|row| {
            let is_full = || self.worker(row.slot).is_some_and(|worker| worker.lasting.is_full());
            row.live.is_routable() || is_full()
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
