//! `GET /metrics`: the Prometheus text page.

use super::answer::Answer;
use crate::fleet::ModelFleet;
use crate::journal::LOST_LINES;
use crate::metrics::RoutesView;
use crate::state::State;
use http::StatusCode;
use std::sync::atomic::Ordering;
use tidegate_policy::learned::Row;

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
    let routes: Vec<_> = running.fleets.models().iter().filter_map(|fleet| routes(fleet)).collect();
    state.metrics.routes.show(&routes);
    let indexes: Vec<_> = running.fleets.models().iter().map(|fleet| fleet.index.stats()).collect();
    state.metrics.process.show_indexes(&indexes);
    state.metrics.process.show_lost_lines(LOST_LINES.load(Ordering::Relaxed));
    let in_progress = i64::try_from(state.in_progress()).unwrap_or(i64::MAX);
    state.metrics.process.requests_in_progress.set(in_progress);
}

fn routes(fleet: &ModelFleet) -> Option<RoutesView> {
    let (_, table) = fleet.routing()?;
    let measured = |row: Row| Some((row.signature, row.tps?));
    Some(RoutesView {
        model: table.model,
        epoch: table.topology_epoch,
        tps: table.candidates.into_iter().filter_map(measured).collect(),
    })
}
