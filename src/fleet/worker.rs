//! One worker as one configuration has it. What is known of it is in `lasting.rs`, shared by all
//! configurations that have it.

use super::authorities::{self, CaType};
use super::breaker::BreakerState;
use super::inflight::InflightGuard;
use super::lasting::Lasting;
use crate::config;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tidegate_policy::fleet::{Live, Slot, WorkerId};

/// Where a worker can be connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerAddress {
    /// TCP.
    Tcp(SocketAddr),
    /// A unix socket's path.
    Unix(Arc<Path>),
}

/// What a request holds on to when another configuration comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The configuration it came with, and all workers of that.
    Pinned,
    /// Its place among those who wait: for whoever is configured when its turn comes, and nobody
    /// who was removed by then.
    Waiting,
}

/// What may be said of a worker in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Do its probes pass?
    pub healthy: bool,
    /// Its breaker.
    pub breaker: BreakerState,
    /// Does it take no new requests?
    pub draining: bool,
    /// Requests sent whose answer is not over.
    pub in_flight: u32,
}

/// See the module.
#[derive(Debug)]
pub struct Worker {
    /// Configured name.
    pub id: WorkerId,
    /// Its number in the prefix index.
    pub slot: Slot,
    /// As configured.
    pub config: config::Worker,
    /// What the decision reads.
    pub live: Arc<Live>,
    /// Own CAs of an https worker.
    pub authorities: Option<Arc<CaType>>,
    trust: u64,
    authority: String,
    pub(super) lasting: Arc<Lasting>,
}

impl Worker {
    pub(super) fn new(config: config::Worker, lasting: Arc<Lasting>) -> Arc<Self> {
        Arc::new(Self {
            id: lasting.id.clone(),
            slot: lasting.slot,
            live: Arc::clone(&lasting.live),
            authorities: config.tls.ca.as_ref().map(authorities::for_peers),
            trust: authorities::fingerprint(config.tls.ca.as_ref()),
            authority: authority(&config.url.host),
            config,
            lasting,
        })
    }

    /// Where to connect; `None` while its name was never resolved.
    pub fn address(&self) -> Option<WorkerAddress> {
        self.lasting.address()
    }

    /// The `Host` of all that this edge sends the worker.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// The name an https worker's certificate must have.
    pub fn server_name(&self) -> String {
        let host = match &self.config.url.host {
            config::WorkerHost::Ip(address) => address.ip().to_string(),
            config::WorkerHost::Name { host, .. } => host.clone(),
            config::WorkerHost::Unix(_) => String::new(),
        };
        self.config.tls.sni.clone().unwrap_or(host)
    }

    /// Counts a request in, if the worker may still be routed to; half-open, this takes the probe.
    /// `None`: choose another worker.
    pub fn try_dispatch(self: &Arc<Self>, whose: Whose) -> Option<InflightGuard> {
        let ticket = self.lasting.take(whose)?;
        Some(InflightGuard::new(Arc::clone(self), ticket))
    }

    /// What may be said of it now.
    pub fn standing(&self) -> Standing {
        self.lasting.standing()
    }

    /// Goes on as an earlier process had it: well until a probe says otherwise, if it was, and out if
    /// it was out.
    pub(crate) fn resume(&self, healthy: bool, draining: bool) {
        if healthy {
            self.lasting.trust();
        }
        if draining {
            self.drain();
        }
    }

    /// Stops new requests; running ones finish and everything known is kept.
    pub fn drain(&self) {
        self.lasting.set_draining(true);
    }

    /// Takes new requests again.
    pub fn activate(&self) {
        self.lasting.set_draining(false);
    }

    /// Which pool its connections are taken from: one for each set of authorities.
    pub fn pool(&self) -> u64 {
        self.lasting.pool() ^ self.trust
    }

    /// The worker closed a pooled connection, so the others are suspect: new ones are made from
    /// now on, and the old ones idle until their time is up.
    pub fn leave_pool(&self) {
        self.lasting.leave_pool();
    }

    /// A connection to it was refused: nobody listens there, so whoever will is another process,
    /// with an empty cache and a load of its own.
    pub fn refused(&self) {
        self.lasting.refused();
    }
}

fn authority(host: &config::WorkerHost) -> String {
    match host {
        config::WorkerHost::Ip(address) => address.to_string(),
        config::WorkerHost::Name { host, port } => format!("{host}:{port}"),
        config::WorkerHost::Unix(_) => "localhost".to_owned(),
    }
}
