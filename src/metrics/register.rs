//! Where families are registered, and what there is of them: Prometheus' registry forgets the name of
//! a family that has no series yet, and a reference must not.

use prometheus::core::Collector;
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{Registry, Result};

/// A family, whether it has series or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// As on the page; a histogram's series have `_bucket`, `_sum` and `_count` after it.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Names of its labels, in order; without a histogram's `le`.
    pub labels: Vec<String>,
    /// What it means.
    pub help: String,
}

/// The registry, and all that was registered.
#[derive(Debug, Default)]
pub(super) struct Register {
    registry: Registry,
    families: Vec<Family>,
}

impl Register {
    /// Fails if the name is taken.
    pub(super) fn register(&mut self, family: Box<dyn Collector>) -> Result<()> {
        let descriptions: Vec<_> = family.desc().into_iter().cloned().collect();
        let kinds = family.collect();
        self.registry.register(family)?;
        self.families.extend(descriptions.into_iter().zip(kinds).map(|(described, of)| Family {
            name: described.fq_name,
            kind: kind(of.get_field_type()),
            labels: described.variable_labels,
            help: described.help,
        }));
        Ok(())
    }

    pub(super) fn families(&self) -> &[Family] {
        &self.families
    }

    pub(super) fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }
}

fn kind(of: MetricType) -> &'static str {
    match of {
        MetricType::COUNTER => "counter",
        MetricType::GAUGE => "gauge",
        MetricType::HISTOGRAM => "histogram",
        MetricType::SUMMARY => "summary",
        MetricType::UNTYPED => "untyped",
    }
}
