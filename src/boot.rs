//! From a configuration to a running Pingora server: listeners, admin, background services,
//! signals. The only place that registers services.

mod admin_app;
mod lifecycle;
mod upgrade;

use crate::config::{Address, Config, Listener, Source};
use crate::handover::{self, Trust};
use crate::proxy::{Edge, FrontDoor, Seats, TlsDoor};
use crate::state::{State, unix_seconds};
use crate::{fleet, history, reload};
use admin_app::AdminApp;
use async_trait::async_trait;
use lifecycle::{HangUp, Listening};
use pingora::apps::HttpServerOptions;
use pingora::listeners::tls::TlsSettings;
use pingora::server::configuration::{Opt, ServerConf};
use pingora::server::{RunArgs, Server, ShutdownWatch};
use pingora::services::background::{BackgroundService, background_service};
use pingora::services::listening::Service;
use pingora::tls::ResolvesServerCert;
use rustls::server::ClientHello;
use rustls::sign::CertifiedKey;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;
use upgrade::{Arrival, Predecessor, Sockets, Turn};

/// What is logged without `RUST_LOG`: warnings of everything, and what an operator wants to know of
/// the edge. Not Pingora's lines on single connections, handshakes included: any client can cause
/// them, and outcomes tell the same.
pub const LOG_FILTER: &str = "warn,pingora_proxy=off,pingora_core::services::listening=off,\
                              pingora_core::apps=off,tidegate=info,access=info";

/// The thread in which Pingora receives a predecessor's sockets.
const BOOTSTRAP: &str = "BG Bootstrap Service";

/// How the process starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Detach from the terminal.
    pub daemon: bool,
    /// Take the listening sockets over from the running process.
    pub upgrade: bool,
}

/// Why it did not start.
#[derive(Debug, Error)]
pub enum BootError {
    /// Pingora refuses its keys.
    #[error("Pingora's settings: {0}")]
    Server(String),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Bind {
        /// Which.
        address: String,
        /// Why not.
        error: std::io::Error,
    },
    /// A certificate or key cannot be used.
    #[error("listener {address}: {error}")]
    Tls {
        /// Which.
        address: String,
        /// Why not.
        error: String,
    },
    /// It cannot wait for a predecessor.
    #[error("upgrade at {path}: {error}")]
    Upgrade {
        /// `upgrade_sock`.
        path: String,
        /// Why not.
        error: std::io::Error,
    },
    /// A fault of the edge.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// Serves until a signal ends the process. With a `source` the configuration is read again when it
/// changes.
///
/// # Errors
/// What keeps it from starting. Once it serves, a listener that fails ends the process with exit
/// code 1.
pub fn serve(config: Arc<Config>, source: Option<Source>, start: Start) -> Result<(), BootError> {
    let mut conf = ServerConf::from_yaml(&config.pingora)
        .map_err(|error| BootError::Server(error.to_string()))?;
    conf.grace_period_seconds = Some(lifecycle::longest_grace(config.grace_period));
    let hangup = HangUp::watch();
    let turn = match start.upgrade {
        true => Some(turn(&config.upgrade_sock)?),
        false => {
            check_addresses(&config)?;
            None
        }
    };
    end_with_lost_listeners();
    let state = match source {
        Some(source) => State::with_source(Arc::clone(&config), source)?,
        None => State::new(Arc::clone(&config))?,
    };
    if !start.upgrade {
        warm_up(&state);
    }
    let options = Opt { upgrade: start.upgrade, daemon: start.daemon, ..Opt::default() };
    let mut server = Server::new_with_opt_and_conf(options, conf);
    let bootstrap = server.bootstrap_as_a_service();
    let sockets = Sockets::default();
    let (arrival, announcement) = Arrival::new(Arc::clone(&state), Arc::clone(&sockets), turn);
    let arrival = server.add_service(arrival);
    arrival.add_dependency(&bootstrap);
    let announcement = server.add_service(background_service("announcement", announcement));
    let predecessor = Predecessor::new(Arc::clone(&state), sockets, config.upgrade_sock.clone());
    let (signals, exit, open) = lifecycle::ends(&state, predecessor);
    let admin = Listening { service: admin_service(&state), open: Some(open.clone()) };
    let mut listening = vec![server.add_service(admin)];
    for service in traffic_services(&server, &state)? {
        listening.push(server.add_service(Listening { service, open: Some(open.clone()) }));
    }
    drop(open);
    for service in &listening {
        service.add_dependency(&arrival);
        announcement.add_dependency(service);
    }
    server.add_service(background_service("fleet", FleetTasks(Arc::clone(&state))));
    server.add_service(background_service("reload", ReloadTasks(Arc::clone(&state), hangup)));
    server.add_service(background_service("history", HistoryTask(Arc::clone(&state))));
    server.add_service(background_service("exit", exit));
    config.warn();
    log::info!("{} model(s) configured; admin on {}", config.models.len(), config.admin.address);
    server.run(RunArgs { shutdown_signal: Box::new(signals) });
    Ok(())
}

/// Is a successor about to take over from the process that listens for one there?
pub fn is_upgrade_under_way(upgrade_sock: &Path) -> bool {
    Turn::is_taken(upgrade_sock)
}

fn turn(upgrade_sock: &Path) -> Result<(PathBuf, Turn), BootError> {
    let turn = Turn::take(upgrade_sock)
        .map_err(|error| BootError::Upgrade { path: upgrade_sock.display().to_string(), error })?;
    Ok((upgrade_sock.to_owned(), turn))
}

/// Goes on with what an earlier process left in `state_file`.
fn warm_up(state: &State) {
    let running = state.running();
    let Some(path) = &running.config.state_file else { return };
    match handover::load(path) {
        Ok(None) => log::info!("no warm state in {} yet", path.display()),
        Ok(Some(snapshot)) => {
            let trust = Trust::Learned { now: unix_seconds() as u64 };
            let warm = handover::restore(&snapshot, &running.fleets, trust);
            log::info!(
                "warm state of {} s ago: {} workers with {} prefix blocks, {} routes",
                warm.age_seconds,
                warm.workers,
                warm.blocks,
                warm.routes
            );
        }
        Err(error) => log::warn!("warm state in {} is left out: {error}", path.display()),
    }
}

/// One service for the listeners that take HTTP/2 without TLS, one for those that do not.
fn traffic_services(
    server: &Server,
    state: &Arc<State>,
) -> Result<Vec<Service<FrontDoor>>, BootError> {
    let config = &state.running().config;
    let seats = Seats::new(Arc::clone(state));
    let mut services = Vec::new();
    for h2c in [false, true] {
        let listeners = config.listeners.iter().enumerate();
        let listeners: Vec<(usize, &Listener)> =
            listeners.filter(|(_, listener)| listener.h2c == h2c).collect();
        if listeners.is_empty() {
            continue;
        }
        let edge = Edge::new(Arc::clone(state));
        let mut options = HttpServerOptions::default();
        options.h2c = h2c;
        let name = if h2c { "traffic-h2c" } else { "traffic" };
        let door = FrontDoor::new(&server.configuration, edge, options, Arc::clone(&seats));
        let mut service = Service::new(name.to_owned(), door);
        service.endpoints().set_pre_tls_callback(Arc::new(TlsDoor(Arc::clone(&seats))));
        for (at, listener) in listeners {
            listen(&mut service, listener, Certificate { state: Arc::clone(state), at })?;
        }
        services.push(service);
    }
    Ok(services)
}

/// A listener's certificate: the one of the configuration in force when somebody connects.
#[derive(Debug)]
struct Certificate {
    state: Arc<State>,
    at: usize,
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let running = self.state.running();
        Some(running.config.listeners.get(self.at)?.tls.as_ref()?.pair.certified())
    }
}

fn listen<A>(
    service: &mut Service<A>,
    listener: &Listener,
    certificate: Certificate,
) -> Result<(), BootError> {
    match (&listener.address, &listener.tls) {
        (Address::Unix(path), _) => service.add_uds(&path.to_string_lossy(), None),
        (Address::Tcp(address), None) => service.add_tcp(&address.to_string()),
        (Address::Tcp(address), Some(files)) => {
            let (cert, key) = (files.cert.to_string_lossy(), files.key.to_string_lossy());
            let mut tls = TlsSettings::intermediate(&cert, &key).map_err(|error| {
                BootError::Tls { address: address.to_string(), error: error.to_string() }
            })?;
            tls.set_cert_resolver(Arc::new(certificate));
            tls.enable_h2();
            service.add_tls_with_settings(&address.to_string(), None, tls);
        }
    }
    Ok(())
}

fn admin_service(state: &Arc<State>) -> Service<AdminApp> {
    let mut service = Service::new("admin".to_owned(), AdminApp::new(Arc::clone(state)));
    service.threads = Some(1);
    match &state.running().config.admin.address {
        Address::Tcp(address) => service.add_tcp(&address.to_string()),
        Address::Unix(path) => service.add_uds(&path.to_string_lossy(), None),
    }
    service
}

/// Pingora tries a busy address for half a minute and then lives on without a listener, so it is
/// tried here first.
fn check_addresses(config: &Config) -> Result<(), BootError> {
    let listeners = config.listeners.iter().map(|listener| &listener.address);
    for address in listeners.chain([&config.admin.address]) {
        if let Address::Tcp(address) = address {
            TcpListener::bind(address)
                .map_err(|error| BootError::Bind { address: address.to_string(), error })?;
        }
    }
    Ok(())
}

/// A listener that fails later panics inside its service, and so does the arrival of sockets if who
/// sent them is no predecessor; the process must not live on without them.
fn end_with_lost_listeners() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        before(panic);
        let payload = panic.payload();
        let message = payload
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or_default();
        let thread = std::thread::current();
        if message.starts_with("Failed to build listeners") || thread.name() == Some(BOOTSTRAP) {
            log::error!("there are no listening sockets; leaving");
            std::process::exit(1);
        }
    }));
}

/// Reports, health, names: everything that talks to workers besides requests.
struct FleetTasks(Arc<State>);

#[async_trait]
impl BackgroundService for FleetTasks {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        fleet::run(self.0.fleets(), async move {
            // An error means that the server is gone.
            let _ = shutdown.changed().await;
        })
        .await;
    }
}

/// What the dashboard shows of the last minutes.
struct HistoryTask(Arc<State>);

#[async_trait]
impl BackgroundService for HistoryTask {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        history::run(Arc::clone(&self.0), async move {
            // An error means that the server is gone.
            let _ = shutdown.changed().await;
        })
        .await;
    }
}

/// What makes the edge read its configuration again.
struct ReloadTasks(Arc<State>, HangUp);

#[async_trait]
impl BackgroundService for ReloadTasks {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        if self.1.came() {
            // Told in the log and to whoever asks.
            let _ = self.0.reload();
        }
        reload::run(Arc::clone(&self.0), async move {
            // An error means that the server is gone.
            let _ = shutdown.changed().await;
        })
        .await;
    }
}
