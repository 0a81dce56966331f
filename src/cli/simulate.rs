//! `tidegate simulate`: what rule sets would make of some traffic, in virtual time.

mod args;
mod table;

pub use args::SimulateArgs;

use super::BAD_USAGE;
use crate::simulate::access_log;
use crate::simulate::arrivals::Shape;
use crate::simulate::chart;
use crate::simulate::compare::{Compared, Comparison};
use crate::simulate::fit;
use crate::simulate::rule_set::{RuleSet, RuleSets};
use crate::simulate::suggest;
use crate::simulate::trace;
use crate::simulate::traffic_source::Source;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;
use std::process::ExitCode;

/// Engines, if nothing says how many.
const ENGINES: NonZeroU32 = NonZeroU32::new(8).unwrap();

/// Runs, and prints a table.
pub fn run(args: &SimulateArgs) -> ExitCode {
    if let Some(log) = &args.fit {
        return ended(print_fit(log));
    }
    match rule_sets(args) {
        Ok(sets) => ended(compare(args, &sets)),
        Err(error) => {
            eprintln!("tidegate: {error}");
            ExitCode::from(BAD_USAGE)
        }
    }
}

fn ended(result: Result<(), Box<dyn Error>>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidegate: {error}");
            ExitCode::FAILURE
        }
    }
}

fn print_fit(log: &Path) -> Result<(), Box<dyn Error>> {
    let fitted = fit::fit(&access_log::read(BufReader::new(File::open(log)?))?)?;
    println!(
        "# From {} streamed answers, {:.0} % off on average. A log does not show max_running (at least \
         {}),\n# kv_tokens, block and chunk: add what your engines were started with.",
        fitted.answers,
        100.0 * fitted.error,
        fitted.most_at_once,
    );
    if 0 < fitted.left_out.unknown {
        println!("# {}.", fitted.left_out);
    }
    print!("{}", fitted.engine.to_yaml());
    Ok(())
}

/// Those asked for; else the configuration, or what the edge does without one. A suggestion is
/// measured against the first.
fn rule_sets(args: &SimulateArgs) -> Result<Vec<RuleSet>, Box<dyn Error>> {
    let engines = args.fleet.engines.or_else(|| args.conf.is_none().then_some(ENGINES));
    let named = RuleSets { file: args.conf.clone(), model: args.model.clone(), engines };
    let default = if args.conf.is_some() { "file" } else { "cost" };
    let mut texts: Vec<&str> = args.compare.iter().map(String::as_str).collect();
    if texts.is_empty() {
        texts.push(default);
    }
    if args.suggest {
        texts.extend(suggest::TRIED);
    }
    let mut sets: Vec<RuleSet> = Vec::new();
    for text in texts {
        let is_new = |set: &RuleSet| !sets.iter().any(|other| other.name == set.name);
        let new: Vec<RuleSet> = named.named(text)?.into_iter().filter(is_new).collect();
        sets.extend(new);
    }
    Ok(sets)
}

fn source(args: &SimulateArgs) -> Result<Source, Box<dyn Error>> {
    let traffic = &args.traffic;
    if let Some(generator) = &traffic.generate {
        return Ok(Source::Generated(generator.clone()));
    }
    if let Some(log) = &traffic.access_log {
        let logged = access_log::read(BufReader::new(File::open(log)?))?;
        return Ok(Source::Recorded(access_log::trace(&logged)?));
    }
    let trace = traffic.trace.as_deref().ok_or("nothing says what comes")?;
    Ok(Source::Recorded(trace::read_file(trace)?))
}

fn compare(args: &SimulateArgs, sets: &[RuleSet]) -> Result<(), Box<dyn Error>> {
    let source = source(args)?;
    let engines = sets.first().map_or(0, |set| set.config.models[0].workers.len());
    let scene = args.fleet.scene(engines, args.traffic.unstreamed)?;
    let mut shape = args.traffic.shape();
    if let Some(load) = args.traffic.load {
        shape.rate = source.rate_for(load, &shape, &scene.engines, args.seed);
    }
    let seeds: Vec<u64> = (args.seed..).take(args.seeds.get() as usize).collect();
    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let comparison = Comparison {
        scene: &scene,
        source: &source,
        shape: &shape,
        sets,
        seeds: &seeds,
        jobs: args.jobs.unwrap_or(cores),
    };
    let bar = progress_bar(comparison.runs());
    let compared = comparison.run(|| bar.inc(1))?;
    bar.finish_and_clear();
    print!("{}\n{}", table::table(&compared), table::decisions(&compared));
    if args.suggest {
        print!("\n{}", suggest::suggestion(&compared).unwrap_or_default());
    }
    if let Some(file) = &args.json {
        std::fs::write(file, serde_json::to_string_pretty(&document(&seeds, &shape, &compared))?)?;
    }
    if let Some(file) = &args.svg {
        let title = format!("{engines} engines, medians over {} seeds", seeds.len());
        std::fs::write(file, chart::svg(&compared, &title))?;
    }
    Ok(())
}

/// It shows itself only where standard error is a terminal.
fn progress_bar(runs: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len} runs, {eta} left");
    let bar = ProgressBar::new(runs as u64);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn document(seeds: &[u64], shape: &Shape, compared: &[Compared]) -> serde_json::Value {
    let set = |compared: &Compared| json!({"name": compared.name, "runs": compared.runs});
    json!({
        "seeds": seeds,
        "rate": shape.rate,
        "rule_sets": compared.iter().map(set).collect::<Vec<_>>(),
    })
}
