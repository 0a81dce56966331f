//! The JSON form of a scenario of learned routes, and the way from it to a [`RouteScenario`].

use super::super::form::Checked;
use super::super::{ScenarioError, name_of};
use super::{Nodes, Op, RouteScenario, Step};
use crate::fleet::{Fleet, Live, Millis, Report, Role, Slot, Worker};
use crate::learned::{Choice, Draws, Exponent, Layers, Node, Settings, Topology, TopologyError};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Most seconds a time may have: a few thousand years.
const MOST_SECONDS: f64 = 1e11;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    #[serde(default)]
    name: String,
    #[serde(default)]
    why: String,
    model: String,
    #[serde(default)]
    first_layer: u32,
    last_layer: u32,
    nodes: Vec<NodeForm>,
    #[serde(default)]
    config: ConfigForm,
    #[serde(default)]
    steps: Vec<StepForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeForm {
    id: String,
    first_layer: u32,
    last_layer: u32,
    tps: f64,
    #[serde(default)]
    queue: u64,
    #[serde(default = "one")]
    reputation: f64,
}

fn one() -> f64 {
    1.0
}

/// Names and defaults as in the configuration; times in seconds.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ConfigForm {
    choice: ChoiceForm,
    explore_share: f64,
    weight_alpha: f64,
    #[serde(alias = "stats_half_life_s")]
    stats_half_life: f64,
    min_sample_tokens: u64,
    max_candidates: u32,
    #[serde(alias = "prune_after_s")]
    prune_after: f64,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ChoiceForm {
    Proportional,
    Thompson,
}

impl Default for ConfigForm {
    fn default() -> Self {
        let settings = Settings::default();
        let seconds = |millis: Millis| millis.0 as f64 / 1000.0;
        Self {
            choice: match settings.choice {
                Choice::Proportional => ChoiceForm::Proportional,
                Choice::Thompson => ChoiceForm::Thompson,
            },
            explore_share: settings.explore_share.get(),
            weight_alpha: settings.weight_alpha.get(),
            stats_half_life: seconds(settings.stats_half_life),
            min_sample_tokens: settings.min_sample_tokens,
            max_candidates: settings.max_candidates.get(),
            prune_after: seconds(settings.prune_after),
        }
    }
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
enum StepForm {
    Nodes {
        at_s: f64,
        nodes: Vec<NodeForm>,
        #[serde(default, deserialize_with = "given")]
        expect: Option<Value>,
    },
    Record {
        at_s: f64,
        signature: String,
        tokens: u64,
        seconds: f64,
        epoch: Option<u64>,
        #[serde(default, deserialize_with = "given")]
        expect: Option<Value>,
    },
    Choose {
        at_s: f64,
        u_explore: f64,
        u_pick: f64,
        #[serde(default, deserialize_with = "given")]
        expect: Option<Value>,
    },
    Prune {
        at_s: f64,
        #[serde(default, deserialize_with = "given")]
        expect: Option<Value>,
    },
    Table {
        at_s: f64,
        #[serde(default, deserialize_with = "given")]
        expect: Option<Value>,
    },
}

/// Tells `null` from nothing.
fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

/// Reads one scenario.
pub(super) fn read(value: Value) -> Result<RouteScenario, ScenarioError> {
    let name = name_of(&value);
    let form: Form = serde_json::from_value(value)
        .map_err(|source| ScenarioError::Form { name: name.clone(), source })?;
    let checked = Checked { name: &name };
    let Some(layers) = Layers::new(form.first_layer, form.last_layer) else {
        return Err(checked.wrong("last_layer", "must not come before first_layer"));
    };
    let model = Model { name: &name, model: &form.model, layers };
    let nodes = model.nodes(&form.nodes)?;
    let settings = form.config.check(&checked)?;
    let mut steps: Vec<Step> = Vec::with_capacity(form.steps.len());
    let mut epoch = 0;
    for (number, step) in (1..).zip(form.steps) {
        let before = steps.last().map_or(Millis(0), |step| step.at);
        let step = model.step(number, step)?;
        epoch += u64::from(step.nodes.is_some());
        let wrong = |key, must| Err(step_error(&name, number, key, must));
        if step.at < before {
            return wrong("at_s", "must not be before the step ahead of it");
        }
        if let Op::Record { epoch: Some(given), .. } = step.op
            && epoch < given
        {
            return wrong("epoch", "must be one the topology has had");
        }
        steps.push(step);
    }
    Ok(RouteScenario { name: form.name, why: form.why, nodes, settings, steps })
}

fn step_error(name: &str, step: usize, key: &'static str, must: &'static str) -> ScenarioError {
    ScenarioError::Step { name: name.to_owned(), step, key, must }
}

impl ConfigForm {
    fn check(&self, checked: &Checked<'_>) -> Result<Settings, ScenarioError> {
        let alpha = Exponent::new(self.weight_alpha)
            .ok_or_else(|| checked.wrong("weight_alpha", "must be at least 0"))?;
        let time = |key, seconds| {
            let millis = millis(seconds).filter(|millis| 0 < millis.0);
            millis.ok_or_else(|| checked.wrong(key, "must be at least 0.001 seconds"))
        };
        let most = checked.count("max_candidates", self.max_candidates)?;
        if Settings::MAX_CANDIDATES < most.get() {
            return Err(checked.wrong("max_candidates", "must be at most 64"));
        }
        Ok(Settings {
            choice: match self.choice {
                ChoiceForm::Proportional => Choice::Proportional,
                ChoiceForm::Thompson => Choice::Thompson,
            },
            explore_share: checked.ratio("explore_share", self.explore_share)?,
            weight_alpha: alpha,
            stats_half_life: time("stats_half_life", self.stats_half_life)?,
            min_sample_tokens: self.min_sample_tokens,
            max_candidates: most,
            prune_after: time("prune_after", self.prune_after)?,
        })
    }
}

/// What all of a scenario's nodes belong to.
struct Model<'a> {
    /// The scenario's name.
    name: &'a str,
    model: &'a str,
    layers: Layers,
}

impl Model<'_> {
    fn nodes(&self, forms: &[NodeForm]) -> Result<Nodes, ScenarioError> {
        let failed = |source| ScenarioError::Topology { name: self.name.to_owned(), source };
        let most = u16::MAX - 1;
        if usize::from(most) < forms.len() {
            return Err(failed(TopologyError::TooMany(most)));
        }
        let mut nodes = Vec::with_capacity(forms.len());
        let mut workers = Vec::with_capacity(forms.len());
        for (slot, form) in (0..).map(Slot).zip(forms) {
            let Some(layers) = Layers::new(form.first_layer, form.last_layer) else {
                return Err(Checked { name: self.name }
                    .wrong("last_layer of a node", "must not come before its first_layer"));
            };
            workers.push(form.worker(slot));
            nodes.push(Node {
                id: form.id.as_str().into(),
                slot,
                layers,
                tps: form.tps,
                reputation: form.reputation,
            });
        }
        let topology = Topology::new(self.model, self.layers, nodes).map_err(failed)?;
        Ok(Nodes { topology, fleet: Fleet::new(0, workers) })
    }

    fn step(&self, number: usize, form: StepForm) -> Result<Step, ScenarioError> {
        let (at_s, op, expect, nodes) = match form {
            StepForm::Nodes { at_s, nodes, expect } => {
                (at_s, Op::Nodes, expect, Some(self.nodes(&nodes)?))
            }
            StepForm::Record { at_s, signature, tokens, seconds, epoch, expect } => {
                (at_s, Op::Record { signature, tokens, seconds, epoch }, expect, None)
            }
            StepForm::Choose { at_s, u_explore, u_pick, expect } => {
                for (key, draw) in [("u_explore", u_explore), ("u_pick", u_pick)] {
                    if !(0.0..=1.0).contains(&draw) {
                        return Err(step_error(self.name, number, key, "must be within 0 and 1"));
                    }
                }
                let draws = Draws { explore: u_explore, pick: u_pick };
                (at_s, Op::Choose { draws }, expect, None)
            }
            StepForm::Prune { at_s, expect } => (at_s, Op::Prune, expect, None),
            StepForm::Table { at_s, expect } => (at_s, Op::Table, expect, None),
        };
        let Some(at) = millis(at_s) else {
            return Err(step_error(self.name, number, "at_s", "must be seconds, 0 or more"));
        };
        refuse_unknown_expectations(self.name, &op, expect.as_ref())?;
        Ok(Step { at, op, expect, nodes })
    }
}

fn refuse_unknown_expectations(
    name: &str,
    op: &Op,
    expect: Option<&Value>,
) -> Result<(), ScenarioError> {
    let known: &[&str] = match op {
        Op::Nodes => &["topology_epoch"],
        Op::Record { .. } => &["accepted"],
        Op::Choose { .. } => &["mode", "signature"],
        Op::Prune => &["forgotten"],
        Op::Table => &["topology_epoch", "candidates"],
    };
    let keys = expect.and_then(Value::as_object).into_iter().flat_map(Map::keys);
    match keys.into_iter().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(ScenarioError::Expectation { name: name.to_owned(), key: key.to_owned() }),
    }
}

impl NodeForm {
    /// A routable worker that reports this queue.
    fn worker(&self, slot: Slot) -> Worker {
        let live = Live::default();
        live.set_routable(true);
        let report = Report {
            fresh_until: Millis(u64::MAX),
            waiting: Some(self.queue),
            running: Some(0),
            ..Report::default()
        };
        Worker {
            id: self.id.as_str().into(),
            slot,
            role: Role::Plain,
            weight: 1,
            ranks: 1,
            report: Some(report),
            speed: None,
            live: Arc::new(live),
        }
    }
}

/// Rounded to milliseconds; `None`: no time.
fn millis(seconds: f64) -> Option<Millis> {
    // In range, so nothing is lost.
    (0.0..=MOST_SECONDS).contains(&seconds).then(|| Millis((seconds * 1000.0).round() as u64))
}
