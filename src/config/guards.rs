//! What may be set for all models and, key by key, for one: reports, health, breaker, times, retries.

use super::Secret;
use std::num::NonZeroU32;
use std::time::Duration;

/// `load_reports:`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadReports {
    /// Which form to ask for.
    pub format: ReportChoice,
    /// Between polls of one worker; jittered.
    pub interval: Duration,
    /// Of one poll.
    pub timeout: Duration,
    /// From when on a report is stale.
    pub max_age: Duration,
    /// A report unchanged this long despite own traffic is unknown.
    pub frozen_after: Duration,
    /// Sent with polls only; the worker's `upstream_auth` otherwise.
    pub auth: Option<UpstreamAuth>,
}

/// `load_reports.format`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportChoice {
    /// Try `/v1/loads`, `/get_load`, `/metrics`; remember what worked.
    Auto,
    /// `/get_load`.
    GetLoad,
    /// `/v1/loads`.
    V1Loads,
    /// `/metrics`, SGLang.
    SglangMetrics,
    /// `/metrics`, vLLM.
    VllmMetrics,
    /// `/metrics`, llama.cpp.
    LlamacppMetrics,
    /// Do not ask.
    None,
}

/// `health:`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Off by `enabled: false`; then workers count as healthy.
    pub enabled: bool,
    /// Request target of the probe.
    pub path: String,
    /// Between probes of one worker.
    pub interval: Duration,
    /// Of one probe.
    pub timeout: Duration,
    /// Failures in a row that make a worker unhealthy.
    pub fall: NonZeroU32,
    /// Successes in a row that make it healthy again.
    pub rise: NonZeroU32,
}

/// `breaker:`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breaker {
    /// Consecutive failures that open it.
    pub threshold: NonZeroU32,
    /// How long it stays open.
    pub cool_down: Duration,
    /// Only 503s for this long opens it too.
    pub wedged_after: Duration,
}

/// `timeouts:`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Connect to a worker, TLS included.
    pub connect: Duration,
    /// Dispatch to the answer's first byte.
    pub first_byte: Duration,
    /// Between bytes of an answer.
    pub stream_idle: Duration,
    /// A client's whole request head.
    pub client_header: Duration,
    /// Between bytes of a client's body.
    pub client_body_idle: Duration,
    /// Idle client connection.
    pub client_idle: Duration,
    /// A client that does not read its answer.
    pub client_stall: Duration,
    /// Idle pooled connection to a worker.
    pub worker_idle: Duration,
    /// A worker that does not read its request.
    pub worker_write: Duration,
}

/// `retries:`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Workers tried for one request.
    pub max_attempts: NonZeroU32,
    /// A reused connection that fails this soon after the write was stale.
    pub stale_window: Duration,
}

/// What is sent to a worker instead of the client's credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamAuth {
    /// Header name, lower case; `authorization` for `bearer`.
    pub name: String,
    /// Header value, `Bearer ...` for `bearer`.
    pub value: Secret,
}
