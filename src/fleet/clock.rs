//! The edge's own monotonic clock, the only place that reads one for decisions.

use once_cell::sync::Lazy;
use std::time::{Duration, Instant};
use tidegate_policy::fleet::Millis;

static START: Lazy<Instant> = Lazy::new(Instant::now);

/// Milliseconds since the first call in this process.
pub fn now() -> Millis {
    millis(START.elapsed())
}

/// A duration as the pure crates count it, saturating.
pub(super) fn millis(duration: Duration) -> Millis {
    Millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// An interval up to a tenth shorter or longer, so that many tasks do not stay in step.
pub(super) fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(0.9 + 0.2 * fastrand::f64())
}

/// Adds a duration, saturating.
pub(super) fn after(instant: Millis, duration: Duration) -> Millis {
    Millis(instant.0.saturating_add(millis(duration).0))
}
