//! What the worker gets: the client's headers less what is the edge's own business, and its bytes.

use super::context::RequestContext;
use super::failure;
use super::line::Control;
use super::patience::{Patience, Watch};
use super::reply::Refusal;
use super::request_filter::X_REQUEST_ID;
use super::route;
use crate::config::{Forwarded, UpstreamAuth};
use crate::routing::Choice;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, FORWARDED};
use http::{HeaderName, HeaderValue};
use pingora::Result;
use pingora::http::RequestHeader;
use pingora::protocols::Digest;
use pingora_proxy::Session;
use smallvec::SmallVec;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Instant;

// Looked up by their hashes; Pingora takes a name to insert as it is to be spelled.
static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
static X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

const OWN_PREFIX: &str = "x-tidegate-";

/// Where clients' libraries put their keys: OpenAI's, Anthropic's, Azure's.
const CREDENTIALS: [&str; 3] = ["authorization", "x-api-key", "api-key"];

/// How a request is framed, which one it is, who sent it.
const ANSWERED_FOR: [&str; 6] = [
    "content-length",
    "transfer-encoding",
    "x-request-id",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
];

/// A connection to the worker is there, new or pooled.
pub(super) fn connected(
    connection: RawFd,
    digest: Option<&Digest>,
    ctx: &mut RequestContext,
) -> Result<()> {
    let first_byte = match &ctx.model.fleet {
        Some(fleet) => fleet.config.timeouts.first_byte,
        None => ctx.running.config.timeouts.first_byte,
    };
    let control = Control::of(digest);
    if let Some(control) = control {
        control.request(ctx.body.is_at_hand());
    }
    let watch = control.map(|control| Arc::clone(control.watch()));
    match watch.map_or_else(|| Watch::over(connection), Ok) {
        Ok(watch) => {
            if let Some(attempt) = &mut ctx.attempt {
                attempt.patience = Some(Patience::start(watch, first_byte));
            }
            Ok(())
        }
        Err(error) => {
            log::warn!("a worker's connection cannot be watched: {error}");
            Err(failure::refusing(ctx, Refusal::Internal))
        }
    }
}

/// The head.
pub(super) fn headers(
    session: &Session,
    request: &mut RequestHeader,
    ctx: &mut RequestContext,
) -> Result<()> {
    ctx.body.rewind();
    let worker = ctx.attempt.as_ref().map(|attempt| Arc::clone(attempt.worker()));
    let auth = worker.as_ref().and_then(|worker| worker.config.upstream_auth.as_ref());
    remove_what_is_not_the_clients(request, auth);
    if !request.raw_path().starts_with(b"/") && request.uri.path().starts_with('/') {
        // An absolute target is for proxies; an engine is none, and whose it is says `Host`.
        request.set_uri(request.uri.clone());
    }
    if !says_once(request, &X_REQUEST_ID, &ctx.request_id) {
        request.insert_header("x-request-id", ctx.request_id.as_str())?;
    }
    let is_any_repeated = request.headers.keys_len() < request.headers.len();
    if is_any_repeated {
        let mut lengths = request.headers.get_all(CONTENT_LENGTH).iter();
        if let (Some(length), Some(_)) = (lengths.next().cloned(), lengths.next()) {
            // The same length twice was let in; once says as much, and nobody can read it otherwise.
            request.insert_header(CONTENT_LENGTH, length)?;
        }
    }
    forwarded(session, request, ctx)?;
    if let (Some(fleet), Some((_, Choice { route: Some(route), .. }))) =
        (&ctx.model.fleet, &ctx.routed)
    {
        let told = route::headers(fleet, route);
        let told = told.map_err(|_| failure::refusing(ctx, Refusal::Internal))?;
        for (name, value) in told {
            request.insert_header(name, value)?;
        }
    }
    if let Some(worker) = &worker {
        request.insert_header(http::header::HOST, worker.authority())?;
    }
    if let Some(auth) = auth {
        request.insert_header(auth.name.clone(), auth.value.expose())?;
    }
    if let Some(attempt) = &mut ctx.attempt {
        attempt.unanswered_since = Some(Instant::now());
    }
    Ok(())
}

/// The edge's own names; its clients' credentials, where the worker has some from the edge; and what
/// an engine might take for a header the edge answers for, because servers of the CGI family read `_`
/// and `-` alike.
fn remove_what_is_not_the_clients(request: &mut RequestHeader, auth: Option<&UpstreamAuth>) {
    let is_replaced = |name: &str| {
        let names = CREDENTIALS.iter().copied();
        auth.is_some_and(|auth| names.chain([auth.name.as_str()]).any(|one| reads(name, one)))
    };
    let is_forged =
        |name: &str| has_underscore(name) && ANSWERED_FOR.iter().any(|one| reads(name, one));
    let is_removed = |name: &str| begins(name, OWN_PREFIX) || is_replaced(name) || is_forged(name);
    let names = request.headers.keys().filter(|name| is_removed(name.as_str()));
    let names: SmallVec<[HeaderName; 4]> = names.cloned().collect();
    for name in names {
        request.remove_header(&name);
    }
}

/// Is the header there, once, with this value?
fn says_once(request: &RequestHeader, name: &HeaderName, value: &str) -> bool {
    let mut values = request.headers.get_all(name).iter();
    values.next().is_some_and(|one| one == value) && values.next().is_none()
}

/// Names are short: looking at byte by byte beats a search that first sets itself up.
fn has_underscore(name: &str) -> bool {
    name.bytes().any(|byte| byte == b'_')
}

fn reads(name: &str, as_name: &str) -> bool {
    name.len() == as_name.len() && begins(name, as_name)
}

fn begins(name: &str, with: &str) -> bool {
    let read = |byte: u8| if byte == b'_' { b'-' } else { byte };
    let mut both = name.bytes().zip(with.bytes());
    with.len() <= name.len() && both.all(|(a, b)| read(a) == read(b))
}

fn forwarded(session: &Session, request: &mut RequestHeader, ctx: &RequestContext) -> Result<()> {
    match ctx.running.config.http.forwarded {
        Forwarded::Off => return Ok(()),
        Forwarded::Set => {
            for name in [&X_FORWARDED_FOR, &X_FORWARDED_PROTO, &X_FORWARDED_HOST, &FORWARDED] {
                request.remove_header(name);
            }
        }
        Forwarded::Append => {}
    }
    if let Some(client) = &ctx.client {
        let before = request.headers.get_all(&X_FORWARDED_FOR).iter();
        let mut chain = String::new();
        for value in before.filter_map(|value| value.to_str().ok()) {
            chain.push_str(value);
            chain.push_str(", ");
        }
        chain.push_str(client);
        request.insert_header("x-forwarded-for", chain)?;
    }
    if !request.headers.contains_key(&X_FORWARDED_PROTO) {
        let is_tls = session.digest().is_some_and(|digest| digest.ssl_digest.is_some());
        let proto = HeaderValue::from_static(if is_tls { "https" } else { "http" });
        request.insert_header("x-forwarded-proto", proto)?;
    }
    if !request.headers.contains_key(&X_FORWARDED_HOST)
        && let Some(host) = request.headers.get(http::header::HOST).cloned()
    {
        request.insert_header("x-forwarded-host", host)?;
    }
    Ok(())
}

/// The body; see [`super::body`].
pub(super) fn body(piece: &mut Option<Bytes>, ctx: &mut RequestContext) -> Result<()> {
    ctx.body.forward(piece).map_err(|refusal| failure::refusing(ctx, refusal))
}
