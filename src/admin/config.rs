//! `GET /v1/config`: what is in force, and what is not although the file says it. Secrets are `***`.

use super::answer::Answer;
use crate::state::State;
use http::StatusCode;
use serde_json::json;

pub(super) fn answer(state: &State) -> Answer {
    let running = state.running();
    let standing = state.standing();
    let value = json!({
        "generation": running.generation,
        "pid": std::process::id(),
        "took_over_from": state.predecessor(),
        "last_error": standing.rejected,
        "needs_upgrade": standing.needs_upgrade,
        "config": running.config.masked(),
    });
    Answer::json(StatusCode::OK, &value)
}
