//! What a run comes to.

use super::engine::EngineStats;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tidegate_policy::decision::Reason;

/// One answered request.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// From its arrival to the engine's first token, whether or not the client sees it then.
    pub first_token: Duration,
    /// From its arrival to the last token.
    pub total: Duration,
    /// In the engine's queue.
    pub waited: Duration,
    /// Does its client see tokens as they come?
    pub is_streamed: bool,
}

/// All that happened in one run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Answered requests, in the order of their ends.
    pub samples: Vec<Sample>,
    /// Requests that got no answer.
    pub failed: u64,
    /// Requests the edge turned away.
    pub shed: u64,
    /// When the last answer ended.
    pub ended: Duration,
    /// What each engine did.
    pub engines: Vec<EngineStats>,
    reasons: [u64; Reason::ALL.len()],
}

impl Run {
    pub(super) fn new(requests: usize) -> Self {
        Self {
            samples: Vec::with_capacity(requests),
            failed: 0,
            shed: 0,
            ended: Duration::ZERO,
            engines: Vec::new(),
            reasons: [0; Reason::ALL.len()],
        }
    }

    pub(super) fn decided(&mut self, reason: Reason) {
        self.reasons[reason as usize] += 1;
    }

    /// Its figures.
    pub fn figures(&self) -> Figures {
        let sum = |of: fn(&EngineStats) -> u64| self.engines.iter().map(of).sum::<u64>();
        let times = |of: fn(&Sample) -> Duration| Times::of(self.samples.iter().map(of).collect());
        let reasons =
            Reason::ALL.iter().map(|&reason| (reason.as_str(), self.reasons[reason as usize]));
        Figures {
            answered: self.samples.len() as u64,
            failed: self.failed,
            shed: self.shed,
            hit_rate: ratio(sum(|engine| engine.cached_tokens), sum(|engine| engine.prompt_tokens)),
            first_token: times(|sample| sample.first_token),
            total: times(|sample| sample.total),
            waited: times(|sample| sample.waited),
            computed_tokens: sum(|engine| engine.computed_tokens),
            imbalance: self.imbalance(),
            decisions: reasons.filter(|(_, count)| 0 < *count).collect(),
            seconds: self.ended.as_secs_f64(),
        }
    }

    /// Computed prompt tokens of the busiest engine, of the mean.
    fn imbalance(&self) -> f64 {
        let computed = || self.engines.iter().map(|engine| engine.computed_tokens);
        let most = computed().max().unwrap_or(0);
        let all: u64 = computed().sum();
        ratio(most * self.engines.len() as u64, all)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / (whole as f64).max(1.0)
}

/// What a run comes to. Times are seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Requests with a whole answer.
    pub answered: u64,
    /// Requests without.
    pub failed: u64,
    /// Requests turned away.
    pub shed: u64,
    /// Prompt tokens reused, of all.
    pub hit_rate: f64,
    /// Arrival to first token.
    pub first_token: Times,
    /// Arrival to last token.
    pub total: Times,
    /// In engines' queues.
    pub waited: Times,
    /// Prompt tokens computed.
    pub computed_tokens: u64,
    /// Those of the busiest engine, of the mean.
    pub imbalance: f64,
    /// Routed requests by reason.
    pub decisions: BTreeMap<&'static str, u64>,
    /// Simulated time.
    pub seconds: f64,
}

/// A distribution of times, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// Geometric mean.
    pub geometric_mean: f64,
    /// Half are no longer.
    pub p50: f64,
    /// 90 % are no longer.
    pub p90: f64,
    /// 99 % are no longer.
    pub p99: f64,
}

impl Times {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |share: f64| {
            let rank = (share * times.len() as f64).ceil() as usize;
            let at = rank.clamp(1, times.len().max(1)) - 1;
            times.get(at).map_or(0.0, Duration::as_secs_f64)
        };
        // A request that did not wait counts as a microsecond, which has a logarithm.
        let logarithm = |time: &Duration| time.as_secs_f64().max(1e-6).ln();
        let mean = times.iter().map(logarithm).sum::<f64>() / times.len().max(1) as f64;
        Self {
            geometric_mean: if times.is_empty() { 0.0 } else { mean.exp() },
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first_tokens: impl Iterator<Item = u64>, computed: &[u64]) -> Run {
        let sample = |milliseconds| Sample {
            first_token: Duration::from_millis(milliseconds),
            total: Duration::from_secs(9),
            waited: Duration::ZERO,
            is_streamed: true,
        };
        let engine = |&computed_tokens| EngineStats {
            computed_tokens,
            prompt_tokens: 100,
            cached_tokens: 25,
            ..EngineStats::default()
        };
        let engines = computed.iter().map(engine).collect();
        Run { samples: first_tokens.map(sample).collect(), engines, ..Run::new(0) }
    }

    #[test]
    fn percentiles_are_ranks_and_the_mean_is_geometric() {
        let figures = run((1..=100).rev(), &[1]).figures();
        let Times { p50, p90, p99, .. } = figures.first_token;
        assert_eq!((p50, p90, p99), (0.05, 0.09, 0.099));
        let figures = run([10, 1_000].into_iter(), &[1]).figures();
        assert!((figures.first_token.geometric_mean - 0.1).abs() < 1e-9);
    }

    #[test]
    fn the_busiest_engine_is_told_against_the_mean() {
        let mut run = run(std::iter::once(5), &[300, 100, 200]);
        run.decided(Reason::Home);
        let figures = run.figures();
        assert_eq!((figures.imbalance, figures.hit_rate), (1.5, 0.25));
        assert_eq!(figures.decisions, BTreeMap::from([("home", 1)]));
    }

    #[test]
    fn nothing_comes_to_nothing() {
        let figures = Run::new(0).figures();
        assert_eq!((figures.hit_rate, figures.first_token), (0.0, Times::default()));
    }
}
