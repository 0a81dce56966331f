//! What the parts of one edge share.

mod succession;

use crate::config::{self, Config, Source};
use crate::fleet::{Fleets, ModelFleet};
use crate::history::History;
use crate::journal::Journal;
use crate::limited::{Sampler, room};
use crate::metrics::{DecisionMetrics, Metrics, OTHER, QueueMetrics, RequestMetrics, RouteMetrics};
use arc_swap::{ArcSwap, Guard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use succession::Succession;
pub use succession::{Rejected, Standing};
use tokio::sync::{Semaphore, watch};

/// One edge.
#[derive(Debug)]
pub struct State {
    running: ArcSwap<Running>,
    /// The same fleets, for whoever has to know when there are others.
    fleets: watch::Sender<Arc<Fleets>>,
    succession: Succession,
    /// Every metric.
    pub metrics: Metrics,
    /// The last few hundred requests with their decisions.
    pub journal: Journal,
    /// The last ten minutes.
    pub history: History,
    draining: AtomicBool,
    superseded: AtomicBool,
    /// Process id of the one this one took over from; 0 = none.
    predecessor: AtomicI32,
    in_progress: AtomicU64,
}

/// A configuration and the fleets built from it. A request holds one from start to end, unless it has
/// to wait or nobody of that one can take it: then it goes over to the one in force.
#[derive(Debug)]
pub struct Running {
    /// The configuration, with the workers that names stand for.
    pub config: Arc<Config>,
    /// Its fleets.
    pub fleets: Arc<Fleets>,
    /// Which one it is, from 1.
    pub generation: u64,
    /// Room for all buffered bodies together.
    pub(crate) room: Arc<Semaphore>,
    models: BTreeMap<String, Arc<ServedModel>>,
    other: Arc<ServedModel>,
}

/// A model's fleet with its metric handles; without a fleet for requests that name no model of ours.
#[derive(Debug)]
pub struct ServedModel {
    /// Who serves it.
    pub fleet: Option<Arc<ModelFleet>>,
    /// What became of its requests.
    pub requests: RequestMetrics,
    /// Where they were sent.
    pub decisions: DecisionMetrics,
    /// Which routes they took, under the policy `learned`.
    pub routes: Option<RouteMetrics>,
    /// How its requests wait at the edge, if they may.
    pub queue: Option<QueueMetrics>,
    /// Which saturation pins to log.
    pub pins: Sampler,
    /// Which decisions of an inert gate to warn of.
    pub inert_gate: Sampler,
}

impl ServedModel {
    fn new(fleet: Option<&Arc<ModelFleet>>, metrics: &Metrics) -> Arc<Self> {
        let config: Option<&config::Model> = fleet.map(|fleet| &*fleet.config);
        let (name, policy) =
            config.map_or((OTHER, OTHER), |config| (&config.name, config.policy.as_str()));
        Arc::new(Self {
            fleet: fleet.cloned(),
            requests: metrics.requests.model(name),
            decisions: metrics.decisions.model(name, policy),
            routes: fleet.and_then(|fleet| fleet.learned()).map(|_| metrics.routes.model(name)),
            queue: config.and_then(|of| of.queue.as_ref()).map(|_| metrics.queue.model(name)),
            pins: Sampler::new(),
            inert_gate: Sampler::new(),
        })
    }
}

impl State {
    /// Builds the fleets of a configuration; nothing runs yet.
    ///
    /// # Errors
    /// A metric could not be registered, which is a fault of the edge.
    pub fn new(config: Arc<Config>) -> prometheus::Result<Arc<Self>> {
        Self::build(config, None)
    }

    /// The same for a configuration that can be read again.
    ///
    /// # Errors
    /// As [`State::new`].
    pub fn with_source(config: Arc<Config>, source: Source) -> prometheus::Result<Arc<Self>> {
        Self::build(config, Some(source))
    }

    fn build(config: Arc<Config>, source: Option<Source>) -> prometheus::Result<Arc<Self>> {
        let metrics = Metrics::new()?;
        let fleets = Arc::new(Fleets::new(&config, &metrics));
        let running = Running {
            room: room(config.limits.max_buffered_bytes),
            models: served(&fleets, &metrics),
            other: ServedModel::new(None, &metrics),
            config: Arc::clone(&config),
            fleets: Arc::clone(&fleets),
            generation: 1,
        };
        metrics.process.config_applied(1, unix_seconds());
        Ok(Arc::new(Self {
            running: ArcSwap::from_pointee(running),
            fleets: watch::Sender::new(fleets),
            succession: Succession::new(config, source),
            metrics,
            journal: Journal::default(),
            history: History::default(),
            draining: AtomicBool::new(false),
            superseded: AtomicBool::new(false),
            predecessor: AtomicI32::new(0),
            in_progress: AtomicU64::new(0),
        }))
    }

    /// The configuration in force, for a look.
    pub fn running(&self) -> Guard<Arc<Running>> {
        self.running.load()
    }

    /// The configuration in force, to hold on to.
    pub fn pin(&self) -> Arc<Running> {
        self.running.load_full()
    }

    /// Is this still the one in force?
    pub fn is_in_force(&self, running: &Arc<Running>) -> bool {
        Arc::ptr_eq(&self.running.load(), running)
    }

    /// The fleets in force, now and later; what [`crate::fleet::run`] serves.
    pub fn fleets(&self) -> watch::Receiver<Arc<Fleets>> {
        self.fleets.subscribe()
    }

    /// From now on readiness is red and connections are not kept.
    pub fn start_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Is the process about to leave without a successor?
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// A successor accepts on the same sockets, or does so no more. Connections are not kept then;
    /// readiness is the successor's too and stays.
    pub fn set_superseded(&self, superseded: bool) {
        self.superseded.store(superseded, Ordering::Relaxed);
    }

    /// Is the process about to leave, with or without a successor?
    pub fn is_leaving(&self) -> bool {
        self.is_draining() || self.is_superseded()
    }

    /// Does a successor accept on the same sockets?
    pub fn is_superseded(&self) -> bool {
        self.superseded.load(Ordering::Relaxed)
    }

    /// This process serves in the place of another, whose id is told if it is known.
    pub fn took_over_from(&self, pid: Option<i32>) {
        self.predecessor.store(pid.unwrap_or(-1), Ordering::Relaxed);
    }

    /// The process this one took over from; -1 if its id is not known.
    pub fn predecessor(&self) -> Option<i32> {
        Some(self.predecessor.load(Ordering::Relaxed)).filter(|&pid| pid != 0)
    }

    /// Requests between their head and the end of their answer.
    pub fn in_progress(&self) -> u64 {
        self.in_progress.load(Ordering::Relaxed)
    }
}

/// Counts a request while it lives.
#[derive(Debug)]
pub(crate) struct InProgress(Arc<State>);

impl InProgress {
    pub(crate) fn enter(state: Arc<State>) -> Self {
        state.in_progress.fetch_add(1, Ordering::Relaxed);
        Self(state)
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.in_progress.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Running {
    /// What is in force after this one.
    fn next(&self, config: Arc<Config>, metrics: &Metrics, generation: u64) -> Self {
        let fleets = Arc::new(self.fleets.next(&config, metrics));
        let most = config.limits.max_buffered_bytes;
        let room = match self.config.limits.max_buffered_bytes == most {
            true => Arc::clone(&self.room),
            false => room(most),
        };
        let (models, other) = (served(&fleets, metrics), Arc::clone(&self.other));
        Self { config, fleets, generation, room, models, other }
    }

    /// The model a client named, or the default one if it named none.
    pub fn model(&self, name: Option<&str>) -> Option<&Arc<ServedModel>> {
        let fleet = match name {
            Some(name) => self.fleets.lookup(name)?,
            None => self.fleets.default_model()?,
        };
        self.models.get(&fleet.config.name)
    }

    /// Stands for requests that name no model of ours.
    pub fn other(&self) -> &Arc<ServedModel> {
        &self.other
    }
}

fn served(fleets: &Fleets, metrics: &Metrics) -> BTreeMap<String, Arc<ServedModel>> {
    let served = |fleet: &Arc<ModelFleet>| {
        (fleet.config.name.clone(), ServedModel::new(Some(fleet), metrics))
    };
    fleets.models().iter().map(served).collect()
}

/// Seconds since 1970.
pub(crate) fn unix_seconds() -> f64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64())
}
