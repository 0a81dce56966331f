//! `POST /v1/explain`: what would happen to this request now. Sends nothing, books nothing.
//!
//! The body is the request's, `?path=` its path (chat completions if absent); the headers that matter
//! for routing, `content-encoding` and the model's `affinity_headers`, are those of this request.

use super::answer::Answer;
use super::parameter;
use crate::explain::{Case, Explanation, QueueView};
use crate::fleet::ModelFleet;
use crate::prompt::Dialect;
use crate::routing::{self, Look, ReadError, ReadRequest};
use crate::state::State;
use bytes::Bytes;
use http::{Request, StatusCode};

/// The path asked about if the question names none.
const DEFAULT_PATH: &str = "/v1/chat/completions";

pub(super) fn answer(state: &State, request: &Request<Bytes>) -> Answer {
    let path = parameter(request.uri().query(), "path").unwrap_or_else(|| DEFAULT_PATH.to_owned());
    let path = path.split('?').next().unwrap_or(DEFAULT_PATH);
    let header = |name: &str| request.headers().get(name).map(|value| value.as_bytes());
    let running = state.running();
    let read = routing::read(&running, Dialect::classify("POST", path), request.body(), header);
    match read.map(explain) {
        Ok(Some(explanation)) => Answer::json(StatusCode::OK, &explanation),
        Ok(None) => {
            Answer::error(StatusCode::NOT_FOUND, "model_not_found", "the model has no fleet")
        }
        Err(none) => {
            let (status, code) = match none {
                ReadError::Unknown(_) => (StatusCode::NOT_FOUND, "model_not_found"),
                ReadError::Unnamed => (StatusCode::BAD_REQUEST, "bad_request"),
                ReadError::Route(_) => (StatusCode::BAD_REQUEST, "invalid_route"),
            };
            Answer::error(status, code, &none.to_string())
        }
    }
}

fn explain(read: ReadRequest) -> Option<Explanation> {
    let ReadRequest { model, mut query, streamed: _, pin } = read;
    let fleet = model.fleet.as_deref()?;
    let look = Look::new(fleet, query.as_mut(), fleet.next_turn());
    let case = Case {
        model: &fleet.config.name,
        policy: &fleet.config.policy,
        fleet: &look.fleet,
        request: look.request(&[]),
        blocks: query.as_ref().map(|query| query.blocks()),
        routes: fleet.learned().map(|(_, routes)| routes.as_ref()),
        pin: pin.as_ref(),
    };
    let explanation = Explanation::new(&case);
    let explanation = if fleet.is_saturated() { explanation.saturated() } else { explanation };
    Some(Explanation { queue: queue(fleet), ..explanation })
}

fn queue(fleet: &ModelFleet) -> Option<QueueView> {
    let settings = fleet.config.queue.as_ref()?;
    Some(QueueView {
        waiting: fleet.queue.waiting(),
        max_requests: settings.max_requests.get(),
        max_wait_ms: u64::try_from(settings.max_wait.as_millis()).unwrap_or(u64::MAX),
    })
}
