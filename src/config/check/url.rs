//! Where to listen and where workers are.

use crate::config::section::Item;
use crate::config::{Address, DnsName, Scheme, WorkerHost, WorkerUrl};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

const LISTEN: &str = "must be ip:port, [ip6]:port or unix:/path, such as 0.0.0.0:8080";
const BRACKETS: &str = "an IPv6 address needs brackets, as in [::1]:8080";
const URL: &str = "must be http://host:port, https://host:port or unix:/path";

/// `ip:port`, `[ip6]:port` or `unix:/path`.
pub(super) fn listen_address(item: &Item<'_>) -> Result<Address, String> {
    let text = item.text().ok_or(LISTEN)?;
    if let Some(path) = text.strip_prefix("unix:") {
        return unix_path(path).map(Address::Unix);
    }
    match text.parse() {
        Ok(address) => Ok(Address::Tcp(address)),
        Err(_) if bare_ipv6(text) => Err(BRACKETS.into()),
        Err(_) => Err(LISTEN.into()),
    }
}

fn bare_ipv6(authority: &str) -> bool {
    !authority.starts_with('[') && 1 < authority.matches(':').count()
}

fn unix_path(path: &str) -> Result<PathBuf, String> {
    // What the kernel keeps of a socket's name, less the final zero.
    const MOST: usize = 107;
    // `unix:///run/x` is the same as `unix:/run/x`.
    let path = path.strip_prefix("//").unwrap_or(path);
    if !path.starts_with('/') || path.len() < 2 || MOST < path.len() || path.contains('\0') {
        return Err(format!("must be unix: and an absolute path of at most {MOST} bytes"));
    }
    Ok(PathBuf::from(path))
}

/// `http://host[:port]`, `https://host[:port]` or `unix:/path`.
pub(super) fn worker_url(item: &Item<'_>) -> Result<WorkerUrl, String> {
    let text = item.text().ok_or(URL)?;
    if let Some(path) = text.strip_prefix("unix:") {
        let host = WorkerHost::Unix(unix_path(path)?);
        return Ok(WorkerUrl { scheme: Scheme::Http, host });
    }
    let (scheme, rest) = text.split_once("://").ok_or(URL)?;
    let (scheme, port) = match scheme.to_ascii_lowercase().as_str() {
        "http" => (Scheme::Http, 80),
        "https" => (Scheme::Https, 443),
        _ => return Err(URL.into()),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    if authority.contains('@') {
        return Err(format!("{URL}; a name or password goes into `upstream_auth`"));
    }
    if !["", "/"].contains(&tail) {
        return Err(format!("{URL}, nothing after it: requests bring their own path"));
    }
    Ok(WorkerUrl { scheme, host: host_and_port(authority, port)? })
}

/// `name:port`
pub(super) fn dns_name(item: &Item<'_>) -> Result<DnsName, String> {
    const NAME: &str = "must be a host name with a port, such as engines.svc:30000";
    let text = item.text().filter(|text| text.contains(':')).ok_or(NAME)?;
    match host_and_port(text, 0) {
        Ok(WorkerHost::Name { host, port }) => Ok(DnsName { host, port }),
        Ok(WorkerHost::Ip(_) | WorkerHost::Unix(_)) | Err(_) => Err(NAME.into()),
    }
}

fn host_and_port(authority: &str, default: u16) -> Result<WorkerHost, String> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (ip, port) = rest.split_once(']').ok_or(BRACKETS)?;
        let ip: Ipv6Addr =
            ip.parse().map_err(|_| format!("has no IPv6 address in brackets; {URL}"))?;
        let port = match port {
            "" => default,
            port => parse_port(port.strip_prefix(':').ok_or(URL)?)?,
        };
        return Ok(WorkerHost::Ip(SocketAddr::new(IpAddr::V6(ip), port)));
    }
    if bare_ipv6(authority) {
        return Err(BRACKETS.into());
    }
    let (host, port) = match authority.split_once(':') {
        None => (authority, default),
        Some((host, port)) => (host, parse_port(port)?),
    };
    if let Ok(ip) = host.parse::<Ipv4Addr>() {
        return Ok(WorkerHost::Ip(SocketAddr::new(IpAddr::V4(ip), port)));
    }
    if host.is_empty() {
        return Err(format!("has no host; {URL}"));
    }
    if !is_host_name(host) {
        return Err(format!("has no valid host name or IPv4 address; {URL}"));
    }
    Ok(WorkerHost::Name { host: host.to_ascii_lowercase(), port })
}

fn parse_port(text: &str) -> Result<u16, String> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let port = text.parse().ok().filter(|port| digits && 0 < *port);
    port.ok_or_else(|| "needs a port from 1 to 65535".into())
}

/// A name the resolver may be asked for; one whose last label is a number would be an address.
fn is_host_name(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let label = |label: &str| {
        let word = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(word) && !label.starts_with('-')
    };
    let number = |label: &str| label.bytes().all(|b| b.is_ascii_digit());
    host.len() <= 253 && host.split('.').all(label) && !host.rsplit('.').next().is_some_and(number)
}
