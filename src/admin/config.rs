//! `GET /v1/config`: what is in force, and what is not although the file says it. Secrets are `***`.

use super::answer::Answer;
use crate::config::ConfigError;
use crate::fleet::ModelFleet;
use crate::state::{Running, State};
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
        "warnings": warnings(&running),
        "config": running.config.masked(),
    });
    Answer::json(StatusCode::OK, &value)
}

/// What is hardly meant: as the file says, and as workers' reports show.
pub(super) fn warnings(running: &Running) -> Vec<ConfigError> {
    let by_file = running.config.warnings.iter().cloned();
    let models = running.fleets.models().iter().enumerate();
    by_file.chain(models.filter_map(|(at, model)| floor_above_slots(at, model))).collect()
}

fn floor_above_slots(at: usize, model: &ModelFleet) -> Option<ConfigError> {
    let (worker, slots) = model.load().below_floor?;
    let floor = model.config.policy.cache_aware()?.saturation_queue_floor?;
    Some(ConfigError {
        path: format!("tidegate.models[{at}].cache_aware.saturation_queue_floor"),
        value: floor.to_string(),
        message: format!(
            "is above what `{worker}` computes at once ({slots}): a whole batch waiting there \
             counts as idle"
        ),
    })
}
