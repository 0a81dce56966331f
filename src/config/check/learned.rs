//! `learned:` of a model, and what of its workers the policy needs: shards that make a route.

use super::policy::ratio;
use crate::config::kinds::{MANY, choice, count, duration, integer, number};
use crate::config::section::{Item, Section};
use crate::config::words::CHOICES;
use crate::config::{Learned, Shard, Worker};
use std::num::NonZeroU32;
use std::time::Duration;
use tidegate_policy::fleet::{Millis, Role};
use tidegate_policy::learned::{Choice, Exponent, Layers, Settings};

/// No model has more; a bound for what is written into headers and labels.
const MOST_LAYERS: u32 = 100_000;
/// Fastest node, and largest factor of one.
const MOST_SPEED: f64 = 1e12;
const LONGEST: Duration = Duration::from_secs(10_000 * 3600);

/// The settings; `layers` is the model's own key.
pub(super) fn settings(from: &mut Section<'_>, layers: Option<NonZeroU32>) -> Learned {
    let base = Settings::default();
    let half_life = Duration::from_millis(base.stats_half_life.0);
    let half_life = from.read("stats_half_life", half_life, duration(MILLISECOND..=LONGEST));
    let prune_after = Duration::from_millis(base.prune_after.0);
    let prune_after = from.read("prune_after", prune_after, duration(MILLISECOND..=LONGEST));
    let settings = Settings {
        choice: from.read("choice", base.choice, choice(CHOICES)),
        explore_share: from.read("explore_share", base.explore_share, ratio),
        weight_alpha: from.read("weight_alpha", base.weight_alpha, exponent),
        stats_half_life: millis(half_life),
        min_sample_tokens: from.read(
            "min_sample_tokens",
            base.min_sample_tokens,
            integer(1..=MANY),
        ),
        max_candidates: from.read(
            "max_candidates",
            base.max_candidates,
            count(Settings::MAX_CANDIDATES),
        ),
        prune_after: millis(prune_after),
    };
    if settings.choice == Choice::Thompson {
        let message = "does nothing with `choice: thompson`";
        if settings.explore_share != base.explore_share {
            from.problem("explore_share", message);
        }
        if settings.weight_alpha != base.weight_alpha {
            from.problem("weight_alpha", message);
        }
    }
    Learned { layers, settings, seed: from.optional("seed", None, integer(0..=MANY)) }
}

const MILLISECOND: Duration = Duration::from_millis(1);

fn millis(duration: Duration) -> Millis {
    Millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

fn exponent(item: &Item<'_>) -> Result<Exponent, String> {
    let value = number(0.0..=100.0)(item)?;
    Exponent::new(value).ok_or_else(|| "must be from 0 to 100".into())
}

/// `layers:` of a model.
pub(super) fn layers(model: &mut Section<'_>) -> Option<NonZeroU32> {
    model.optional("layers", None, count(MOST_LAYERS))
}

/// What a worker's shard keys mean.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shards {
    /// They do nothing under the file's policy.
    Refused,
    /// A flag or variable chose another policy than the file.
    Ignored,
    /// The model has so many layers; `None`: every worker computes all of them.
    Read(Option<NonZeroU32>),
}

const KEYS: [&str; 4] = ["first_layer", "last_layer", "tps", "reputation"];

/// A worker's shard; `None`: it has none, or a wrong one.
pub(super) fn shard(worker: &mut Section<'_>, shards: Shards) -> Option<Shard> {
    let most = match shards {
        Shards::Read(layers) => layers.map_or(MOST_LAYERS, NonZeroU32::get) - 1,
        Shards::Refused | Shards::Ignored => MOST_LAYERS - 1,
    };
    let layer = || integer(0..=most.into());
    let first = worker.optional("first_layer", None, layer());
    let last = worker.optional("last_layer", None, layer());
    let tps = worker.optional("tps", None, tps);
    let reputation = worker.read("reputation", 1.0, number(0.0..=MOST_SPEED));
    let layers = match shards {
        Shards::Ignored => return None,
        Shards::Refused => {
            refuse(worker, &KEYS, "belongs to the policy `learned`");
            return None;
        }
        Shards::Read(None) => {
            refuse(worker, &KEYS[..2], "needs the model's `layers`");
            None
        }
        Shards::Read(Some(_)) => Some(held(worker, first, last, most)?),
    };
    let failed = KEYS.iter().any(|key| worker.failed(key));
    (!failed).then_some(Shard { layers, tps, reputation })
}

fn refuse(worker: &mut Section<'_>, keys: &[&'static str], message: &str) {
    for key in keys {
        if worker.has(key) && !worker.failed(key) {
            worker.problem(key, message);
        }
    }
}

/// What is left out is the model's own end.
fn held(
    worker: &mut Section<'_>,
    first: Option<u64>,
    last: Option<u64>,
    most: u32,
) -> Option<Layers> {
    let narrow = |layer: Option<u64>| layer.and_then(|layer| u32::try_from(layer).ok());
    let (first, last) = (narrow(first).unwrap_or(0), narrow(last).unwrap_or(most));
    let layers = Layers::new(first, last);
    if layers.is_none() && !worker.failed("first_layer") && !worker.failed("last_layer") {
        let message = format!("must not be below `first_layer` ({first})");
        worker.problem("last_layer", &message);
    }
    layers
}

fn tps(item: &Item<'_>) -> Result<f64, String> {
    let value = number(0.0..=MOST_SPEED)(item).ok().filter(|tps| 0.0 < *tps);
    value.ok_or_else(|| format!("must be a number above 0, at most {MOST_SPEED}"))
}

/// Shards that cannot serve: a model whose routes are never complete, and benchmarks that cannot be
/// compared. Says nothing while a worker's own values are wrong.
pub(super) fn workers(model: &mut Section<'_>, workers: &[Worker], layers: Option<NonZeroU32>) {
    let shards: Option<Vec<(&Worker, &Shard)>> =
        workers.iter().map(|worker| Some((worker, worker.shard.as_ref()?))).collect();
    let Some(shards) = shards else { return };
    let without = shards.iter().find(|(_, shard)| shard.tps.is_none());
    if let Some((worker, _)) = without.filter(|_| shards.iter().any(|(_, s)| s.tps.is_some())) {
        let message = format!("`{}` has no `tps`: give it to all of them or to none", worker.id);
        model.problem("workers", &message);
    }
    let held = shards.iter().filter(|(worker, _)| worker.role != Role::Decode);
    let held: Vec<Layers> = held.filter_map(|(_, shard)| shard.layers).collect();
    let missing = layers.and_then(|layers| missing_layer(&held, layers.get()));
    // Those that are found elsewhere may hold the rest.
    if let Some(layer) = missing.filter(|_| !workers.is_empty() && !model.has("discovery")) {
        let message = format!("no route is complete: nobody goes on at layer {layer}");
        model.problem("workers", &message);
    }
}

/// The first layer that no route reaches: who comes after a route's end must hold the layer after it.
pub(super) fn missing_layer(held: &[Layers], layers: u32) -> Option<u32> {
    let mut held = held.to_vec();
    held.sort_unstable();
    let mut reached = 0;
    for of in held {
        if reached < of.first() {
            break;
        }
        reached = reached.max(of.last() + 1);
    }
    (reached < layers).then_some(reached)
}
