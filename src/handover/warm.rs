//! Between warm state and the fleets it belongs to.

use super::snapshot::{ModelState, Snapshot, WorkerState};
use crate::fleet::{Fleets, ModelFleet, Worker};
use std::time::{SystemTime, UNIX_EPOCH};
use tidegate_policy::index::Warm;
use tidegate_policy::prefix::PrefixKey;

/// How much of a snapshot still holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// It was taken this moment: workers that were well are, and what operators took out stays out.
    Now,
    /// Time has passed: only what is learned.
    Learned,
}

/// What of a snapshot was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Workers known here too.
    pub workers: usize,
    /// Their prefix blocks.
    pub blocks: usize,
    /// Seconds since it was taken.
    pub age_seconds: u64,
}

/// Takes what these fleets have learned.
pub fn take(fleets: &Fleets) -> Snapshot {
    Snapshot { taken_at: now(), models: fleets.models().iter().map(|model| of(model)).collect() }
}

/// Puts it into these fleets: models by name, workers by id and URL. The rest is left out.
pub fn restore(snapshot: &Snapshot, fleets: &Fleets, trust: Trust) -> Restored {
    let age_seconds = now().saturating_sub(snapshot.taken_at);
    let mut restored = Restored { age_seconds, ..Restored::default() };
    for state in &snapshot.models {
        let model = fleets.models().iter().find(|model| model.config.name == state.name);
        if let Some(model) = model {
            put(state, model, trust, &mut restored);
        }
    }
    restored
}

fn of(model: &ModelFleet) -> ModelState {
    ModelState {
        name: model.config.name.clone(),
        block_bytes: model.block_bytes(),
        bytes_per_token: model.bytes_per_token.get(),
        mean_uncached: model.mean_uncached.get(),
        workers: model.workers().iter().map(|worker| worker_state(model, worker)).collect(),
    }
}

fn worker_state(model: &ModelFleet, worker: &Worker) -> WorkerState {
    let standing = worker.standing();
    let warm = model.index.warm(worker.slot).unwrap_or_default();
    WorkerState {
        id: worker.id.to_string(),
        url: worker.config.url.to_string(),
        healthy: standing.healthy,
        draining: standing.draining,
        capacity_correction: warm.correction,
        keys: warm.keys.into_iter().map(|key| key.0).collect(),
    }
}

fn put(state: &ModelState, model: &ModelFleet, trust: Trust, restored: &mut Restored) {
    model.bytes_per_token.restore(state.bytes_per_token);
    if let Some(mean) = state.mean_uncached {
        model.mean_uncached.restore(mean);
    }
    for worker in model.workers() {
        let url = worker.config.url.to_string();
        let known = |saved: &&WorkerState| saved.id == worker.id.as_str() && saved.url == url;
        let Some(saved) = state.workers.iter().find(known) else {
            continue;
        };
        restored.workers += 1;
        if trust == Trust::Now {
            worker.resume(saved.healthy, saved.draining);
        }
        if state.block_bytes == model.block_bytes() {
            let keys = saved.keys.iter().copied().map(PrefixKey).collect();
            model.index.restore(worker.slot, &Warm { keys, correction: saved.capacity_correction });
            restored.blocks += saved.keys.len();
        }
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
