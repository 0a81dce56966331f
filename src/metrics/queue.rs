//! Requests that wait at the edge until a worker may take one, per model.

use super::register::Register;
use super::requests::{counters, histograms};
use prometheus::Opts;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

/// Edges of waits, seconds.
const WAIT_EDGES: [f64; 12] = [0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];

/// How a request left the queue, or did not get into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueOutcome {
    /// A worker took it.
    Taken,
    /// Not within `max_wait`.
    TimedOut,
    /// As many as may wait did.
    Full,
    /// The client left, or its request turned out to have no route.
    Left,
}

impl QueueOutcome {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Taken, Self::TimedOut, Self::Full, Self::Left];

    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::TimedOut => "timeout",
            Self::Full => "full",
            Self::Left => "left",
        }
    }
}

/// The families.
#[derive(Debug)]
pub struct QueueFamilies {
    waiting: IntGaugeVec,
    seconds: HistogramVec,
    requests: IntCounterVec,
}

impl QueueFamilies {
    pub(super) fn register(registry: &mut Register) -> prometheus::Result<Self> {
        let families = Self {
            waiting: IntGaugeVec::new(
                Opts::new("tidegate_queue_waiting", "Requests that wait at the edge now."),
                &["model"],
            )?,
            seconds: histograms(
                "tidegate_queue_wait_seconds",
                "How long a request waited at the edge, however that ended, seconds.",
                &WAIT_EDGES,
            )?,
            requests: counters(
                "tidegate_queue_requests_total",
                "Requests that had to wait at the edge, by how that ended; those but full, plus \
                 queue_waiting, are all that ever waited.",
                &["model", "outcome"],
            )?,
        };
        registry.register(Box::new(families.waiting.clone()))?;
        registry.register(Box::new(families.seconds.clone()))?;
        registry.register(Box::new(families.requests.clone()))?;
        Ok(families)
    }

    /// Handles of one model that has a queue.
    pub fn model(&self, model: &str) -> QueueMetrics {
        let requests = |of: QueueOutcome| self.requests.with_label_values(&[model, of.as_str()]);
        QueueMetrics {
            waiting: self.waiting.with_label_values(&[model]),
            seconds: self.seconds.with_label_values(&[model]),
            requests: QueueOutcome::ALL.map(requests),
        }
    }
}

/// One model's handles.
#[derive(Debug)]
pub struct QueueMetrics {
    /// Those who wait now.
    pub waiting: IntGauge,
    /// How long they did.
    pub seconds: Histogram,
    requests: [IntCounter; QueueOutcome::ALL.len()],
}

impl QueueMetrics {
    /// A request waits no more, or could not.
    pub fn ended(&self, outcome: QueueOutcome) {
        self.requests[outcome as usize].inc();
    }
}
