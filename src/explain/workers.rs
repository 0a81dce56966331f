//! The workers as a decision saw them.

use super::{Case, rules};
use serde::{Deserialize, Serialize};
use tidegate_policy::fleet::{Load, Role};
use tidegate_policy::gate;

/// One worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerView {
    /// Worker id.
    pub worker: String,
    /// `plain`, `prefill` or `decode`.
    pub role: String,
    /// May a request be sent there at all?
    pub routable: bool,
    /// May this request be prefilled there: routable, not a decode peer, not failed for it already?
    pub eligible: bool,
    /// Blocks of the prompt the index believes it holds, contiguous from the first.
    pub matched_blocks: u32,
    /// Prompt tokens it would have to compute.
    pub uncached_tokens: u64,
    /// Tokens ahead of a new request.
    pub line_tokens: u64,
    /// Requests this edge sent there that have no first byte.
    pub sent_requests: u64,
    /// The queue the gate looks at; null: unknown.
    pub queue: Option<u64>,
    /// Its report.
    pub report: ReportAge,
}

/// How old what it says is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportAge {
    /// `fresh`, `stale` or `never`.
    pub state: String,
    /// Since its poll was sent, milliseconds.
    pub age_ms: Option<u64>,
}

/// All workers of the snapshot, in its order.
pub(super) fn views(case: &Case<'_>) -> Vec<WorkerView> {
    (0..case.fleet.workers().len()).map(|at| view(case, at)).collect()
}

fn view(case: &Case<'_>, at: usize) -> WorkerView {
    let (request, worker) = (&case.request, &case.fleet.workers()[at]);
    let holdings = request.prompt.map_or(&[][..], |prompt| prompt.holdings);
    let held = holdings.iter().find(|holding| holding.at == at);
    WorkerView {
        worker: worker.id.to_string(),
        role: role(worker.role).to_owned(),
        routable: worker.live.is_routable(),
        eligible: request.may_use(worker),
        matched_blocks: held.map_or(0, |holding| holding.blocks),
        uncached_tokens: request.uncached_tokens(at),
        line_tokens: case.fleet.line(at, request.now, request.mean_uncached()),
        sent_requests: worker.live.ledger.outstanding().requests,
        queue: queue(case, at),
        report: report(case, at),
    }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Plain => "plain",
        Role::Prefill => "prefill",
        Role::Decode => "decode",
    }
}

fn queue(case: &Case<'_>, at: usize) -> Option<u64> {
    let worker = &case.fleet.workers()[at];
    match rules(case) {
        Some(rules) => gate::queue_of(worker, case.request.now, rules),
        None => worker.fresh(case.request.now)?.waiting,
    }
}

fn report(case: &Case<'_>, at: usize) -> ReportAge {
    let now = case.request.now;
    let (state, report) = match case.fleet.workers()[at].load(now) {
        Load::Fresh(report) => ("fresh", Some(report)),
        Load::Stale(report) => ("stale", Some(report)),
        Load::Never => ("never", None),
    };
    ReportAge {
        state: state.to_owned(),
        age_ms: report.map(|report| now.0.saturating_sub(report.captured_at.0)),
    }
}
