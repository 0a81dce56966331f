//! Learned routes as data: nodes, settings and steps in the order of time, and what comes out of
//! each.
//!
//! The form is that of the learned-routes vectors. A scenario runs through the same fleet, topology
//! and routes as the edge does; a node's `queue` is what it reports.

mod form;

use super::{ScenarioError, read_each};
use crate::fleet::{Fleet, Millis};
use crate::learned::{Draws, Ended, ModelTable, Routes, Sample, Selection, Settings, Topology};
use crate::request::Request;
use serde::Serialize;
use serde_json::Value;

/// One scenario, ready to run.
#[derive(Debug)]
pub struct RouteScenario {
    name: String,
    why: String,
    nodes: Nodes,
    settings: Settings,
    steps: Vec<Step>,
}

/// A set of nodes: what is configured of them, and what they report.
#[derive(Debug)]
struct Nodes {
    topology: Topology,
    fleet: Fleet,
}

/// Something that happens.
#[derive(Debug)]
pub struct Step {
    /// When.
    pub at: Millis,
    /// What.
    pub op: Op,
    /// What its author expects; `Some(null)`: nothing is chosen.
    pub expect: Option<Value>,
    /// The nodes from here on, if the step changes them.
    nodes: Option<Nodes>,
}

/// What happens in a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// The nodes are replaced, which is a new epoch.
    Nodes,
    /// A request ends.
    Record {
        /// Its route.
        signature: String,
        /// Tokens of its answer.
        tokens: u64,
        /// From dispatch to the last byte.
        seconds: f64,
        /// Epoch of its dispatch; `None` = the present one.
        epoch: Option<u64>,
    },
    /// A request asks for a route.
    Choose {
        /// Its dice.
        draws: Draws,
    },
    /// What is too old is forgotten.
    Prune,
    /// The table is looked at.
    Table,
}

/// What comes out of a step, in the words of `expect`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum StepResult {
    /// Of new nodes.
    Nodes {
        /// Of the new topology.
        topology_epoch: u64,
    },
    /// Of a sample.
    Recorded {
        /// Was it learned from?
        accepted: bool,
        /// Label of the reason.
        #[serde(skip)]
        result: &'static str,
    },
    /// Of a choice.
    Chosen {
        /// Label of the mode.
        mode: &'static str,
        /// The route.
        signature: String,
    },
    /// Of a choice without a candidate; `null`.
    NoRoute,
    /// Of a clearance.
    Pruned {
        /// Arms that are gone.
        forgotten: usize,
    },
    /// A look at the table.
    Table(#[serde(serialize_with = "without_model")] ModelTable),
}

fn without_model<S: serde::Serializer>(table: &ModelTable, to: S) -> Result<S::Ok, S::Error> {
    use serde::ser::SerializeStruct;
    let mut fields = to.serialize_struct("Table", 2)?;
    fields.serialize_field("topology_epoch", &table.topology_epoch)?;
    fields.serialize_field("candidates", &table.candidates)?;
    fields.end()
}

/// Reads one scenario, a JSON list of them, or JSON Lines.
///
/// # Errors
/// Anything the form does not allow, by name.
pub fn read(text: &str) -> Result<Vec<RouteScenario>, ScenarioError> {
    read_each(text, form::read)
}

impl RouteScenario {
    /// Its name; may be empty.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it shows; may be empty.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// The model's name.
    pub fn model(&self) -> &str {
        self.nodes.topology.model()
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What happens, in the order of time.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// What comes out of each step.
    pub fn run(&self) -> Vec<StepResult> {
        let routes = Routes::new(self.nodes.topology.clone());
        let mut fleet = &self.nodes.fleet;
        let mut results = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            if let Some(nodes) = &step.nodes {
                routes.change_topology(nodes.topology.clone());
                fleet = &nodes.fleet;
            }
            results.push(self.result(step, &routes, fleet));
        }
        results
    }

    fn result(&self, step: &Step, routes: &Routes, fleet: &Fleet) -> StepResult {
        let (now, settings) = (step.at, &self.settings);
        let present = routes.topology().epoch();
        match &step.op {
            Op::Nodes => StepResult::Nodes { topology_epoch: present },
            Op::Record { signature, tokens, seconds, epoch } => {
                let ended = Ended::Normally { completion_tokens: *tokens, seconds: *seconds };
                let sample = Sample { signature, epoch: epoch.unwrap_or(present), ended };
                StepResult::recorded(routes.record(&sample, now, settings))
            }
            Op::Choose { draws } => {
                let chosen = routes.choose(fleet, &request(now), settings, *draws);
                chosen.map_or(StepResult::NoRoute, StepResult::chosen)
            }
            Op::Prune => StepResult::Pruned { forgotten: routes.prune(now, settings) },
            Op::Table => StepResult::Table(routes.table(fleet, now, settings)),
        }
    }
}

impl StepResult {
    fn recorded(result: crate::learned::SampleResult) -> Self {
        let accepted = result == crate::learned::SampleResult::Accepted;
        Self::Recorded { accepted, result: result.as_str() }
    }

    fn chosen(selection: Selection) -> Self {
        let signature = selection.signature.to_string();
        Self::Chosen { mode: selection.mode.as_str(), signature }
    }
}

fn request(now: Millis) -> Request<'static> {
    Request {
        now,
        prompt: None,
        excluded: &[],
        dice: 0,
        turn: 0,
        mean_uncached_tokens: 0,
        foreign_share: crate::fleet::ForeignShare::default(),
    }
}

#[cfg(test)]
mod tests;
