//! Between warm state and the fleets it belongs to.

use super::snapshot::{ModelState, Snapshot, WorkerState};
use crate::fleet::{Fleets, ModelFleet, Worker, clock};
use tidegate_policy::index::Warm;
use tidegate_policy::learned::Saved;
use tidegate_policy::prefix::PrefixKey;

/// How much of a snapshot still holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// It was taken this moment: workers that were well are, and what operators took out stays out.
    Now,
    /// Time has passed, until `now` in seconds since 1970: only what is learned, and it has aged. The
    /// time of day is all that tells how much: one that was set back since then makes nothing older,
    /// one that was set forward has more measured anew.
    Learned {
        /// By the clock that `taken_at` was read from.
        now: u64,
    },
}

/// What of a snapshot was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Workers known here too.
    pub workers: usize,
    /// Their prefix blocks.
    pub blocks: usize,
    /// Learned routes.
    pub routes: usize,
    /// Seconds since it was taken.
    pub age_seconds: u64,
}

/// Takes what these fleets have learned, at `now` in seconds since 1970.
pub fn take(fleets: &Fleets, now: u64) -> Snapshot {
    Snapshot { taken_at: now, models: fleets.models().iter().map(|model| of(model)).collect() }
}

/// Puts it into these fleets: models by name, workers by id and URL. The rest is left out.
pub fn restore(snapshot: &Snapshot, fleets: &Fleets, trust: Trust) -> Restored {
    let age_seconds = match trust {
        Trust::Now => 0,
        Trust::Learned { now } => now.saturating_sub(snapshot.taken_at),
    };
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
        routes: model.learned().map(|(_, routes)| routes.export(clock::now())),
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
    if let (Some(saved), Some((learned, routes))) = (&state.routes, model.learned()) {
        let saved = older(saved, restored.age_seconds);
        restored.routes += routes.import(&saved, clock::now(), &learned.settings);
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

/// The same after so many seconds in which nobody measured anything.
fn older(saved: &Saved, seconds: u64) -> Saved {
    let mut saved = saved.clone();
    for arm in &mut saved.arms {
        arm.age_ms = arm.age_ms.saturating_add(seconds.saturating_mul(1000));
    }
    saved
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::{Config, Overrides};
    use crate::metrics::Metrics;
    use std::path::Path;
    use tidegate_policy::learned::{Ended, ModelTable, Row, Sample, Settings};

    const TAKEN: u64 = 1_800_000_000;
    const DAY: u64 = 86_400;

    fn fleets(learned: &str) -> Fleets {
        let text = format!(
            "tidegate: {{models: [{{name: m, policy: learned, learned: {{{learned}}}, workers: [\
             {{id: a, url: 'http://127.0.0.1:1'}}, {{id: b, url: 'http://127.0.0.1:2'}}]}}]}}"
        );
        let config = Config::from_yaml(&text, Path::new(""), &Overrides::default()).unwrap();
        Fleets::new(&config, &Metrics::new().unwrap())
    }

    fn table(fleets: &Fleets) -> ModelTable {
        // What is not probed yet is no candidate.
        fleets.models()[0].workers().iter().for_each(|worker| worker.resume(true, false));
        fleets.models()[0].routing().unwrap().1
    }

    fn learn(fleets: &Fleets) {
        let (_, routes) = fleets.models()[0].learned().unwrap();
        let ended = Ended::Normally { completion_tokens: 100, seconds: 2.0 };
        let sample = Sample { signature: "m | b[0-0]", epoch: 0, ended };
        let _ = routes.record(&sample, clock::now(), &Settings::default());
    }

    fn known(fleets: &Fleets) -> Vec<(String, Option<f64>, &'static str)> {
        let row = |of: &Row| (of.signature.clone(), of.tps, of.status);
        table(fleets).candidates.iter().map(row).collect()
    }

    #[test]
    fn what_routes_have_learned_is_taken_over_and_has_aged_meanwhile() {
        let before = fleets("");
        learn(&before);
        let snapshot = take(&before, TAKEN);

        let after = fleets("");
        assert_eq!(restore(&snapshot, &after, Trust::Now).routes, 1);
        assert_eq!(known(&after), known(&before));
        assert!(known(&after).contains(&("m | b[0-0]".to_owned(), Some(50.0), "proven")));

        let late = fleets("");
        let trust = Trust::Learned { now: TAKEN + 3600 };
        assert_eq!(restore(&snapshot, &late, trust).age_seconds, 3600);
        assert!(known(&late).contains(&("m | b[0-0]".to_owned(), Some(50.0), "decayed")));
    }

    #[test]
    fn a_clock_that_is_set_ages_nothing_in_an_upgrade_and_never_backwards() {
        let before = fleets("");
        learn(&before);
        // The predecessor's clock was a day ahead, or a day behind.
        for taken_at in [TAKEN - DAY, TAKEN + DAY] {
            let after = fleets("");
            assert_eq!(restore(&take(&before, taken_at), &after, Trust::Now).age_seconds, 0);
            assert_eq!(known(&after), known(&before));
        }
        let ahead = take(&before, TAKEN + DAY);
        let back = fleets("");
        assert_eq!(restore(&ahead, &back, Trust::Learned { now: TAKEN }).age_seconds, 0);
        assert_eq!(known(&back), known(&before));
    }
}
