//! What an operator sees of the routes: the rows of `GET /v1/routing`.

use super::choose::{Contender, best_proven, expected_shares};
use super::routes::{Hop, Routes, hops, live};
use super::settings::{Choice, Settings};
use super::stats::Status;
use super::topology::Topology;
use crate::fleet::{Fleet, Millis};
use crate::request::Request;
use serde::Serialize;

/// The settings of the table's header.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SettingsShown {
    /// See [`Settings::explore_share`].
    pub explore_share: f64,
    /// See [`Settings::weight_alpha`].
    pub weight_alpha: f64,
    /// See [`Settings::stats_half_life`], seconds.
    pub stats_half_life_s: f64,
    /// See [`Settings::min_sample_tokens`].
    pub min_sample_tokens: u64,
    /// See [`Settings::choice`]; absent if it is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<&'static str>,
}

impl Settings {
    /// As the table's header shows them.
    pub fn shown(&self) -> SettingsShown {
        SettingsShown {
            explore_share: self.explore_share.get(),
            weight_alpha: self.weight_alpha.get(),
            stats_half_life_s: self.stats_half_life.0 as f64 / 1000.0,
            min_sample_tokens: self.min_sample_tokens,
            choice: (self.choice != Choice::default()).then_some(self.choice.as_str()),
        }
    }
}

/// One model's routes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelTable {
    /// Its name.
    pub model: String,
    /// See [`Topology::epoch`].
    pub topology_epoch: u64,
    /// Those that a request could take now, best prior first.
    pub candidates: Vec<Row>,
}

/// One route and what is known of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The arm.
    pub signature: String,
    /// Its nodes in order.
    pub hops: Vec<HopRow>,
    /// The slowest hop by its benchmark and queue, tokens per second.
    pub prior_tps: f64,
    /// Decayed mean, tokens per second; `null` = never measured.
    pub tps: Option<f64>,
    /// `tps` over the best proven one's: at most 1 for what is proven, more for what was faster
    /// once. `null`: not measured, or nothing is proven.
    pub coefficient: Option<f64>,
    /// Part of the requests to come.
    pub expected_share: f64,
    /// Samples accepted so far.
    pub samples: u64,
    /// Samples that still count.
    pub weight: f64,
    /// Label of [`Status`].
    pub status: &'static str,
}

/// One hop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HopRow {
    /// Name of the node.
    pub node: String,
    /// First layer it computes.
    pub start_layer: u32,
    /// Last one.
    pub end_layer: u32,
}

impl Routes {
    /// The routes of this moment.
    pub fn table(&self, fleet: &Fleet, now: Millis, settings: &Settings) -> ModelTable {
        let topology = self.topology();
        let candidates = live(&topology, fleet, &Request::of_nobody(now), settings);
        let contenders = self.contenders(&topology, &candidates, now, settings);
        let best = best_proven(&contenders);
        let shares = expected_shares(&contenders, settings);
        let row = |(contender, &share): (&Contender<'_>, &f64)| Row {
            expected_share: share,
            ..row(&topology, contender, best)
        };
        ModelTable {
            model: topology.model().to_owned(),
            topology_epoch: topology.epoch(),
            candidates: contenders.iter().zip(&shares).map(row).collect(),
        }
    }
}

fn row(topology: &Topology, contender: &Contender<'_>, best: Option<f64>) -> Row {
    let Contender { candidate, standing } = contender;
    let tps = (standing.status != Status::Unsampled).then_some(standing.mean);
    Row {
        signature: candidate.signature.clone(),
        hops: hops(topology, &candidate.nodes).iter().map(HopRow::from).collect(),
        prior_tps: candidate.prior_tps,
        tps,
        coefficient: tps.zip(best).map(|(tps, best)| tps / best),
        expected_share: 0.0,
        samples: standing.samples,
        weight: standing.weight,
        status: standing.status.as_str(),
    }
}

impl From<&Hop> for HopRow {
    fn from(hop: &Hop) -> Self {
        Self {
            node: hop.node.as_str().to_owned(),
            start_layer: hop.start_layer,
            end_layer: hop.end_layer,
        }
    }
}

#[cfg(test)]
mod tests;
