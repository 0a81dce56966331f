//! Pingora's side of the admin listener; the endpoints are in [`crate::admin`].

use crate::admin;
use crate::state::State;
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::{Request, Response, StatusCode};
use pingora::apps::http_app::ServeHttp;
use pingora::protocols::http::ServerSession;
use std::sync::Arc;

/// Most bytes of a request to the admin listener; a prompt to explain is the largest.
const MAX_BODY_BYTES: usize = 64 << 20;

/// Serves [`admin::respond`].
pub(super) struct AdminApp {
    state: Arc<State>,
}

impl AdminApp {
    pub(super) fn new(state: Arc<State>) -> Self {
        Self { state }
    }
}

#[async_trait]
impl ServeHttp for AdminApp {
    async fn response(&self, session: &mut ServerSession) -> Response<Vec<u8>> {
        match read_body(session).await {
            Ok(body) => {
                let head = session.req_header().as_owned_parts();
                admin::respond(&self.state, &Request::from_parts(head, body))
            }
            Err(status) => {
                admin::error(status, "bad_request", "the body cannot be read, or is too large")
            }
        }
    }
}

async fn read_body(session: &mut ServerSession) -> Result<Bytes, StatusCode> {
    let mut body = BytesMut::new();
    loop {
        match session.read_request_body().await {
            Ok(Some(piece)) if MAX_BODY_BYTES < body.len() + piece.len() => {
                return Err(StatusCode::PAYLOAD_TOO_LARGE);
            }
            Ok(Some(piece)) => body.extend_from_slice(&piece),
            Ok(None) => return Ok(body.freeze()),
            Err(_) => return Err(StatusCode::BAD_REQUEST),
        }
    }
}
