//! Host names, resolved in the background by the system's resolver: those of single workers, and
//! those that stand for all workers of a model.
//!
//! A resolver that fails, or knows no address, changes nothing: the last good addresses stay in use.

use super::clock::jittered;
use super::worker::{Worker, WorkerAddress};
use crate::config::DnsName;
use crate::limited::Changes;
use async_trait::async_trait;
use pingora::{Error, ErrorType, OrErr, Result};
use pingora_load_balancing::Backend;
use pingora_load_balancing::discovery::ServiceDiscovery;
use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Addresses of one name that are used, the lowest first.
pub const MOST_ADDRESSES: usize = 1_000;

/// One host name, asked of the system's resolver.
#[derive(Clone, Debug)]
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
    worker: Arc<Worker>,
    resolver: impl ServiceDiscovery,
    interval: Duration,
) {
    let who = format!("worker {}", worker.id);
    ask(&who, resolver, interval, |addresses| {
        if worker.lasting.resolved(addresses.into_iter().map(WorkerAddress::Tcp).collect()) {
            log::info!("{who}: its name stands for another address now");
            worker.lasting.replaced();
        }
    })
    .await;
}

/// Tells `found` all addresses of a name, at once and again every `interval`, for as long as it is
/// polled.
pub async fn watch_name(name: &DnsName, interval: Duration, found: impl FnMut(Vec<SocketAddr>)) {
    let resolver = SystemResolver { host: name.host.clone(), port: name.port };
    ask(&format!("discovery of {name}"), resolver, interval, found).await;
}

async fn ask(
    who: &str,
    resolver: impl ServiceDiscovery,
    interval: Duration,
    mut found: impl FnMut(Vec<SocketAddr>),
) {
    let works = Changes::default();
    let too_many = Changes::default();
    loop {
        match resolver.discover().await {
            Ok((backends, _)) => {
                if works.to(true) == Some(Some(false)) {
                    log::info!("{who}: its name resolves again");
                }
                let dropped = backends.len().saturating_sub(MOST_ADDRESSES);
                if too_many.to(dropped).is_some() && 0 < dropped {
                    log::warn!("{who}: {dropped} addresses beyond {MOST_ADDRESSES} are not used");
                }
                found(addresses(&backends));
            }
            Err(error) => {
                if works.to(false).is_some() {
                    log::warn!("{who}: {error}; the last good addresses stay");
                }
            }
        }
        sleep(jittered(interval)).await;
    }
}

/// IPv4 first, since sets are ordered so, and that is where engines listen by default.
fn addresses(backends: &BTreeSet<Backend>) -> Vec<SocketAddr> {
    let sockets = backends.iter().filter_map(|backend| backend.addr.as_inet());
    sockets.copied().take(MOST_ADDRESSES).collect()
}
