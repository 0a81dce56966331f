//! What holds for the whole process: listeners, limits, shutdown, index, access log.

use super::KeyPair;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One traffic listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// `ip:port`, `[ip6]:port` or `unix:/path`.
    pub address: Address,
    /// Certificate and key files.
    pub tls: Option<ListenerTls>,
    /// HTTP/2 without TLS on the same port.
    pub h2c: bool,
}

impl Listener {
    /// What is settled when it is opened: all but what the files hold.
    pub(super) fn place(&self) -> (&Address, bool, Option<(&Path, &Path)>) {
        let files = self.tls.as_ref().map(|tls| (tls.cert.as_path(), tls.key.as_path()));
        (&self.address, self.h2c, files)
    }
}

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// TCP.
    Tcp(SocketAddr),
    /// A unix socket's path.
    Unix(PathBuf),
}

/// Certificate and key files of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerTls {
    /// PEM chain.
    pub cert: PathBuf,
    /// PEM key.
    pub key: PathBuf,
    /// What they hold.
    pub pair: KeyPair,
}

/// The admin listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Where; loopback or unix unless a token is set.
    pub address: Address,
    /// Bearer token.
    pub token: Option<Secret>,
}

/// A value that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value.
    pub fn new(value: String) -> Self {
        Self(value)
    }

    /// The value, for the one place that sends or compares it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// `limits:`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest request body, bytes.
    pub max_body_bytes: u64,
    /// Largest request header block, bytes.
    pub max_header_bytes: u64,
    /// All buffered bodies together, bytes.
    pub max_buffered_bytes: u64,
    /// Decoded size up to which a compressed body is read for routing, bytes.
    pub max_decoded_bytes: u64,
    /// Clients' connections on all traffic listeners together.
    pub max_connections: Option<NonZeroU32>,
}

/// `http:`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http {
    /// What becomes of `x-forwarded-*`.
    pub forwarded: Forwarded,
    /// Send `x-tidegate-decision` and `x-tidegate-worker`.
    pub response_headers: bool,
    /// Is a client that closed its sending side gone?
    pub half_close: HalfClose,
}

/// `http.forwarded`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarded {
    /// Add to what the client sent.
    Append,
    /// Replace what the client sent.
    Set,
    /// Leave alone.
    Off,
}

/// `http.half_close`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HalfClose {
    /// Such a client is gone.
    Abort,
    /// It still reads.
    Tolerate,
}

/// `shutdown:`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// Readiness is red this long before the listener closes.
    pub drain_delay: Duration,
}

/// `index:`
#[derive(Clone, Debug, PartialEq)]
pub struct Index {
    /// Prompt bytes of a block.
    pub block_bytes: u32,
    /// Bound on (block, worker) pairs, per process.
    pub max_entries: u64,
    /// Believed capacity over reported capacity.
    pub capacity_slack: f64,
}

/// `access_log:`
#[derive(Clone, Debug, PartialEq)]
pub struct AccessLog {
    /// Off by `enabled: false`.
    pub enabled: bool,
    /// Share of requests logged, 0 to 1.
    pub sample: f64,
    /// With some of each prompt's prefix keys.
    pub prefixes: bool,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
