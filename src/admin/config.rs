//! `GET /v1/config`: what is in force, and what is not although the file says it. Secrets are `***`.

use super::answer::Answer;
use crate::config::ConfigError;
use crate::fleet::{FleetLoad, ModelFleet};
use crate::state::{Running, State};
use http::StatusCode;
use serde_json::json;

pub(super) fn answer(state: &State) -> Answer {
    let running = state.running();
    let standing = state.standing();
    let loads: Vec<FleetLoad> = running.fleets.models().iter().map(|model| model.load()).collect();
    let value = json!({
        "generation": running.generation,
        "pid": std::process::id(),
        "took_over_from": state.predecessor(),
        "last_error": standing.rejected,
        "needs_upgrade": standing.needs_upgrade,
        "warnings": warnings(&running, &loads),
        "config": running.config.masked(),
    });
    Answer::json(StatusCode::OK, &value)
}

/// What is hardly meant: as the file says, and as workers' reports show; `loads` are the models'.
pub(super) fn warnings(running: &Running, loads: &[FleetLoad]) -> Vec<ConfigError> {
    let by_file = running.config.warnings.iter().cloned();
    let models = running.fleets.models().iter().zip(loads).enumerate();
    let by_load = models.filter_map(|(at, (model, load))| floor_above_slots(at, model, load));
    by_file.chain(by_load).collect()
}

fn floor_above_slots(at: usize, model: &ModelFleet, load: &FleetLoad) -> Option<ConfigError> {
    let (worker, slots) = load.below_floor.as_ref()?;
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
