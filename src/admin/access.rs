//! Who may ask.
//!
//! With a token: whoever has it. Without one the listener is on loopback, where the danger is a web
//! page in the operator's own browser: it is told apart by the headers a browser cannot leave out
//! (`Origin`, `Sec-Fetch-Site`), and a page that had its own name resolve to this address (DNS
//! rebinding) by the name in `Host`.

use super::answer::Answer;
use crate::config::{Address, Admin};
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName};
use http::uri::Authority;
use http::{Method, Request, StatusCode};
use std::hint::black_box;
use std::net::IpAddr;

/// Why a request is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// Not the token, or none.
    Token,
    /// From another site's page.
    CrossSite,
    /// Asked by a name this listener does not have.
    Host,
}

impl Denied {
    pub(super) fn answer(self) -> Answer {
        match self {
            Self::Token => {
                let message = "this listener needs `Authorization: Bearer <token>`";
                Answer::error(StatusCode::UNAUTHORIZED, "unauthorized", message)
                    .with(header::WWW_AUTHENTICATE, "Bearer realm=\"tidegate\"")
            }
            Self::CrossSite => Answer::error(
                StatusCode::FORBIDDEN,
                "cross_site",
                "requests from other sites are refused",
            ),
            Self::Host => {
                let message = "without a token, ask by address or as `localhost`";
                Answer::error(StatusCode::FORBIDDEN, "foreign_host", message)
            }
        }
    }
}

/// May this request be answered?
pub(super) fn check(admin: &Admin, request: &Request<Bytes>) -> Result<(), Denied> {
    let host = host(request);
    if is_cross_site(request, host.as_ref()) {
        return Err(Denied::CrossSite);
    }
    match &admin.token {
        Some(token) if is_same(bearer(request.headers()), token.expose()) => Ok(()),
        Some(_) => Err(Denied::Token),
        None if is_own_name(admin, host.as_ref()) => Ok(()),
        None => Err(Denied::Host),
    }
}

/// A page of another site asks. Following a link to here is allowed, as it only shows something to
/// the operator.
fn is_cross_site(request: &Request<Bytes>, host: Option<&Host>) -> bool {
    let headers = request.headers();
    let is_read = request.method() == Method::GET || request.method() == Method::HEAD;
    const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
    const MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
    let is_link = is_read && headers.get(MODE).is_some_and(|mode| mode == "navigate");
    let is_ours = |site: &http::HeaderValue| site == "same-origin" || site == "none";
    if headers.get_all(SITE).iter().any(|site| !is_ours(site)) && !is_link {
        return true;
    }
    headers.get_all(header::ORIGIN).iter().any(|origin| !is_origin(origin.to_str().ok(), host))
}

/// Is it the origin of a page this listener sent?
fn is_origin(origin: Option<&str>, host: Option<&Host>) -> bool {
    let (Some(origin), Some(Host::Named(host))) = (origin, host) else { return false };
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host.as_str()))
}

/// Whom the request is addressed to.
#[derive(Debug)]
enum Host {
    Named(Authority),
    Unreadable,
}

/// `None`: it does not say, which no browser does.
fn host(request: &Request<Bytes>) -> Option<Host> {
    if let Some(authority) = request.uri().authority() {
        return Some(Host::Named(authority.clone()));
    }
    let host = request.headers().get(header::HOST)?;
    Some(Authority::try_from(host.as_bytes()).map_or(Host::Unreadable, Host::Named))
}

/// A name no one else can make resolve to here.
fn is_own_name(admin: &Admin, host: Option<&Host>) -> bool {
    if let Address::Unix(_) = admin.address {
        return true;
    }
    match host {
        None => true,
        Some(Host::Unreadable) => false,
        Some(Host::Named(authority)) => {
            let name = authority.host();
            let literal = name.trim_start_matches('[').trim_end_matches(']');
            name.eq_ignore_ascii_case("localhost") || literal.parse::<IpAddr>().is_ok()
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Takes as long for a wrong token as for a right one of the same length.
fn is_same(given: Option<&str>, token: &str) -> bool {
    let (given, token) = (given.unwrap_or_default().as_bytes(), token.as_bytes());
    let differences = given.iter().zip(token).fold(0, |found, (a, b)| black_box(found | (a ^ b)));
    given.len() == token.len() && differences == 0 && !token.is_empty()
}
