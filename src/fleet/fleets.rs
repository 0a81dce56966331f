//! All models' fleets, by the names requests use.

use super::model::ModelFleet;
use super::view::{self, WorkerRow};
use crate::config::{self, Config};
use crate::metrics::Metrics;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The name that takes every name.
pub const ANY: &str = "*";
/// The alias of the default model.
const DEFAULT: &str = "default";

/// See the module.
#[derive(Debug)]
pub struct Fleets {
    models: Box<[Arc<ModelFleet>]>,
    by_name: HashMap<String, usize>,
    pub(super) dns_interval: Duration,
}

impl Fleets {
    /// One fleet per configured model.
    pub fn new(config: &Config, metrics: &Metrics) -> Self {
        let models: Box<[Arc<ModelFleet>]> = config
            .models
            .iter()
            .map(|model| ModelFleet::new(Arc::clone(model), index_share(config, model), metrics))
            .collect();
        let by_name = models.iter().enumerate().flat_map(|(at, model)| {
            let names = std::iter::once(&model.config.name).chain(&model.config.aliases);
            names.map(move |name| (name.clone(), at))
        });
        Self { by_name: by_name.collect(), models, dns_interval: config.dns_interval }
    }

    /// The fleet of a model's name or alias; `*` takes what nobody else has.
    pub fn lookup(&self, name: &str) -> Option<&Arc<ModelFleet>> {
        let at = self.by_name.get(name).or_else(|| self.by_name.get(ANY))?;
        self.models.get(*at)
    }

    /// Where a request without a model goes: the one with the alias `default`, or the only one.
    pub fn default_model(&self) -> Option<&Arc<ModelFleet>> {
        match (self.by_name.get(DEFAULT), &*self.models) {
            (Some(at), _) => self.models.get(*at),
            (None, [only]) => Some(only),
            (None, _) => None,
        }
    }

    /// All fleets, in the order of the file.
    pub fn models(&self) -> &[Arc<ModelFleet>] {
        &self.models
    }

    /// Has every model somebody to prefill?
    pub fn is_ready(&self) -> bool {
        self.models.iter().all(|model| model.is_ready())
    }

    /// The rows of `GET /v1/workers`, models and workers in the order of the file.
    pub fn rows(&self) -> Vec<WorkerRow> {
        self.models.iter().flat_map(|model| view::rows(model)).collect()
    }

    /// Writes what is true now into the metrics; to be called before a page is gathered.
    pub fn refresh_metrics(&self) {
        for model in &self.models {
            view::refresh_metrics(model);
        }
    }
}

/// The index settings with a model's part of the process's entries, by its number of workers.
fn index_share(config: &Config, model: &config::Model) -> config::Index {
    let all: u64 = config.models.iter().map(|model| model.workers.len() as u64).sum();
    let own = model.workers.len() as u64;
    let share = u128::from(config.index.max_entries) * u128::from(own) / u128::from(all.max(1));
    let max_entries = u64::try_from(share).unwrap_or(u64::MAX).max(1);
    config::Index { max_entries, ..config.index.clone() }
}
