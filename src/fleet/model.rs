//! One model's fleet.

use super::table::Table;
use super::tokens::{BytesPerToken, MeanUncached};
use super::worker::Worker;
use crate::config;
use crate::metrics::Metrics;
use arc_swap::Guard;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_policy::fleet::{Fleet, Slot};
use tidegate_policy::index::{Limits, PrefixIndex};

/// A model's workers, what is known of them, and what is learned about its prompts.
#[derive(Debug)]
pub struct ModelFleet {
    /// As configured.
    pub config: Arc<config::Model>,
    /// Who holds what.
    pub index: PrefixIndex,
    /// Prompt bytes per token.
    pub bytes_per_token: BytesPerToken,
    /// Uncached tokens per request.
    pub mean_uncached: MeanUncached,
    pub(super) table: Table,
    pub(super) index_settings: config::Index,
    workers: Box<[Arc<Worker>]>,
    /// `by_slot[slot]` = position in `workers`.
    by_slot: Box<[Option<usize>]>,
    turn: AtomicU64,
}

impl ModelFleet {
    /// Workers with literal addresses and without health probes are routable at once; for the
    /// others [`super::run`] must be running. `index_settings.max_entries` is this model's share.
    pub fn new(
        config: Arc<config::Model>,
        index_settings: config::Index,
        metrics: &Metrics,
    ) -> Arc<Self> {
        let block_bytes = NonZeroU32::new(index_settings.block_bytes).unwrap_or(NonZeroU32::MIN);
        let limits = Limits::new(index_settings.max_entries, block_bytes, fastrand::u64(..));
        let index = PrefixIndex::new(limits);
        let workers: Box<[Arc<Worker>]> = config
            .workers
            .iter()
            .filter_map(|worker| {
                let handles = metrics.workers.worker(&config.name, worker.id.as_str());
                let Some(slot) = index.add() else {
                    log::error!("worker {}: one too many, not used", worker.id);
                    return None;
                };
                Some(Worker::new(worker, &config, slot, handles))
            })
            .collect();
        let fleet = Arc::new(Self {
            bytes_per_token: BytesPerToken::new(metrics.workers.bytes_per_token(&config.name)),
            mean_uncached: MeanUncached::default(),
            table: Table::new(workers.len()),
            by_slot: by_slot(&workers),
            workers,
            index,
            index_settings,
            turn: AtomicU64::new(0),
            config,
        });
        fleet.publish();
        fleet
    }

    /// What a decision reads; taken once per request.
    pub fn snapshot(&self) -> Guard<Arc<Fleet>> {
        self.table.load()
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

    /// A connection to the worker was refused: nobody listens there, so whoever will is another
    /// process, with an empty cache and a load of its own.
    pub fn refused(&self, worker: &Worker) {
        if worker.is_gone() {
            self.replaced(worker);
        }
    }

    /// Another process answers for the worker: nothing known of the old one holds.
    pub(super) fn replaced(&self, worker: &Worker) {
        worker.reading.lock().restarted();
        self.came_back(worker);
        self.table.changed();
    }

    /// The worker was away and may have restarted meanwhile: its cache is taken to be empty.
    pub(super) fn came_back(&self, worker: &Worker) {
        self.index.forget(worker.slot);
        worker.count_restart();
    }

    /// Can anybody prefill for this model now?
    pub fn is_ready(&self) -> bool {
        self.snapshot()
            .workers()
            .iter()
            .any(|worker| worker.can_prefill() && worker.live.is_routable())
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
