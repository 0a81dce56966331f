//! Learned routes: which there are, which one is taken, and why.

use super::text::{line, pad};
use super::{Case, Explanation, Rung, RungResult};
use crate::config::{Learned, Policy};
use crate::routing::{Choice, Unroutable};
use serde::{Deserialize, Serialize};
use tidegate_policy::learned::{self, Mode, Row, Selection};

/// One route that a request could take now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RouteView {
    /// Its nodes with their layers.
    pub signature: String,
    /// The slowest hop by its benchmark and queue, tokens per second.
    pub prior_tps: f64,
    /// Decayed mean, tokens per second; null: never measured.
    pub tps: Option<f64>,
    /// Part of the requests to come.
    pub expected_share: f64,
    /// Samples that still count.
    pub weight: f64,
    /// `unsampled`, `stale`, `decayed` or `proven`.
    pub status: String,
    /// Does this request take it?
    pub chosen: bool,
}

/// All of them, best prior first; none under another policy.
pub(super) fn views(case: &Case<'_>, choice: Result<&Choice, &Unroutable>) -> Vec<RouteView> {
    let (Policy::Learned(learned), Some(routes)) = (case.policy, case.routes) else {
        return Vec::new();
    };
    let taken = choice.ok().and_then(|choice| choice.route.as_ref());
    let view = |row: Row| RouteView {
        chosen: taken.is_some_and(|route| *route.signature == *row.signature),
        signature: row.signature,
        prior_tps: row.prior_tps,
        tps: row.tps,
        expected_share: row.expected_share,
        weight: row.weight,
        status: row.status.to_owned(),
    };
    let table = routes.table(case.fleet, case.request.now, &learned.settings);
    table.candidates.into_iter().map(view).collect()
}

/// The one rung there is.
pub(super) fn rung(learned: &Learned, route: &Selection, routes: &[RouteView]) -> Rung {
    let row = routes.iter().find(|row| row.chosen);
    let status = row.map_or("not among the candidates", |row| row.status.as_str());
    let settings = &learned.settings;
    let why = match (route.mode, settings.choice) {
        (Mode::Pinned, _) => "the client's own route".to_owned(),
        (Mode::GreedyFallback, _) => "no route is proven: the best prior".to_owned(),
        (Mode::Scout, learned::Choice::Proportional) => format!(
            "{status}, so it is measured: {} of the requests scout while any route is not proven",
            settings.explore_share.get()
        ),
        (Mode::Exploit, learned::Choice::Proportional) => format!(
            "proven; such routes share by their speeds to the power of {}",
            settings.weight_alpha.get()
        ),
        (Mode::Scout | Mode::Exploit, learned::Choice::Thompson) => {
            format!("{status}; looks fastest in one draw from what is believed of each")
        }
    };
    let why = format!("{}: {why}", route.signature);
    Rung { rung: "learned".to_owned(), result: RungResult::Decided, why }
}

impl Explanation {
    /// A table of the routes, if there are any.
    pub(super) fn write_routes(&self, out: &mut String) {
        if self.routes.is_empty() {
            return;
        }
        let head = ["route", "prior", "tok/s", "share", "weight", "status"];
        let mut rows = vec![head.map(str::to_owned)];
        rows.extend(self.routes.iter().map(|row| {
            let chosen = if row.chosen { ", CHOSEN" } else { "" };
            [
                row.signature.clone(),
                format!("{:.1}", row.prior_tps),
                row.tps.map_or_else(|| "-".to_owned(), |tps| format!("{tps:.1}")),
                format!("{:.0} %", 100.0 * row.expected_share),
                format!("{:.2}", row.weight),
                format!("{}{chosen}", row.status),
            ]
        }));
        out.push('\n');
        for cells in pad(&rows) {
            line(out, format_args!("{cells}"));
        }
    }
}
