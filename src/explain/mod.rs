//! One decision as a story: who was considered, what each rung did and why, who won, and what other
//! settings would have made of it.
//!
//! The decision itself comes from the policy; here it is only put into words. What is not in its
//! trace (why a worker has no room, who vetoed a pin) is read again from the same snapshot, so the
//! story cannot be about another moment. Used live by `POST /v1/explain` and offline by
//! `tidegate explain --scenario`; the command line renders both with [`Explanation::text`].

mod costs;
mod routes;
mod rungs;
mod text;
mod verdicts;
mod workers;

pub use costs::CostView;
pub use routes::RouteView;
pub use text::visible;
pub use workers::{ReportAge, WorkerView};

use crate::config::Policy;
use crate::routing::{self, Asked};
use serde::{Deserialize, Serialize};
use serde_json::Number;
use tidegate_policy::decision::Decision;
use tidegate_policy::fleet::Fleet;
use tidegate_policy::learned::{Pin, Routes};
use tidegate_policy::request::Request;
use tidegate_policy::rules::{CostRules, Rules, Selection};

/// What is to be explained.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// The model's name; may be empty.
    pub model: &'a str,
    /// Who chooses.
    pub policy: &'a Policy,
    /// Among whom.
    pub fleet: &'a Fleet,
    /// For what.
    pub request: Request<'a>,
    /// Blocks of the prompt, if they were counted.
    pub blocks: Option<u32>,
    /// What the policy `learned` knows.
    pub routes: Option<&'a Routes>,
    /// The client's own route.
    pub pin: Option<&'a Pin>,
}

impl<'a> Case<'a> {
    /// The same under another policy.
    fn asked(&self, policy: &'a Policy) -> Asked<'a> {
        let Self { fleet, request, routes, pin, .. } = *self;
        Asked { policy, routes, fleet, request, pin }
    }
}

/// The story of one decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The model's name.
    pub model: String,
    /// Its policy.
    pub policy: String,
    /// The settings that mattered, by name.
    pub rules: Vec<Setting>,
    /// Version of the fleet snapshot.
    pub snapshot: u64,
    /// Prompt tokens; null: no prompt to match.
    pub input_tokens: Option<u64>,
    /// Blocks of the prompt, which is also the number of its prefix keys; null: not counted.
    pub blocks: Option<u32>,
    /// The candidates, best first.
    pub candidates: Vec<CandidateView>,
    /// Under cost selection: what each worker the request may go to would cost, by id.
    #[serde(default)]
    pub costs: Vec<CostView>,
    /// The rungs in order.
    pub rungs: Vec<Rung>,
    /// Who it is; null: nobody.
    pub winner: Option<Winner>,
    /// Code of the error the client would get; null: somebody takes it.
    pub refusal: Option<String>,
    /// Where the request waits if nobody may take it; null: it is refused then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueView>,
    /// Under the policy `learned`: the routes, best prior first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteView>,
    /// The same request under other settings.
    pub what_if: Vec<WhatIf>,
    /// Every worker of the model as the decision saw it, by id.
    pub workers: Vec<WorkerView>,
}

/// A model's queue at the edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueView {
    /// Requests that wait now; a new one is behind them.
    pub waiting: usize,
    /// Most that may.
    pub max_requests: u32,
    /// How long each may, milliseconds.
    pub max_wait_ms: u64,
}

/// A setting and its value; null: unset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// As in the configuration.
    pub name: String,
    /// What it is set to.
    pub value: Option<Number>,
}

/// One candidate and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CandidateView {
    /// Worker id.
    pub worker: String,
    /// Matched blocks.
    pub blocks: u32,
    /// Prompt tokens in them.
    pub matched_tokens: u64,
    /// Prompt tokens it would have to compute.
    pub uncached_tokens: u64,
    /// The queue the gate looked at; null: unknown.
    pub queue: Option<u64>,
    /// Its report.
    pub report: ReportAge,
    /// `gated`, `no_room`, `outside_margin`, `lost` or `chosen`.
    pub verdict: String,
    /// In a sentence.
    pub why: String,
}

/// What a rung did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RungResult {
    /// Not configured.
    Off,
    /// Decided before it, or nobody was left for it.
    NotReached,
    /// Somebody passed it.
    Passed,
    /// Nobody passed it.
    Closed,
    /// The winner is from here.
    Decided,
}

/// One rung of the ladder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rung {
    /// `candidates`, `gate`, `readmission`, `admission`, `tournament`, `saturation_pin`, `fallback`;
    /// under cost selection `owners`, `admission`, `cost`; for other policies their own name.
    pub rung: String,
    /// What it did.
    pub result: RungResult,
    /// In a sentence.
    pub why: String,
}

/// Where the request goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Winner {
    /// Worker id.
    pub worker: String,
    /// The reason's label.
    pub reason: String,
    /// How it is counted; null unless the policy is cache-aware.
    pub cache_decision: Option<String>,
    /// Prompt tokens it has to compute.
    pub uncached_tokens: u64,
    /// In a sentence.
    pub why: String,
}

/// The same request under another setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhatIf {
    /// What would be different: `gate off`, `floor unset`, `by cost`, `pure affinity` (no gate, no
    /// price), `least load`.
    pub change: String,
    /// Where it would have gone; null: nobody is routable.
    pub worker: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// Prompt tokens to compute there.
    pub uncached_tokens: Option<u64>,
}

impl Explanation {
    /// Decides the case and tells how; sends and books nothing.
    pub fn new(case: &Case<'_>) -> Self {
        let choice = routing::ask_in_detail(&case.asked(case.policy));
        let decision = choice.as_ref().ok().map(|choice| &choice.decision);
        let workers = workers::views(case);
        let candidates =
            decision.map_or_else(Vec::new, |decision| candidates(case, decision, &workers));
        let routes = routes::views(case, choice.as_ref());
        let seen = rungs::Seen { candidates: &candidates, workers: &workers, routes: &routes };
        let rungs = rungs::tell(case, choice.as_ref(), seen);
        Self {
            model: case.model.to_owned(),
            policy: case.policy.as_str().to_owned(),
            rules: settings(case.policy),
            snapshot: case.fleet.version(),
            input_tokens: case.request.prompt.map(|prompt| prompt.input_tokens),
            blocks: case.blocks,
            winner: decision.map(|decision| winner(case.fleet, decision, &rungs)),
            queue: None,
            refusal: choice.as_ref().err().map(|why| why.code().to_owned()),
            routes,
            what_if: what_if(case),
            costs: decision.map_or_else(Vec::new, |decision| costs::views(case, decision)),
            candidates,
            rungs,
            workers,
        }
    }
}

impl Explanation {
    /// The same where every worker's queue is at `shed_queue_limit`: nobody is asked.
    pub fn saturated(self) -> Self {
        Self { winner: None, refusal: Some("fleet_saturated".to_owned()), ..self }
    }
}

/// The rules of a cache-aware policy.
fn rules<'a>(case: &Case<'a>) -> Option<&'a Rules> {
    case.policy.cache_aware()
}

fn settings(policy: &Policy) -> Vec<Setting> {
    let setting = |name: &str, value: Option<u64>| Setting {
        name: name.to_owned(),
        value: value.map(Number::from),
    };
    match policy {
        Policy::CacheAware(rules) => match &rules.selection {
            Selection::Ladder => vec![
                setting("worker_queue_limit", rules.worker_queue_limit.map(|limit| limit.get())),
                setting(
                    "saturation_queue_floor",
                    rules.saturation_queue_floor.map(|floor| floor.get()),
                ),
                setting("min_matched_tokens", rules.min_matched_tokens),
                setting("switch_margin_tokens", Some(rules.switch_margin_tokens)),
            ],
            Selection::Cost(rules) => costs::settings(rules),
        },
        Policy::LeastLoad { choices } => {
            vec![setting("min_load_choices", choices.map(|choices| u64::from(choices.get())))]
        }
        Policy::RoundRobin | Policy::Learned(_) => Vec::new(),
    }
}

fn candidates(case: &Case<'_>, decision: &Decision, workers: &[WorkerView]) -> Vec<CandidateView> {
    let considered = &decision.trace.considered;
    considered
        .iter()
        .map(|row| CandidateView {
            worker: workers[row.at].worker.clone(),
            blocks: row.blocks,
            matched_tokens: case.request.input_tokens().saturating_sub(row.uncached_tokens),
            uncached_tokens: row.uncached_tokens,
            queue: row.queue,
            report: workers[row.at].report.clone(),
            verdict: row.verdict.as_str().to_owned(),
            why: verdicts::why(case, decision, row),
        })
        .collect()
}

fn winner(fleet: &Fleet, decision: &Decision, rungs: &[Rung]) -> Winner {
    let decided = rungs.iter().find(|rung| rung.result == RungResult::Decided);
    Winner {
        worker: fleet.workers()[decision.at].id.to_string(),
        reason: decision.reason.as_str().to_owned(),
        cache_decision: decision.cache.map(|cache| cache.as_str().to_owned()),
        uncached_tokens: decision.uncached_tokens,
        why: decided.map(|rung| rung.why.clone()).unwrap_or_default(),
    }
}

/// Under other settings and other rules: only where they differ from what happened.
fn what_if(case: &Case<'_>) -> Vec<WhatIf> {
    let Some(rules) = rules(case).filter(|_| case.request.prompt.is_some()) else {
        return Vec::new();
    };
    let cache_aware = |rules: Rules| Policy::CacheAware(rules);
    let mut changes = Vec::new();
    // A floor without a gate is no configuration: there is no diversion to cancel.
    let no_floor = Rules { saturation_queue_floor: None, ..rules.clone() };
    let no_gate = Rules { worker_queue_limit: None, ..no_floor.clone() };
    match &rules.selection {
        Selection::Ladder => {
            if rules.worker_queue_limit.is_some() {
                changes.push(("gate off", cache_aware(no_gate)));
            }
            if rules.saturation_queue_floor.is_some() {
                changes.push(("floor unset", cache_aware(no_floor)));
            }
            let selection = Selection::Cost(CostRules::default());
            let min_matched_tokens = rules.min_matched_tokens;
            changes.push((
                "by cost",
                cache_aware(Rules { selection, min_matched_tokens, ..Rules::default() }),
            ));
        }
        Selection::Cost(_) => {
            let selection = Selection::Ladder;
            changes.push(("pure affinity", cache_aware(Rules { selection, ..no_gate })));
        }
    }
    changes.push(("least load", Policy::LeastLoad { choices: None }));
    changes.into_iter().map(|(change, policy)| other_outcome(case, change, &policy)).collect()
}

fn other_outcome(case: &Case<'_>, change: &str, policy: &Policy) -> WhatIf {
    let choice = routing::ask(&case.asked(policy));
    let decision = choice.ok().map(|choice| choice.decision);
    let worker = decision.as_ref().map(|decision| &case.fleet.workers()[decision.at]);
    WhatIf {
        change: change.to_owned(),
        worker: worker.map(|worker| worker.id.to_string()),
        reason: decision.as_ref().map(|decision| decision.reason.as_str().to_owned()),
        uncached_tokens: decision.as_ref().map(|decision| decision.uncached_tokens),
    }
}

#[cfg(test)]
mod tests;
