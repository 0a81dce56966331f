//! `GET /v1/config`: what is in force. Secrets are `***`.
//!
//! The configuration is the one of the start, so no later one was rejected or waits for an upgrade.

use super::answer::Answer;
use crate::state::State;
use http::StatusCode;
use serde_json::json;

pub(super) fn answer(state: &State) -> Answer {
    let running = state.running();
    let value = json!({
        "generation": running.generation,
        "last_error": null,
        "needs_upgrade": [],
        "config": running.config.masked(),
    });
    Answer::json(StatusCode::OK, &value)
}
