//! Where the arrivals of a run come from.

use super::arrivals::Shape;
use super::generate::Generator;
use super::trace::TraceRequest;
use std::time::Duration;

/// See the module.
#[derive(Clone, Debug)]
pub enum Source {
    /// What was recorded; the same for every seed, but for what its shape draws.
    Recorded(Vec<TraceRequest>),
    /// What is made up anew for each seed.
    Generated(Generator),
}

impl Source {
    /// The arrivals of one seed, in order.
    pub fn arrivals(&self, shape: &Shape, seed: u64) -> Vec<TraceRequest> {
        match self {
            Self::Recorded(trace) => shape.of(trace.clone(), seed),
            Self::Generated(generator) => shape.of(generator.requests(seed), seed),
        }
    }

    /// The rate at which prompts, none of them cached, are `load` times what so many tokens per
    /// second compute; 1 if nothing comes.
    pub fn rate_for(&self, load: f64, shape: &Shape, tokens_per_second: f64, seed: u64) -> f64 {
        let plain = Shape { rate: 1.0, burst: None, ..shape.clone() };
        let arrivals = self.arrivals(&plain, seed);
        let tokens: f64 = arrivals.iter().map(|request| f64::from(request.input_tokens)).sum();
        let last = arrivals.last().map_or(Duration::ZERO, |request| request.at);
        let offered = tokens / last.as_secs_f64();
        if offered.is_normal() { load * tokens_per_second / offered } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_load_is_a_rate_of_prompt_tokens() {
        let source = Source::Generated(Generator::named("unique:requests=2000,rate=10").unwrap());
        let shape = Shape { spread: false, ..Shape::default() };
        let rate = source.rate_for(0.5, &shape, 64_000.0, 1);
        let arrivals = source.arrivals(&Shape { rate, ..shape }, 1);
        let tokens: f64 = arrivals.iter().map(|request| f64::from(request.input_tokens)).sum();
        let load = tokens / arrivals.last().unwrap().at.as_secs_f64() / 64_000.0;
        assert!((load - 0.5).abs() < 1e-3, "{load}");
    }
}
