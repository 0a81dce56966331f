//! The way out of every phase: is it tried again, and what is the client told?

use super::attempt::Attempt;
use super::context::RequestContext;
use super::reply::Refusal;
use crate::fleet::shortage;
use crate::metrics::{Outcome, RetryCause};
use http::StatusCode;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use pingora::http::ResponseHeader;
use pingora::{Error, ErrorSource, ErrorType, Result};
use pingora_proxy::{FailToProxy, Session};
use std::time::Duration;

/// How long a refused client may go on sending, and how long it may pause meanwhile.
pub(super) const LINGER: Duration = Duration::from_secs(5);
pub(super) const LINGER_IDLE: Duration = Duration::from_secs(1);

/// Ends the request with an answer of the edge; Pingora carries the error to [`answer`].
pub(super) fn refusing(ctx: &mut RequestContext, refusal: Refusal) -> Box<Error> {
    let status = refusal.status().as_u16();
    ctx.refusal = Some(refusal);
    Error::new(ErrorType::HTTPStatus(status))
}

/// No connection to the worker: nothing was sent, so another one may be asked.
pub(super) fn to_connect(mut error: Box<Error>, ctx: &mut RequestContext) -> Box<Error> {
    if shortage::is_ours(error.root_cause()) {
        return unable_to_connect(error, ctx);
    }
    if let Some(attempt) = ctx.attempt.take() {
        ctx.excluded.push(attempt.slot());
        if error.etype() == &ErrorType::ConnectRefused {
            attempt.worker().refused();
        }
        attempt.not_taken(Outcome::Unreachable);
    }
    let retry = ctx.may_retry();
    if retry {
        ctx.state.metrics.requests.retry(RetryCause::Connect);
    } else {
        ctx.refusal = Some(Refusal::WorkerUnreachable);
    }
    error.set_retry(retry);
    error
}

/// This machine has no descriptor left: no other worker would be reached either, and none is
/// at fault.
fn unable_to_connect(mut error: Box<Error>, ctx: &mut RequestContext) -> Box<Error> {
    if let Some(attempt) = ctx.attempt.take() {
        attempt.not_taken(Outcome::EdgeError);
    }
    ctx.refusal = Some(Refusal::Internal);
    error.set_retry(false);
    error
}

/// The exchange with the worker or with the client broke.
pub(super) fn while_proxying(
    mut error: Box<Error>,
    reused: bool,
    ctx: &mut RequestContext,
) -> Box<Error> {
    error.set_retry(false);
    let Some(attempt) = ctx.attempt.take() else { return error };
    if ctx.refusal.is_some() {
        // The edge itself gave up; nothing is held against the worker.
        attempt.not_taken(Outcome::EdgeError);
        return error;
    }
    if *error.esource() == ErrorSource::Downstream {
        let left = has_left(&error);
        ctx.answer.broken = Some(if left { Outcome::Cancelled } else { Outcome::ClientError });
        attempt.broken(Outcome::Cancelled);
        return error;
    }
    let waited_too_long = attempt.patience.as_ref().is_some_and(|patience| patience.has_ended());
    if reused && !waited_too_long && was_stale(&attempt, &error, ctx) {
        return if ctx.may_retry() {
            retry_stale(attempt, error, ctx)
        } else {
            unreachable(attempt, error, ctx)
        };
    }
    let (outcome, refusal) = match (waited_too_long, attempt.head_seen) {
        (true, false) => (Outcome::Timeout, Refusal::FirstByteTimeout),
        (true, true) => (Outcome::Timeout, Refusal::StreamIdleTimeout),
        (false, _) if is_timeout(&error) => (Outcome::Timeout, Refusal::FirstByteTimeout),
        (false, _) => (Outcome::WorkerError, Refusal::WorkerClosed),
    };
    ctx.answer.broken = Some(outcome);
    ctx.refusal = Some(refusal);
    attempt.broken(outcome);
    error
}

/// The client is gone, as opposed to one that sent what is no HTTP.
fn has_left(error: &Error) -> bool {
    *error.esource() == ErrorSource::Downstream
        && matches!(
            error.etype(),
            ErrorType::WriteError
                | ErrorType::WriteTimedout
                | ErrorType::ReadError
                | ErrorType::ReadTimedout
                | ErrorType::ConnectionClosed
                // A stream that was reset.
                | ErrorType::H2Error
        )
}

/// A pooled connection the worker had closed: no byte of an answer, and closed or reset so soon
/// after the write that it cannot have begun to work.
fn was_stale(attempt: &Attempt, error: &Error, ctx: &RequestContext) -> bool {
    let window = ctx.model.fleet.as_ref().map(|fleet| fleet.config.retries.stale_window);
    let elapsed = attempt.unanswered_since.map(|at| at.elapsed());
    was_closed(error)
        && *error.esource() == ErrorSource::Upstream
        && matches!((elapsed, window), (Some(elapsed), Some(window)) if elapsed <= window)
}

/// Closed or reset before the first byte of an answer.
fn was_closed(error: &Error) -> bool {
    match error.etype() {
        ErrorType::WriteError => true,
        // Only the text of Pingora's error tells a head that was cut from one that never began.
        ErrorType::ConnectionClosed | ErrorType::ReadError => {
            let context = error.context.as_ref().map_or("", |context| context.as_str());
            !context.contains(BYTES_READ) || context.ends_with(NO_BYTES_READ)
        }
        _ => false,
    }
}

const BYTES_READ: &str = "bytes already read: ";
const NO_BYTES_READ: &str = "bytes already read: 0";

fn is_timeout(error: &Error) -> bool {
    matches!(error.etype(), ErrorType::ReadTimedout | ErrorType::WriteTimedout)
}

/// The worker itself is not at fault, and may be chosen again over a new connection.
fn retry_stale(attempt: Attempt, mut error: Box<Error>, ctx: &mut RequestContext) -> Box<Error> {
    attempt.stale();
    ctx.state.metrics.requests.retry(RetryCause::StaleConnection);
    error.set_retry(true);
    error
}

fn unreachable(attempt: Attempt, error: Box<Error>, ctx: &mut RequestContext) -> Box<Error> {
    attempt.stale();
    ctx.refusal = Some(Refusal::WorkerUnreachable);
    error
}

/// The final error: tells the client, unless an answer has begun or nobody listens.
pub(super) async fn answer(
    session: &mut Session,
    error: &Error,
    ctx: &mut RequestContext,
) -> FailToProxy {
    if has_left(error) {
        ctx.answer.broken.get_or_insert(Outcome::Cancelled);
        return FailToProxy { error_code: 0, can_reuse_downstream: false };
    }
    let refusal = ctx.refusal.take().unwrap_or(match error.esource() {
        ErrorSource::Downstream => Refusal::BadRequest("the request is not valid HTTP"),
        ErrorSource::Upstream => Refusal::WorkerClosed,
        ErrorSource::Internal | ErrorSource::Unset => Refusal::Internal,
    });
    if refusal == Refusal::Internal {
        log::error!("request {}: {error}", ctx.request_id);
    }
    let status = refusal.status().as_u16();
    let begun = session.response_written().is_some_and(|head| !head.status.is_informational());
    // Pingora closes the connection after an error, and so says the answer.
    session.set_keepalive(None);
    if begun {
        ctx.refusal = Some(refusal);
    } else if let Err(error) = refuse(session, ctx, refusal).await {
        log::debug!("request {}: the client left before its answer: {error}", ctx.request_id);
    }
    FailToProxy { error_code: status, can_reuse_downstream: false }
}

/// Sends the edge's own answer and remembers it.
pub(super) async fn refuse(
    session: &mut Session,
    ctx: &mut RequestContext,
    refusal: Refusal,
) -> Result<()> {
    let (status, body) = (refusal.status(), refusal.body());
    ctx.refusal = Some(refusal);
    respond_json(session, ctx, status, body).await?;
    hear_out(session).await;
    Ok(())
}

/// Reads on for a moment what an HTTP/1 client still sends of its body: a connection that is
/// closed with bytes unread is reset, and many a client then never sees the answer.
async fn hear_out(session: &mut Session) {
    if session.is_http2() {
        return;
    }
    session.set_read_timeout(Some(LINGER_IDLE));
    let rest = async { while let Ok(Some(_)) = session.read_request_body().await {} };
    // Whoever sends for longer is cut off.
    let _ = tokio::time::timeout(LINGER, rest).await;
}

/// Not sooner than `wait`.
fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(0 < wait.subsec_nanos())
}

/// Sends a JSON body of the edge.
pub(super) async fn respond_json(
    session: &mut Session,
    ctx: &mut RequestContext,
    status: StatusCode,
    body: Vec<u8>,
) -> Result<()> {
    let mut head = ResponseHeader::build(status, Some(5))?;
    head.insert_header(CONTENT_TYPE, "application/json")?;
    head.insert_header(CONTENT_LENGTH, body.len())?;
    head.insert_header("x-request-id", ctx.request_id.as_str())?;
    if let Some(wait) = ctx.refusal.as_ref().and_then(Refusal::retry_after) {
        head.insert_header(RETRY_AFTER, whole_seconds(wait))?;
    }
    ctx.answer.status = status.as_u16();
    session.set_ignore_info_resp(false);
    session.write_response_header(Box::new(head), false).await?;
    session.write_response_body(Some(body.into()), true).await
}
