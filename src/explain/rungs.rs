//! The ladder, rung by rung: what each did and why.

use super::text::{counted, grouped};
use super::verdicts::measure;
use super::{CandidateView, Case, RouteView, Rung, RungResult, WorkerView, costs, routes};
use crate::config::Policy;
use crate::routing::{Choice, Unroutable};
use tidegate_policy::decision::{Decision, Reason, Trace};
use tidegate_policy::gate;
use tidegate_policy::rules::{PinOrder, Rules, Selection};

/// Everything a rung's sentence may need.
struct Story<'a> {
    case: &'a Case<'a>,
    rules: &'a Rules,
    decision: &'a Decision,
    trace: &'a Trace,
    candidates: &'a [CandidateView],
    workers: &'a [WorkerView],
}

/// What a rung did, with its sentence.
pub(super) type Told = (RungResult, String);

/// What the explanation shows besides the rungs.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) candidates: &'a [CandidateView],
    pub(super) workers: &'a [WorkerView],
    pub(super) routes: &'a [RouteView],
}

/// The rungs in order.
pub(super) fn tell(
    case: &Case<'_>,
    choice: Result<&Choice, &Unroutable>,
    seen: Seen<'_>,
) -> Vec<Rung> {
    let Choice { decision, route } = match choice {
        Ok(choice) => choice,
        Err(why) => return vec![rung("candidates", (RungResult::Closed, why.to_string()))],
    };
    let Seen { candidates, workers, routes } = seen;
    match case.policy {
        Policy::Learned(learned) => {
            route.iter().map(|route| routes::rung(learned, route, routes)).collect()
        }
        Policy::CacheAware(rules) => {
            let trace = &decision.trace;
            if let Some(cost) = &trace.cost {
                let names = ["owners", "admission", "cost"].into_iter();
                let told = costs::rungs(case, decision, cost);
                return names.zip(told).map(|(name, told)| rung(name, told)).collect();
            }
            if rules.selection != Selection::Ladder {
                let story = Story { case, rules, decision, trace, candidates, workers };
                return vec![rung("fallback", story.fallback())];
            }
            ladder(&Story { case, rules, decision, trace, candidates, workers })
        }
        Policy::LeastLoad { choices } => {
            let drawn = choices
                .map_or_else(String::new, |choices| format!(" of {choices} drawn at random"));
            let measure = measure(Some(decision.trace.pressure_source));
            let why = format!("the least busy{drawn}, by {measure}");
            vec![rung("least_load", (RungResult::Decided, why))]
        }
        Policy::RoundRobin => {
            vec![rung("round_robin", (RungResult::Decided, "its turn has come, by weight".into()))]
        }
    }
}

fn rung(name: &str, (result, why): Told) -> Rung {
    Rung { rung: name.to_owned(), result, why }
}

fn ladder(story: &Story<'_>) -> Vec<Rung> {
    vec![
        rung("candidates", story.candidates()),
        rung("gate", story.gate()),
        rung("readmission", story.readmission()),
        rung("admission", story.admission()),
        rung("tournament", story.tournament()),
        rung("saturation_pin", story.pin()),
        rung("fallback", story.fallback()),
    ]
}

impl Story<'_> {
    fn candidates(&self) -> Told {
        let least = self.rules.min_matched_tokens.unwrap_or(0);
        if let Some(best) = self.candidates.first() {
            let count = counted(self.candidates.len() as u64, "owner");
            let most = grouped(best.matched_tokens);
            return (
                RungResult::Passed,
                format!("{count} of this prefix, {} holds {most} tokens", best.worker),
            );
        }
        let Some(prompt) = self.case.request.prompt else {
            return (RungResult::Closed, "the request has no prompt to match".into());
        };
        if prompt.input_tokens < least {
            return (
                RungResult::Closed,
                format!("the prompt is shorter than min_matched_tokens, {}", grouped(least)),
            );
        }
        let eligible =
            self.workers.iter().filter(|worker| worker.eligible && 0 < worker.matched_blocks);
        let why = match eligible.min_by_key(|worker| worker.uncached_tokens) {
            Some(best) => format!(
                "no worker holds enough of it; {} holds most, {} tokens",
                best.worker,
                grouped(prompt.input_tokens.saturating_sub(best.uncached_tokens))
            ),
            None => "no worker that can take it holds any of it".to_owned(),
        };
        (RungResult::Closed, why)
    }

    fn gate(&self) -> Told {
        let Some(limit) = self.rules.worker_queue_limit else {
            return (RungResult::Off, "worker_queue_limit is not set".into());
        };
        let (all, taken) = (self.candidates.len() as u64, u64::from(self.trace.gate_rejected));
        let inert = if self.trace.gate_inert { "; inert: no worker has a fresh queue" } else { "" };
        if all == 0 {
            return (RungResult::NotReached, format!("no owner to look at{inert}"));
        }
        if taken == 0 {
            return (
                RungResult::Passed,
                format!("no owner has a queue known to be at the limit of {limit}{inert}"),
            );
        }
        let result = if taken == all { RungResult::Closed } else { RungResult::Passed };
        (result, format!("{taken} of {} at or over the limit of {limit}", counted(all, "owner")))
    }

    fn readmission(&self) -> Told {
        let all_gated = 0 < self.trace.gate_rejected && self.everybody_was_gated();
        if self.trace.queue_gate_fell_back {
            return (
                RungResult::Passed,
                "everybody queues and no floor is set: the owners are back in".into(),
            );
        }
        if !all_gated {
            return (RungResult::NotReached, "only if the gate takes every owner".into());
        }
        if self.rules.saturation_queue_floor.is_some() {
            return (RungResult::Off, "saturation_queue_floor is set: the pin decides".into());
        }
        let why = self.short_queue().unwrap_or_else(|| "not the whole fleet queues".to_owned());
        (RungResult::Closed, why)
    }

    fn everybody_was_gated(&self) -> bool {
        u64::from(self.trace.gate_rejected) == self.candidates.len() as u64
    }

    /// Somebody the gate would let the request through to.
    fn short_queue(&self) -> Option<String> {
        let limit = self.rules.worker_queue_limit?;
        let fleet = self.case.fleet.workers();
        let passes = |(at, worker): &(usize, &WorkerView)| {
            let limit = gate::scaled(limit, fleet[*at].ranks, self.rules);
            worker.eligible && worker.queue.is_none_or(|queue| queue < limit)
        };
        let (_, worker) = self.workers.iter().enumerate().find(passes)?;
        Some(match worker.queue {
            Some(queue) => format!("not everybody queues: {} has {queue} waiting", worker.worker),
            None => {
                format!("not everybody is known to queue: {} has no fresh queue", worker.worker)
            }
        })
    }

    fn admission(&self) -> Told {
        let (seen, full) = (self.trace.admission_evaluated, self.trace.admission_rejected);
        let count = counted(u64::from(seen), "owner");
        match (seen, full) {
            (0, _) => (RungResult::NotReached, "no owner left to look at".into()),
            (_, 0) => (RungResult::Passed, format!("{count} with room")),
            (seen, full) if seen == full => {
                (RungResult::Closed, format!("{count}, none with room"))
            }
            (_, full) => (RungResult::Passed, format!("{full} of {count} without room")),
        }
    }

    fn tournament(&self) -> Told {
        if self.decision.reason != Reason::CacheCandidate {
            return (RungResult::NotReached, "no owner left to compete".into());
        }
        let winner = self.winner();
        let to_compute = counted(self.decision.uncached_tokens, "token");
        let by = measure(Some(self.trace.pressure_source));
        let why = match self.trace.admission_evaluated - self.trace.admission_rejected {
            0 | 1 => format!("{winner} is the only owner left, {to_compute} to compute"),
            rivals if 0 < self.trace.guard_overrides => format!(
                "{winner} of {rivals}, {to_compute} to compute: the pressure guard set a materially busier one aside, by {by}"
            ),
            rivals => {
                format!(
                    "{winner} of {rivals}, {to_compute} to compute: least to compute first, then by {by}"
                )
            }
        };
        (RungResult::Decided, why)
    }

    fn pin(&self) -> Told {
        if self.decision.reason == Reason::CacheCandidate {
            return (RungResult::NotReached, "decided above".into());
        }
        let Some(floor) = self.rules.saturation_queue_floor else {
            return (RungResult::Off, "saturation_queue_floor is not set".into());
        };
        if self.decision.reason == Reason::SaturationPin {
            let first = match self.rules.pin_order {
                PinOrder::Pressure => measure(self.trace.pin_pressure_source),
                PinOrder::Locality => "what is left to compute",
            };
            let winner = self.winner();
            return (
                RungResult::Decided,
                format!(
                    "nobody is known to be below the floor of {floor}: back to {winner}, first by {first}"
                ),
            );
        }
        if self.trace.gate_rejected == 0 {
            return (RungResult::NotReached, "the gate took no owner".into());
        }
        let below = self.workers.iter().enumerate().find(|(at, worker)| {
            let floor = gate::scaled(floor, self.case.fleet.workers()[*at].ranks, self.rules);
            worker.eligible && worker.queue.is_some_and(|queue| queue < floor)
        });
        let why = match below {
            Some((_, idle)) => {
                let queue = idle.queue.unwrap_or(0);
                format!("{} has {queue} waiting, below the floor of {floor}", idle.worker)
            }
            None => "no gated owner can take it: no room, or over pin_max_queue".to_owned(),
        };
        (RungResult::Closed, why)
    }

    fn fallback(&self) -> Told {
        let what = match self.decision.reason {
            Reason::CacheCandidate
            | Reason::SaturationPin
            | Reason::Owner
            | Reason::LeastCost
            | Reason::RoundRobin
            | Reason::Scout
            | Reason::Exploit
            | Reason::Pinned
            | Reason::GreedyFallback => {
                return (RungResult::NotReached, "decided above".into());
            }
            Reason::Diverted => "away from its owners",
            Reason::Home => "nobody owns the prefix",
            Reason::LeastLoad => "no prefix to keep together",
        };
        let winner = self.winner();
        let how = match self.rules.min_load_choices {
            Some(choices) => format!("{winner} is the least busy of {choices} drawn at random"),
            None => self.shortest_line(winner),
        };
        (RungResult::Decided, format!("{what}: {how}"))
    }

    fn shortest_line(&self, winner: &str) -> String {
        let row = &self.workers[self.decision.at];
        let ties = match self.decision.reason {
            Reason::LeastLoad => "ties rotate",
            Reason::CacheCandidate
            | Reason::SaturationPin
            | Reason::Home
            | Reason::Diverted
            | Reason::Owner
            | Reason::LeastCost
            | Reason::RoundRobin
            | Reason::Scout
            | Reason::Exploit
            | Reason::Pinned
            | Reason::GreedyFallback => "ties go to the home",
        };
        format!(
            "{winner} has the least work, {} ahead and {} to compute, of the best tier by room and queue; {ties}",
            counted(row.line_tokens, "token"),
            grouped(row.uncached_tokens)
        )
    }

    fn winner(&self) -> &str {
        &self.workers[self.decision.at].worker
    }
}
