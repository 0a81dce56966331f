//! `POST /v1/reload`: reads the configuration again.

use super::answer::Answer;
use crate::state::State;
use http::StatusCode;
use serde_json::json;

pub(super) fn answer(state: &State) -> Answer {
    match state.reload() {
        Ok(generation) => Answer::json(StatusCode::OK, &json!({ "generation": generation })),
        Err(errors) => Answer::json(StatusCode::UNPROCESSABLE_ENTITY, &json!({ "errors": errors })),
    }
}
