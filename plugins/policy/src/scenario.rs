//! A decision as data: a fleet, a request and rules written down as JSON, and what comes out.
//!
//! The form is that of the decision vectors: candidates are given, so no prompt and no index are
//! needed. Reading is strict: an unknown key, a candidate that is no worker, a rule that could not
//! be configured are errors with their names.

mod form;
mod outcome;
pub mod routes;

pub use outcome::{ByWorker, Outcome};

use crate::decide_in_detail;
use crate::decision::Decision;
use crate::fleet::{Fleet, ForeignShare, Millis};
use crate::learned::TopologyError;
use crate::request::{Holdings, Prompt, Request};
use crate::rules::Rules;
use serde_json::{Map, Value};
use thiserror::Error;

/// The instant of every scenario's decision; its reports are fresh then, and any head of a line can
/// be older.
const NOW: Millis = Millis(1 << 62);

/// Why a text is no scenario.
#[derive(Debug, Error)]
pub enum ScenarioError {
    /// Not JSON.
    #[error("not JSON: {0}")]
    Json(#[source] serde_json::Error),
    /// JSON, but nothing in it.
    #[error("no scenario in it")]
    Empty,
    /// An unknown or missing key, or a value of the wrong kind.
    #[error("scenario `{name}`: {source}")]
    Form {
        /// Which.
        name: String,
        /// What serde says, with the key.
        source: serde_json::Error,
    },
    /// A rule of the selection that is not chosen.
    #[error("scenario `{name}`: {key} belongs to `selection: {other}`")]
    OtherSelection {
        /// Which.
        name: String,
        /// The rule.
        key: &'static str,
        /// Whose it is.
        other: &'static str,
    },
    /// A rule no configuration could have.
    #[error("scenario `{name}`: {key} {must}")]
    Rule {
        /// Which.
        name: String,
        /// The rule.
        key: &'static str,
        /// What would be valid.
        must: &'static str,
    },
    /// A name that is there twice.
    #[error("scenario `{name}`: {kind} `{id}` is there twice")]
    Twice {
        /// Which.
        name: String,
        /// Worker or candidate.
        kind: &'static str,
        /// The id.
        id: String,
    },
    /// A candidate or home that is no worker.
    #[error("scenario `{name}`: {kind} `{id}` is not among the workers")]
    Stranger {
        /// Which.
        name: String,
        /// Candidate or home.
        kind: &'static str,
        /// The id.
        id: String,
    },
    /// More workers than a fleet can have.
    #[error("scenario `{name}`: more than {most} workers")]
    TooLarge {
        /// Which.
        name: String,
        /// The bound.
        most: u16,
    },
    /// Nodes that are no topology.
    #[error("scenario `{name}`: {source}")]
    Topology {
        /// Which.
        name: String,
        /// What is wrong with them.
        source: TopologyError,
    },
    /// A value no step could have.
    #[error("scenario `{name}`: step {step}: {key} {must}")]
    Step {
        /// Which.
        name: String,
        /// Its number, from 1.
        step: usize,
        /// The key.
        key: &'static str,
        /// What would be valid.
        must: &'static str,
    },
    /// An expectation about something that does not come out.
    #[error("scenario `{name}`: unknown key `{key}` in expect")]
    Expectation {
        /// Which.
        name: String,
        /// The key.
        key: String,
    },
}

/// One scenario, ready to run.
#[derive(Debug)]
pub struct Scenario {
    name: String,
    why: String,
    rules: Rules,
    fleet: Fleet,
    holdings: Holdings,
    input_tokens: u64,
    mean_uncached_tokens: u64,
    home: u64,
    is_home_cold: bool,
    foreign_share: ForeignShare,
    expect: Map<String, Value>,
}

/// Reads one scenario, a JSON list of them, or JSON Lines.
///
/// # Errors
/// Anything the form does not allow, by name.
pub fn read(text: &str) -> Result<Vec<Scenario>, ScenarioError> {
    read_each(text, form::read)
}

/// Reads what is written as one, as a JSON list, or as JSON Lines; at least one.
fn read_each<T>(
    text: &str,
    one: impl Fn(Value) -> Result<T, ScenarioError>,
) -> Result<Vec<T>, ScenarioError> {
    let mut scenarios = Vec::new();
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        match value.map_err(ScenarioError::Json)? {
            Value::Array(list) => {
                for value in list {
                    scenarios.push(one(value)?);
                }
            }
            value => scenarios.push(one(value)?),
        }
    }
    if scenarios.is_empty() {
        return Err(ScenarioError::Empty);
    }
    Ok(scenarios)
}

fn name_of(scenario: &Value) -> String {
    scenario.get("name").and_then(Value::as_str).unwrap_or_default().to_owned()
}

impl Scenario {
    /// Its name; may be empty.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it shows; may be empty.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Its rules. Without `min_matched_tokens` and `min_match_ratio` if it lists candidates: they are
    /// over the threshold already.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The workers of the request's model; positions in a [`Decision`] are positions in it.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// What its author expects: names of [`Outcome`]'s fields, and `worker_in`.
    pub fn expect(&self) -> &Map<String, Value> {
        &self.expect
    }

    /// What is asked of the policy.
    pub fn request(&self) -> Request<'_> {
        let prompt = Prompt {
            input_tokens: self.input_tokens,
            holdings: &self.holdings,
            home: self.home,
            // Its home block is beyond what anybody holds.
            home_blocks: self.is_home_cold.then_some(u32::MAX),
        };
        Request {
            now: NOW,
            prompt: Some(prompt),
            excluded: &[],
            dice: 0,
            turn: 0,
            mean_uncached_tokens: self.mean_uncached_tokens,
            foreign_share: self.foreign_share,
        }
    }

    /// The decision with all of its trace; `None`: nobody is routable.
    pub fn decide(&self) -> Option<Decision> {
        decide_in_detail(&self.fleet, &self.request(), &self.rules)
    }

    /// What comes out, in the words of `expect`.
    pub fn run(&self) -> Outcome {
        Outcome::new(&self.name, &self.fleet, self.decide().as_ref())
    }
}

#[cfg(test)]
mod tests;
