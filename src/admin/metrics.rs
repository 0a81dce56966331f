//! `GET /metrics`: the Prometheus text page.

use super::answer::Answer;
use crate::state::State;
use http::StatusCode;

pub(super) fn answer(state: &State) -> Answer {
    refresh(state);
    match state.metrics.page() {
        Ok(page) => Answer::new(
            StatusCode::OK,
            "text/plain; version=0.0.4; charset=utf-8",
            page.into_bytes(),
        ),
        Err(fault) => {
            log::error!("the metrics page cannot be written: {fault}");
            Answer::text(StatusCode::INTERNAL_SERVER_ERROR, "the page cannot be written\n")
        }
    }
}

/// What is known elsewhere is written into its series when somebody looks.
fn refresh(state: &State) {
    let running = state.running();
    running.fleets.refresh_metrics();
    let indexes: Vec<_> = running.fleets.models().iter().map(|fleet| fleet.index.stats()).collect();
    state.metrics.process.show_indexes(&indexes);
    let in_progress = i64::try_from(state.in_progress()).unwrap_or(i64::MAX);
    state.metrics.process.requests_in_progress.set(in_progress);
}
