//! Active probes: is the worker's process there and willing.
//!
//! One task per worker, so that one that swallows connections delays nobody else's probe. A probe
//! opens a connection of its own: a pooled one would hide that nobody listens any more. It touches
//! no routing counter and follows no redirect.

use super::clock::{jittered, on_a_beat};
use super::hysteresis::Change;
use super::lasting::Lasting;
use super::shortage;
use super::worker::{Worker, WorkerAddress};
use crate::config::{self, Scheme};
use crate::limited::Changes;
use async_trait::async_trait;
use pingora::connectors::http::v1::Connector;
use pingora::http::RequestHeader;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, OrErr, Result};
use pingora_load_balancing::health_check::HealthCheck;
use pingora_load_balancing::{Backend, Extensions};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::net::SocketAddr as UnixAddress;
use std::sync::Arc;
use tidegate_policy::fleet::WorkerId;
use tokio::time::{Instant, sleep_until, timeout};

/// The connector all probes share: it holds the system's trusted roots, which are large.
pub(super) struct Prober(Connector);

impl Prober {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Connector::new(None)))
    }
}

/// What an answer's status says about the process behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Good,
    /// Not the page that was hoped for, but somebody is there who reads requests.
    Alive,
    Bad,
}

fn judge(status: u16) -> Answer {
    match status {
        200..=299 => Answer::Good,
        401 | 403 | 404 | 405 => Answer::Alive,
        _ => Answer::Bad,
    }
}

/// Probes one worker for as long as it is polled, the first time at once.
pub(super) async fn watch(worker: Arc<Worker>, settings: config::Health, prober: Arc<Prober>) {
    let probe = match Probe::new(&worker, &settings, prober) {
        Ok(probe) => probe,
        Err(error) => {
            log::error!("worker {}: cannot be probed, stays unhealthy: {error}", worker.id);
            return;
        }
    };
    loop {
        let started = Instant::now();
        if let Some(address) = worker.address() {
            match probe.once(&address).await {
                Err(error) if shortage::is_ours(error.root_cause()) => {
                    log::warn!("worker {}: cannot be probed now: {error}", worker.id);
                }
                outcome => book(&worker.lasting, outcome),
            }
        }
        tokio::select! {
            () = sleep_until(on_a_beat(started + jittered(settings.interval))) => {}
            // Its name was resolved for the first time, or to somewhere else.
            () = worker.lasting.readdressed.notified() => {}
        }
    }
}

fn book(worker: &Lasting, outcome: Result<()>) {
    match worker.probed(outcome.is_ok()) {
        Change::None => {}
        Change::Started => log::info!("worker {}: healthy", worker.id),
        Change::CameBack => {
            log::info!("worker {}: healthy again", worker.id);
            worker.came_back();
        }
        Change::WentDown => match &outcome {
            Ok(()) => {}
            Err(error) => log::warn!("worker {}: unhealthy: {error}", worker.id),
        },
    }
    let Err(error) = outcome else { return worker.is_there() };
    log::debug!("worker {}: probe failed: {error}", worker.id);
    if error.root_etype() == &ErrorType::ConnectRefused {
        worker.refused();
    }
    if !worker.standing().healthy {
        worker.next_address();
    }
}

/// How one worker is probed.
struct Probe {
    worker: WorkerId,
    settings: config::Health,
    prober: Arc<Prober>,
    peer: HttpPeer,
    request: RequestHeader,
    alive: Changes<u16>,
}

impl Probe {
    fn new(worker: &Worker, settings: &config::Health, prober: Arc<Prober>) -> Result<Self> {
        let config = &worker.config;
        let (tls, name) = match config.url.scheme {
            Scheme::Http => (false, String::new()),
            Scheme::Https => (true, worker.server_name()),
        };
        // The address is a placeholder; each probe takes the present one.
        let mut peer = HttpPeer::new(NOWHERE, tls, name);
        peer.options.connection_timeout = Some(settings.timeout);
        peer.options.ca = worker.authorities.clone();
        let mut request = RequestHeader::build("GET", settings.path.as_bytes(), None)?;
        request.insert_header("host", worker.authority())?;
        request.insert_header("user-agent", concat!("tidegate/", env!("CARGO_PKG_VERSION")))?;
        request.insert_header("connection", "close")?;
        if let Some(auth) = &config.upstream_auth {
            request.insert_header(auth.name.clone(), auth.value.expose())?;
        }
        let (worker, settings) = (worker.id.clone(), settings.clone());
        Ok(Self { worker, settings, prober, peer, request, alive: Changes::default() })
    }

    async fn once(&self, address: &WorkerAddress) -> Result<()> {
        let target = backend(address)?;
        let late = |_| Error::explain(ErrorType::ReadTimedout, "no answer in time");
        timeout(self.settings.timeout, self.check(&target)).await.map_err(late)?
    }
}

#[async_trait]
impl HealthCheck for Probe {
    async fn check(&self, target: &Backend) -> Result<()> {
        let mut peer = self.peer.clone();
        peer._address = target.addr.clone();
        let (mut session, _) = self.prober.0.get_http_session(&peer).await?;
        session.write_request_header(Box::new(self.request.clone())).await?;
        session.read_response().await?;
        let status = session.get_status().map_or(0, |status| status.as_u16());
        match judge(status) {
            Answer::Good => Ok(()),
            Answer::Alive => {
                if self.alive.to(status).is_some() {
                    let path = &self.settings.path;
                    log::warn!("worker {}: {path} answers {status}; counts as alive", self.worker);
                }
                Ok(())
            }
            Answer::Bad => Error::e_explain(ErrorType::HTTPStatus(status), "of the health page"),
        }
    }

    fn health_threshold(&self, success: bool) -> usize {
        let times = if success { self.settings.rise } else { self.settings.fall };
        times.get() as usize
    }
}

const NOWHERE: (IpAddr, u16) = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

fn backend(address: &WorkerAddress) -> Result<Backend> {
    let addr = match address {
        WorkerAddress::Tcp(address) => SocketAddr::Inet(*address),
        WorkerAddress::Unix(path) => {
            let address = UnixAddress::from_pathname(path);
            SocketAddr::Unix(address.or_err(ErrorType::SocketError, "no path of a socket")?)
        }
    };
    Ok(Backend { addr, weight: 1, ext: Extensions::new() })
}
