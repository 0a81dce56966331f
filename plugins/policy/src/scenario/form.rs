//! The JSON form of a scenario, and the way from it to a [`Scenario`].

mod rules;

pub(super) use rules::Checked;

use super::{NOW, Outcome, Scenario, ScenarioError, name_of};
use crate::fleet::{Fleet, Live, Millis, Report, Role, Slot, Worker, WorkerId};
use crate::ledger::{Ledger, Outstanding};
use crate::request::{Holding, Holdings};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    #[serde(default)]
    name: String,
    #[serde(default)]
    why: String,
    #[serde(default)]
    rules: rules::Form,
    request: RequestForm,
    workers: Vec<WorkerForm>,
    #[serde(default)]
    candidates: Vec<CandidateForm>,
    #[serde(default)]
    expect: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestForm {
    input_tokens: u64,
    model: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkerForm {
    id: String,
    model: Option<String>,
    #[serde(default)]
    role: RoleForm,
    #[serde(default = "yes")]
    routable: bool,
    #[serde(default = "one")]
    dp_size: u32,
    load: Option<LoadForm>,
    #[serde(default)]
    dispatched_since: OutstandingForm,
    #[serde(default)]
    inflight: OutstandingForm,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RoleForm {
    #[default]
    Plain,
    Prefill,
    Decode,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadForm {
    waiting: Option<u64>,
    running: Option<u64>,
    max_running: Option<u64>,
    total_tokens: Option<u64>,
    max_total_tokens: Option<u64>,
    waiting_uncached_tokens: Option<u64>,
    estimated_prefill_queue_ms: Option<u64>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct OutstandingForm {
    uncached_tokens: u64,
    requests: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CandidateForm {
    id: String,
    uncached_tokens: u64,
    blocks: u32,
}

fn yes() -> bool {
    true
}

fn one() -> u32 {
    1
}

/// Reads one scenario.
pub(super) fn read(value: Value) -> Result<Scenario, ScenarioError> {
    let name = name_of(&value);
    refuse_other_selections(&name, &value)?;
    let form: Form = serde_json::from_value(value)
        .map_err(|source| ScenarioError::Form { name: name.clone(), source })?;
    refuse_unknown_expectations(&name, &form.expect)?;
    let rules = form.rules.check(&name, !form.candidates.is_empty())?;
    refuse_twice(&name, "worker", form.workers.iter().map(|worker| worker.id.as_str()))?;
    refuse_twice(&name, "candidate", form.candidates.iter().map(|owner| owner.id.as_str()))?;
    let fleet = fleet(&name, &form)?;
    let holdings = holdings(&name, &form, &fleet)?;
    Ok(Scenario {
        name: form.name,
        why: form.why,
        rules,
        fleet,
        holdings,
        input_tokens: form.request.input_tokens,
        expect: form.expect,
    })
}

/// Before anything else: a scenario of another selection has other keys everywhere, and "unknown
/// field" would not say why.
fn refuse_other_selections(name: &str, value: &Value) -> Result<(), ScenarioError> {
    let selection = value.pointer("/rules/selection").and_then(Value::as_str);
    match selection {
        None | Some("ladder") => Ok(()),
        Some(other) => {
            Err(ScenarioError::Selection { name: name.to_owned(), selection: other.to_owned() })
        }
    }
}

fn refuse_unknown_expectations(
    name: &str,
    expect: &Map<String, Value>,
) -> Result<(), ScenarioError> {
    let known = |key: &&String| *key == "worker_in" || Outcome::FIELDS.contains(&key.as_str());
    match expect.keys().find(|key| !known(key)) {
        None => Ok(()),
        Some(key) => Err(ScenarioError::Expectation { name: name.to_owned(), key: key.to_owned() }),
    }
}

fn refuse_twice<'a>(
    name: &str,
    kind: &'static str,
    ids: impl Iterator<Item = &'a str>,
) -> Result<(), ScenarioError> {
    let mut seen = BTreeSet::new();
    for id in ids {
        if !seen.insert(id) {
            let (name, id) = (name.to_owned(), id.to_owned());
            return Err(ScenarioError::Twice { name, kind, id });
        }
    }
    Ok(())
}

/// The workers of the request's model, which is a worker's model unless it says otherwise.
fn fleet(name: &str, form: &Form) -> Result<Fleet, ScenarioError> {
    let most = u16::MAX - 1;
    let mut workers = Vec::new();
    let ours = |worker: &&WorkerForm| worker.model.is_none() || worker.model == form.request.model;
    for worker in form.workers.iter().filter(ours) {
        let slot = u16::try_from(workers.len()).ok().filter(|&slot| slot < most);
        let slot = slot.ok_or_else(|| ScenarioError::TooLarge { name: name.to_owned(), most })?;
        workers.push(worker.worker(Slot(slot)));
    }
    Ok(Fleet::new(0, workers))
}

/// Candidates in terms of the fleet. Those of another model's workers are left out, as the ladder
/// leaves out every candidate outside its fleet.
fn holdings(name: &str, form: &Form, fleet: &Fleet) -> Result<Holdings, ScenarioError> {
    let mut holdings = Holdings::new();
    for candidate in &form.candidates {
        if !form.workers.iter().any(|worker| worker.id == candidate.id) {
            let (name, id) = (name.to_owned(), candidate.id.clone());
            return Err(ScenarioError::Stranger { name, id });
        }
        let id = WorkerId::from(candidate.id.as_str());
        if let Ok(at) = fleet.workers().binary_search_by(|worker| worker.id.cmp(&id)) {
            holdings.push(Holding {
                at,
                blocks: candidate.blocks,
                uncached_tokens: candidate.uncached_tokens,
            });
        }
    }
    holdings.sort_unstable_by_key(|holding| holding.at);
    Ok(holdings)
}

impl WorkerForm {
    fn worker(&self, slot: Slot) -> Worker {
        let since = self.dispatched_since.outstanding();
        let inflight = self.inflight.outstanding();
        // What was sent since the report is part of what is in flight, said or not.
        let local = Outstanding {
            uncached_tokens: inflight.uncached_tokens.max(since.uncached_tokens),
            requests: inflight.requests.max(since.requests),
        };
        let own_then = Outstanding {
            uncached_tokens: local.uncached_tokens - since.uncached_tokens,
            requests: local.requests - since.requests,
        };
        let live = Live::with_ledger(Ledger::standing(local, since));
        live.set_routable(self.routable);
        Worker {
            id: self.id.as_str().into(),
            slot,
            role: self.role.role(),
            weight: 1,
            ranks: self.dp_size,
            report: self.load.as_ref().map(|load| load.report(own_then)),
            speed: None,
            live: Arc::new(live),
        }
    }
}

impl RoleForm {
    fn role(self) -> Role {
        match self {
            Self::Plain => Role::Plain,
            Self::Prefill => Role::Prefill,
            Self::Decode => Role::Decode,
        }
    }
}

impl OutstandingForm {
    fn outstanding(self) -> Outstanding {
        Outstanding { uncached_tokens: self.uncached_tokens, requests: self.requests }
    }
}

impl LoadForm {
    fn report(&self, own_then: Outstanding) -> Report {
        Report {
            captured_at: NOW,
            fresh_until: Millis(NOW.0 + 1),
            waiting: self.waiting,
            running: self.running,
            max_running: self.max_running,
            total_tokens: self.total_tokens,
            max_total_tokens: self.max_total_tokens,
            waiting_uncached_tokens: self.waiting_uncached_tokens,
            estimated_prefill_queue_ms: self.estimated_prefill_queue_ms,
            own_then,
        }
    }
}
