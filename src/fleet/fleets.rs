//! All models' fleets, by the names requests use.

use super::clock::Clock;
use super::model::{ModelFleet, Plan};
use super::view::{self, WorkerRow};
use super::worker::Worker;
use crate::config::{self, Config};
use crate::metrics::Metrics;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The name that takes every name.
pub const ANY: &str = "*";
/// The alias of the default model.
const DEFAULT: &str = "default";

/// See the module. Fleets of one configuration; what is known of workers and learned about models is
/// handed on from each to the next.
#[derive(Debug)]
pub struct Fleets {
    models: Box<[Arc<ModelFleet>]>,
    by_name: HashMap<String, usize>,
    /// Workers of earlier configurations; requests of theirs keep them.
    finishing: Box<[Finishing]>,
    clock: Clock,
    pub(super) dns_interval: Duration,
}

#[derive(Clone, Debug)]
struct Finishing {
    model: Arc<config::Model>,
    worker: Weak<Worker>,
}

impl Fleets {
    /// One fleet per configured model.
    pub fn new(config: &Config, metrics: &Metrics) -> Self {
        Self::build(config, metrics, Clock::default(), None)
    }

    /// The same, by a clock of the caller's.
    pub fn with_clock(config: &Config, metrics: &Metrics, clock: Clock) -> Self {
        Self::build(config, metrics, clock, None)
    }

    /// The fleets of the configuration after this one. They are in force once this one is told with
    /// [`Fleets::supersede`].
    pub fn next(&self, config: &Config, metrics: &Metrics) -> Self {
        Self::build(config, metrics, self.clock.clone(), Some(self))
    }

    fn build(config: &Config, metrics: &Metrics, clock: Clock, before: Option<&Self>) -> Self {
        let finishing = before.map_or_else(Vec::new, Self::still_finishing);
        let models: Box<[Arc<ModelFleet>]> = config
            .models
            .iter()
            .map(|model| {
                let before = before.and_then(|before| before.named(&model.name));
                let known = finishing
                    .iter()
                    .filter(|(of, _)| of.name == model.name)
                    .map(|(_, worker)| worker)
                    // Last, as of two workers with one id and URL the present one counts.
                    .chain(before.map_or(&[][..], |before| before.workers()))
                    .map(|worker| ((&worker.id, &worker.config.url), worker));
                let known = known.collect();
                let index = index_share(config, model);
                let clock = clock.clone();
                ModelFleet::new(Plan { config: model, index, metrics, clock, before, known })
            })
            .collect();
        let by_name = models.iter().enumerate().flat_map(|(at, model)| {
            let names = std::iter::once(&model.config.name).chain(&model.config.aliases);
            names.map(move |name| (name.clone(), at))
        });
        let by_name = by_name.collect();
        let listed = numbers(&models);
        let left_out = before.into_iter().flat_map(Self::all_workers).chain(finishing);
        let finishing = left_out
            .filter(|(_, worker)| !listed.contains(&worker.lasting.number))
            .map(|(model, worker)| Finishing { model, worker: Arc::downgrade(&worker) })
            .collect();
        Self { by_name, models, finishing, clock, dns_interval: config.dns_interval }
    }

    /// `next` is in force from now on: workers it leaves out finish what they have and go.
    pub fn supersede(&self, next: &Self) {
        let listed = numbers(&next.models);
        for (_, worker) in self.all_workers() {
            if !listed.contains(&worker.lasting.number) {
                worker.lasting.remove();
            }
        }
        self.models.iter().for_each(|model| model.supersede());
    }

    /// The models that `next` does not have.
    pub fn not_in(&self, next: &Self) -> impl Iterator<Item = &Arc<ModelFleet>> {
        self.models.iter().filter(|model| next.named(&model.config.name).is_none())
    }

    fn all_workers(&self) -> impl Iterator<Item = (Arc<config::Model>, Arc<Worker>)> {
        self.models.iter().flat_map(|model| {
            model.workers().iter().map(|worker| (Arc::clone(&model.config), Arc::clone(worker)))
        })
    }

    fn still_finishing(&self) -> Vec<(Arc<config::Model>, Arc<Worker>)> {
        let there = |of: &Finishing| Some((Arc::clone(&of.model), of.worker.upgrade()?));
        self.finishing.iter().filter_map(there).collect()
    }

    /// The fleet of the model with this very name.
    fn named(&self, name: &str) -> Option<&ModelFleet> {
        let at = self.by_name.get(name)?;
        self.models.get(*at).filter(|model| model.config.name == name).map(Arc::as_ref)
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

    /// The rows of `GET /v1/workers`, models and workers in the order of the file, then the removed
    /// workers that still have requests.
    pub fn rows(&self) -> Vec<WorkerRow> {
        let listed = self.models.iter().flat_map(|model| view::rows(model));
        let finishing = self.still_finishing();
        let removed = finishing
            .iter()
            .filter(|(_, worker)| worker.lasting.is_finishing())
            .map(|(model, worker)| view::removed(model, worker));
        listed.chain(removed).collect()
    }

    /// Writes what is true now into the metrics; to be called before a page is gathered.
    pub fn refresh_metrics(&self) {
        for model in &self.models {
            view::refresh_metrics(model);
        }
    }
}

fn numbers(models: &[Arc<ModelFleet>]) -> HashSet<u64> {
    let workers = models.iter().flat_map(|model| model.workers());
    workers.map(|worker| worker.lasting.number).collect()
}

/// The index settings with a model's part of the process's entries, by its number of workers.
fn index_share(config: &Config, model: &config::Model) -> config::Index {
    let all: u64 = config.models.iter().map(|model| model.workers.len() as u64).sum();
    let own = model.workers.len() as u64;
    let share = u128::from(config.index.max_entries) * u128::from(own) / u128::from(all.max(1));
    let max_entries = u64::try_from(share).unwrap_or(u64::MAX).max(1);
    config::Index { max_entries, ..config.index.clone() }
}
