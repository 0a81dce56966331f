//! Learned routes, per model: how they were chosen, what became of the samples, what is known now.

use super::register::Register;
use super::requests::counters;
use parking_lot::Mutex;
use prometheus::{GaugeVec, IntCounter, IntCounterVec, IntGaugeVec, Opts};
use std::collections::BTreeSet;
use tidegate_policy::learned::{Mode, SampleResult};

/// The families.
#[derive(Debug)]
pub struct RouteFamilies {
    selections: IntCounterVec,
    samples: IntCounterVec,
    tps: GaugeVec,
    epoch: IntGaugeVec,
    shown: Mutex<Shown>,
}

/// Series on the page: models with an epoch, and (model, signature) of live candidates.
#[derive(Debug, Default, PartialEq, Eq)]
struct Shown {
    models: BTreeSet<String>,
    routes: BTreeSet<(String, String)>,
}

/// One model's routes at the instant the page is read.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutesView {
    /// Its name.
    pub model: String,
    /// See `Topology::epoch`.
    pub epoch: u64,
    /// Decayed means of the candidates that were ever measured, by signature.
    pub tps: Vec<(String, f64)>,
}

impl RouteFamilies {
    pub(super) fn register(registry: &mut Register) -> prometheus::Result<Self> {
        let opts = |name, help| Opts::new(name, help).namespace("tidegate");
        let families = Self {
            selections: counters(
                "tidegate_route_selections_total",
                "Routes chosen, one per attempt, by mode; less those under way they add up to \
                 route_samples_total.",
                &["model", "mode"],
            )?,
            samples: counters(
                "tidegate_route_samples_total",
                "What became of the attempts along routes; only accepted ones are learned from.",
                &["model", "result"],
            )?,
            tps: GaugeVec::new(
                opts("route_tps", "Decayed mean of a live candidate, tokens per second."),
                &["model", "signature"],
            )?,
            epoch: IntGaugeVec::new(
                opts("topology_epoch", "Joins, leaves and shard changes of the model's nodes."),
                &["model"],
            )?,
            shown: Mutex::default(),
        };
        registry.register(Box::new(families.selections.clone()))?;
        registry.register(Box::new(families.samples.clone()))?;
        registry.register(Box::new(families.tps.clone()))?;
        registry.register(Box::new(families.epoch.clone()))?;
        Ok(families)
    }

    /// Handles of one model.
    pub fn model(&self, model: &str) -> RouteMetrics {
        let selections = |mode: Mode| self.selections.with_label_values(&[model, mode.as_str()]);
        let samples = |of: SampleResult| self.samples.with_label_values(&[model, of.as_str()]);
        RouteMetrics {
            selections: Mode::ALL.map(selections),
            samples: SampleResult::ALL.map(samples),
        }
    }

    /// Writes what is true now of all models; what is not among it has no series any more.
    pub fn show(&self, views: &[RoutesView]) {
        let mut shown = self.shown.lock();
        let mut now = Shown::default();
        for view in views {
            let epoch = i64::try_from(view.epoch).unwrap_or(i64::MAX);
            self.epoch.with_label_values(&[&view.model]).set(epoch);
            now.models.insert(view.model.clone());
            for (signature, tps) in &view.tps {
                self.tps.with_label_values(&[&view.model, signature]).set(*tps);
                now.routes.insert((view.model.clone(), signature.clone()));
            }
        }
        // Each of them was written once, so removing it cannot fail.
        for model in shown.models.difference(&now.models) {
            let _ = self.epoch.remove_label_values(&[model]);
        }
        for (model, signature) in shown.routes.difference(&now.routes) {
            let _ = self.tps.remove_label_values(&[model, signature]);
        }
        *shown = now;
    }
}

/// One model's handles.
#[derive(Debug)]
pub struct RouteMetrics {
    selections: [IntCounter; Mode::ALL.len()],
    samples: [IntCounter; SampleResult::ALL.len()],
}

impl RouteMetrics {
    /// A request was sent along a route.
    pub fn selected(&self, mode: Mode) {
        self.selections[mode as usize].inc();
    }

    /// It is over.
    pub fn sampled(&self, result: SampleResult) {
        self.samples[result as usize].inc();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn labels_sit_at_the_place_their_counter_has() {
        for (at, mode) in Mode::ALL.into_iter().enumerate() {
            assert_eq!(mode as usize, at);
        }
        for (at, result) in SampleResult::ALL.into_iter().enumerate() {
            assert_eq!(result as usize, at);
        }
    }

    #[test]
    fn a_route_has_a_series_while_it_is_a_candidate_and_a_model_while_it_is_there() {
        let metrics = Metrics::new().unwrap();
        let view = |model: &str, routes: &[&str]| RoutesView {
            model: model.to_owned(),
            epoch: 3,
            tps: routes.iter().map(|route| ((*route).to_owned(), 12.5)).collect(),
        };
        metrics.routes.show(&[view("m", &["m | a[0-0]", "m | b[0-0]"]), view("n", &[])]);
        let page = metrics.page().unwrap();
        let series = r#"tidegate_route_tps{model="m",signature="m | b[0-0]"} 12.5"#;
        assert!(page.contains(series), "{page}");
        assert!(page.contains(r#"tidegate_topology_epoch{model="n"} 3"#), "{page}");
        metrics.routes.show(&[view("m", &["m | a[0-0]"])]);
        let page = metrics.page().unwrap();
        assert!(page.contains("m | a[0-0]") && !page.contains("m | b[0-0]"), "{page}");
        assert!(!page.contains(r#"model="n""#), "{page}");
    }
}
