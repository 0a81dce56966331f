//! Workers that are not in any file: the addresses names stand for (`discovery.dns`).

use super::{
    Config, Discovery, DnsName, Model, Policy, Scheme, Shard, UpstreamAuth, Worker, WorkerHost,
    WorkerSource, WorkerUrl,
};
use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use tidegate_policy::fleet::WorkerId;

/// What each name stood for when it was last resolved.
#[derive(Clone, Debug, Default)]
pub struct Found(BTreeMap<DnsName, Vec<SocketAddr>>);

impl Found {
    /// Is it something else than what is known?
    pub fn is_news(&self, name: &DnsName, addresses: &[SocketAddr]) -> bool {
        self.0.get(name).is_none_or(|known| known != addresses)
    }

    /// A name was resolved.
    pub fn insert(&mut self, name: DnsName, addresses: Vec<SocketAddr>) {
        self.0.insert(name, addresses);
    }

    /// Forgets names that no model has.
    pub fn keep_only(&mut self, config: &Config) {
        self.0.retain(|name, _| config.names().any(|used| used == name));
    }
}

impl Config {
    /// Names that stand for all workers of a model.
    pub fn names(&self) -> impl Iterator<Item = &DnsName> {
        self.models.iter().filter_map(|model| match model.discovery.as_ref()? {
            Discovery::Dns { name, .. } => Some(name),
            Discovery::File(_) => None,
        })
    }

    /// The same with the workers that are found by name.
    pub fn with_found(&self, found: &Found) -> Self {
        let models = self.models.iter().map(|model| match &model.discovery {
            Some(Discovery::Dns { name, upstream_auth }) => {
                let addresses = found.0.get(name).map_or(&[][..], Vec::as_slice);
                Arc::new(model.with(addresses, upstream_auth.as_ref()))
            }
            Some(Discovery::File(_)) | None => Arc::clone(model),
        });
        Self { models: models.collect(), ..self.clone() }
    }
}

impl Model {
    /// A worker of the file wins over a found one of the same id or address.
    fn with(&self, addresses: &[SocketAddr], auth: Option<&UpstreamAuth>) -> Self {
        let mut model = self.clone();
        let shard = matches!(self.policy, Policy::Learned(_)).then(Shard::default);
        let found = addresses
            .iter()
            .map(|address| Worker { shard: shard.clone(), ..worker(*address, auth) });
        let ids: HashSet<&WorkerId> = self.workers.iter().map(|known| &known.id).collect();
        let urls: HashSet<&WorkerUrl> = self.workers.iter().map(|known| &known.url).collect();
        let is_new = |worker: &Worker| !ids.contains(&worker.id) && !urls.contains(&worker.url);
        model.workers.extend(found.filter(is_new));
        model
    }
}

fn worker(address: SocketAddr, auth: Option<&UpstreamAuth>) -> Worker {
    // Without the brackets of IPv6, which no id may have; the port is the same for all of a model.
    let id = format!("{}:{}", address.ip(), address.port());
    let url = WorkerUrl { scheme: Scheme::Http, host: WorkerHost::Ip(address) };
    let worker = Worker::new(WorkerId::from(id.as_str()), url, WorkerSource::Found);
    Worker { upstream_auth: auth.cloned(), ..worker }
}
