//! The HTTP interface of one simulated engine, in the manner of SGLang 0.5.

use super::answer::{Answer, Ask, Dialect};
use super::engine::Progress;
use super::live::{LiveEngine, Ticket};
use super::load_page;
use super::nodes::Pace;
use super::prompt::Prompt;
use super::server::{Fault, FleetConfig, LoadEndpoint};
use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;

/// The largest request body an engine reads.
const MAX_BODY_BYTES: usize = 256 << 20;

pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// One engine behind its address.
pub(super) struct Service {
    pub(super) live: Arc<LiveEngine>,
    pub(super) fault: Mutex<Fault>,
    pub(super) config: Arc<FleetConfig>,
}

impl Service {
    /// Answers one request. Dropped by the server when the client leaves, and with it the ticket.
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Infallible> {
        let fault = *self.fault.lock();
        if fault == Fault::Hang {
            return std::future::pending().await;
        }
        let path = request.uri().path();
        Ok(match Dialect::of_path(path) {
            Some(dialect) => match fault {
                Fault::Status(status) => error(status, "the engine was told to fail"),
                Fault::None | Fault::Hang => self.generate(dialect, request).await,
            },
            None => self.side_path(path),
        })
    }

    async fn generate(&self, dialect: Dialect, request: Request<Incoming>) -> Response<Body> {
        let route = request.headers().get("x-tidegate-route");
        let mut pace = match Pace::of(&self.config.nodes, route, self.live.clock()) {
            Ok(pace) => pace,
            Err(why) => return error(StatusCode::BAD_REQUEST, &format!("route: {why}")),
        };
        let body = request.into_body();
        let body = match Limited::new(body, MAX_BODY_BYTES).collect().await {
            Ok(body) => body.to_bytes(),
            Err(why) => return error(StatusCode::BAD_REQUEST, &why.to_string()),
        };
        let body: Value = match serde_json::from_slice(&body) {
            Ok(body) => body,
            Err(why) => return error(StatusCode::BAD_REQUEST, &why.to_string()),
        };
        let ask = Ask::of_body(dialect, &body);
        let block = self.live.config().block;
        let prompt = Prompt::of_body(&body, self.config.bytes_per_token, block);
        let prompt_tokens = prompt.tokens;
        let mut ticket = match self.live.submit(prompt, ask.output_tokens) {
            Ok(ticket) => ticket,
            Err(why) => return error(StatusCode::BAD_REQUEST, &why.to_string()),
        };
        let answer = Answer {
            id: format!("sim-{}", ticket.number()),
            model: ask.model.clone().unwrap_or_else(|| self.config.model.clone()),
            created: self.live.clock().now().as_secs(),
            prompt_tokens,
            bytes_per_token: self.config.bytes_per_token,
            ask,
        };
        if answer.ask.streams {
            let step = self.config.tokens_per_event;
            return stream_of(Stream { answer, ticket, pace, step, sent: 0 });
        }
        let Some(mut progress) = ticket.finished().await else {
            return error(StatusCode::INTERNAL_SERVER_ERROR, "the engine stopped");
        };
        if let Some(pace) = &mut pace {
            progress = pace.next(progress, 0, progress.generated).await;
        }
        reply(StatusCode::OK, answer.whole(progress))
    }

    fn side_path(&self, path: &str) -> Response<Body> {
        let document = match path {
            "/health" | "/health_generate" => return reply(StatusCode::OK, String::new()),
            "/flush_cache" => {
                self.live.flush_cache();
                return reply(StatusCode::OK, "Cache flushed.\n".to_owned());
            }
            "/v1/models" => json!({
                "object": "list",
                "data": [{"id": self.config.model, "object": "model", "owned_by": "simulated"}],
            }),
            "/get_server_info" => json!({
                "model_path": self.config.model,
                "dp_size": 1,
                "max_total_num_tokens": self.live.config().kv_tokens,
                "max_running_requests": self.live.config().max_running,
            }),
            "/get_load" if self.config.load_endpoint == LoadEndpoint::GetLoad => {
                self.live.inspect(load_page::get_load)
            }
            "/v1/loads" if self.config.load_endpoint == LoadEndpoint::V1Loads => {
                self.live.inspect(load_page::v1_loads)
            }
            _ => return error(StatusCode::NOT_FOUND, "no such path"),
        };
        reply(StatusCode::OK, document.to_string())
    }
}

/// A streamed answer and how far it is.
struct Stream {
    answer: Answer,
    ticket: Ticket,
    pace: Option<Pace>,
    /// Most tokens of an event that comes at a pace.
    step: u32,
    sent: u32,
}

impl Stream {
    /// The next tokens; `None` if the engine died.
    async fn next(&mut self) -> Option<Progress> {
        let progress = self.ticket.beyond(self.sent).await?;
        Some(match &mut self.pace {
            Some(pace) => pace.next(progress, self.sent, self.step).await,
            None => progress,
        })
    }
}

/// Events as tokens come; the end of the stream, or the client's leaving, drops the ticket.
fn stream_of(stream: Stream) -> Response<Body> {
    let frames = stream::unfold(Some(stream), |state| async {
        let mut state = state?;
        let Some(progress) = state.next().await else {
            let died = io::Error::other("the engine stopped");
            return Some((Err(died), None));
        };
        let events = Bytes::from(state.answer.events(state.sent, progress));
        state.sent = progress.generated;
        let next = (!progress.finished).then_some(state);
        Some((Ok(Frame::data(events)), next))
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/event-stream"));
    response
}

fn reply(status: StatusCode, document: String) -> Response<Body> {
    let body = Full::from(document).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

fn error(status: StatusCode, message: &str) -> Response<Body> {
    let code = status.as_u16();
    let document = json!({"object": "error", "message": message, "code": code});
    reply(status, document.to_string())
}
