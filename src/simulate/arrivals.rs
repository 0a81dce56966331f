//! What a run is sent: a trace's requests, cut, drawn together, heated up or torn apart.
//!
//! Pure, and the same for the same seed. What a request has besides (whether it is streamed, which
//! edge it meets) is drawn from its place among the arrivals.

use super::prompt::mix;
use super::trace::{self, TRACE_BLOCK, TraceRequest};
use std::collections::HashMap;
use std::time::Duration;

/// A block that more than one in so many requests begins with belongs to no conversation.
const COMMON: usize = 50;

/// What is done to a trace, in this order.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Undo the trace's grid of three seconds.
    pub spread: bool,
    /// Only what comes before.
    pub until: Option<Duration>,
    /// Share of the requests that get a prompt nobody else has.
    pub unshared: f64,
    /// A common beginning for some of the conversations.
    pub hot: Option<Hot>,
    /// Multiplies the rate of arrivals.
    pub rate: f64,
    /// A stretch in which arrivals come faster still; later ones follow earlier.
    pub burst: Option<Burst>,
}

impl Default for Shape {
    /// The trace off its grid.
    fn default() -> Self {
        Self { spread: true, until: None, unshared: 0.0, hot: None, rate: 1.0, burst: None }
    }
}

/// A common beginning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hot {
    /// Share of the conversations that have it.
    pub share: f64,
    /// Its length, blocks of the trace.
    pub blocks: u32,
}

/// A faster stretch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// When it begins, after `rate`.
    pub start: Duration,
    /// How long it lasts.
    pub lasts: Duration,
    /// How much faster.
    pub factor: f64,
}

impl Shape {
    /// The arrivals made of a trace, which is in order, as they are.
    pub fn of(&self, mut requests: Vec<TraceRequest>, seed: u64) -> Vec<TraceRequest> {
        if self.spread {
            trace::spread(&mut requests, seed);
        }
        if let Some(until) = self.until {
            requests.truncate(requests.partition_point(|request| request.at < until));
        }
        if 0.0 < self.unshared {
            tear_apart(&mut requests, self.unshared, seed);
        }
        if let Some(hot) = self.hot {
            heat(&mut requests, hot, seed);
        }
        for request in &mut requests {
            let at = request.at.as_secs_f64() / self.rate;
            let at = self.burst.map_or(at, |burst| burst.drawn_forward(at));
            request.at = Duration::try_from_secs_f64(at).unwrap_or(Duration::MAX);
        }
        requests
    }
}

impl Burst {
    /// Where an arrival lands, seconds.
    fn drawn_forward(&self, at: f64) -> f64 {
        let (start, lasts) = (self.start.as_secs_f64(), self.lasts.as_secs_f64());
        let inside = (at - start).clamp(0.0, lasts * self.factor);
        at - inside + inside / self.factor
    }
}

/// Uniform in 0..1: a property that the holder of a number has from seed to seed.
pub(super) fn fraction(seed: u64, salt: u64, number: u64) -> f64 {
    const UNIT: f64 = 1.0 / (1_u64 << 53) as f64;
    (mix(mix(mix(seed) ^ salt) ^ number) >> 11) as f64 * UNIT
}

fn tear_apart(requests: &mut [TraceRequest], share: f64, seed: u64) {
    const SALT: u64 = 1;
    for (at, request) in (0..).zip(requests) {
        if fraction(seed, SALT, at) < share {
            let own = |(block, id): (u64, &mut u64)| *id = mix(mix(at) ^ block);
            (0..).zip(&mut request.blocks).for_each(own);
        }
    }
}

fn heat(requests: &mut [TraceRequest], hot: Hot, seed: u64) {
    const SALT: u64 = 2;
    let conversations = conversations(requests);
    let beginning = (0..u64::from(hot.blocks)).map(|block| u64::MAX - block);
    for (request, conversation) in requests.iter_mut().zip(conversations) {
        if fraction(seed, SALT, conversation) < hot.share {
            request.blocks.splice(0..0, beginning.clone());
            request.input_tokens = request.input_tokens.saturating_add(hot.blocks * TRACE_BLOCK);
        }
    }
}

/// Which conversation each request belongs to: the first of its blocks that few others have.
fn conversations(requests: &[TraceRequest]) -> Vec<u64> {
    let mut uses: HashMap<u64, usize> = HashMap::new();
    for id in requests.iter().flat_map(|request| &request.blocks) {
        *uses.entry(*id).or_default() += 1;
    }
    let common = requests.len() / COMMON + 1;
    let own = |request: &TraceRequest| {
        let blocks = || request.blocks.iter().copied();
        blocks().find(|id| uses[id] < common).or_else(|| blocks().last()).unwrap_or(0)
    };
    requests.iter().map(own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> Vec<TraceRequest> {
        let request = |at: u64| TraceRequest {
            at: Duration::from_secs(at),
            input_tokens: 1_024,
            output_tokens: 9,
            // Everybody's first block, then that of one of ten conversations.
            blocks: vec![7, 100 + at % 10],
        };
        (0..1_000).map(request).collect()
    }

    fn shaped(shape: Shape) -> Vec<TraceRequest> {
        Shape { spread: false, ..shape }.of(trace(), 1)
    }

    #[test]
    fn a_burst_draws_later_arrivals_forward_and_keeps_the_rate_after() {
        let (start, lasts) = (Duration::from_secs(100), Duration::from_secs(20));
        let requests = shaped(Shape {
            rate: 2.0,
            burst: Some(Burst { start, lasts, factor: 3.0 }),
            ..Shape::default()
        });
        let within = |from: f64, to: f64| {
            let inside = |request: &&TraceRequest| (from..to).contains(&request.at.as_secs_f64());
            requests.iter().filter(inside).count()
        };
        assert_eq!((within(0.0, 100.0), within(100.0, 120.0)), (200, 120));
        assert_eq!(within(120.0, 220.0), 200);
        assert!(requests.is_sorted_by_key(|request| request.at));
    }

    #[test]
    fn heat_is_for_whole_conversations() {
        let hot = Some(Hot { share: 0.5, blocks: 3 });
        let requests = shaped(Shape { hot, ..Shape::default() });
        let is_hot = |request: &TraceRequest| request.blocks[0] == u64::MAX;
        let count = requests.iter().filter(|request| is_hot(request)).count();
        assert!((200..=800).contains(&count), "{count}");
        for request in &requests {
            let blocks = if is_hot(request) { 5 } else { 2 };
            assert_eq!((request.blocks.len(), request.input_tokens), (blocks, 512 * blocks as u32));
            assert_eq!(
                is_hot(request),
                is_hot(&requests[request.blocks[blocks - 1] as usize - 100])
            );
        }
    }

    #[test]
    fn prompts_that_are_torn_apart_share_nothing() {
        let requests = shaped(Shape { unshared: 0.9, ..Shape::default() });
        let shared = requests.iter().filter(|request| request.blocks[0] == 7).count();
        assert!((50..150).contains(&shared), "{shared}");
    }

    #[test]
    fn a_time_limit_is_one_of_the_trace() {
        let until = Some(Duration::from_secs(100));
        assert_eq!(shaped(Shape { until, rate: 4.0, ..Shape::default() }).len(), 100);
    }
}
