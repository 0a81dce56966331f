//! Two running averages of a model: prompt bytes per token, and uncached tokens per request.

use prometheus::Gauge;
use std::sync::atomic::{AtomicU64, Ordering};

/// Before any usage was reported.
const START: f64 = 4.0;
/// Weight of one finished request.
const STEP: f64 = 0.05;
/// Below this the chat template, which is in no prompt byte, outweighs the prompt.
const LEAST_TOKENS: u64 = 64;
/// Real tokenizers stay inside; a number outside is an engine's slip and is cut.
const PLAUSIBLE: std::ops::RangeInclusive<f64> = 0.5..=16.0;

/// Weight of one request in the mean of uncached tokens (cost selection).
const UNCACHED_STEP: f64 = 0.02;

/// An `f64` that several threads average into.
#[derive(Debug)]
struct Average(AtomicU64);

impl Average {
    const fn new(value: f64) -> Self {
        Self(AtomicU64::new(value.to_bits()))
    }

    fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// Moves by `step` towards `sample`, or jumps to it from NaN; the new value.
    fn towards(&self, sample: f64, step: f64) -> f64 {
        let moved = |old: f64| {
            if old.is_nan() { sample } else { old + step * (sample - old) }
        };
        let update = |bits| Some(moved(f64::from_bits(bits)).to_bits());
        match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update) {
            Ok(old) | Err(old) => moved(f64::from_bits(old)),
        }
    }
}

/// Prompt bytes per token of one model.
#[derive(Debug)]
pub struct BytesPerToken {
    average: Average,
    gauge: Gauge,
}

impl BytesPerToken {
    /// Starts at 4.
    pub(super) fn new(gauge: Gauge) -> Self {
        gauge.set(START);
        Self { average: Average::new(START), gauge }
    }

    /// Bytes per token now.
    pub fn get(&self) -> f64 {
        self.average.get()
    }

    /// Goes on from an estimate of an earlier process, if it is one.
    pub(crate) fn restore(&self, bytes: f64) {
        if PLAUSIBLE.contains(&bytes) {
            self.average.set(bytes);
            self.gauge.set(bytes);
        }
    }

    /// Tokens of a prompt of this many bytes; at least 1 of any byte.
    pub fn tokens(&self, bytes: u64) -> u64 {
        // Float to integer saturates; prompts are far below 2^53 bytes.
        (bytes as f64 / self.get()).ceil() as u64
    }

    /// A finished request had this many prompt bytes and, by its engine, prompt tokens.
    pub fn observed(&self, bytes: u64, prompt_tokens: u64) {
        if prompt_tokens < LEAST_TOKENS || bytes == 0 {
            return;
        }
        let ratio =
            (bytes as f64 / prompt_tokens as f64).clamp(*PLAUSIBLE.start(), *PLAUSIBLE.end());
        self.gauge.set(self.average.towards(ratio, STEP));
    }
}

/// Mean uncached tokens of a request at the worker it was sent to.
#[derive(Debug)]
pub struct MeanUncached(Average);

impl Default for MeanUncached {
    fn default() -> Self {
        Self(Average::new(f64::NAN))
    }
}

impl MeanUncached {
    /// The mean, at least 1; `None` before the first request.
    pub fn get(&self) -> Option<u64> {
        let mean = self.0.get();
        (!mean.is_nan()).then_some((mean.round() as u64).max(1))
    }

    /// Goes on from the mean of an earlier process.
    pub(crate) fn restore(&self, mean: u64) {
        self.0.set(mean as f64);
    }

    /// A request was sent to a worker that has to compute this many tokens.
    pub fn observed(&self, uncached_tokens: u64) {
        self.0.towards(uncached_tokens as f64, UNCACHED_STEP);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn estimator() -> BytesPerToken {
        BytesPerToken::new(Gauge::new("bytes_per_token", "test").unwrap())
    }

    #[test]
    fn it_starts_at_four_and_approaches_what_engines_report() {
        let estimator = estimator();
        assert_eq!(estimator.tokens(4096), 1024);
        for _ in 0..200 {
            estimator.observed(3_000, 1_000);
        }
        assert!((estimator.get() - 3.0).abs() < 0.01);
        assert!((estimator.gauge.get() - estimator.get()).abs() < f64::EPSILON);
    }

    #[test]
    fn absurd_and_tiny_usage_cannot_drag_it_away() {
        let estimator = estimator();
        estimator.observed(0, 1_000);
        estimator.observed(40, 63);
        assert!((estimator.get() - 4.0).abs() < f64::EPSILON);
        for _ in 0..10_000 {
            estimator.observed(u64::MAX, 64);
        }
        assert!(estimator.get() <= 16.0);
        for _ in 0..10_000 {
            estimator.observed(1, u64::MAX);
        }
        assert!(0.5 <= estimator.get());
    }

    #[test]
    fn an_estimate_of_an_earlier_process_is_taken_if_it_is_one() {
        let estimator = estimator();
        for (restored, then) in [(3.2, 3.2), (f64::NAN, 3.2), (0.0, 3.2), (99.0, 3.2)] {
            estimator.restore(restored);
            assert!((estimator.get() - then).abs() < f64::EPSILON);
        }
        let mean = MeanUncached::default();
        mean.restore(700);
        assert_eq!(mean.get(), Some(700));
    }

    #[test]
    fn a_byte_is_at_least_a_token() {
        assert_eq!(estimator().tokens(0), 0);
        assert_eq!(estimator().tokens(1), 1);
    }

    #[test]
    fn the_mean_of_uncached_tokens_starts_at_the_first_request() {
        let mean = MeanUncached::default();
        assert_eq!(mean.get(), None);
        mean.observed(1_000);
        assert_eq!(mean.get(), Some(1_000));
        mean.observed(2_000);
        assert_eq!(mean.get(), Some(1_020));
        let mean = MeanUncached::default();
        mean.observed(0);
        assert_eq!(mean.get(), Some(1), "0 would say that there was none yet");
    }
}
