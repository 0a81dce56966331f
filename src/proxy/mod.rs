//! The edge as Pingora's `ProxyHttp`: one file per phase, in the order a request passes them.
//!
//! `front` (seat, deadline for the head) → `request_filter` (`head`, `body`, prompt) → `upstream_peer`
//! (decision, dispatch, `waiting` in the model's queue) → `upstream_request` (headers, replay) → `response` (answer, read on the
//! side) → `observe` (booked once). `failure` is the way out of every phase; `reply` says it to
//! the client. What is no request never gets that far: `handshake`, `wire`.
//! `line` is a worker's connection, as `wire` is a client's.

#[macro_use]
mod layer;

mod attempt;
mod body;
mod context;
mod failure;
mod front;
mod handshake;
mod hang_up;
mod head;
mod kept;
mod line;
mod models;
mod observe;
mod patience;
mod reply;
mod request_filter;
mod response;
mod route;
mod seats;
mod upstream_peer;
mod upstream_request;
mod waiting;
mod wire;

pub use context::RequestContext;
pub use front::{FrontDoor, TlsDoor};
pub use seats::Seats;

use self::line::BY_LINE;
use crate::state::State;
use async_trait::async_trait;
use bytes::Bytes;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::Digest;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, Result};
use pingora_proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

/// The edge. Put it behind Pingora's `http_proxy` in a server of your own, or let
/// [`crate::boot`] do that.
#[derive(Clone, Debug)]
pub struct Edge {
    state: Arc<State>,
    has_lines: bool,
}

impl Edge {
    /// The edge over `state`; background tasks are the caller's, see [`crate::fleet::run`].
    pub fn new(state: Arc<State>) -> Self {
        Self { state, has_lines: false }
    }

    /// The same, in a proxy whose connector is [`line::Lines`].
    fn on_lines(self) -> Self {
        Self { has_lines: true, ..self }
    }

    pub(crate) fn client_idle(&self) -> Duration {
        self.state.running().config.timeouts.client_idle
    }
}

#[async_trait]
impl ProxyHttp for Edge {
    /// Boxed: Pingora's futures hold it one in another, and are moved whole.
    type CTX = Box<RequestContext>;

    fn new_ctx(&self) -> Self::CTX {
        Box::new(RequestContext::new(Arc::clone(&self.state)))
    }

    async fn request_filter(&self, session: &mut Session, ctx: &mut Self::CTX) -> Result<bool> {
        request_filter::run(session, ctx).await
    }

    async fn upstream_peer(
        &self,
        session: &mut Session,
        ctx: &mut Self::CTX,
    ) -> Result<Box<HttpPeer>> {
        let mut peer = upstream_peer::choose(session, ctx).await?;
        if self.has_lines && !peer.is_tls() {
            peer.options.alpn = BY_LINE.clone();
        }
        Ok(peer)
    }

    async fn connected_to_upstream(
        &self,
        _session: &mut Session,
        _reused: bool,
        _peer: &HttpPeer,
        connection: RawFd,
        digest: Option<&Digest>,
        ctx: &mut Self::CTX,
    ) -> Result<()> {
        upstream_request::connected(connection, digest, ctx)
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        request: &mut RequestHeader,
        ctx: &mut Self::CTX,
    ) -> Result<()> {
        upstream_request::headers(session, request, ctx)
    }

    async fn request_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        _end_of_stream: bool,
        ctx: &mut Self::CTX,
    ) -> Result<()> {
        upstream_request::body(body, ctx)
    }

    async fn upstream_response_filter(
        &self,
        session: &mut Session,
        answer: &mut ResponseHeader,
        ctx: &mut Self::CTX,
    ) -> Result<()> {
        response::head_from_worker(session, answer, ctx)
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        answer: &mut ResponseHeader,
        ctx: &mut Self::CTX,
    ) -> Result<()> {
        response::head_to_client(session, answer, ctx)
    }

    fn upstream_response_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        end_of_stream: bool,
        ctx: &mut Self::CTX,
    ) -> Result<Option<Duration>> {
        response::piece(body.as_deref(), end_of_stream, ctx);
        Ok(None)
    }

    fn fail_to_connect(
        &self,
        _session: &mut Session,
        _peer: &HttpPeer,
        ctx: &mut Self::CTX,
        error: Box<Error>,
    ) -> Box<Error> {
        failure::to_connect(error, ctx)
    }

    fn error_while_proxy(
        &self,
        _peer: &HttpPeer,
        _session: &mut Session,
        error: Box<Error>,
        ctx: &mut Self::CTX,
        reused: bool,
    ) -> Box<Error> {
        failure::while_proxying(error, reused, ctx)
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        ctx: &mut Self::CTX,
    ) -> FailToProxy {
        failure::answer(session, error, ctx).await
    }

    fn suppress_error_log(&self, _session: &Session, _ctx: &Self::CTX, _error: &Error) -> bool {
        // The access log has each request's outcome; Pingora's line would name worker addresses
        // once per request while a worker is down.
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _session: &Session,
        _ctx: &Self::CTX,
        _error: &Error,
        _context: ProxyWarnLogContext,
    ) -> bool {
        true
    }

    async fn logging(&self, _session: &mut Session, _error: Option<&Error>, ctx: &mut Self::CTX) {
        observe::request_ended(ctx);
    }
}
