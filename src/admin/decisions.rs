//! `GET /v1/decisions[?request_id=&limit=]`: the last few hundred requests, newest first, each with its
//! rungs; or the one that somebody asks about.

use super::answer::Answer;
use super::parameter;
use crate::journal::{Record, Row};
use crate::state::State;
use http::StatusCode;
use std::sync::Arc;

pub(super) fn answer(state: &State, query: Option<&str>) -> Answer {
    let limit = match parameter(query, "limit").map(|limit| limit.parse::<usize>()) {
        None => usize::MAX,
        Some(Ok(limit)) => limit,
        Some(Err(_)) => {
            return Answer::error(StatusCode::BAD_REQUEST, "bad_request", "limit must be a number");
        }
    };
    let id = parameter(query, "request_id");
    let is_asked = |record: &&Arc<Record>| id.as_deref().is_none_or(|id| record.request_id == id);
    let latest = state.journal.latest();
    let rows: Vec<Vec<u8>> = latest.iter().filter(is_asked).take(limit).map(row).collect();
    let body = [&br#"{"decisions":["#[..], &rows.join(&b','), b"]}"].concat();
    Answer::new(StatusCode::OK, "application/json", body)
}

fn row(record: &Arc<Record>) -> Vec<u8> {
    let mut row = Row::of(record);
    row.add_known(r#","rungs":"#, record.rungs.as_ref());
    row.end()
}
