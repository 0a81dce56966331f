//! One model: its policy and its workers.

use super::{Authorities, Breaker, Health, LoadReports, Retries, Timeouts, UpstreamAuth};
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::time::Duration;
use tidegate_policy::fleet::{Role, WorkerId};
use tidegate_policy::learned::{Layers, Settings};
use tidegate_policy::rules::Rules;

/// One model's fleet and how requests find their way in it.
#[derive(Clone, Debug)]
pub struct Model {
    /// As clients and metrics name it; `*` takes all names.
    pub name: String,
    /// Other names; `default` makes it the default model.
    pub aliases: Vec<String>,
    /// Who is chosen.
    pub policy: Policy,
    /// Request headers whose value replaces the home key.
    pub affinity_headers: Vec<String>,
    /// 429 when every routable worker's fresh queue is at or above it.
    pub shed_queue_limit: Option<NonZeroU64>,
    /// How long a new or returned worker's share grows; zero: it has all of it at once.
    pub warmup: Duration,
    /// Requests wait here when nobody may take them; `None`: they are refused.
    pub queue: Option<Queue>,
    /// How workers are asked for their load.
    pub load_reports: LoadReports,
    /// How workers are probed.
    pub health: Health,
    /// When a failing worker is left alone.
    pub breaker: Breaker,
    /// How long to wait for what.
    pub timeouts: Timeouts,
    /// When a request is sent again.
    pub retries: Retries,
    /// The workers, in the order of the file; found ones last.
    pub workers: Vec<Worker>,
    /// Where more of them are found.
    pub discovery: Option<Discovery>,
}

/// `queue:` of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Most requests that wait at once.
    pub max_requests: NonZeroU32,
    /// How long one waits at most.
    pub max_wait: Duration,
}

/// Who is chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Policy {
    /// Prefix owners: by the ladder of gate and pin, or by cost.
    CacheAware(Rules),
    /// The least pressured; of `choices` drawn at random, if set.
    LeastLoad {
        /// Power of k.
        choices: Option<NonZeroU32>,
    },
    /// In turn, by weight.
    RoundRobin,
    /// Along the routes that were measured to be fast.
    Learned(Learned),
}

/// The policy `learned`.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    /// Layers of the model; `None`: every worker computes all of it.
    pub layers: Option<NonZeroU32>,
    /// How routes are measured and chosen.
    pub settings: Settings,
    /// Makes every choice, if set.
    pub seed: Option<u64>,
}

impl Learned {
    /// The model's layers; a model that is nowhere in shards has one.
    pub fn layers(&self) -> Layers {
        Layers::up_to(self.layers.unwrap_or(NonZeroU32::MIN))
    }
}

impl Policy {
    /// The settings of a cache-aware policy.
    pub fn cache_aware(&self) -> Option<&Rules> {
        match self {
            Self::CacheAware(rules) => Some(rules),
            Self::LeastLoad { .. } | Self::RoundRobin | Self::Learned(_) => None,
        }
    }

    /// The label.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::CacheAware(_) => "cache_aware",
            Self::LeastLoad { .. } => "least_load",
            Self::RoundRobin => "round_robin",
            Self::Learned(_) => "learned",
        }
    }
}

/// What a worker is to learned routes.
#[derive(Clone, Debug, PartialEq)]
pub struct Shard {
    /// Layers it computes; `None`: all of the model's.
    pub layers: Option<Layers>,
    /// Its own benchmark, tokens/s; `None`: nobody's is known.
    pub tps: Option<f64>,
    /// Scales `tps`; 1 = believed.
    pub reputation: f64,
}

impl Default for Shard {
    /// All of the model, no benchmark.
    fn default() -> Self {
        Self { layers: None, tps: None, reputation: 1.0 }
    }
}

/// One worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    /// Unique in its model.
    pub id: WorkerId,
    /// Where.
    pub url: WorkerUrl,
    /// What it does.
    pub role: Role,
    /// Share of `round_robin` and of the rendezvous order.
    pub weight: NonZeroU32,
    /// Data-parallel ranks, if configured.
    pub dp_size: Option<NonZeroU32>,
    /// KV cache, tokens, if configured.
    pub kv_capacity_tokens: Option<NonZeroU64>,
    /// Prefill speed, tokens/s, if configured.
    pub prefill_tps: Option<NonZeroU64>,
    /// Most requests in flight from this edge.
    pub max_inflight: Option<NonZeroU32>,
    /// Takes no new requests.
    pub draining: bool,
    /// Under the policy `learned`.
    pub shard: Option<Shard>,
    /// Server name and own CA of an https worker.
    pub tls: WorkerTls,
    /// Replaces the client's credentials.
    pub upstream_auth: Option<UpstreamAuth>,
    /// Who says that it is there.
    pub source: WorkerSource,
}

impl Worker {
    /// A plain worker of which nothing but its address is said.
    pub fn new(id: WorkerId, url: WorkerUrl, source: WorkerSource) -> Self {
        Self {
            id,
            url,
            role: Role::Plain,
            weight: NonZeroU32::MIN,
            dp_size: None,
            kv_capacity_tokens: None,
            prefill_tps: None,
            max_inflight: None,
            draining: false,
            shard: None,
            tls: WorkerTls::default(),
            upstream_auth: None,
            source,
        }
    }
}

/// Who says that a worker is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerSource {
    /// The configuration file.
    Listed,
    /// What `discovery` points to.
    Found,
}

/// `discovery:` of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// A file of workers, read again when it changes.
    File(PathBuf),
    /// Every address of a name is a worker.
    Dns {
        /// The name.
        name: DnsName,
        /// What those workers are sent instead of the client's credentials.
        upstream_auth: Option<UpstreamAuth>,
    },
}

/// A name with the port of whatever it stands for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DnsName {
    /// Host name, lower case.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl std::fmt::Display for DnsName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// `tls:` of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerTls {
    /// Server name; the URL's host if unset.
    pub sni: Option<String>,
    /// The CAs to trust instead of the system's.
    pub ca: Option<Authorities>,
}

/// A worker's URL: `http://host:port`, `https://host:port` or `unix:/path`; no path, no query.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkerUrl {
    /// TLS?
    pub scheme: Scheme,
    /// Where.
    pub host: WorkerHost,
}

/// `http` or `https`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Plain.
    Http,
    /// TLS.
    Https,
}

/// Where a worker is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WorkerHost {
    /// An address, known at once.
    Ip(SocketAddr),
    /// A name, resolved in the background.
    Name {
        /// Host name.
        host: String,
        /// Port.
        port: u16,
    },
    /// A unix socket.
    Unix(PathBuf),
}

impl std::fmt::Display for WorkerUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        match &self.host {
            WorkerHost::Ip(address) => write!(f, "{scheme}://{address}"),
            WorkerHost::Name { host, port } => write!(f, "{scheme}://{host}:{port}"),
            WorkerHost::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
