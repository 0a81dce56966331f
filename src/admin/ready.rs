//! `GET /readyz`: may new traffic be sent here?

use super::answer::Answer;
use crate::state::State;
use http::StatusCode;
use serde::Serialize;

/// Why not, if not.
#[derive(Debug, Serialize)]
struct Readiness {
    ready: bool,
    /// The process is about to leave.
    draining: bool,
    /// Models nobody can take a request of.
    models_without_routable_worker: Vec<String>,
}

pub(super) fn answer(state: &State) -> Answer {
    let running = state.running();
    let unserved = running.fleets.models().iter().filter(|fleet| !fleet.is_ready());
    let draining = state.is_draining();
    let unserved: Vec<String> = unserved.map(|fleet| fleet.config.name.clone()).collect();
    let ready = !draining && unserved.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Answer::json(status, &Readiness { ready, draining, models_without_routable_worker: unserved })
}
