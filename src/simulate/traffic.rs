//! A small endless traffic source: conversations that grow, over shared system prompts, and a
//! burst now and then.
//!
//! Open loop: a turn comes when its time has come, whether or not the answer before it is done;
//! what the assistant said is made up. [`Arrivals`] is pure and the same for the same seed.

use super::client::{Chat, ChatClient, Message, Outcome};
use super::clock::Clock;
use super::trace::push_block;
use fastrand::Rng;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// What comes, how often, and where to. Times are simulated unless said; ranges are not empty.
#[derive(Clone, Debug)]
pub struct TrafficConfig {
    /// The edge, or one engine.
    pub target: SocketAddr,
    /// The model to ask for.
    pub model: String,
    /// Makes all choices.
    pub seed: u64,
    /// Bytes of a token: the fleet's.
    pub bytes_per_token: u32,
    /// Requests per second outside bursts.
    pub rate: f64,
    /// Conversations alive at once.
    pub conversations: usize,
    /// Different system prompts.
    pub system_prompts: u64,
    /// Tokens of a system prompt.
    pub system_tokens: u32,
    /// Tokens of a question.
    pub question_tokens: RangeInclusive<u32>,
    /// Tokens of an answer.
    pub answer_tokens: RangeInclusive<u32>,
    /// Questions of a conversation.
    pub turns: RangeInclusive<u32>,
    /// The bursts.
    pub burst: Burst,
    /// Requests open at once; what comes beyond is skipped.
    pub max_open: usize,
    /// A request is given up after so much wall time.
    pub timeout: Duration,
}

/// Regular bursts.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// From the begin of one to the begin of the next; the first begins after this.
    pub every: Duration,
    /// How long one lasts.
    pub lasts: Duration,
    /// What it multiplies the rate by.
    pub factor: f64,
}

impl TrafficConfig {
    /// Traffic that four engines of eight running sequences carry with ease, but for the bursts,
    /// which make all of them queue.
    pub fn new(target: SocketAddr, model: impl Into<String>) -> Self {
        Self {
            target,
            model: model.into(),
            seed: 1,
            bytes_per_token: 4,
            rate: 4.0,
            conversations: 32,
            system_prompts: 4,
            system_tokens: 1_500,
            question_tokens: 64..=512,
            answer_tokens: 32..=160,
            turns: 2..=8,
            burst: Burst {
                every: Duration::from_secs(30),
                lasts: Duration::from_secs(4),
                factor: 10.0,
            },
            max_open: 1_024,
            timeout: Duration::from_secs(120),
        }
    }
}

/// One request to come.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// When.
    pub at: Duration,
    /// Which conversation, counted from 1.
    pub conversation: u64,
    /// Which question of it, counted from 1.
    pub turn: u32,
    /// What is asked.
    pub chat: Chat,
}

/// All requests of a configuration, without end.
#[derive(Debug)]
pub struct Arrivals {
    config: TrafficConfig,
    rng: Rng,
    now: Duration,
    alive: Vec<Conversation>,
    begun: u64,
    texts: u64,
}

#[derive(Debug)]
struct Conversation {
    number: u64,
    turn: u32,
    turns: u32,
    messages: Vec<Message>,
}

impl Arrivals {
    /// From the beginning.
    pub fn new(config: TrafficConfig) -> Self {
        let mut arrivals = Self {
            rng: Rng::with_seed(config.seed),
            now: Duration::ZERO,
            alive: Vec::new(),
            begun: 0,
            texts: config.system_prompts,
            config,
        };
        for _ in 0..arrivals.config.conversations.max(1) {
            let conversation = arrivals.begin();
            arrivals.alive.push(conversation);
        }
        arrivals
    }

    /// The next request.
    pub fn next_arrival(&mut self) -> Arrival {
        let pause = self.pause();
        self.now += pause;
        let question = self.rng.u32(self.config.question_tokens.clone());
        let question = self.message("user", question);
        let output_tokens = self.rng.u32(self.config.answer_tokens.clone());
        let answer = self.message("assistant", output_tokens);
        let at = self.rng.usize(..self.alive.len());
        let conversation = &mut self.alive[at];
        conversation.turn += 1;
        conversation.messages.push(question);
        let arrival = Arrival {
            at: self.now,
            conversation: conversation.number,
            turn: conversation.turn,
            chat: Chat {
                model: self.config.model.clone(),
                messages: conversation.messages.clone(),
                output_tokens,
            },
        };
        conversation.messages.push(answer);
        if conversation.turns <= conversation.turn {
            self.alive[at] = self.begin();
        }
        arrival
    }

    /// Exponentially distributed, as arrivals that know nothing of each other are.
    fn pause(&mut self) -> Duration {
        let Burst { every, lasts, factor } = self.config.burst;
        let since = self.now.as_secs_f64() % every.as_secs_f64().max(1e-3);
        let bursts = every <= self.now && since < lasts.as_secs_f64();
        let rate = self.config.rate * if bursts { factor } else { 1.0 };
        let seconds = -(1.0 - self.rng.f64()).ln() / rate;
        // At most an hour, also for a rate of nothing.
        Duration::from_secs_f64(seconds.min(3_600.0))
    }

    fn begin(&mut self) -> Conversation {
        self.begun += 1;
        let mut text = String::new();
        let system = self.rng.u64(..self.config.system_prompts.max(1));
        let length = self.config.system_tokens as usize * self.config.bytes_per_token as usize;
        push_block(system, length, &mut text);
        Conversation {
            number: self.begun,
            turn: 0,
            turns: self.rng.u32(self.config.turns.clone()),
            messages: vec![Message { role: "system", text }],
        }
    }

    /// A message of a text that no other message has.
    fn message(&mut self, role: &'static str, tokens: u32) -> Message {
        self.texts += 1;
        let mut text = String::new();
        let length = tokens as usize * self.config.bytes_per_token as usize;
        push_block(self.texts, length, &mut text);
        Message { role, text }
    }
}

/// What became of one arrival.
#[derive(Clone, Debug)]
pub struct TrafficEvent {
    /// When it came.
    pub at: Duration,
    /// Its conversation.
    pub conversation: u64,
    /// Its question.
    pub turn: u32,
    /// How it went; `None` if it was skipped because too many requests were open.
    pub outcome: Option<Outcome>,
}

/// Sends requests and tells of each one when it is done, until nobody listens; what is open then
/// is dropped.
pub async fn run(config: TrafficConfig, clock: Clock, events: mpsc::Sender<TrafficEvent>) {
    let client = ChatClient::new(config.target, clock, config.timeout);
    let (start, max_open) = (clock.now(), config.max_open);
    let mut arrivals = Arrivals::new(config);
    let mut open = JoinSet::new();
    loop {
        let arrival = arrivals.next_arrival();
        tokio::select! {
            () = clock.sleep_until(start + arrival.at) => {}
            () = events.closed() => return,
        }
        while open.try_join_next().is_some() {}
        let (client, events) = (client.clone(), events.clone());
        let skipped = max_open <= open.len();
        open.spawn(async move {
            let event = TrafficEvent {
                at: arrival.at,
                conversation: arrival.conversation,
                turn: arrival.turn,
                outcome: if skipped { None } else { Some(client.send(&arrival.chat).await) },
            };
            // An error means that nobody listens, which ends the loop above.
            let _ = events.send(event).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(seed: u64) -> Vec<Arrival> {
        let target = SocketAddr::from(([127, 0, 0, 1], 1));
        let mut arrivals = Arrivals::new(TrafficConfig { seed, ..TrafficConfig::new(target, "m") });
        (0..1_000).map(|_| arrivals.next_arrival()).collect()
    }

    #[test]
    fn the_same_seed_makes_the_same_traffic() {
        let key = |arrival: &Arrival| (arrival.at, arrival.conversation, arrival.turn);
        let (a, b, c) = (arrivals(1), arrivals(1), arrivals(2));
        assert!(a.iter().map(key).eq(b.iter().map(key)));
        assert!(!a.iter().map(key).eq(c.iter().map(key)));
        assert_eq!(a[999].chat.messages, b[999].chat.messages);
    }

    #[test]
    fn each_turn_continues_its_conversation() {
        let all = arrivals(3);
        let mut continued = 0;
        for (at, later) in all.iter().enumerate().filter(|(_, arrival)| 1 < arrival.turn) {
            let earlier = all[..at].iter().rfind(|a| a.conversation == later.conversation);
            let earlier = &earlier.map(|a| a.chat.messages.clone()).unwrap_or_default();
            assert!(!earlier.is_empty() && later.chat.messages.starts_with(earlier));
            assert_eq!(later.chat.messages.len(), earlier.len() + 2);
            continued += 1;
        }
        assert!(500 < continued);
    }

    #[test]
    fn bursts_come_regularly_and_conversations_share_system_prompts() {
        let all = arrivals(4);
        let within = |from, to| {
            let range = Duration::from_secs(from)..Duration::from_secs(to);
            all.iter().filter(|arrival| range.contains(&arrival.at)).count()
        };
        assert!(5 * within(20, 24) < within(30, 34));
        assert!(within(34, 38) * 5 < within(30, 34));
        let mut prompts: Vec<&str> = all.iter().map(|a| a.chat.messages[0].text.as_str()).collect();
        prompts.sort_unstable();
        prompts.dedup();
        assert_eq!(prompts.len(), 4);
    }
}
