//! `listeners:` and `admin:`.

use super::url::listen_address;
use crate::config::files::Files;
use crate::config::kinds::{boolean, path, secret};
use crate::config::section::Section;
use crate::config::{Address, Admin, KeyPair, Listener, ListenerTls};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

const MOST_LISTENERS: usize = 64;

/// Without a word about it only this machine is served.
fn default_traffic() -> Address {
    Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)))
}

fn default_admin() -> Address {
    Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 9909)))
}

/// The traffic listeners.
pub(super) fn traffic(own: &mut Section<'_>, base: &Path, files: &Files) -> Vec<Listener> {
    let Some(sections) = own.sections("listeners") else {
        return vec![Listener { address: default_traffic(), tls: None, h2c: false }];
    };
    if sections.is_empty() || MOST_LISTENERS < sections.len() {
        own.problem("listeners", &format!("must have 1 to {MOST_LISTENERS} entries"));
    }
    let mut listeners: Vec<Listener> = Vec::new();
    for mut section in sections {
        let listener = one(&mut section, base, files);
        if listeners.iter().any(|other| clash(&other.address, &listener.address)) {
            section.problem("address", "is the address of another listener already");
        }
        listeners.push(listener);
    }
    listeners
}

fn one(section: &mut Section<'_>, base: &Path, files: &Files) -> Listener {
    let address = section.read("address", default_traffic(), listen_address);
    let h2c = section.read("h2c", false, boolean);
    let given = section.has("tls");
    let tls = if given { tls(section, base, files) } else { no_tls(section, base) };
    if h2c && given {
        section.problem("h2c", "does nothing with `tls`, which offers HTTP/2 anyway");
    }
    Listener { address, tls, h2c }
}

fn tls(section: &mut Section<'_>, base: &Path, files: &Files) -> Option<ListenerTls> {
    let mut inner = section.section("tls");
    let cert = inner.required("cert", path(base));
    let key = inner.required("key", path(base));
    // Both are read even if one cannot be, so that both are watched.
    let chain = cert.as_deref().and_then(|cert| pem(&mut inner, "cert", files.pem(cert)));
    let secret = key.as_deref().and_then(|key| pem(&mut inner, "key", files.pem(key)));
    match KeyPair::from_pem(&chain?, &secret?) {
        Ok(pair) => Some(ListenerTls { cert: cert?, key: key?, pair }),
        Err(problem) => {
            inner.scope.problem(&inner.path, "", &problem);
            None
        }
    }
}

fn pem(
    inner: &mut Section<'_>,
    key: &'static str,
    read: std::io::Result<Vec<u8>>,
) -> Option<Vec<u8>> {
    read.map_err(|error| inner.problem(key, &format!("must be a readable file: {error}"))).ok()
}

/// Its keys are asked for all the same, so that they are known keys.
fn no_tls(section: &mut Section<'_>, base: &Path) -> Option<ListenerTls> {
    let mut inner = section.section("tls");
    let _ = inner.optional("cert", None, path(base));
    let _ = inner.optional("key", None, path(base));
    None
}

/// The admin listener.
pub(super) fn admin(own: &mut Section<'_>, traffic: &[Listener]) -> Admin {
    let mut section = own.section("admin");
    let address = section.read("address", default_admin(), listen_address);
    let token = section.confidential("token", secret);
    if !is_local(&address) && token.is_none() && !section.failed("token") {
        section.problem(
            "address",
            "is reachable from other machines: set `admin.token`, or use a loopback address",
        );
    }
    if traffic.iter().any(|listener| clash(&listener.address, &address)) {
        section.problem("address", "is a traffic listener's address already");
    }
    Admin { address, token }
}

fn is_local(address: &Address) -> bool {
    match address {
        Address::Tcp(address) => address.ip().to_canonical().is_loopback(),
        Address::Unix(_) => true,
    }
}

/// Port 0 takes any free port, so two of them do not clash.
fn clash(a: &Address, b: &Address) -> bool {
    match (a, b) {
        (Address::Tcp(a), Address::Tcp(b)) => a == b && a.port() != 0,
        (Address::Unix(a), Address::Unix(b)) => a == b,
        (Address::Tcp(_), Address::Unix(_)) | (Address::Unix(_), Address::Tcp(_)) => false,
    }
}
