//! What was counted so far, by model: read from the families, as a model's own handles change with
//! each configuration.

use super::{Metrics, Outcome};
use prometheus::core::Collector;
use prometheus::{IntCounterVec, proto::Metric};
use std::collections::BTreeMap;
use tidegate_policy::decision::Reason;

/// Counters of one model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests that ended, by [`Outcome`].
    pub outcomes: [u64; Outcome::ALL.len()],
    /// Routed requests that ended, by [`Reason`].
    pub reasons: [u64; Reason::ALL.len()],
    /// Reported prompt tokens.
    pub prompt_tokens: u64,
    /// Those of them that were cached.
    pub cached_tokens: u64,
    /// Reported completion tokens.
    pub completion_tokens: u64,
}

impl Metrics {
    /// Of every model that ever had a request.
    pub fn totals(&self) -> BTreeMap<String, Totals> {
        let mut totals: BTreeMap<String, Totals> = BTreeMap::new();
        each(&self.requests.requests, "outcome", |model, outcome, count| {
            let at = Outcome::ALL.iter().position(|known| known.as_str() == outcome);
            add(at.map(|at| &mut entry(&mut totals, model).outcomes[at]), count);
        });
        each(&self.decisions.policy_decisions, "reason", |model, reason, count| {
            let at = Reason::ALL.iter().position(|known| known.as_str() == reason);
            add(at.map(|at| &mut entry(&mut totals, model).reasons[at]), count);
        });
        each(&self.requests.tokens, "kind", |model, kind, count| {
            let of = entry(&mut totals, model);
            let place = match kind {
                "prompt" => Some(&mut of.prompt_tokens),
                "cached" => Some(&mut of.cached_tokens),
                "completion" => Some(&mut of.completion_tokens),
                _ => None,
            };
            add(place, count);
        });
        totals
    }
}

fn add(place: Option<&mut u64>, count: u64) {
    if let Some(place) = place {
        *place += count;
    }
}

fn entry<'a>(totals: &'a mut BTreeMap<String, Totals>, model: &str) -> &'a mut Totals {
    totals.entry(model.to_owned()).or_default()
}

/// Calls with the model, the value of one other label, and the count.
fn each(family: &IntCounterVec, label: &str, mut tell: impl FnMut(&str, &str, u64)) {
    for metric in family.collect().iter().flat_map(|family| family.get_metric()) {
        tell(value(metric, "model"), value(metric, label), metric.get_counter().get_value() as u64);
    }
}

fn value<'a>(metric: &'a Metric, label: &str) -> &'a str {
    let pair = metric.get_label().iter().find(|pair| pair.name() == label);
    pair.map_or("", |pair| pair.value())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::prompt::Dialect;

    #[test]
    fn totals_add_up_over_paths_and_outlive_handles() {
        let metrics = Metrics::new().unwrap();
        for dialect in [Dialect::Chat, Dialect::Completions] {
            let model = metrics.requests.model("m");
            model.ended(dialect, 200, Outcome::Ok);
            model.prompt_tokens.inc_by(10);
            model.cached_tokens.inc_by(4);
        }
        metrics.requests.model("n").ended(Dialect::Chat, 503, Outcome::WorkerBusy);
        let totals = metrics.totals();
        assert_eq!(totals["m"].outcomes[Outcome::Ok as usize], 2);
        assert_eq!((totals["m"].prompt_tokens, totals["m"].cached_tokens), (20, 8));
        assert_eq!(totals["n"].outcomes[Outcome::WorkerBusy as usize], 1);
        assert_eq!(totals["n"].reasons, [0; Reason::ALL.len()]);
    }
}
