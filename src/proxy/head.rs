//! What is checked of a request's head before anything is done for it.

use super::reply::Refusal;
use http::header::{CONTENT_LENGTH, HOST, HeaderValue, TRANSFER_ENCODING};
use http::uri::Authority;
use pingora::http::RequestHeader;
use pingora_proxy::Session;

/// Refuses heads that are too large or whose framing two parties could read in two ways.
pub(super) fn check(session: &Session, max_header_bytes: u64) -> Result<(), Refusal> {
    if session.req_header().method == http::Method::CONNECT {
        return Err(Refusal::BadRequest("CONNECT: this is no forward proxy"));
    }
    if session.is_http2() {
        // The h2 library enforces its own list limit and has no ambiguous framing.
        check_size(head_size(session), max_header_bytes)?;
        return check_pseudo(session.req_header());
    }
    let raw = session.to_h1_raw();
    check_size(raw.len() as u64, max_header_bytes)?;
    check_lines(&raw)?;
    check_framing(session, &raw)?;
    check_target(session.req_header())?;
    check_host(session.req_header())
}

fn check_size(size: u64, max_header_bytes: u64) -> Result<(), Refusal> {
    if max_header_bytes < size { Err(Refusal::HeadersTooLarge(max_header_bytes)) } else { Ok(()) }
}

/// What the h2 library lets through and would be refused in a line of HTTP/1.
fn check_pseudo(request: &RequestHeader) -> Result<(), Refusal> {
    check_target(request)?;
    match request.uri.authority() {
        Some(authority) if authority.as_str().contains('@') => {
            Err(Refusal::BadRequest("Host is not a host"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Size in the sense of HTTP/2's header list: names, values and 32 bytes a field.
fn head_size(session: &Session) -> u64 {
    let headers = &session.req_header().headers;
    headers.iter().map(|(name, value)| (name.as_str().len() + value.len() + 32) as u64).sum()
}

/// No bare CR or LF, no folded line.
fn check_lines(raw: &[u8]) -> Result<(), Refusal> {
    let is_bare = |one: u8, next: u8| (one == b'\r') != (next == b'\n');
    let is_fold = |one: u8, next: u8| (one == b'\n') & ((next == b' ') | (next == b'\t'));
    let behind = raw.get(1..).unwrap_or_default();
    // No branch for any byte, so many are looked at at once.
    let is_wrong = raw.iter().zip(behind).fold(false, |is_wrong, (one, next)| {
        is_wrong | is_bare(*one, *next) | is_fold(*one, *next)
    });
    if !is_wrong && raw.first() != Some(&b'\n') && raw.last() != Some(&b'\r') {
        return Ok(());
    }
    let mut pairs = std::iter::once(&0).chain(raw).zip(raw.iter().chain([&0]));
    match pairs.find(|(one, next)| is_bare(**one, **next) || is_fold(**one, **next)) {
        Some((one, next)) if is_fold(*one, *next) => Err(Refusal::BadRequest("folded header line")),
        Some(_) | None => Err(Refusal::BadRequest("bare CR or LF in the request head")),
    }
}

/// One way to tell where the body ends, not two.
fn check_framing(session: &Session, raw: &[u8]) -> Result<(), Refusal> {
    let request = session.req_header();
    let mut codings = request.headers.get_all(TRANSFER_ENCODING).iter();
    let coding = codings.next();
    let chunked = coding.is_some();
    // Pingora looks at the last coding only; a worker may look at another one.
    let is_plain =
        |coding: &HeaderValue| coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    if coding.is_some_and(|coding| !is_plain(coding)) || codings.next().is_some() {
        return Err(Refusal::BadRequest("a Transfer-Encoding other than chunked"));
    }
    // Pingora drops Content-Length when both are there, so the raw head is asked.
    if chunked && has_header_line(raw, CONTENT_LENGTH.as_str().as_bytes()) {
        return Err(Refusal::BadRequest("both Content-Length and Transfer-Encoding"));
    }
    if chunked && request.version < http::Version::HTTP_11 {
        return Err(Refusal::BadRequest("Transfer-Encoding in an HTTP/1.0 request"));
    }
    let mut lengths = request.headers.get_all(CONTENT_LENGTH).iter();
    let first = lengths.next();
    if lengths.any(|other| Some(other) != first) {
        return Err(Refusal::BadRequest("two different Content-Lengths"));
    }
    match first.map(|value| value.as_bytes().trim_ascii()) {
        Some(digits) if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) => {
            Err(Refusal::BadRequest("Content-Length is not a number"))
        }
        Some(_) | None => Ok(()),
    }
}

/// A path, the same behind a scheme and a host, or `*`; a bare word would reach an engine as it is.
fn check_target(request: &RequestHeader) -> Result<(), Refusal> {
    let raw = request.raw_path();
    let is_all = raw == b"*" && request.method == http::Method::OPTIONS;
    if is_all || raw.starts_with(b"/") {
        return Ok(());
    }
    // Pingora keeps only the path of it.
    let uri = http::Uri::try_from(raw);
    let is_absolute = uri.is_ok_and(|uri| uri.scheme().is_some() && uri.host().is_some());
    match is_absolute && request.version < http::Version::HTTP_2 {
        true => Ok(()),
        false => Err(Refusal::BadRequest("the request's target is no path")),
    }
}

/// One name the request is addressed to, or none; HTTP/1.1 may not leave the header out.
fn check_host(request: &RequestHeader) -> Result<(), Refusal> {
    let mut hosts = request.headers.get_all(HOST).iter();
    let is_name =
        |host: &HeaderValue| host.is_empty() || Authority::try_from(host.as_bytes()).is_ok();
    match (hosts.next(), hosts.next()) {
        (None, None) if request.version == http::Version::HTTP_11 => {
            Err(Refusal::BadRequest("no Host"))
        }
        (Some(host), None) if !is_name(host) => Err(Refusal::BadRequest("Host is not a host")),
        (_, Some(_)) => Err(Refusal::BadRequest("more than one Host")),
        (Some(_) | None, None) => Ok(()),
    }
}

fn has_header_line(raw: &[u8], name: &[u8]) -> bool {
    raw.split(|byte| *byte == b'\n').any(|line| {
        let head = line.get(..name.len());
        head.is_some_and(|head| head.eq_ignore_ascii_case(name))
            && line.get(name.len()) == Some(&b':')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_line_ends_and_folds_are_refused() {
        let bare = Err(Refusal::BadRequest("bare CR or LF in the request head"));
        let fold = Err(Refusal::BadRequest("folded header line"));
        assert_eq!(check_lines(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), Ok(()));
        assert_eq!(check_lines(b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), Ok(()));
        assert_eq!(check_lines(b"GET / HTTP/1.1\nHost: a\r\n\r\n"), bare);
        assert_eq!(check_lines(b"GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n"), bare);
        assert_eq!(check_lines(b"\nGET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n"), bare);
        assert_eq!(check_lines(b"GET / HTTP/1.1\r\nHost: a\r\n\n"), bare);
        assert_eq!(check_lines(b"GET / HTTP/1.1\r\nHost: a\r\n\r"), bare);
        assert_eq!(check_lines(b"GET / HTTP/1.1\r\nHost: a\r\n b\rc\r\n\r\n"), fold);
        assert_eq!(check_lines(b"GET / HTTP/1.1\r\nHost: a\r\n\tb\r\n\r\n"), fold);
    }

    #[test]
    fn a_header_line_is_found_by_its_whole_name() {
        assert!(has_header_line(b"GET / HTTP/1.1\r\nCONTENT-length: 3\r\n", b"content-length"));
        assert!(!has_header_line(b"GET /\r\nx-content-length: 3\r\n", b"content-length"));
    }

    #[test]
    fn a_host_is_one_name_or_none_and_the_header_is_there() {
        let checked = |hosts: &[&str]| {
            let mut request = RequestHeader::build("GET", b"/", None).unwrap();
            for host in hosts {
                request.append_header(HOST, *host).unwrap();
            }
            check_host(&request).is_ok()
        };
        for host in
            ["", "edge", "my_service:8080", "[::1]:80", "10.0.0.1", "xn--bcher-kva.example."]
        {
            assert!(checked(&[host]), "{host}");
        }
        for host in ["a b", "a/b", "a,b c", "[::1", "a\tb"] {
            assert!(!checked(&[host]), "{host}");
        }
        assert!(!checked(&[]));
        assert!(!checked(&["a", "a"]));
    }
}
