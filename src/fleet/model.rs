//! One model's fleet, as one configuration has it.

use super::clock::Clock;
use super::kept::{self, Kept};
use super::lasting::{Home, Lasting};
use super::queue::Queue;
use super::routes;
use super::table::Table;
use super::tokens::{BytesPerToken, MeanUncached};
use super::warmth::WarmSince;
use super::worker::Worker;
use crate::config::{self, WorkerUrl};
use crate::metrics::Metrics;
use arc_swap::Guard;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tidegate_policy::fleet::{Fleet, Slot, WorkerId};
use tidegate_policy::index::PrefixIndex;
use tidegate_policy::learned::Routes;
use tokio::sync::Notify;

/// A model's workers, what is known of them, and what is learned about its prompts.
///
/// What is known and learned is shared with the fleets of the model in earlier and later
/// configurations. A request holds the fleet of its own configuration until it has to wait.
#[derive(Debug)]
pub struct ModelFleet {
    /// As configured.
    pub config: Arc<config::Model>,
    /// Who holds what.
    pub index: PrefixIndex,
    /// The time it goes by.
    pub clock: Clock,
    /// Prompt bytes per token.
    pub bytes_per_token: Arc<BytesPerToken>,
    /// Uncached tokens per request.
    pub mean_uncached: Arc<MeanUncached>,
    /// When one of its workers last began to warm up.
    warm_since: Arc<WarmSince>,
    /// Those who wait for one of its workers.
    pub queue: Arc<Queue>,
    /// What was measured of its routes; `None`: the policy never was `learned`.
    pub(super) routes: Option<Arc<Routes>>,
    pub(super) table: Table,
    pub(super) index_settings: config::Index,
    workers: Box<[Arc<Worker>]>,
    /// `by_slot[slot]` = position in `workers`.
    by_slot: Box<[Option<usize>]>,
    turn: Arc<AtomicU64>,
    changed: Arc<Notify>,
    /// A later configuration is in force, so nobody publishes this one's snapshots.
    is_superseded: AtomicBool,
}

/// What a fleet is built from.
pub(super) struct Plan<'a> {
    pub(super) config: &'a Arc<config::Model>,
    /// `max_entries` is the model's share.
    pub(super) index: config::Index,
    pub(super) metrics: &'a Metrics,
    pub(super) clock: Clock,
    /// The same model in the configuration before.
    pub(super) before: Option<&'a ModelFleet>,
    /// Its workers there, and those removed earlier that are still finishing.
    pub(super) known: HashMap<(&'a WorkerId, &'a WorkerUrl), &'a Arc<Worker>>,
}

impl ModelFleet {
    /// Workers with literal addresses and without health probes are routable at once; for the
    /// others [`super::run`] must be running.
    pub(super) fn new(plan: Plan<'_>) -> Arc<Self> {
        let kept = match plan.before {
            Some(before) => before.kept(&plan.index),
            None => Kept::new(&plan.config.name, &plan.index, plan.metrics),
        };
        let workers: Box<[Arc<Worker>]> =
            plan.config.workers.iter().filter_map(|worker| plan.worker(worker, &kept)).collect();
        let version = plan.before.map_or(0, |before| before.table.load().version());
        // Asked before the routes, which both share, change.
        let was_ready = plan.before.is_some_and(Self::is_ready);
        let fleet = Arc::new(Self {
            table: Table::new(version),
            by_slot: by_slot(&workers),
            routes: routes::next(kept.routes, plan.config, &workers),
            workers,
            index_settings: plan.index,
            config: Arc::clone(plan.config),
            is_superseded: AtomicBool::new(false),
            index: kept.index,
            clock: plan.clock,
            bytes_per_token: kept.bytes_per_token,
            mean_uncached: kept.mean_uncached,
            turn: kept.turn,
            warm_since: kept.warm_since,
            queue: kept.queue,
            changed: kept.changed,
        });
        fleet.publish();
        if !fleet.is_ready() && was_ready {
            // Requests would fail until the first probe, for no better reason than a reload.
            fleet.workers.iter().for_each(|worker| worker.lasting.trust());
        }
        fleet
    }

    /// What the model's next fleet takes over.
    fn kept(&self, next: &config::Index) -> Kept {
        let kept = Kept {
            index: self.index.clone(),
            bytes_per_token: Arc::clone(&self.bytes_per_token),
            mean_uncached: Arc::clone(&self.mean_uncached),
            turn: Arc::clone(&self.turn),
            routes: self.routes.clone(),
            warm_since: Arc::clone(&self.warm_since),
            queue: Arc::clone(&self.queue),
            changed: Arc::clone(&self.changed),
        };
        kept.index.set_max_entries(next.max_entries);
        if next.block_bytes != self.index_settings.block_bytes {
            log::info!("model {}: blocks of another size, its index starts anew", self.config.name);
            let unknown = kept::limits(next).unknown_capacity;
            self.workers.iter().for_each(|worker| worker.lasting.forget_blocks(unknown));
        }
        kept
    }

    /// What a decision reads; taken once per request.
    pub fn snapshot(&self) -> Guard<Arc<Fleet>> {
        // The few requests that are older than the configuration in force look for themselves.
        if self.is_superseded.load(Ordering::Relaxed) {
            self.look();
        }
        self.table.load()
    }

    /// The configuration in force is another one now, and who waits goes by that.
    pub(super) fn supersede(&self) {
        self.is_superseded.store(true, Ordering::Relaxed);
        self.queue.changed();
    }

    /// Is this the same model in another configuration? One that was gone meanwhile is not.
    pub fn continues(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.queue, &other.queue)
    }

    pub(super) fn last_warm_since(&self) -> &WarmSince {
        &self.warm_since
    }

    /// Wakes whoever publishes; shared by all fleets of the model.
    pub(super) fn changed(&self) -> &Notify {
        &self.changed
    }

    /// The worker with this number.
    pub fn worker(&self, slot: Slot) -> Option<&Arc<Worker>> {
        let at = (*self.by_slot.get(usize::from(slot.0))?)?;
        self.workers.get(at)
    }

    /// All workers, in the order of the file.
    pub fn workers(&self) -> &[Arc<Worker>] {
        &self.workers
    }

    /// Bytes of a prefix block.
    pub fn block_bytes(&self) -> u32 {
        self.index_settings.block_bytes
    }

    /// Counts requests; ties that rotate rotate by it.
    pub fn turn(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// The turn the next request will have, left to it.
    pub fn next_turn(&self) -> u64 {
        self.turn.load(Ordering::Relaxed)
    }

    /// Prompt blocks the index believes a worker holds.
    pub fn owned_blocks(&self, worker: &Worker) -> u64 {
        self.index.owned(worker.slot)
    }

    /// Can a request to this model be served now?
    pub fn is_ready(&self) -> bool {
        if let Some((_, routes)) = self.learned() {
            return routes.has_route(&self.snapshot(), self.clock.now());
        }
        self.snapshot()
            .workers()
            .iter()
            .any(|worker| worker.can_prefill() && worker.live.is_routable())
    }
}

impl Plan<'_> {
    /// A worker of the same id and URL goes on; any other is a new one.
    fn worker(&self, config: &config::Worker, kept: &Kept) -> Option<Arc<Worker>> {
        if let Some(before) = self.known.get(&(&config.id, &config.url))
            && before.lasting.is_kept(&before.config, config, self.config)
        {
            return Some(Worker::new(config.clone(), Arc::clone(&before.lasting)));
        }
        let Some(slot) = kept.index.add() else {
            log::error!("worker {}: one too many, not used", config.id);
            return None;
        };
        // The index may have begun with blocks of another size.
        kept.index.set_capacity(slot, kept::limits(&self.index).unknown_capacity);
        let metrics = self.metrics.workers.worker(&self.config.name, config.id.as_str());
        let home = Home {
            index: kept.index.clone(),
            warm_since: Arc::clone(&kept.warm_since),
            queue: Arc::clone(&kept.queue),
            changed: Arc::clone(&kept.changed),
            clock: self.clock.clone(),
        };
        let lasting = Lasting::new(config, self.config, slot, metrics, home);
        if self.before.is_some_and(|before| !before.workers().is_empty()) {
            lasting.grow_cold();
        }
        Some(Worker::new(config.clone(), lasting))
    }
}

fn by_slot(workers: &[Arc<Worker>]) -> Box<[Option<usize>]> {
    let slots = workers.iter().map(|worker| usize::from(worker.slot.0) + 1).max().unwrap_or(0);
    let mut by_slot = vec![None; slots].into_boxed_slice();
    for (at, worker) in workers.iter().enumerate() {
        by_slot[usize::from(worker.slot.0)] = Some(at);
    }
    by_slot
}
