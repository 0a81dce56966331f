//! `tidegate routes`: scenarios of learned routes, step by step; asks no edge.

mod text;

use super::{BAD_USAGE, read_input};
use crate::explain::visible;
use clap::Args;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use thiserror::Error;
use tidegate_policy::scenario::ScenarioError;
use tidegate_policy::scenario::routes::{self, RouteScenario, StepResult};

/// Arguments of `tidegate routes`.
#[derive(Args, Clone, Debug)]
#[group(skip)]
pub struct RoutesArgs {
    /// Scenarios: one, a JSON list, or JSON Lines; - is standard input
    #[arg(long, value_name = "FILE")]
    scenario: PathBuf,
    /// JSON, a line for each scenario, with the field names of `expect`
    #[arg(long)]
    json: bool,
}

/// Why there is nothing to show.
#[derive(Debug, Error)]
enum RoutesError {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: std::io::Error },
    #[error("{}: {error}", path.display())]
    Scenario { path: PathBuf, error: ScenarioError },
    #[error("the results are no JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("standard output: {0}")]
    Output(#[from] std::io::Error),
}

impl RoutesError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::File { .. } | Self::Scenario { .. } => ExitCode::from(BAD_USAGE),
            Self::Json(_) | Self::Output(_) => ExitCode::FAILURE,
        }
    }
}

/// Runs it. 0; 1: nobody reads the output; 2: bad usage or scenario.
pub fn run(args: &RoutesArgs) -> ExitCode {
    match told(args).and_then(|text| Ok(std::io::stdout().write_all(text.as_bytes())?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidegate routes: {}", visible(&error.to_string()));
            error.exit_code()
        }
    }
}

fn told(args: &RoutesArgs) -> Result<String, RoutesError> {
    let mut out = String::new();
    for scenario in &read(&args.scenario)? {
        if args.json {
            out.push_str(&json(scenario)?);
            out.push('\n');
        } else {
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(&visible(&text::told(scenario)));
        }
    }
    Ok(out)
}

fn read(path: &Path) -> Result<Vec<RouteScenario>, RoutesError> {
    let content =
        read_input(path).map_err(|error| RoutesError::File { path: path.to_owned(), error })?;
    routes::read(&String::from_utf8_lossy(&content))
        .map_err(|error| RoutesError::Scenario { path: path.to_owned(), error })
}

/// One line of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    steps: Vec<StepResult>,
}

fn json(scenario: &RouteScenario) -> Result<String, serde_json::Error> {
    serde_json::to_string(&Line { name: scenario.name(), steps: scenario.run() })
}
