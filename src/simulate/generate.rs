//! Made-up traffic: conversations that grow over shared system prompts, in the proportions of a few
//! well-known kinds of use.
//!
//! Pure, and the same for the same seed. Open loop: a turn comes a pause after the answer before it
//! would be done on an unhurried engine, whether or not it is.

use super::prompt::mix;
use super::trace::{TRACE_BLOCK, TraceRequest};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::time::Duration;
use thiserror::Error;

/// A conversation ends before its prompt gets longer.
const LONGEST_TOKENS: u32 = 100_000;
/// What a token of an answer is taken to take.
const TOKEN_TIME: Duration = Duration::from_millis(25);

/// What is made up. Lengths are means of exponential distributions, but for `prefix_tokens`.
#[derive(Clone, Debug, PartialEq)]
pub struct Generator {
    /// Requests in all.
    pub requests: u32,
    /// Requests a second, on average.
    pub rate: f64,
    /// Different system prompts, of which a few are most used; 0: none.
    pub prefixes: u32,
    /// Tokens of a system prompt.
    pub prefix_tokens: u32,
    /// Requests of a conversation.
    pub turns: f64,
    /// Tokens a request adds to what was said before.
    pub input_tokens: f64,
    /// Tokens of an answer, which the next request repeats.
    pub output_tokens: f64,
    /// Seconds between an answer and the next request.
    pub pause: f64,
}

/// Why a text names no generator.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum GeneratorError {
    /// There is no such kind.
    #[error("`{0}` is no kind of traffic: give one of chat, agents, system, hot, unique")]
    Kind(String),
    /// There is no such key.
    #[error(
        "`{0}` is none of requests, rate, prefixes, prefix_tokens, turns, input_tokens, \
         output_tokens, pause"
    )]
    Key(String),
    /// It cannot have this value.
    #[error("`{0}`: give KEY=NUMBER, above 0 but for prefixes, prefix_tokens and pause")]
    Value(String),
}

/// Requests of conversations that have begun, by time and conversation.
type ToCome = BTreeMap<(Duration, u64), TraceRequest>;

impl Generator {
    /// Reads `KIND[:KEY=NUMBER,...]`.
    ///
    /// # Errors
    /// [`GeneratorError`].
    pub fn named(text: &str) -> Result<Self, GeneratorError> {
        let (kind, settings) = text.split_once(':').unwrap_or((text, ""));
        let mut generator = Self::of_kind(kind)?;
        for setting in settings.split(',').filter(|setting| !setting.is_empty()) {
            generator.set(setting)?;
        }
        Ok(generator)
    }

    fn of_kind(kind: &str) -> Result<Self, GeneratorError> {
        let chat = Self {
            requests: 10_000,
            rate: 8.0,
            prefixes: 16,
            prefix_tokens: 1_536,
            turns: 6.0,
            input_tokens: 256.0,
            output_tokens: 256.0,
            pause: 30.0,
        };
        match kind {
            "chat" => Ok(chat),
            "agents" => Ok(Self {
                prefixes: 4,
                prefix_tokens: 6_144,
                turns: 24.0,
                input_tokens: 1_024.0,
                output_tokens: 128.0,
                pause: 2.0,
                ..chat
            }),
            "system" => Ok(Self { prefixes: 64, prefix_tokens: 4_096, turns: 1.0, ..chat }),
            "hot" => Ok(Self { prefixes: 1, prefix_tokens: 24_576, turns: 1.0, ..chat }),
            "unique" => Ok(Self {
                prefixes: 0,
                prefix_tokens: 0,
                turns: 1.0,
                input_tokens: 4_096.0,
                ..chat
            }),
            other => Err(GeneratorError::Kind(other.to_owned())),
        }
    }

    fn set(&mut self, setting: &str) -> Result<(), GeneratorError> {
        let wrong = || GeneratorError::Value(setting.to_owned());
        let (key, text) = setting.split_once('=').ok_or_else(wrong)?;
        let number: f64 = text.parse().map_err(|_| wrong())?;
        let count = text.parse::<u32>().map_err(|_| wrong());
        let positive = || if 0.0 < number && number < 1e9 { Ok(number) } else { Err(wrong()) };
        match key {
            "requests" => {
                self.requests = count.and_then(|n| if 0 < n { Ok(n) } else { Err(wrong()) })?
            }
            "rate" => self.rate = positive()?,
            "prefixes" => self.prefixes = count?,
            "prefix_tokens" => self.prefix_tokens = count?.min(LONGEST_TOKENS),
            "turns" => self.turns = positive()?.max(1.0),
            "input_tokens" => self.input_tokens = positive()?,
            "output_tokens" => self.output_tokens = positive()?,
            "pause" if number == 0.0 => self.pause = 0.0,
            "pause" => self.pause = positive()?,
            other => return Err(GeneratorError::Key(other.to_owned())),
        }
        Ok(())
    }

    /// All requests, in the order of arrival. Some continue conversations of the time before, or
    /// the rate would be reached only by and by.
    pub fn requests(&self, seed: u64) -> Vec<TraceRequest> {
        let wanted = self.requests as usize;
        let mut rng = Rng::with_seed(mix(seed));
        let (mut begun, before) = (Duration::ZERO, self.before());
        let mut requests = Vec::with_capacity(wanted);
        let mut to_come = ToCome::default();
        for number in 0.. {
            if wanted <= requests.len() {
                break;
            }
            begun += exponential(&mut rng, self.turns / self.rate);
            self.converse(number, begun, &mut rng, &mut to_come);
            // Whoever begins later comes later.
            while let Some(next) = to_come.first_entry().filter(|next| next.key().0 <= begun) {
                let mut request = next.remove();
                if let Some(at) = request.at.checked_sub(before) {
                    request.at = at;
                    requests.push(request);
                }
            }
        }
        requests.truncate(wanted);
        requests
    }

    fn converse(&self, number: u64, begun: Duration, rng: &mut Rng, to: &mut ToCome) {
        let shared = if self.prefixes == 0 { 0 } else { self.prefix_tokens / TRACE_BLOCK };
        let prefix = self.prefix(rng);
        let (mut at, mut tokens) = (begun, shared * TRACE_BLOCK);
        for _ in 0..length(rng, self.turns) {
            tokens = tokens.saturating_add(length(rng, self.input_tokens));
            if LONGEST_TOKENS < tokens {
                return;
            }
            let output_tokens = length(rng, self.output_tokens);
            let block = |at| if at < shared { block_of(prefix, at) } else { block_of(!number, at) };
            let blocks = (0..tokens.div_ceil(TRACE_BLOCK)).map(block).collect();
            let request = TraceRequest { at, input_tokens: tokens, output_tokens, blocks };
            to.insert((at, number), request);
            tokens = tokens.saturating_add(output_tokens);
            at += TOKEN_TIME * output_tokens + exponential(rng, self.pause);
        }
    }

    /// A few times as long as a conversation lasts.
    fn before(&self) -> Duration {
        let turn = self.pause + self.output_tokens * TOKEN_TIME.as_secs_f64();
        Duration::from_secs_f64((3.0 * self.turns * turn).min(86_400.0))
    }

    /// Which system prompt: the first is chosen twice as often as the second, and so on.
    fn prefix(&self, rng: &mut Rng) -> u64 {
        let prefixes = f64::from(self.prefixes.max(1));
        ((prefixes + 1.0).powf(rng.f64()).floor() as u64).min(u64::from(self.prefixes.max(1)))
    }
}

/// A block's id: equal for the same place in the same text, whoever sends it.
fn block_of(text: u64, at: u32) -> u64 {
    mix(mix(text) ^ u64::from(at))
}

fn exponential(rng: &mut Rng, mean: f64) -> Duration {
    let seconds = -(1.0 - rng.f64()).ln() * mean;
    // At most a day, also for a rate of nothing.
    Duration::from_secs_f64(seconds.clamp(0.0, 86_400.0))
}

/// At least 1, exponentially distributed around the mean.
fn length(rng: &mut Rng, mean: f64) -> u32 {
    let above = (mean - 1.0).max(0.0);
    1 + (-(1.0 - rng.f64()).ln() * above).round().min(1e6) as u32
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::HashSet;

    fn shared_tokens(requests: &[TraceRequest]) -> f64 {
        let (mut seen, mut shared, mut all) = (HashSet::new(), 0, 0);
        for id in requests.iter().flat_map(|request| &request.blocks) {
            all += 1;
            shared += u32::from(!seen.insert(*id));
        }
        f64::from(shared) / f64::from(all)
    }

    #[test]
    fn every_kind_makes_as_many_requests_as_asked_at_about_the_rate() {
        for kind in ["chat", "agents", "system", "hot", "unique"] {
            let generator = Generator::named(&format!("{kind}:requests=5000,rate=20")).unwrap();
            let requests = generator.requests(7);
            assert_eq!(requests.len(), 5_000);
            assert!(requests.is_sorted_by_key(|request| request.at));
            let seconds = requests[4_999].at.as_secs_f64();
            assert!((200.0..300.0).contains(&seconds), "{kind}: {seconds}");
            let fits =
                |r: &TraceRequest| r.blocks.len() as u32 == r.input_tokens.div_ceil(TRACE_BLOCK);
            assert!(requests.iter().all(fits));
            assert_eq!(requests, generator.requests(7));
            assert_ne!(requests, generator.requests(8));
        }
    }

    #[test]
    fn kinds_differ_in_what_their_prompts_share() {
        let shared = |kind| shared_tokens(&Generator::named(kind).unwrap().requests(3));
        assert_eq!(shared("unique"), 0.0);
        assert!(0.5 < shared("chat") && 0.8 < shared("agents") && 0.8 < shared("hot"));
    }

    #[test]
    fn a_turn_repeats_what_was_said_before() {
        let requests = Generator::named("agents:requests=200").unwrap().requests(1);
        let last = requests.iter().max_by_key(|request| request.blocks.len()).unwrap();
        let own = last.blocks[12..].iter().collect::<HashSet<_>>();
        let earlier = requests.iter().filter(|r| r.blocks.get(12).is_some_and(|b| own.contains(b)));
        assert!(2 < earlier.count());
    }

    #[test]
    fn what_cannot_be_made_is_refused_by_name() {
        for (text, part) in [
            ("chats", "`chats` is no kind"),
            ("chat:speed=3", "`speed` is none of"),
            ("chat:rate=0", "`rate=0`"),
            ("chat:requests=1.5", "`requests=1.5`"),
            ("chat:turns", "`turns`"),
        ] {
            let error = Generator::named(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
