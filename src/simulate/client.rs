//! A chat client that measures: time to first token, cached tokens, and where the edge sent it.

use super::clock::Clock;
use bytes::{Bytes, BytesMut};
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;
use thiserror::Error;

/// Longest event kept while its end has not come.
const MAX_EVENT_BYTES: usize = 1 << 20;

/// Sends streamed chat completions to one address. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ChatClient {
    http: Client<HttpConnector, Full<Bytes>>,
    target: SocketAddr,
    clock: Clock,
    timeout: Duration,
}

/// One message of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: &'static str,
    /// Its text.
    pub text: String,
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Chat {
    /// The model, or an alias.
    pub model: String,
    /// The prompt.
    pub messages: Vec<Message>,
    /// How many tokens to generate.
    pub output_tokens: u32,
}

/// How one request went. Times are simulated.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Why there is no whole answer, if there is none.
    pub failure: Option<Failure>,
    /// Header `x-tidegate-decision`.
    pub decision: Option<String>,
    /// Header `x-tidegate-worker`.
    pub worker: Option<String>,
    /// From sending to the first byte of a good answer's body.
    pub first_token: Option<Duration>,
    /// From sending to the end.
    pub total: Duration,
    /// Prompt tokens by the engine's count.
    pub prompt_tokens: u64,
    /// Those of them that were reused.
    pub cached_tokens: u64,
}

impl Outcome {
    /// Of a request whose task ended early.
    pub(super) fn lost() -> Self {
        Self { failure: Some(Failure::Lost), ..Self::default() }
    }
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// No answer, or a broken one.
    #[error("connection: {0}")]
    Connection(String),
    /// An answer that is no 2xx.
    #[error("status {0}")]
    Status(StatusCode),
    /// The stream ended before its `[DONE]`.
    #[error("the stream was cut")]
    Cut,
    /// The task that sent it ended early.
    #[error("the client gave up")]
    Lost,
    /// Not done in time.
    #[error("no end within the time allowed")]
    Timeout,
}

#[derive(Deserialize)]
struct Event {
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Usage {
    #[serde(default)]
    prompt_tokens: u64,
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default)]
    cached_tokens: u64,
}

impl ChatClient {
    /// A client of `target`; a request is given up after `timeout` of wall time.
    pub fn new(target: SocketAddr, clock: Clock, timeout: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self {
            http: Client::builder(TokioExecutor::new()).build(connector),
            target,
            clock,
            timeout,
        }
    }

    /// Sends one request and reads its answer to the end.
    pub async fn send(&self, chat: &Chat) -> Outcome {
        let sent = self.clock.now();
        let mut outcome = Outcome::default();
        let exchange = self.exchange(chat, sent, &mut outcome);
        let failure = match tokio::time::timeout(self.timeout, exchange).await {
            Ok(Ok(())) => None,
            Ok(Err(failure)) => Some(failure),
            Err(_) => Some(Failure::Timeout),
        };
        outcome.failure = failure;
        outcome.total = self.clock.now().saturating_sub(sent);
        outcome
    }

    async fn exchange(
        &self,
        chat: &Chat,
        sent: Duration,
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        let request = Request::post(format!("http://{}/v1/chat/completions", self.target))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(chat.body()))
            .map_err(broken)?;
        let response = self.http.request(request).await.map_err(broken)?;
        outcome.decision = header_text(&response, "x-tidegate-decision");
        outcome.worker = header_text(&response, "x-tidegate-worker");
        if !response.status().is_success() {
            let status = response.status();
            // Read to the end, so that the connection can be used again.
            let _ = response.into_body().collect().await;
            return Err(Failure::Status(status));
        }
        let mut body = response.into_body();
        let mut events = Events::default();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(broken)?.into_data() else {
                continue;
            };
            if outcome.first_token.is_none() && !data.is_empty() {
                outcome.first_token = Some(self.clock.now().saturating_sub(sent));
            }
            events.read(&data, outcome);
        }
        if events.done { Ok(()) } else { Err(Failure::Cut) }
    }
}

impl Chat {
    fn body(&self) -> String {
        let message = |message: &Message| json!({"role": message.role, "content": message.text});
        json!({
            "model": self.model,
            "messages": self.messages.iter().map(message).collect::<Vec<_>>(),
            "max_tokens": self.output_tokens,
            "stream": true,
            "stream_options": {"include_usage": true},
        })
        .to_string()
    }
}

/// Reads server-sent events across any cut of the network.
#[derive(Default)]
struct Events {
    pending: BytesMut,
    done: bool,
}

impl Events {
    fn read(&mut self, data: &[u8], outcome: &mut Outcome) {
        self.pending.extend_from_slice(data);
        while let Some(end) = memchr::memmem::find(&self.pending, b"\n\n") {
            let event = self.pending.split_to(end + 2);
            self.event(event.strip_prefix(b"data: ").unwrap_or_default(), outcome);
        }
        if MAX_EVENT_BYTES < self.pending.len() {
            self.pending.clear();
        }
    }

    fn event(&mut self, data: &[u8], outcome: &mut Outcome) {
        if data.trim_ascii() == b"[DONE]" {
            self.done = true;
        }
        // Most events are text; only those with counts are worth parsing.
        if memchr::memmem::find(data, b"\"usage\"").is_none() {
            return;
        }
        if let Ok(Event { usage: Some(usage) }) = serde_json::from_slice(data) {
            outcome.prompt_tokens = usage.prompt_tokens;
            outcome.cached_tokens = usage.prompt_tokens_details.map_or(0, |d| d.cached_tokens);
        }
    }
}

fn broken(error: impl std::error::Error) -> Failure {
    Failure::Connection(match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    })
}

fn header_text(response: &Response<Incoming>, name: &str) -> Option<String> {
    let value = response.headers().get(name)?;
    value.to_str().ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_across_any_cut() {
        let stream = b"data: {\"choices\":[]}\n\ndata: {\"usage\":{\"prompt_tokens\":90,\
            \"prompt_tokens_details\":{\"cached_tokens\":64}}}\n\ndata: [DONE]\n\n";
        for cut in 0..stream.len() {
            let (mut events, mut outcome) = (Events::default(), Outcome::default());
            events.read(&stream[..cut], &mut outcome);
            assert!(!events.done);
            events.read(&stream[cut..], &mut outcome);
            assert!(events.done);
            assert_eq!((outcome.prompt_tokens, outcome.cached_tokens), (90, 64));
        }
    }

    #[test]
    fn bytes_that_are_no_events_are_passed_over_in_bounded_memory() {
        let (mut events, mut outcome) = (Events::default(), Outcome::default());
        for _ in 0..5 {
            events.read(&[0xff; 1 << 19], &mut outcome);
            assert!(events.pending.len() <= MAX_EVENT_BYTES);
        }
        events.read(b"data: {\"usage\":[}\n\n", &mut outcome);
        assert!(!events.done);
        assert_eq!(outcome.prompt_tokens, 0);
    }
}
