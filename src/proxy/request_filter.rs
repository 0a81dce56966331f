//! From a client's head to a prompt: checks, body, model, prefix keys.

use super::body::{self, BodyError, Bounds};
use super::context::RequestContext;
use super::failure;
use super::front;
use super::head;
use super::reply::Refusal;
use crate::prompt::Dialect;
use crate::routing::{self, ReadError};
use http::HeaderName;
use pingora::Result;
use pingora_proxy::Session;
use std::sync::Arc;

pub(super) static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// `Ok(true)`: the edge has answered.
pub(super) async fn run(session: &mut Session, ctx: &mut RequestContext) -> Result<bool> {
    ctx.at_work = front::request_came(session);
    ctx.client = match &ctx.at_work {
        Some(at_work) => at_work.client(),
        None => front::client(session.client_addr()),
    };
    identify(session, ctx);
    set_client_limits(session, ctx);
    let refused = match prepare(session, ctx).await {
        Ok(()) => return answer_here(session, ctx).await,
        Err(BodyError::Refused(refusal)) => refusal,
        Err(BodyError::Client(error)) => return Err(error),
    };
    // What is left of the request on this connection was not read, or cannot be trusted.
    session.set_keepalive(None);
    failure::refuse(session, ctx, refused).await?;
    Ok(true)
}

/// A request id: the client's, or a new one.
fn identify(session: &Session, ctx: &mut RequestContext) {
    let given = session.get_header(&X_REQUEST_ID).and_then(|id| id.to_str().ok());
    ctx.request_id = match given {
        Some(id) if !id.is_empty() && id.len() <= 256 => id.to_owned(),
        Some(_) | None => new_request_id(),
    };
    let request = session.req_header();
    ctx.dialect = Dialect::classify(request.method.as_str(), request.uri.path());
}

pub(super) fn new_request_id() -> String {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    let bytes = fastrand::u128(..).to_be_bytes();
    let mut id = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            id.push(char::from(DIGITS[usize::from(digit)]));
        }
    }
    id
}

fn set_client_limits(session: &mut Session, ctx: &RequestContext) {
    let config = &ctx.running.config;
    session.set_write_timeout(Some(config.timeouts.client_stall));
    session.set_abort_on_close(config.http.half_close == crate::config::HalfClose::Abort);
    if ctx.state.is_leaving() {
        session.set_keepalive(None);
    }
}

async fn prepare(session: &mut Session, ctx: &mut RequestContext) -> Result<(), BodyError> {
    let running = Arc::clone(&ctx.running);
    let config = &running.config;
    head::check(session, config.limits.max_header_bytes).map_err(BodyError::Refused)?;
    let bounds = Bounds {
        max_body_bytes: config.limits.max_body_bytes,
        idle: config.timeouts.client_body_idle,
        room: &running.room,
    };
    ctx.body = body::read(session, bounds).await?;
    // Answered here, so it is no worker's business, and a worker's 100 is not the client's.
    session.req_header_mut().remove_header(&http::header::EXPECT);
    // Interim answers of workers are not passed on.
    session.set_ignore_info_resp(true);
    if ctx.dialect != Dialect::Models {
        read_prompt(session, ctx).map_err(BodyError::Refused)?;
    }
    Ok(())
}

/// The request goes on by the configuration in force, as if it had come with it. Kept is what it may
/// do as a client, and who failed it, if its model is still the same.
///
/// # Errors
/// That configuration has no model for it.
pub(super) fn renew(session: &mut Session, ctx: &mut RequestContext) -> Result<(), Refusal> {
    let before = ctx.model.fleet.clone();
    ctx.running = ctx.state.pin();
    read_prompt(session, ctx)?;
    let is_same = match (&ctx.model.fleet, &before) {
        (Some(now), Some(before)) => now.continues(before),
        (Some(_) | None, _) => false,
    };
    if !is_same {
        // Slots and turns are of a model.
        ctx.excluded.clear();
        ctx.turn = None;
    }
    Ok(())
}

/// Finds the model and what its index needs to know of the prompt.
fn read_prompt(session: &mut Session, ctx: &mut RequestContext) -> Result<(), Refusal> {
    let header = |name: &str| session.get_header(name).map(|value| value.as_bytes());
    let read = routing::read(&ctx.running, ctx.dialect, ctx.body.bytes(), header);
    let read = read.map_err(|error| match error {
        ReadError::Unknown(name) => Refusal::ModelNotFound(name),
        ReadError::Unnamed => {
            Refusal::BadRequest("the request names no model and there is no default model")
        }
        ReadError::Route(error) => Refusal::InvalidRoute(error.to_string()),
    })?;
    if let Some(fleet) = &read.model.fleet {
        session.set_write_timeout(Some(fleet.config.timeouts.client_stall));
    }
    ctx.model = read.model;
    ctx.query = read.query;
    ctx.streamed = read.streamed;
    ctx.pin = read.pin;
    Ok(())
}

/// `GET /v1/models`, which no worker needs to be asked.
async fn answer_here(session: &mut Session, ctx: &mut RequestContext) -> Result<bool> {
    if ctx.dialect != Dialect::Models {
        return Ok(false);
    }
    let path = session.req_header().uri.path().to_owned();
    match super::models::answer(&path, &ctx.running) {
        Ok(body) => failure::respond_json(session, ctx, http::StatusCode::OK, body).await?,
        Err(refusal) => failure::refuse(session, ctx, refusal).await?,
    }
    Ok(true)
}
