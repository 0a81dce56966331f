//! What operators ask the edge: one file per endpoint, and the dashboard that asks them; no pingora.
//!
//! [`respond`] is a function of the edge's state and one request. Who may ask is decided first, in
//! `access.rs`, then the path is looked up. Only drain, activate and reload change anything. Answers are
//! built in memory: they are bounded by workers, models and the journal.
//!
//! Deliberately absent: CORS. No other site has business here.

mod access;
mod answer;
mod config;
mod dashboard;
mod decisions;
mod explain;
mod metrics;
mod overview;
mod ready;
mod reload;
mod routing;
mod workers;

pub use answer::error;

use crate::percent;
use crate::state::State;
use access::Denied;
use answer::Answer;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use std::sync::Arc;
use workers::Change;

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endpoint<'a> {
    Page(dashboard::File),
    Live,
    Ready,
    Metrics,
    Overview,
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
    if let Err(denied) = access::check(&state.running().config.admin, request)
        && !endpoint.is_some_and(|endpoint| endpoint.is_open_to(denied))
    {
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
        "/livez" => Endpoint::Live,
        "/readyz" => Endpoint::Ready,
        "/metrics" => Endpoint::Metrics,
        "/v1/overview" => Endpoint::Overview,
        "/v1/workers" => Endpoint::Workers,
        "/v1/routing" => Endpoint::Routing,
        "/v1/config" => Endpoint::Config,
        "/v1/decisions" => Endpoint::Decisions,
        "/v1/explain" => Endpoint::Explain,
        "/v1/reload" => Endpoint::Reload,
        _ => match path.strip_prefix("/v1/workers/") {
            Some(rest) => {
                let (id, change) = rest.rsplit_once('/')?;
                Endpoint::Change(id, Change::named(change)?)
            }
            None => Endpoint::Page(dashboard::find(path)?),
        },
    })
}

impl Endpoint<'_> {
    fn methods(self) -> &'static str {
        match self {
            Self::Page(_)
            | Self::Live
            | Self::Ready
            | Self::Metrics
            | Self::Overview
            | Self::Workers
            | Self::Routing
            | Self::Config
            | Self::Decisions => "GET, HEAD",
            Self::Change(..) | Self::Explain | Self::Reload => "POST",
        }
    }

    /// Is it answered all the same? Probes of whoever watches the process carry no token, and the
    /// page is what asks for one.
    fn is_open_to(self, denied: Denied) -> bool {
        match self {
            Self::Live | Self::Ready => true,
            Self::Page(_) => denied == Denied::Token,
            Self::Metrics
            | Self::Overview
            | Self::Workers
            | Self::Routing
            | Self::Change(..)
            | Self::Config
            | Self::Decisions
            | Self::Explain
            | Self::Reload => false,
        }
    }

    fn takes(self, method: &Method) -> bool {
        self.methods().split(", ").any(|allowed| allowed == method.as_str())
    }

    fn answer(self, state: &Arc<State>, request: &Request<Bytes>) -> Answer {
        match self {
            Self::Page(file) => file.answer(),
            Self::Live => Answer::text(StatusCode::OK, "ok\n"),
            Self::Ready => ready::answer(state),
            Self::Metrics => metrics::answer(state),
            Self::Overview => overview::answer(state, request.uri().query()),
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
