//! The worker's answer on its way to the client: passed on as it comes, read on the side.

use super::context::RequestContext;
use super::request_filter::X_REQUEST_ID;
use crate::prompt::usage::UsageReader;
use crate::routing::Choice;
use http::header::{CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue};
use pingora::http::ResponseHeader;
use pingora::{Error, ErrorType, Result};
use pingora_proxy::Session;
use smallvec::SmallVec;
use std::time::{Duration, Instant};

/// The head as the worker sent it.
///
/// # Errors
/// It is none that may answer this request.
pub(super) fn head_from_worker(
    session: &mut Session,
    answer: &ResponseHeader,
    ctx: &mut RequestContext,
) -> Result<()> {
    let is_switch = answer.status == http::StatusCode::SWITCHING_PROTOCOLS;
    if answer.status.is_informational() && !is_switch {
        if let Some(attempt) = &mut ctx.attempt {
            attempt.unanswered_since = None;
        }
        return Ok(());
    }
    if is_switch && !session.is_upgrade_req() {
        // To the client it would be the beginning of something it never asked for.
        return Err(Error::explain(ErrorType::InvalidHTTPHeader, "an upgrade of its own").into_up());
    }
    renew_patience(ctx);
    if let Some(attempt) = &mut ctx.attempt {
        attempt.answered(answer.status.as_u16());
    }
    ctx.body.release();
    ctx.answer.status = answer.status.as_u16();
    if answer.status.is_success() && ctx.dialect.has_prompt() {
        let header =
            |name| answer.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let reader = UsageReader::new(header(CONTENT_TYPE), header(CONTENT_ENCODING), ctx.dialect);
        ctx.answer.usage = Some(reader);
    }
    if ctx.state.is_leaving() {
        session.set_keepalive(None);
    }
    Ok(())
}

/// The head as the client gets it.
pub(super) fn head_to_client(
    session: &mut Session,
    answer: &mut ResponseHeader,
    ctx: &RequestContext,
) -> Result<()> {
    if answer.status.is_informational() {
        return Ok(());
    }
    remove_hop_by_hop(answer);
    if session.req_header().version < http::Version::HTTP_11
        && answer.remove_header(&TRANSFER_ENCODING).is_some()
    {
        // Such a client knows no chunks: the end of the connection is the end of the body.
        session.set_keepalive(None);
    }
    if !answer.headers.contains_key(&X_REQUEST_ID) {
        answer.insert_header("x-request-id", ctx.request_id.as_str())?;
    }
    if !ctx.running.config.http.response_headers {
        return Ok(());
    }
    if let Some((fleet, Choice { decision, .. })) = &ctx.routed {
        let reason = HeaderValue::from_static(decision.reason.as_str());
        answer.insert_header("x-tidegate-decision", reason)?;
        answer.insert_header("x-tidegate-worker", fleet.workers()[decision.at].id.as_str())?;
    }
    Ok(())
}

/// What the worker said of its own connection, not of its answer. `Connection` and
/// `Transfer-Encoding` themselves are Pingora's, which sets them anew.
fn remove_hop_by_hop(answer: &mut ResponseHeader) {
    let nominated = answer.headers.get_all(CONNECTION);
    let is_nominated = |name: &HeaderName| {
        let values = nominated.iter().filter_map(|value| value.to_str().ok());
        let mut names = values.flat_map(|value| value.split(','));
        names.any(|one| one.trim().eq_ignore_ascii_case(name.as_str()))
            && ![CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING].contains(name)
    };
    let is_removed = |name: &&HeaderName| HOP_BY_HOP.contains(&name.as_str()) || is_nominated(name);
    let removed: SmallVec<[HeaderName; 4]> =
        answer.headers.keys().filter(is_removed).cloned().collect();
    for name in removed {
        answer.remove_header(&name);
    }
}

const HOP_BY_HOP: [&str; 6] =
    ["keep-alive", "proxy-connection", "proxy-authenticate", "te", "trailer", "upgrade"];

/// A piece of the body.
pub(super) fn piece(piece: Option<&[u8]>, end: bool, ctx: &mut RequestContext) {
    renew_patience(ctx);
    let answer = &mut ctx.answer;
    if let (Some(usage), Some(piece)) = (&mut answer.usage, piece) {
        usage.push(piece);
    }
    let has_content = answer.usage.as_ref().is_some_and(|usage| 0 < usage.content_events());
    let is_first = has_content && answer.first_content.is_none();
    if !is_first && !end {
        return;
    }
    let now = Instant::now();
    if is_first {
        answer.first_content = Some(now.saturating_duration_since(ctx.started));
        if let Some(attempt) = &mut ctx.attempt {
            attempt.first_content();
        }
    }
    if end {
        answer.complete = Some(now);
        // The connection goes back to the pool next; it is no longer this request's to end.
        if let Some(attempt) = &mut ctx.attempt {
            attempt.patience = None;
        }
    }
}

fn renew_patience(ctx: &RequestContext) {
    let idle: Duration = match &ctx.model.fleet {
        Some(fleet) => fleet.config.timeouts.stream_idle,
        None => return,
    };
    if let Some(patience) = ctx.attempt.as_ref().and_then(|attempt| attempt.patience.as_ref()) {
        patience.renew(idle);
    }
}
