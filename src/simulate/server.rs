//! A fleet of simulated engines over HTTP/1.1, one address each.

use super::api::Service;
use super::clock::Clock;
use super::engine::{EngineConfig, EngineConfigError, EngineLoad, EngineStats};
use super::live::LiveEngine;
use super::nodes::Nodes;
use http::StatusCode;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Engines behind one address list, all alike.
#[derive(Clone, Debug)]
pub struct FleetConfig {
    /// The model they serve.
    pub model: String,
    /// What each engine is.
    pub engine: EngineConfig,
    /// Simulated seconds per wall second.
    pub speed: f64,
    /// Bytes of text that count as one token.
    pub bytes_per_token: u32,
    /// A stream carries one event for so many tokens, besides the first and the last; tokens that
    /// come faster than they are written share an event in any case.
    pub tokens_per_event: u32,
    /// How load is reported.
    pub load_endpoint: LoadEndpoint,
    /// What a request that brings a route is as fast as.
    pub nodes: Nodes,
}

impl Default for FleetConfig {
    fn default() -> Self {
        Self {
            model: "simulated".to_owned(),
            engine: EngineConfig::default(),
            speed: 1.0,
            bytes_per_token: 4,
            tokens_per_event: 1,
            load_endpoint: LoadEndpoint::GetLoad,
            nodes: Nodes::default(),
        }
    }
}

/// The one path that reports load; the other ones answer 404.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadEndpoint {
    /// `/get_load`: a list with one object per rank.
    GetLoad,
    /// `/v1/loads`.
    V1Loads,
    /// None.
    Absent,
}

/// What an engine does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// New requests of any path get no answer.
    Hang,
    /// New requests for generation get this status.
    Status(StatusCode),
}

/// Why a fleet cannot start.
#[derive(Debug, Error)]
pub enum FleetError {
    /// The engine's numbers.
    #[error(transparent)]
    Config(#[from] EngineConfigError),
    /// The address.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
}

/// One engine's figures.
#[derive(Clone, Copy, Debug)]
pub struct EngineFigures {
    /// Where it listens.
    pub address: SocketAddr,
    /// What it has done since its start.
    pub stats: EngineStats,
    /// What it does now.
    pub load: EngineLoad,
}

/// A running fleet; dropping it ends it at once, with open connections.
pub struct SimulatedFleet {
    config: Arc<FleetConfig>,
    clock: Clock,
    engines: Vec<RunningEngine>,
}

struct RunningEngine {
    address: SocketAddr,
    service: Arc<Service>,
    tasks: JoinSet<()>,
}

impl SimulatedFleet {
    /// Starts `engines` engines on free ports of 127.0.0.1, on the runtime of the caller.
    ///
    /// # Errors
    /// [`FleetError`].
    pub async fn start(engines: usize, config: FleetConfig) -> Result<Self, FleetError> {
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self::start_at(&vec![any_port; engines], config).await
    }

    /// Starts an engine on each address.
    ///
    /// # Errors
    /// [`FleetError`].
    pub async fn start_at(
        addresses: &[SocketAddr],
        config: FleetConfig,
    ) -> Result<Self, FleetError> {
        let clock = Clock::start(config.speed);
        let config = Arc::new(config);
        let mut engines = Vec::with_capacity(addresses.len());
        for &address in addresses {
            engines.push(RunningEngine::start(address, &config, clock).await?);
        }
        Ok(Self { config, clock, engines })
    }

    /// Where the engines listen, in order.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.engines.iter().map(|engine| engine.address).collect()
    }

    /// The simulated time all engines live in.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Each engine's figures, in order.
    pub fn stats(&self) -> Vec<EngineFigures> {
        let figures = |engine: &RunningEngine| EngineFigures {
            address: engine.address,
            stats: engine.service.live.stats(),
            load: engine.service.live.load(),
        };
        self.engines.iter().map(figures).collect()
    }

    /// Prompt tokens reused, of all prompt tokens admitted by all engines; 0 before the first.
    pub fn hit_rate(&self) -> f64 {
        let (mut cached, mut prompt) = (0, 0);
        for engine in self.stats() {
            cached += engine.stats.cached_tokens;
            prompt += engine.stats.prompt_tokens;
        }
        cached as f64 / (prompt as f64).max(1.0)
    }

    /// Makes an engine fail from its next request on, or work again; `engine` counts from 0 and
    /// one that does not exist is ignored.
    pub fn set_fault(&self, engine: usize, fault: Fault) {
        if let Some(engine) = self.engines.get(engine) {
            *engine.service.fault.lock() = fault;
        }
    }

    /// Kills an engine: connections are refused and open ones closed, until [`Self::restart`].
    pub async fn kill(&mut self, engine: usize) {
        if let Some(engine) = self.engines.get_mut(engine) {
            engine.tasks.shutdown().await;
        }
    }

    /// Kills an engine if it runs and starts it again on its address, with nothing in its cache.
    ///
    /// # Errors
    /// [`FleetError::Listen`] if somebody else took the port.
    pub async fn restart(&mut self, engine: usize) -> Result<(), FleetError> {
        self.kill(engine).await;
        if let Some(engine) = self.engines.get_mut(engine) {
            *engine = RunningEngine::start(engine.address, &self.config, self.clock).await?;
        }
        Ok(())
    }

    /// Ends all engines and closes their connections.
    pub async fn shutdown(mut self) {
        for engine in &mut self.engines {
            engine.tasks.shutdown().await;
        }
    }
}

impl RunningEngine {
    async fn start(
        address: SocketAddr,
        config: &Arc<FleetConfig>,
        clock: Clock,
    ) -> Result<Self, FleetError> {
        let failed = |source| FleetError::Listen { address, source };
        let live = Arc::new(LiveEngine::new(config.engine, clock, config.tokens_per_event)?);
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let service = Arc::new(Service {
            live: Arc::clone(&live),
            fault: Mutex::new(Fault::None),
            config: Arc::clone(config),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(live.drive());
        tasks.spawn(accept(listener, Arc::clone(&service)));
        Ok(Self { address, service, tasks })
    }
}

/// Serves connections until it is dropped, which drops them too.
async fn accept(listener: TcpListener, service: Arc<Service>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((connection, _)) => {
                    connections.spawn(serve(connection, Arc::clone(&service)));
                }
                // Out of descriptors, most likely: they come back as connections end.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(connection: TcpStream, service: Arc<Service>) {
    // Without it a token can wait for the acknowledgement of the one before; it is not vital.
    let _ = connection.set_nodelay(true);
    let answer = service_fn(move |request| Arc::clone(&service).answer(request));
    // An error here is a client that left.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(connection), answer).await;
}
