//! `GET /v1/overview[?model=&since=]`: what the dashboard shows at a glance, made to be asked every
//! two seconds: what is true now, and the samples that came after an earlier answer, whose `cursor`
//! is `since`.

use super::answer::Answer;
use super::{config, parameter};
use crate::config::ConfigError;
use crate::fleet::{FleetLoad, ModelFleet, WorkerRow};
use crate::history::{self, Cursor, Shown};
use crate::state::{Rejected, Running, State, unix_seconds};
use http::StatusCode;
use serde::Serialize;
use tidegate_policy::rules::Selection;

#[derive(Serialize)]
struct Overview {
    /// Milliseconds since 1970.
    time: u64,
    version: &'static str,
    pid: u32,
    /// About to leave, or serving beside a successor.
    leaving: bool,
    /// Between two samples, milliseconds.
    interval_ms: u64,
    config: Configured,
    models: Vec<Model>,
    workers: Vec<WorkerRow>,
    samples: Vec<Shown>,
    /// To be asked with next.
    cursor: String,
}

#[derive(Serialize)]
struct Configured {
    generation: u64,
    /// Seconds since 1970.
    applied: f64,
    last_error: Option<Rejected>,
    needs_upgrade: Vec<String>,
    warnings: Vec<ConfigError>,
}

#[derive(Serialize)]
struct Model {
    name: String,
    policy: &'static str,
    /// `ladder` or `cost`, of a cache-aware model.
    selection: Option<&'static str>,
    worker_queue_limit: Option<u64>,
    saturation_queue_floor: Option<u64>,
    workers: usize,
    routable: usize,
    ready: bool,
    saturated: bool,
    /// From this queue on a worker makes requests wait.
    bound: u64,
    gate_inert: bool,
}

pub(super) fn answer(state: &State, query: Option<&str>) -> Answer {
    let model = parameter(query, "model");
    let since = match parameter(query, "since").map(|since| since.parse::<Cursor>()) {
        None => None,
        Some(Ok(since)) => Some(since),
        Some(Err(_)) => {
            let message = "since must be the cursor of an earlier answer";
            return Answer::error(StatusCode::BAD_REQUEST, "bad_request", message);
        }
    };
    let running = state.running();
    let is_asked = |name: &str| model.as_deref().is_none_or(|model| model == name);
    let workers = running.fleets.rows().into_iter().filter(|row| is_asked(&row.model)).collect();
    let loads: Vec<FleetLoad> = running.fleets.models().iter().map(|model| model.load()).collect();
    let (samples, cursor) = state.history.since(since, model.as_deref());
    let overview = Overview {
        time: (unix_seconds() * 1000.0) as u64,
        version: crate::VERSION,
        pid: std::process::id(),
        leaving: state.is_leaving(),
        interval_ms: u64::try_from(history::INTERVAL.as_millis()).unwrap_or(u64::MAX),
        config: configured(state, &running, &loads),
        models: running
            .fleets
            .models()
            .iter()
            .zip(&loads)
            .map(|(of, load)| shown(of, load))
            .collect(),
        workers,
        samples,
        cursor: cursor.to_string(),
    };
    Answer::json(StatusCode::OK, &overview)
}

fn configured(state: &State, running: &Running, loads: &[FleetLoad]) -> Configured {
    let standing = state.standing();
    Configured {
        generation: running.generation,
        applied: state.metrics.process.last_reload(),
        last_error: standing.rejected,
        needs_upgrade: standing.needs_upgrade,
        warnings: config::warnings(running, loads),
    }
}

fn shown(fleet: &ModelFleet, load: &FleetLoad) -> Model {
    let rules = fleet.config.policy.cache_aware();
    Model {
        name: fleet.config.name.clone(),
        policy: fleet.config.policy.as_str(),
        selection: rules.map(|rules| match rules.selection {
            Selection::Ladder => "ladder",
            Selection::Cost(_) => "cost",
        }),
        worker_queue_limit: rules
            .and_then(|rules| rules.worker_queue_limit)
            .map(|limit| limit.get()),
        saturation_queue_floor: rules
            .and_then(|rules| rules.saturation_queue_floor)
            .map(|floor| floor.get()),
        workers: fleet.workers().len(),
        routable: load.routable,
        ready: fleet.is_ready(),
        saturated: load.is_saturated,
        bound: load.bound,
        gate_inert: load.is_gate_inert,
    }
}
