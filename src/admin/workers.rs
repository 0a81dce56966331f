//! `GET /v1/workers`, `POST /v1/workers/{id}/drain` and `/activate`.

use super::answer::Answer;
use super::parameter;
use crate::fleet::{ModelFleet, Worker, WorkerRow};
use crate::state::State;
use http::StatusCode;
use serde_json::json;
use std::sync::Arc;

/// What may be done to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Drain,
    Activate,
}

impl Change {
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "drain" => Some(Self::Drain),
            "activate" => Some(Self::Activate),
            _ => None,
        }
    }

    fn make(self, worker: &Worker) {
        match self {
            Self::Drain => worker.drain(),
            Self::Activate => worker.activate(),
        }
    }
}

pub(super) fn answer(state: &State) -> Answer {
    Answer::json(StatusCode::OK, &json!({ "workers": state.running().fleets.rows() }))
}

/// Answers with the worker's row as it is afterwards.
pub(super) fn change(state: &State, id: &str, change: Change, query: Option<&str>) -> Answer {
    let running = state.running();
    let model = parameter(query, "model");
    let models = running.fleets.models().iter();
    let wanted =
        models.filter(|fleet| model.as_ref().is_none_or(|name| fleet.config.name == *name));
    let found: Vec<(&ModelFleet, &Arc<Worker>)> =
        wanted.filter_map(|fleet| Some((fleet.as_ref(), worker(fleet, id)?))).collect();
    match found.as_slice() {
        [] => Answer::error(StatusCode::NOT_FOUND, "worker_not_found", "no worker has this id"),
        [(fleet, worker)] => {
            change.make(worker);
            let name = fleet.config.name.as_str();
            log::info!("worker {id} of {name}: {change:?}, by the admin listener");
            let is_it = |row: &WorkerRow| row.id == id && row.model == name;
            Answer::json(StatusCode::OK, &running.fleets.rows().into_iter().find(is_it))
        }
        several => {
            let names: Vec<&str> =
                several.iter().map(|(fleet, _)| fleet.config.name.as_str()).collect();
            let message =
                format!("several models have this worker: add ?model= of {}", names.join(", "));
            Answer::error(StatusCode::CONFLICT, "ambiguous_worker", &message)
        }
    }
}

fn worker<'a>(fleet: &'a ModelFleet, id: &str) -> Option<&'a Arc<Worker>> {
    fleet.workers().iter().find(|worker| worker.id.as_str() == id)
}
