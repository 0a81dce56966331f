//! Where the arrivals of a run come from.

use super::arrivals::Shape;
use super::engine::EngineConfig;
use super::generate::Generator;
use super::trace::{TRACE_BLOCK, TraceRequest};
use std::collections::HashSet;
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

    /// The rate at which the work that comes is `load` times what the engines can do, if nothing is
    /// computed twice and every batch is full: what no rules could exceed is 1. 1 if nothing comes.
    pub fn rate_for(&self, load: f64, shape: &Shape, engines: &[EngineConfig], seed: u64) -> f64 {
        let plain = Shape { rate: 1.0, burst: None, ..shape.clone() };
        let arrivals = self.arrivals(&plain, seed);
        let last = arrivals.last().map_or(Duration::ZERO, |request| request.at);
        let (computed, generated) = work(&arrivals);
        // What is done in a second if all of them share everything that comes.
        let able: f64 =
            engines.iter().map(|engine| engine.least_time(computed, generated).recip()).sum();
        let rate = load * able * last.as_secs_f64();
        if rate.is_normal() { rate } else { 1.0 }
    }
}

/// Prompt tokens, each beginning counted once, and tokens of answers.
fn work(arrivals: &[TraceRequest]) -> (u64, u64) {
    let mut seen = HashSet::new();
    let (mut computed, mut generated) = (0, 0);
    for request in arrivals {
        // A request has no block twice: what is new of it is new from there on.
        let known = request.blocks.iter().take_while(|id| seen.contains(*id)).count();
        seen.extend(request.blocks.iter().skip(known).copied());
        let known = u64::from(TRACE_BLOCK) * known as u64;
        computed += u64::from(request.input_tokens).saturating_sub(known);
        generated += u64::from(request.output_tokens);
    }
    (computed, generated)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_load_is_what_comes_in_a_second_of_what_can_be_done() {
        let shape = Shape { spread: false, ..Shape::default() };
        let engine = EngineConfig {
            prefill_tps: 1_000.0,
            decode_base_ms: 10.0,
            max_running: 10,
            decode_seq_ms: 1.0,
            ..EngineConfig::default()
        };
        for kind in ["unique", "hot"] {
            let text = format!("{kind}:requests=2000,rate=10");
            let source = Source::Generated(Generator::named(&text).unwrap());
            let rate = source.rate_for(0.5, &shape, &[engine, engine.slowed(2.0)], 1);
            let arrivals = source.arrivals(&Shape { rate, ..shape.clone() }, 1);
            let (computed, generated) = work(&arrivals);
            let seconds = computed as f64 / 1_000.0 + generated as f64 * 0.002;
            let load = seconds / arrivals.last().unwrap().at.as_secs_f64() / 1.5;
            assert!((load - 0.5).abs() < 1e-3, "{load}");
        }
    }

    #[test]
    fn what_was_there_before_is_no_work() {
        let request = |input_tokens, blocks: &[u64]| TraceRequest {
            at: Duration::ZERO,
            input_tokens,
            output_tokens: 7,
            blocks: blocks.to_vec(),
        };
        let arrivals = [request(1_000, &[1, 2]), request(1_500, &[1, 2, 3]), request(300, &[4])];
        assert_eq!(work(&arrivals), (1_000 + 476 + 300, 21));
    }
}
