//! What operators ask the edge: one file per endpoint, no pingora.
//!
//! [`respond`] is a function of the edge's state and one request. Who may ask is decided first, in
//! `access.rs`, then the path is looked up. Only drain, activate and reload change anything. Answers are
//! built in memory: they are bounded by workers, models and the journal.
//!
//! Deliberately absent: CORS. No other site has business here.

mod access;
mod answer;
mod config;
mod decisions;
mod explain;
mod index;
mod metrics;
mod ready;
mod reload;
mod routing;
mod workers;

pub use answer::error;

use crate::percent;
use crate::state::State;
use answer::Answer;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use std::sync::Arc;
use workers::Change;

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint<'a> {
    Index,
    Live,
    Ready,
    Metrics,
    Workers,
    Routing,
    Change(&'a str, Change),
    Config,
    Decisions,
    Explain,
    Reload,
}

/// Answers one request to the admin listener.
pub fn respond(state: &Arc<State>, request: &Request<Bytes>) -> Response<Vec<u8>> {
    let is_head = request.method() == Method::HEAD;
    let mut response = answer(state, request).into_response();
    if is_head {
        response.body_mut().clear();
    }
    response
}

fn answer(state: &Arc<State>, request: &Request<Bytes>) -> Answer {
    let endpoint = find(request.uri().path());
    let is_probe = matches!(endpoint, Some(Endpoint::Live | Endpoint::Ready));
    if !is_probe && let Err(denied) = access::check(&state.running().config.admin, request) {
        return denied.answer();
    }
    let Some(endpoint) = endpoint else {
        return Answer::error(
            StatusCode::NOT_FOUND,
            "not_found",
            "no such endpoint; `/` lists them",
        );
    };
    if !endpoint.takes(request.method()) {
        let allowed = endpoint.methods();
        return Answer::error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", allowed)
            .with(header::ALLOW, allowed);
    }
    endpoint.answer(state, request)
}

fn find(path: &str) -> Option<Endpoint<'_>> {
    Some(match path {
        "/" => Endpoint::Index,
        "/livez" => Endpoint::Live,
        "/readyz" => Endpoint::Ready,
        "/metrics" => Endpoint::Metrics,
        "/v1/workers" => Endpoint::Workers,
        "/v1/routing" => Endpoint::Routing,
        "/v1/config" => Endpoint::Config,
        "/v1/decisions" => Endpoint::Decisions,
        "/v1/explain" => Endpoint::Explain,
        "/v1/reload" => Endpoint::Reload,
        _ => {
            let (id, change) = path.strip_prefix("/v1/workers/")?.rsplit_once('/')?;
            Endpoint::Change(id, Change::named(change)?)
        }
    })
}

impl Endpoint<'_> {
    fn methods(self) -> &'static str {
        match self {
            Self::Index
            | Self::Live
            | Self::Ready
            | Self::Metrics
            | Self::Workers
            | Self::Routing
            | Self::Config
            | Self::Decisions => "GET, HEAD",
            Self::Change(..) | Self::Explain | Self::Reload => "POST",
        }
    }

    fn takes(self, method: &Method) -> bool {
        self.methods().split(", ").any(|allowed| allowed == method.as_str())
    }

    fn answer(self, state: &Arc<State>, request: &Request<Bytes>) -> Answer {
        match self {
            Self::Index => index::answer(),
            Self::Live => Answer::text(StatusCode::OK, "ok\n"),
            Self::Ready => ready::answer(state),
            Self::Metrics => metrics::answer(state),
            Self::Workers => workers::answer(state),
            Self::Routing => routing::answer(state, request.uri().query()),
            Self::Change(id, change) => workers::change(state, id, change, request.uri().query()),
            Self::Config => config::answer(state),
            Self::Decisions => decisions::answer(state, request.uri().query()),
            Self::Explain => explain::answer(state, request),
            Self::Reload => reload::answer(state),
        }
    }
}

/// The value of a parameter of a query; worker ids, model names and paths need no decoding but of
/// percent signs.
fn parameter(query: Option<&str>, name: &str) -> Option<String> {
    let pairs = query?.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.into_iter().find(|(key, _)| *key == name)?;
    Some(percent::decoded(value))
}

#[cfg(test)]
mod tests;
