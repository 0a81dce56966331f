//! Replays a trace at an address, open loop: requests are sent when the trace says, not when the
//! ones before are done.

use super::client::{Chat, ChatClient, Message, Outcome};
use super::clock::Clock;
use super::trace::TraceRequest;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::task::JoinSet;

/// How to replay.
#[derive(Clone, Debug)]
pub struct ReplayConfig {
    /// The edge, or one engine.
    pub target: SocketAddr,
    /// The model to ask for.
    pub model: String,
    /// Simulated seconds per wall second: the fleet's.
    pub speed: f64,
    /// Bytes of a token: the fleet's.
    pub bytes_per_token: u32,
    /// A request is given up after so much wall time.
    pub timeout: Duration,
}

/// What a replay, or any set of outcomes, comes to. Times are simulated.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Answers that came whole.
    pub ok: u64,
    /// Requests without one.
    pub failed: u64,
    /// Why.
    pub failures: BTreeMap<String, u64>,
    /// Prompt tokens of whole answers.
    pub prompt_tokens: u64,
    /// Those of them that were reused.
    pub cached_tokens: u64,
    /// Times to first token, shortest first.
    pub first_token: Vec<Duration>,
    /// Requests by `x-tidegate-decision`, failed ones included.
    pub by_decision: BTreeMap<String, u64>,
    /// Requests by `x-tidegate-worker`, failed ones included.
    pub by_worker: BTreeMap<String, u64>,
    /// How late the latest request was sent: if it is not small against the times above, the
    /// machine was too busy for them to mean anything.
    pub late: Duration,
}

/// Sends all of `trace`, which is in the order of arrival, and waits for the answers.
pub async fn replay(trace: &[TraceRequest], config: &ReplayConfig) -> Summary {
    let clock = Clock::start(config.speed);
    let client = ChatClient::new(config.target, clock, config.timeout);
    let mut summary = Summary::default();
    let mut open = JoinSet::new();
    for request in trace {
        // The text is made before the time comes, so that making it delays nobody.
        let chat = config.chat(request);
        clock.sleep_until(request.at).await;
        summary.late = summary.late.max(clock.now().saturating_sub(request.at));
        let client = client.clone();
        open.spawn(async move { client.send(&chat).await });
        while let Some(outcome) = open.try_join_next() {
            summary.add(&outcome.unwrap_or_else(|_| Outcome::lost()));
        }
    }
    while let Some(outcome) = open.join_next().await {
        summary.add(&outcome.unwrap_or_else(|_| Outcome::lost()));
    }
    summary.first_token.sort_unstable();
    summary
}

impl ReplayConfig {
    fn chat(&self, request: &TraceRequest) -> Chat {
        Chat {
            model: self.model.clone(),
            messages: vec![Message { role: "user", text: request.text(self.bytes_per_token) }],
            output_tokens: request.output_tokens,
        }
    }
}

impl Summary {
    /// Of outcomes in any order.
    pub fn of<'a>(outcomes: impl IntoIterator<Item = &'a Outcome>) -> Self {
        let mut summary = Self::default();
        for outcome in outcomes {
            summary.add(outcome);
        }
        summary.first_token.sort_unstable();
        summary
    }

    fn add(&mut self, outcome: &Outcome) {
        let count = |counts: &mut BTreeMap<String, u64>, key: Option<&String>| {
            let key = key.map_or("none", String::as_str);
            *counts.entry(key.to_owned()).or_default() += 1;
        };
        count(&mut self.by_decision, outcome.decision.as_ref());
        count(&mut self.by_worker, outcome.worker.as_ref());
        if let Some(failure) = &outcome.failure {
            self.failed += 1;
            count(&mut self.failures, Some(&failure.to_string()));
            return;
        }
        self.ok += 1;
        self.prompt_tokens += outcome.prompt_tokens;
        self.cached_tokens += outcome.cached_tokens;
        self.first_token.extend(outcome.first_token);
    }

    /// Prompt tokens reused, of all; 0 if there are none.
    pub fn hit_rate(&self) -> f64 {
        self.cached_tokens as f64 / (self.prompt_tokens as f64).max(1.0)
    }

    /// The time to first token that `share` (0 to 1) of the answers did not exceed.
    pub fn first_token_at(&self, share: f64) -> Duration {
        let rank = (share * self.first_token.len() as f64).ceil() as usize;
        let at = rank.clamp(1, self.first_token.len().max(1)) - 1;
        self.first_token.get(at).copied().unwrap_or_default()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |share| self.first_token_at(share).as_secs_f64();
        write!(
            f,
            "{} ok, {} failed, hit rate {:.1} %, first token p50 {:.2} s, p90 {:.2} s, p99 {:.2} s",
            self.ok,
            self.failed,
            self.hit_rate() * 100.0,
            seconds(0.5),
            seconds(0.9),
            seconds(0.99),
        )?;
        for (title, counts) in [
            ("failures", &self.failures),
            ("decisions", &self.by_decision),
            ("workers", &self.by_worker),
        ] {
            if !counts.is_empty() {
                write!(f, "\n  {title}:")?;
            }
            for (name, count) in counts {
                write!(f, " {name}={count}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::client::Failure;
    use super::*;

    fn outcome(milliseconds: u64) -> Outcome {
        Outcome {
            decision: Some("home".to_owned()),
            first_token: Some(Duration::from_millis(milliseconds)),
            prompt_tokens: 100,
            cached_tokens: 25,
            ..Outcome::default()
        }
    }

    #[test]
    fn a_summary_counts_whole_answers_and_names_failures() {
        let cut = Outcome { failure: Some(Failure::Cut), ..outcome(1) };
        let mut outcomes: Vec<Outcome> = (1..=100).rev().map(outcome).collect();
        outcomes.push(cut);
        let summary = Summary::of(&outcomes);
        assert_eq!((summary.ok, summary.failed), (100, 1));
        assert_eq!(summary.failures["the stream was cut"], 1);
        assert_eq!(summary.by_decision["home"], 101);
        assert_eq!(summary.by_worker["none"], 101);
        assert_eq!(summary.hit_rate(), 0.25);
        assert_eq!(summary.first_token_at(0.5), Duration::from_millis(50));
        assert_eq!(summary.first_token_at(0.99), Duration::from_millis(99));
        assert_eq!(summary.first_token_at(1.0), Duration::from_millis(100));
    }

    #[test]
    fn a_summary_of_nothing_is_zero() {
        let summary = Summary::of([]);
        assert_eq!(summary.hit_rate(), 0.0);
        assert_eq!(summary.first_token_at(0.99), Duration::ZERO);
        assert!(summary.to_string().starts_with("0 ok, 0 failed"));
    }
}
