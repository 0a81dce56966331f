//! What is legal and hardly meant: warnings, each at the place where one would change it.
//!
//! They look at the finished configuration, so inherited values count as what they are.

use super::learned::missing_layer;
use crate::config::error::{ConfigError, ConfigErrors};
use crate::config::kinds::show_duration;
use crate::config::node::Node;
use crate::config::scope::child;
use crate::config::{Config, Discovery, Model, Overrides, Policy, ReportChoice};
use std::time::Duration;
use tidegate_policy::fleet::Role;
use tidegate_policy::learned::Layers;

/// Engines behind uvicorn close an idle connection after this.
const ENGINES_KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Of a configuration that was read from `root`.
pub(super) fn warnings(config: &Config, root: &Node, overrides: &Overrides) -> ConfigErrors {
    let mut found = Vec::new();
    for (at, model) in config.models.iter().enumerate() {
        let path = format!("tidegate.models[{at}]");
        let mut place = Place { root, overrides, model: path, found: &mut found };
        reports(&mut place, model);
        gate(&mut place, model);
        guards(&mut place, model);
        workers(&mut place, model);
        routes(&mut place, model);
    }
    ConfigErrors::of(found)
}

/// One model's settings in the file, and what was said of them so far.
struct Place<'a> {
    root: &'a Node,
    overrides: &'a Overrides,
    model: String,
    found: &'a mut Vec<ConfigError>,
}

impl Place<'_> {
    /// Of the model's `key`, wherever it is given: outside the file, in the model, for all models.
    fn warn(&mut self, key: &str, value: impl ToString, message: impl Into<String>) {
        let name = key.rsplit('.').next().unwrap_or(key);
        let (own, common) = (child(&self.model, key), child("tidegate", key));
        let is_common = self.root.at(&own).is_none() && self.root.at(&common).is_some();
        let path = match self.overrides.get(name) {
            Some((source, _)) => source,
            None if is_common => common,
            None => own,
        };
        let warning = ConfigError { path, value: value.to_string(), message: message.into() };
        // What is set for all models is told once.
        if !self.found.contains(&warning) {
            self.found.push(warning);
        }
    }
}

fn reports(place: &mut Place<'_>, model: &Model) {
    let of = &model.load_reports;
    if of.format == ReportChoice::None {
        let needs = [
            (is_gated(model), "cache_aware.worker_queue_limit", "the gate lets everything pass"),
            (model.shed_queue_limit.is_some(), "shed_queue_limit", "nothing is ever shed"),
        ];
        for (_, key, what) in needs.into_iter().filter(|(is_set, ..)| *is_set) {
            place.warn(key, "", format!("there are no load reports (`format: none`): {what}"));
        }
        return;
    }
    let (age, interval) = (show_duration(of.max_age), show_duration(of.interval));
    if of.max_age < of.interval {
        let message = format!(
            "is below `interval` ({interval}): between two reports nothing is known of a worker"
        );
        place.warn("load_reports.max_age", &age, message);
    } else if of.max_age <= of.timeout {
        let message =
            format!("is above `max_age` ({age}): so late a report is stale when it comes");
        place.warn("load_reports.timeout", show_duration(of.timeout), message);
    }
}

fn is_gated(model: &Model) -> bool {
    model.policy.cache_aware().is_some_and(|rules| rules.worker_queue_limit.is_some())
}

fn gate(place: &mut Place<'_>, model: &Model) {
    let Some(rules) = model.policy.cache_aware() else { return };
    let slots = model.workers.iter().filter_map(|worker| Some((&worker.id, worker.max_inflight?)));
    let Some((id, slots)) = slots.min_by_key(|(_, slots)| *slots) else { return };
    let slots = u64::from(slots.get());
    let bounds = [
        (rules.saturation_queue_floor, "saturation_queue_floor"),
        (rules.worker_queue_limit, "worker_queue_limit"),
    ];
    let bound =
        bounds.iter().find_map(|(bound, key)| Some((bound.filter(|b| slots < b.get())?, key)));
    if let Some((bound, key)) = bound {
        let message = format!(
            "is above `max_inflight` of `{id}` ({slots}): this edge alone never has it queue so long"
        );
        place.warn(&format!("cache_aware.{key}"), bound, message);
    }
}

fn guards(place: &mut Place<'_>, model: &Model) {
    let (health, breaker) = (&model.health, &model.breaker);
    if health.enabled && breaker.cool_down < health.interval {
        let message = format!(
            "is longer than `breaker.cool_down` ({}): a worker that failed gets requests again \
             before anybody has looked at it",
            show_duration(breaker.cool_down)
        );
        place.warn("health.interval", show_duration(health.interval), message);
    }
    if !health.enabled && model.load_reports.format == ReportChoice::None {
        let message =
            "and there are no load reports: only failing requests tell that a worker is gone";
        place.warn("health.enabled", false, message);
    }
    if ENGINES_KEEP_ALIVE <= model.timeouts.worker_idle {
        let message = format!(
            "engines close idle connections after {}: requests will meet connections that are just \
             being closed",
            show_duration(ENGINES_KEEP_ALIVE)
        );
        place.warn("timeouts.worker_idle", show_duration(model.timeouts.worker_idle), message);
    }
}

fn workers(place: &mut Place<'_>, model: &Model) {
    let serving = |draining: bool, role: Role| !draining && role != Role::Decode;
    let is_served = model.workers.iter().any(|worker| serving(worker.draining, worker.role));
    if !is_served && !model.workers.is_empty() {
        let message = "none of them takes new requests: all are draining, or only decode";
        place.warn("workers", "", message);
    }
}

fn routes(place: &mut Place<'_>, model: &Model) {
    let Policy::Learned(learned) = &model.policy else { return };
    if learned.settings.explore_share.get() == 0.0 {
        let message =
            "what is not proven is never measured: the first proven route has all traffic";
        place.warn("learned.explore_share", 0, message);
    }
    // Of names nobody knows yet what they stand for.
    if matches!(model.discovery, Some(Discovery::Dns { .. })) || model.workers.is_empty() {
        return;
    }
    let able = model.workers.iter().filter(|w| !w.draining && w.role != Role::Decode);
    let held: Option<Vec<Layers>> = able.map(|worker| worker.shard.as_ref()?.layers).collect();
    let missing = held.zip(learned.layers).and_then(|(held, all)| missing_layer(&held, all.get()));
    if let Some(layer) = missing {
        let message = format!(
            "no route is complete with those that are known and not draining: nobody goes on at \
             layer {layer}"
        );
        place.warn("workers", "", message);
    }
}
