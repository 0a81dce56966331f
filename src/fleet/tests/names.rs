//! Workers with host names.

use super::support::*;
use crate::config::WorkerHost;
use crate::fleet::discovery::{self, SystemResolver};
use crate::fleet::{ModelFleet, WorkerAddress};
use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::{Error, ErrorType, Result};
use pingora_load_balancing::Backend;
use pingora_load_balancing::discovery::ServiceDiscovery;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tidegate_policy::prefix::PrefixKey;

/// Answers as told, or fails; counts questions.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Script>>);

#[derive(Default)]
struct Script {
    addresses: Option<&'static [&'static str]>,
    questions: u64,
}

impl Told {
    fn say(&self, addresses: Option<&'static [&'static str]>) {
        self.0.lock().addresses = addresses;
    }

    /// Two more questions: the answer to the first of them has been used.
    async fn heard(&self) {
        let before = self.0.lock().questions;
        eventually("two more questions", || before + 2 <= self.0.lock().questions).await;
    }
}

#[async_trait]
impl ServiceDiscovery for Told {
    async fn discover(&self) -> Result<(BTreeSet<Backend>, HashMap<u64, bool>)> {
        let mut told = self.0.lock();
        told.questions += 1;
        match told.addresses {
            None => Error::e_explain(ErrorType::ConnectNoRoute, "as told"),
            Some(known) => {
                Ok((known.iter().map(|a| Backend::new(a).unwrap()).collect(), HashMap::new()))
            }
        }
    }
}

fn named() -> Arc<ModelFleet> {
    let host = WorkerHost::Name { host: "engine.example".to_owned(), port: 80 };
    still(model("m", vec![worker("w0", host)]))
}

fn tcp(address: &str) -> Option<WorkerAddress> {
    Some(WorkerAddress::Tcp(address.parse().unwrap()))
}

#[tokio::test]
async fn a_name_makes_a_worker_routable_and_a_failing_resolver_changes_nothing() {
    let (model, told) = (named(), Told::default());
    let worker = Arc::clone(&model.workers()[0]);
    let interval = Duration::from_millis(2);
    let watch = discovery::watch(Arc::clone(&worker), told.clone(), interval);
    let watch = tokio::spawn(watch);
    told.heard().await;
    assert!(!worker.live.is_routable());
    told.say(Some(&["[::1]:80", "127.0.0.1:80"]));
    told.heard().await;
    assert_eq!(worker.address(), tcp("127.0.0.1:80"), "IPv4 first");
    assert!(worker.live.is_routable());
    told.say(None);
    told.heard().await;
    assert_eq!(worker.address(), tcp("127.0.0.1:80"));
    assert!(worker.live.is_routable());
    watch.abort();
}

#[tokio::test]
async fn an_address_in_use_stays_while_it_is_known_and_another_one_is_another_process() {
    let (model, told) = (named(), Told::default());
    let worker = Arc::clone(&model.workers()[0]);
    let interval = Duration::from_millis(2);
    let watch = discovery::watch(Arc::clone(&worker), told.clone(), interval);
    let watch = tokio::spawn(watch);
    told.say(Some(&["127.0.0.5:80"]));
    told.heard().await;
    model.index.credit(worker.slot, &[PrefixKey(1)]).completed();
    told.say(Some(&["127.0.0.1:80", "127.0.0.5:80"]));
    told.heard().await;
    assert_eq!(worker.address(), tcp("127.0.0.5:80"));
    assert_eq!(model.owned_blocks(&worker), 1);
    told.say(Some(&["127.0.0.1:80"]));
    told.heard().await;
    assert_eq!(worker.address(), tcp("127.0.0.1:80"));
    assert_eq!(model.owned_blocks(&worker), 0);
    watch.abort();
}

#[tokio::test]
async fn a_name_with_two_addresses_is_tried_at_both() {
    let (address, _engine) = engine(|_| Does::ok("")).await;
    let host = WorkerHost::Name { host: "engine.example".to_owned(), port: address.port() };
    let mut config = probed("m", vec![worker("w0", host)]);
    config.load_reports.format = crate::config::ReportChoice::None;
    let model = still(config);
    let worker = Arc::clone(&model.workers()[0]);
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    worker.lasting.resolved(vec![WorkerAddress::Tcp(dead), WorkerAddress::Tcp(address)]);
    let prober = crate::fleet::health::Prober::new();
    let probes =
        crate::fleet::health::watch(Arc::clone(&worker), model.config.health.clone(), prober);
    let probes = tokio::spawn(probes);
    eventually("routable", || worker.live.is_routable()).await;
    assert_eq!(worker.address(), Some(WorkerAddress::Tcp(address)));
    probes.abort();
}

#[tokio::test]
async fn the_system_knows_localhost() {
    let resolver = SystemResolver { host: "localhost".to_owned(), port: 4711 };
    let (backends, _) = resolver.discover().await.unwrap();
    let local = |backend: &Backend| {
        backend
            .addr
            .as_inet()
            .is_some_and(|address| address.ip().is_loopback() && address.port() == 4711)
    };
    assert!(backends.iter().all(local));
    assert!(!backends.is_empty());
}
