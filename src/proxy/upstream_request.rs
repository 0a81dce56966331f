//! What the worker gets: the client's headers less what is the edge's own business, and its bytes.

use super::context::RequestContext;
use super::failure;
use super::patience::Patience;
use super::reply::Refusal;
use super::route;
use crate::config::{Forwarded, UpstreamAuth};
use crate::routing::Choice;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, FORWARDED, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use pingora::Result;
use pingora::http::RequestHeader;
use pingora_proxy::Session;
use smallvec::SmallVec;
use std::os::fd::RawFd;
use std::time::Instant;

static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
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
pub(super) fn connected(connection: RawFd, ctx: &mut RequestContext) -> Result<()> {
    let first_byte = match &ctx.model.fleet {
        Some(fleet) => fleet.config.timeouts.first_byte,
        None => ctx.running.config.timeouts.first_byte,
    };
    match Patience::start(connection, first_byte) {
        Ok(patience) => {
            if let Some(attempt) = &mut ctx.attempt {
                attempt.patience = Some(patience);
            }
            Ok(())
        }
        Err(error) => {
            log::warn!("no descriptor to watch a worker's connection with: {error}");
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
    let illegible = (!request.raw_path_is_utf8() && request.raw_path().starts_with(b"/"))
        .then(|| request.raw_path().to_vec());
    // Only Pingora's own type knows how a client spelled its names, at the price of a second map. No
    // engine asks; an absolute target, which is for proxies, becomes a path on the way, too.
    let nothing = RequestHeader::from(http::Request::new(()).into_parts().0);
    let mut head = Parts::from(std::mem::replace(request, nothing));
    let edited = edit(session, &mut head.headers, ctx);
    edited.map_err(|_| failure::refusing(ctx, Refusal::Internal))?;
    *request = RequestHeader::from(head);
    if let Some(path) = illegible {
        request.set_raw_path(&path)?;
    }
    if let Some(attempt) = &mut ctx.attempt {
        attempt.unanswered_since = Some(Instant::now());
    }
    Ok(())
}

/// From the client's headers to the worker's.
fn edit(session: &Session, headers: &mut HeaderMap, ctx: &RequestContext) -> http::Result<()> {
    let worker = ctx.attempt.as_ref().map(|attempt| attempt.worker());
    let auth = worker.and_then(|worker| worker.config.upstream_auth.as_ref());
    remove_what_is_not_the_clients(headers, auth);
    if !says_once(headers, &X_REQUEST_ID, &ctx.request_id) {
        headers.insert(&X_REQUEST_ID, HeaderValue::from_str(&ctx.request_id)?);
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    if let (Some(length), Some(_)) = (lengths.next().cloned(), lengths.next()) {
        // The same length twice was let in; once says as much, and nobody can read it otherwise.
        headers.insert(CONTENT_LENGTH, length);
    }
    forwarded(session, headers, ctx)?;
    if let (Some(fleet), Some((_, Choice { route: Some(route), .. }))) =
        (&ctx.model.fleet, &ctx.routed)
    {
        for (name, value) in route::headers(fleet, route)? {
            headers.insert(name, value);
        }
    }
    if let Some(worker) = worker {
        headers.insert(HOST, HeaderValue::from_maybe_shared(worker.authority())?);
    }
    if let Some(auth) = auth {
        headers
            .insert(HeaderName::try_from(&auth.name)?, HeaderValue::from_str(auth.value.expose())?);
    }
    Ok(())
}

/// The edge's own names; its clients' credentials, where the worker has some from the edge; and what
/// an engine might take for a header the edge answers for, because servers of the CGI family read `_`
/// and `-` alike.
fn remove_what_is_not_the_clients(headers: &mut HeaderMap, auth: Option<&UpstreamAuth>) {
    let is_replaced = |name: &str| {
        let names = CREDENTIALS.iter().copied();
        auth.is_some_and(|auth| names.chain([auth.name.as_str()]).any(|one| reads(name, one)))
    };
    let is_forged =
        |name: &str| name.contains('_') && ANSWERED_FOR.iter().any(|one| reads(name, one));
    let is_removed = |name: &str| begins(name, OWN_PREFIX) || is_replaced(name) || is_forged(name);
    let names = headers.keys().filter(|name| is_removed(name.as_str()));
    let names: SmallVec<[HeaderName; 4]> = names.cloned().collect();
    for name in names {
        headers.remove(&name);
    }
}

/// Is the header there, once, with this value?
fn says_once(headers: &HeaderMap, name: &HeaderName, value: &str) -> bool {
    let mut values = headers.get_all(name).iter();
    values.next().is_some_and(|one| one == value) && values.next().is_none()
}

fn reads(name: &str, as_name: &str) -> bool {
    name.len() == as_name.len() && begins(name, as_name)
}

fn begins(name: &str, with: &str) -> bool {
    let read = |byte: u8| if byte == b'_' { b'-' } else { byte };
    let mut both = name.bytes().zip(with.bytes());
    with.len() <= name.len() && both.all(|(a, b)| read(a) == read(b))
}

fn forwarded(session: &Session, headers: &mut HeaderMap, ctx: &RequestContext) -> http::Result<()> {
    match ctx.running.config.http.forwarded {
        Forwarded::Off => return Ok(()),
        Forwarded::Set => {
            for name in [&X_FORWARDED_FOR, &X_FORWARDED_PROTO, &X_FORWARDED_HOST, &FORWARDED] {
                headers.remove(name);
            }
        }
        Forwarded::Append => {}
    }
    if let Some(client) = &ctx.client {
        let mut chain = String::new();
        for value in headers.get_all(&X_FORWARDED_FOR).iter().filter_map(|one| one.to_str().ok()) {
            chain.push_str(value);
            chain.push_str(", ");
        }
        chain.push_str(client);
        headers.insert(&X_FORWARDED_FOR, HeaderValue::from_maybe_shared(Bytes::from(chain))?);
    }
    if !headers.contains_key(&X_FORWARDED_PROTO) {
        let is_tls = session.digest().is_some_and(|digest| digest.ssl_digest.is_some());
        let proto = HeaderValue::from_static(if is_tls { "https" } else { "http" });
        headers.insert(&X_FORWARDED_PROTO, proto);
    }
    if !headers.contains_key(&X_FORWARDED_HOST)
        && let Some(host) = headers.get(HOST).cloned()
    {
        headers.insert(&X_FORWARDED_HOST, host);
    }
    Ok(())
}

/// The body; see [`super::body`].
pub(super) fn body(piece: &mut Option<Bytes>, ctx: &mut RequestContext) -> Result<()> {
    ctx.body.forward(piece).map_err(|refusal| failure::refusing(ctx, refusal))
}
