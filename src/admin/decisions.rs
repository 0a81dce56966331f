//! `GET /v1/decisions[?request_id=&limit=]`: the last few hundred requests, newest first, each with its
//! rungs; or the one that somebody asks about.

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
    let id = parameter(query, "request_id");
    let is_asked = |record: &&Record| id.as_deref().is_none_or(|id| record.request_id == id);
    let latest = state.journal.latest();
    let latest: Vec<&Record> =
        latest.iter().map(AsRef::as_ref).filter(is_asked).take(limit).collect();
    Answer::json(StatusCode::OK, &json!({ "decisions": latest }))
}
