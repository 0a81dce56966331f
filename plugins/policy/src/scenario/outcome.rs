//! What comes out of a scenario.

use crate::decision::{CacheDecision, Cost, Decision, PressureSource, Reason, Trace};
use crate::fleet::Fleet;
use serde::Serialize;
use std::collections::BTreeMap;

/// A decision and its trace in the words of the vectors' `expect`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// The scenario's.
    pub name: String,
    /// Chosen worker; null: nobody is routable.
    pub worker: Option<String>,
    /// Label of the reason.
    pub reason: Option<&'static str>,
    /// Label of the cache decision.
    pub decision: Option<&'static str>,
    /// See [`Trace::gate_rejected`].
    pub gate_rejected: u32,
    /// See [`Trace::best_rejected_blocks`].
    pub best_rejected_blocks: u32,
    /// See [`Trace::fleet_all_queued`].
    pub fleet_all_queued: bool,
    /// See [`Trace::queue_gate_fell_back`].
    pub queue_gate_fell_back: bool,
    /// See [`Trace::admission_evaluated`].
    pub admission_evaluated: u32,
    /// See [`Trace::admission_rejected`].
    pub admission_rejected: u32,
    /// Label of [`Trace::pressure_source`].
    pub pressure_source: &'static str,
    /// Label of [`Trace::pin_pressure_source`].
    pub pin_pressure_source: Option<&'static str>,
    /// See [`Trace::guard_compared`].
    pub guard_compared: u32,
    /// See [`Trace::guard_overrides`].
    pub guard_overrides: u32,
    /// Under cost selection: `L` of every worker.
    pub line: Option<ByWorker>,
    /// See [`crate::decision::CostTrace::mean_line`].
    pub mean_line: Option<u64>,
    /// Under cost selection: the scores that were compared.
    pub scores: Option<ByWorker>,
}

/// A number for each of some workers, by id.
pub type ByWorker = BTreeMap<String, u64>;

impl Outcome {
    /// Names of the fields.
    pub const FIELDS: [&str; 17] = [
        "name",
        "worker",
        "reason",
        "decision",
        "gate_rejected",
        "best_rejected_blocks",
        "fleet_all_queued",
        "queue_gate_fell_back",
        "admission_evaluated",
        "admission_rejected",
        "pressure_source",
        "pin_pressure_source",
        "guard_compared",
        "guard_overrides",
        "line",
        "mean_line",
        "scores",
    ];

    /// Puts a decision over `fleet` into words; `None`: nobody is routable.
    pub fn new(name: &str, fleet: &Fleet, decision: Option<&Decision>) -> Self {
        let nothing = Trace::default();
        let trace = decision.map_or(&nothing, |decision| &decision.trace);
        let cost = trace.cost.as_ref();
        let worker = decision.and_then(|decision| fleet.workers().get(decision.at));
        Self {
            name: name.to_owned(),
            worker: worker.map(|worker| worker.id.as_str().to_owned()),
            reason: decision.map(|decision| decision.reason).map(Reason::as_str),
            decision: decision.and_then(|decision| decision.cache).map(CacheDecision::as_str),
            gate_rejected: trace.gate_rejected,
            best_rejected_blocks: trace.best_rejected_blocks,
            fleet_all_queued: trace.fleet_all_queued,
            queue_gate_fell_back: trace.queue_gate_fell_back,
            admission_evaluated: trace.admission_evaluated,
            admission_rejected: trace.admission_rejected,
            pressure_source: trace.pressure_source.as_str(),
            pin_pressure_source: trace.pin_pressure_source.map(PressureSource::as_str),
            guard_compared: trace.guard_compared,
            guard_overrides: trace.guard_overrides,
            line: cost.map(|cost| by_worker(fleet, cost.costs.iter(), |cost| cost.line)),
            mean_line: cost.map(|cost| cost.mean_line),
            scores: cost.map(|cost| by_worker(fleet, cost.compared(), score)),
        }
    }
}

fn by_worker<'c>(
    fleet: &Fleet,
    costs: impl Iterator<Item = &'c Cost>,
    number: impl Fn(&Cost) -> u64,
) -> ByWorker {
    costs.map(|cost| (fleet.workers()[cost.at].id.to_string(), number(cost))).collect()
}

/// JSON numbers end at 64 bits.
fn score(cost: &Cost) -> u64 {
    u64::try_from(cost.score).unwrap_or(u64::MAX)
}
