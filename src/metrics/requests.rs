//! What became of requests, per model.

use super::register::Register;
use super::{Outcome, Spread};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Label of a model no configured name stands for.
pub const OTHER: &str = "other";

/// Histogram edges of SGLang's time to first token, seconds, so that both line up in one graph.
const TTFT_EDGES: [f64; 18] = [
    0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0,
    400.0,
];

/// Edges of whole requests, seconds.
const REQUEST_EDGES: [f64; 14] =
    [0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];

/// The families.
#[derive(Debug)]
pub struct RequestFamilies {
    pub(super) requests: IntCounterVec,
    request_seconds: HistogramVec,
    ttft_seconds: HistogramVec,
    pub(super) tokens: IntCounterVec,
    prompt_cached_tokens: IntCounterVec,
    predicted_cached_tokens: IntCounterVec,
    reported_cached_tokens: IntCounterVec,
    retries: IntCounterVec,
    /// Seconds to first content again, finer, by model: handles of the same model share one.
    spreads: Mutex<BTreeMap<String, Arc<Spread>>>,
}

impl RequestFamilies {
    pub(super) fn register(registry: &mut Register) -> prometheus::Result<Self> {
        let families = Self {
            requests: counters(
                "tidegate_requests_total",
                "Requests ended; the outcomes of a model add up to all its requests.",
                &["model", "path", "status_class", "outcome"],
            )?,
            request_seconds: histograms(
                "tidegate_request_seconds",
                "Head of the request read to end of the answer, seconds.",
                &REQUEST_EDGES,
            )?,
            ttft_seconds: histograms(
                "tidegate_ttft_seconds",
                "Head of the request read to first content of a streamed answer, seconds.",
                &TTFT_EDGES,
            )?,
            tokens: counters(
                "tidegate_tokens_total",
                "Tokens as answers report them; cached is part of prompt.",
                &["model", "kind"],
            )?,
            prompt_cached_tokens: counters(
                "tidegate_prompt_cached_tokens_total",
                "Prompt tokens that answers report as cached; equals tokens_total of kind cached.",
                &["model"],
            )?,
            predicted_cached_tokens: counters(
                "tidegate_predicted_cached_tokens_total",
                "Prompt tokens the index took for cached, of requests whose answer reports them.",
                &["model"],
            )?,
            reported_cached_tokens: counters(
                "tidegate_reported_cached_tokens_total",
                "Prompt tokens reported as cached; over the predicted ones: how true the index is.",
                &["model"],
            )?,
            retries: counters("tidegate_retries_total", "Attempts after the first.", &["cause"])?,
            spreads: Mutex::default(),
        };
        registry.register(Box::new(families.requests.clone()))?;
        registry.register(Box::new(families.request_seconds.clone()))?;
        registry.register(Box::new(families.ttft_seconds.clone()))?;
        registry.register(Box::new(families.tokens.clone()))?;
        registry.register(Box::new(families.prompt_cached_tokens.clone()))?;
        registry.register(Box::new(families.predicted_cached_tokens.clone()))?;
        registry.register(Box::new(families.reported_cached_tokens.clone()))?;
        registry.register(Box::new(families.retries.clone()))?;
        Ok(families)
    }

    /// Handles of one model; `model` is a configured name or [`OTHER`].
    pub fn model(&self, model: &str) -> RequestMetrics {
        RequestMetrics {
            model: model.into(),
            requests: self.requests.clone(),
            ended: Default::default(),
            request_seconds: self.request_seconds.with_label_values(&[model]),
            ttft_seconds: self.ttft_seconds.with_label_values(&[model]),
            spread: Arc::clone(self.spreads.lock().entry(model.to_owned()).or_default()),
            prompt_tokens: self.tokens.with_label_values(&[model, "prompt"]),
            cached_tokens: self.tokens.with_label_values(&[model, "cached"]),
            completion_tokens: self.tokens.with_label_values(&[model, "completion"]),
            prompt_cached_tokens: self.prompt_cached_tokens.with_label_values(&[model]),
            predicted_cached_tokens: self.predicted_cached_tokens.with_label_values(&[model]),
            reported_cached_tokens: self.reported_cached_tokens.with_label_values(&[model]),
        }
    }

    /// How times to first content are spread, by model.
    pub fn spreads(&self) -> Vec<(String, Arc<Spread>)> {
        let spreads = self.spreads.lock();
        spreads.iter().map(|(model, spread)| (model.clone(), Arc::clone(spread))).collect()
    }

    /// A request is tried again.
    pub fn retry(&self, cause: RetryCause) {
        self.retries.with_label_values(&[cause.as_str()]).inc();
    }
}

/// Why a request was tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryCause {
    /// No connection, TLS included.
    Connect,
    /// A pooled connection the worker had closed.
    StaleConnection,
}

impl RetryCause {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Connect, Self::StaleConnection];

    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::StaleConnection => "stale_connection",
        }
    }
}

/// Labels of `path`.
const PATHS: usize = crate::prompt::Dialect::ALL.len();
/// `1xx` to `5xx`, and `none` for requests that ended without a status.
const CLASSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// One model's handles.
#[derive(Debug)]
pub struct RequestMetrics {
    /// Whose.
    pub model: Arc<str>,
    requests: IntCounterVec,
    /// Made on first use, so that a page does not show hundreds of zeros.
    ended: Box<[[[OnceCell<IntCounter>; Outcome::ALL.len()]; CLASSES.len()]; PATHS]>,
    /// Seconds of whole requests.
    pub request_seconds: Histogram,
    ttft_seconds: Histogram,
    spread: Arc<Spread>,
    /// Reported prompt tokens.
    pub prompt_tokens: IntCounter,
    /// Reported cached tokens.
    pub cached_tokens: IntCounter,
    /// Reported completion tokens.
    pub completion_tokens: IntCounter,
    /// The same as `cached_tokens` under its own name.
    pub prompt_cached_tokens: IntCounter,
    /// What the index predicted.
    pub predicted_cached_tokens: IntCounter,
    /// What the answer reported.
    pub reported_cached_tokens: IntCounter,
}

impl RequestMetrics {
    /// A streamed answer's first content came so long after the request's head.
    pub fn first_content(&self, after: Duration) {
        self.ttft_seconds.observe(after.as_secs_f64());
        self.spread.record(after);
    }

    /// A request ended. `status`: sent to the client; 0 = none was.
    pub fn ended(&self, dialect: crate::prompt::Dialect, status: u16, outcome: Outcome) {
        let class = usize::from(status / 100).min(CLASSES.len() - 1);
        self.ended[dialect as usize][class][outcome as usize]
            .get_or_init(|| {
                let labels = [&self.model, dialect.as_str(), CLASSES[class], outcome.as_str()];
                self.requests.with_label_values(&labels)
            })
            .inc();
    }
}

pub(super) fn counters(
    name: &str,
    help: &str,
    labels: &[&str],
) -> prometheus::Result<IntCounterVec> {
    IntCounterVec::new(Opts::new(name, help), labels)
}

pub(super) fn histograms(
    name: &str,
    help: &str,
    edges: &[f64],
) -> prometheus::Result<HistogramVec> {
    HistogramVec::new(HistogramOpts::new(name, help).buckets(edges.to_vec()), &["model"])
}
