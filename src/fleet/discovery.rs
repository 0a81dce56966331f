//! Host names of workers, resolved in the background by the system's resolver.
//!
//! A resolver that fails changes nothing: the last good addresses stay in use.

use super::clock::jittered;
use super::model::ModelFleet;
use super::worker::{Worker, WorkerAddress};
use crate::limited::Changes;
use async_trait::async_trait;
use pingora::{Error, ErrorType, OrErr, Result};
use pingora_load_balancing::Backend;
use pingora_load_balancing::discovery::ServiceDiscovery;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// One worker's host name, asked of the system's resolver.
pub(super) struct SystemResolver {
    pub(super) host: String,
    pub(super) port: u16,
}

#[async_trait]
impl ServiceDiscovery for SystemResolver {
    async fn discover(&self) -> Result<(BTreeSet<Backend>, HashMap<u64, bool>)> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let found = found.or_err(ErrorType::ConnectNoRoute, "its name cannot be resolved")?;
        let backends = found.map(|address| Backend::new(&address.to_string()));
        let backends = backends.collect::<Result<BTreeSet<_>>>()?;
        if backends.is_empty() {
            return Error::e_explain(ErrorType::ConnectNoRoute, "its name has no address");
        }
        Ok((backends, HashMap::new()))
    }
}

/// Keeps one worker's addresses true for as long as it is polled.
pub(super) async fn watch(
    model: Arc<ModelFleet>,
    worker: Arc<Worker>,
    resolver: impl ServiceDiscovery,
    interval: Duration,
) {
    let works = Changes::default();
    loop {
        match resolver.discover().await {
            Ok((backends, _)) => {
                if works.to(true) == Some(Some(false)) {
                    log::info!("worker {}: its name resolves again", worker.id);
                }
                if worker.resolved(addresses(&backends)) {
                    log::info!("worker {}: its name stands for another address now", worker.id);
                    model.replaced(&worker);
                }
            }
            Err(error) => {
                if works.to(false).is_some() {
                    log::warn!("worker {}: {error}; the last good addresses stay", worker.id);
                }
            }
        }
        sleep(jittered(interval)).await;
    }
}

/// IPv4 first, since sets are ordered so, and that is where engines listen by default.
fn addresses(backends: &BTreeSet<Backend>) -> Vec<WorkerAddress> {
    let sockets = backends.iter().filter_map(|backend| backend.addr.as_inet());
    sockets.map(|address| WorkerAddress::Tcp(*address)).collect()
}
