//! The edge's own monotonic clock, the only place that reads one for decisions.
//!
//! A fleet asks the [`Clock`] it was given, so that a simulation of one can set its time by hand.

use once_cell::sync::Lazy;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidegate_policy::fleet::Millis;
use tokio::time;

static START: Lazy<Instant> = Lazy::new(Instant::now);

/// What tells a fleet the time.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// This process's, see [`now`].
    #[default]
    Process,
    /// One that somebody sets; all clones show the same.
    Set(Arc<AtomicU64>),
}

impl Clock {
    /// What it shows.
    pub fn now(&self) -> Millis {
        match self {
            Self::Process => now(),
            Self::Set(millis) => Millis(millis.load(Ordering::Relaxed)),
        }
    }
}

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

/// How far apart the instants are at which workers are asked. What a thousand of them do at any
/// time costs a wake-up each, with caches that have gone cold meanwhile.
const BEAT: Duration = Duration::from_millis(10);

/// The beat next to that instant.
pub(super) fn on_a_beat(instant: time::Instant) -> time::Instant {
    let beat = BEAT.as_nanos();
    let past = instant.into_std().saturating_duration_since(*START).as_nanos() % beat;
    // A beat's nanoseconds fit.
    let (past, left) =
        (Duration::from_nanos(past as u64), Duration::from_nanos((beat - past) as u64));
    if past < left { instant - past } else { instant + left }
}

/// Adds a duration, saturating.
pub(super) fn after(instant: Millis, duration: Duration) -> Millis {
    Millis(instant.0.saturating_add(millis(duration).0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beats_are_the_same_for_everybody() {
        let start = time::Instant::from_std(*START);
        let beat = |micros| (on_a_beat(start + Duration::from_micros(micros)) - start).as_micros();
        let beats = [0, 4_999, 5_000, 10_000, 14_999, 15_000].map(beat);
        assert_eq!(beats, [0, 0, 10_000, 10_000, 10_000, 20_000]);
    }
}
