//! `GET /v1/models` and `/v1/models/{id}`, from the configuration.

use super::reply::Refusal;
use crate::fleet::ANY;
use crate::percent;
use crate::state::Running;
use serde_json::{Value, json};

/// The body of the answer.
pub(super) fn answer(path: &str, running: &Running) -> Result<Vec<u8>, Refusal> {
    let value = match path.strip_prefix("/v1/models").map(|rest| rest.trim_matches('/')) {
        Some("") | None => json!({ "object": "list", "data": all(running) }),
        Some(id) => {
            let id = percent::decoded(id);
            match running.fleets.lookup(&id).map(|fleet| fleet.config.name.as_str()) {
                Some(ANY) => row(&id),
                Some(name) => row(name),
                None => return Err(Refusal::ModelNotFound(id)),
            }
        }
    };
    Ok(value.to_string().into_bytes())
}

fn all(running: &Running) -> Vec<Value> {
    running.config.models.iter().map(|model| row(&model.name)).collect()
}

fn row(name: &str) -> Value {
    json!({ "id": name, "object": "model", "created": 0, "owned_by": "tidegate" })
}
