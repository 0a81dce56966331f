//! `tidegate simulate`: what rule sets would make of a trace, in virtual time.

mod args;
mod table;

pub use args::SimulateArgs;

use super::BAD_USAGE;
use crate::simulate::compare::{Compared, Comparison};
use crate::simulate::rule_set::{RuleSet, RuleSets};
use crate::simulate::trace;
use serde_json::json;
use std::error::Error;
use std::num::{NonZeroU32, NonZeroUsize};
use std::process::ExitCode;

/// Engines, if nothing says how many.
const ENGINES: NonZeroU32 = NonZeroU32::new(8).unwrap();

/// Runs and prints a table.
pub fn run(args: &SimulateArgs) -> ExitCode {
    let sets = match rule_sets(args) {
        Ok(sets) => sets,
        Err(error) => {
            eprintln!("tidegate: {error}");
            return ExitCode::from(BAD_USAGE);
        }
    };
    match compare(args, &sets) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidegate: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Those asked for; else the configuration, or what the edge does without one.
fn rule_sets(args: &SimulateArgs) -> Result<Vec<RuleSet>, Box<dyn Error>> {
    let engines = args.fleet.engines.or_else(|| args.conf.is_none().then_some(ENGINES));
    let named = RuleSets { file: args.conf.clone(), model: args.model.clone(), engines };
    let default = [if args.conf.is_some() { "file" } else { "cost" }.to_owned()];
    let texts = if args.compare.is_empty() { &default[..] } else { &args.compare };
    let mut sets = Vec::new();
    for text in texts {
        sets.extend(named.named(text)?);
    }
    Ok(sets)
}

fn compare(args: &SimulateArgs, sets: &[RuleSet]) -> Result<(), Box<dyn Error>> {
    let trace = trace::read_file(&args.traffic.trace)?;
    let engines = sets.first().map_or(0, |set| set.config.models[0].workers.len());
    let scene = args.fleet.scene(engines, args.traffic.unstreamed);
    let shape = args.traffic.shape();
    let seeds: Vec<u64> = (args.seed..).take(args.seeds.get() as usize).collect();
    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let jobs = args.jobs.unwrap_or(cores);
    let comparison =
        Comparison { scene: &scene, trace: &trace, shape: &shape, sets, seeds: &seeds, jobs };
    let compared = comparison.run(|| {})?;
    print!("{}", table::table(&compared));
    if let Some(file) = &args.json {
        std::fs::write(file, serde_json::to_string_pretty(&document(&seeds, &compared))?)?;
    }
    Ok(())
}

fn document(seeds: &[u64], compared: &[Compared]) -> serde_json::Value {
    let set = |compared: &Compared| json!({"name": compared.name, "runs": compared.runs});
    json!({"seeds": seeds, "rule_sets": compared.iter().map(set).collect::<Vec<_>>()})
}
