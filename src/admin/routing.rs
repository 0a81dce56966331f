//! `GET /v1/routing[?model=]`: the learned routes of this moment.

use super::answer::Answer;
use super::parameter;
use crate::fleet::ModelFleet;
use crate::state::State;
use http::StatusCode;
use serde::Serialize;
use std::sync::Arc;
use tidegate_policy::learned::{ModelTable, Settings, SettingsShown};

#[derive(Serialize)]
struct Routing {
    /// Of the first model; the defaults if there is none.
    config: SettingsShown,
    models: Vec<Shown>,
}

#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    table: ModelTable,
    /// Its own settings, if they are not the ones above.
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<SettingsShown>,
}

pub(super) fn answer(state: &State, query: Option<&str>) -> Answer {
    let running = state.running();
    let wanted = parameter(query, "model");
    let models: Vec<&Arc<ModelFleet>> = match &wanted {
        Some(name) => running.fleets.lookup(name).into_iter().collect(),
        None => running.fleets.models().iter().collect(),
    };
    if models.is_empty() {
        let message = "no model has this name";
        return Answer::error(StatusCode::NOT_FOUND, "model_not_found", message);
    }
    let tables: Vec<(SettingsShown, ModelTable)> = models
        .iter()
        .filter_map(|model| model.routing())
        .map(|(settings, table)| (settings.shown(), table))
        .collect();
    let config = tables.first().map_or_else(|| Settings::default().shown(), |(of, _)| *of);
    let shown = |(of, table): (SettingsShown, ModelTable)| Shown {
        table,
        config: (of != config).then_some(of),
    };
    let models = tables.into_iter().map(shown).collect();
    Answer::json(StatusCode::OK, &Routing { config, models })
}
