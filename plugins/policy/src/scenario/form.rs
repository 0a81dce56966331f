//! The JSON form of a scenario, and the way from it to a [`Scenario`].

mod rules;
mod worker;

pub(super) use rules::Checked;

use super::{Outcome, Scenario, ScenarioError, name_of};
use crate::fleet::{Fleet, ForeignShare, Slot, WorkerId};
use crate::request::{Holding, Holdings};
use crate::rules::{Selection, SpeedSnap};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use worker::WorkerForm;

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
    #[serde(default)]
    mean_uncached_tokens: u64,
    home: Option<String>,
    #[serde(default)]
    home_block_held: bool,
    #[serde(default)]
    foreign_share: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CandidateForm {
    id: String,
    uncached_tokens: u64,
    blocks: u32,
}

/// Reads one scenario.
pub(super) fn read(value: Value) -> Result<Scenario, ScenarioError> {
    let name = name_of(&value);
    let given = keys_of_rules(&value);
    let form: Form = serde_json::from_value(value)
        .map_err(|source| ScenarioError::Form { name: name.clone(), source })?;
    refuse_unknown_expectations(&name, &form.expect)?;
    let rules = form.rules.check(&name, !form.candidates.is_empty())?;
    refuse_keys_of_other_selection(&name, rules.selection, &given)?;
    refuse_twice(&name, "worker", form.workers.iter().map(|worker| worker.id.as_str()))?;
    refuse_twice(&name, "candidate", form.candidates.iter().map(|owner| owner.id.as_str()))?;
    let fleet = fleet(&name, &form, rules.speed_snap())?;
    let holdings = holdings(&name, &form, &fleet)?;
    let home = home(&name, &form, &fleet)?;
    let share = form.request.foreign_share;
    let foreign_share = ForeignShare::new(share).ok_or_else(|| ScenarioError::Rule {
        name: name.clone(),
        key: "foreign_share",
        must: "must be within 0 and 1",
    })?;
    Ok(Scenario {
        name: form.name,
        why: form.why,
        rules,
        fleet,
        holdings,
        input_tokens: form.request.input_tokens,
        mean_uncached_tokens: form.request.mean_uncached_tokens,
        home: home.unwrap_or(0),
        is_home_cold: home.is_some() && !form.request.home_block_held,
        foreign_share,
        expect: form.expect,
    })
}

/// Those that are set: `null` says what is so without the key.
fn keys_of_rules(value: &Value) -> Vec<String> {
    let rules = value.get("rules").and_then(Value::as_object).into_iter().flatten();
    rules.filter(|(_, value)| !value.is_null()).map(|(key, _)| key.clone()).collect()
}

fn refuse_keys_of_other_selection(
    name: &str,
    selection: Selection,
    given: &[String],
) -> Result<(), ScenarioError> {
    let (keys, other) = selection.other();
    match keys.iter().find(|&&key| given.iter().any(|given| given == key)) {
        None => Ok(()),
        Some(key) => Err(ScenarioError::OtherSelection { name: name.to_owned(), key, other }),
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
fn fleet(name: &str, form: &Form, snap: SpeedSnap) -> Result<Fleet, ScenarioError> {
    let most = u16::MAX - 1;
    let mut workers = Vec::new();
    let ours = |worker: &&WorkerForm| worker.model.is_none() || worker.model == form.request.model;
    for worker in form.workers.iter().filter(ours) {
        let slot = u16::try_from(workers.len()).ok().filter(|&slot| slot < most);
        let slot = slot.ok_or_else(|| ScenarioError::TooLarge { name: name.to_owned(), most })?;
        workers.push(worker.worker(Slot(slot)));
    }
    Ok(Fleet::with_speed_snap(0, workers, snap))
}

/// A key whose rendezvous home is the worker that is named. `None` if none is, or the worker cannot
/// take a request and so is nobody's home.
fn home(name: &str, form: &Form, fleet: &Fleet) -> Result<Option<u64>, ScenarioError> {
    /// Each key is as likely any worker's: so many for each of them never miss.
    const KEYS_PER_WORKER: u64 = 64;
    let Some(home) = &form.request.home else { return Ok(None) };
    if !form.workers.iter().any(|worker| worker.id == *home) {
        let (name, id) = (name.to_owned(), home.clone());
        return Err(ScenarioError::Stranger { name, kind: "home", id });
    }
    let workers = fleet.workers();
    let is_open = |at: usize| workers[at].can_prefill() && workers[at].live.is_routable();
    let is_home = |key: &u64| {
        let found = fleet.home(*key, is_open);
        found.is_some_and(|at| workers[at].id.as_str() == home)
    };
    Ok((0..KEYS_PER_WORKER * workers.len() as u64).find(is_home))
}

/// Candidates in terms of the fleet. Those of another model's workers are left out, as the ladder
/// leaves out every candidate outside its fleet.
fn holdings(name: &str, form: &Form, fleet: &Fleet) -> Result<Holdings, ScenarioError> {
    let mut holdings = Holdings::new();
    for candidate in &form.candidates {
        if !form.workers.iter().any(|worker| worker.id == candidate.id) {
            let (name, id) = (name.to_owned(), candidate.id.clone());
            return Err(ScenarioError::Stranger { name, kind: "candidate", id });
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
