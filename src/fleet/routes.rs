//! A model's learned routes, as its fleet has them.
//!
//! The topology is what is configured; who of it may be used now is read from the fleet's snapshot.
//! So a reload that adds, removes or re-shards a worker changes the topology, and with it the epoch;
//! a worker that fails or drains changes nothing here.

use super::model::ModelFleet;
use super::worker::Worker;
use crate::config::{self, Policy};
use std::sync::Arc;
use tidegate_policy::learned::{ModelTable, Node, Routes, Settings, Topology};

/// What a worker counts with if no benchmark is known of any.
const UNKNOWN_TPS: f64 = 1.0;

/// The routes of a model's next fleet: `before` with the topology that is configured now. A model
/// under another policy keeps what it has learned for the day it comes back.
pub(super) fn next(
    before: Option<Arc<Routes>>,
    config: &config::Model,
    workers: &[Arc<Worker>],
) -> Option<Arc<Routes>> {
    let Policy::Learned(learned) = &config.policy else { return before };
    let topology = topology(&config.name, learned, workers);
    Some(match before {
        Some(routes) => {
            let before = routes.topology().epoch();
            let epoch = routes.set_topology(topology);
            if before < epoch {
                log::info!("model {}: topology epoch {epoch}", config.name);
            }
            routes
        }
        None => Arc::new(Routes::new(topology)),
    })
}

fn topology(model: &str, learned: &config::Learned, workers: &[Arc<Worker>]) -> Topology {
    let layers = learned.layers();
    let node = |worker: &Arc<Worker>| {
        let shard = worker.config.shard.clone().unwrap_or_default();
        Node {
            id: worker.id.clone(),
            slot: worker.slot,
            layers: shard.layers.unwrap_or(layers),
            tps: shard.tps.unwrap_or(UNKNOWN_TPS),
            reputation: shard.reputation,
        }
    };
    Topology::new(model, layers, workers.iter().map(node).collect()).unwrap_or_else(|fault| {
        // The check of the configuration lets none of these causes through.
        log::error!("model {model}: no topology: {fault}");
        Topology::without_nodes(model, layers)
    })
}

impl ModelFleet {
    /// The settings and the routes, if the model's policy is `learned`.
    pub fn learned(&self) -> Option<(&config::Learned, &Arc<Routes>)> {
        match &self.config.policy {
            Policy::Learned(learned) => Some((learned, self.routes.as_ref()?)),
            Policy::CacheAware(_) | Policy::LeastLoad { .. } | Policy::RoundRobin => None,
        }
    }

    /// What an operator sees of the routes, and the settings they are chosen by.
    pub fn routing(&self) -> Option<(&Settings, ModelTable)> {
        let (learned, routes) = self.learned()?;
        let table = routes.table(&self.snapshot(), self.clock.now(), &learned.settings);
        Some((&learned.settings, table))
    }

    /// Forgets routes that were not measured for long.
    pub(super) fn prune_routes(&self) {
        let Some((learned, routes)) = self.learned() else { return };
        let forgotten = routes.prune(self.clock.now(), &learned.settings);
        if 0 < forgotten {
            log::info!("model {}: {forgotten} routes forgotten", self.config.name);
        }
    }
}
