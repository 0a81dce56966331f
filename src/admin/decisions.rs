//! `GET /v1/decisions`: the last few hundred requests, newest first, each with its rungs.

use super::answer::Answer;
use super::parameter;
use crate::journal::Record;
use crate::state::State;
use http::StatusCode;
use serde_json::json;

pub(super) fn answer(state: &State, query: Option<&str>) -> Answer {
    let limit = match parameter(query, "limit").map(|limit| limit.parse::<usize>()) {
        None => usize::MAX,
        Some(Ok(limit)) => limit,
        Some(Err(_)) => {
            return Answer::error(StatusCode::BAD_REQUEST, "bad_request", "limit must be a number");
        }
    };
    let latest = state.journal.latest(limit);
    let latest: Vec<&Record> = latest.iter().map(AsRef::as_ref).collect();
    Answer::json(StatusCode::OK, &json!({ "decisions": latest }))
}
