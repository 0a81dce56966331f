//! A scenario of learned routes for reading.

use std::fmt::Write;
use tidegate_policy::learned::{ModelTable, Row};
use tidegate_policy::scenario::routes::{Op, RouteScenario, Step, StepResult};

/// The scenario's settings, then its steps with what comes out of each.
pub(super) fn told(scenario: &RouteScenario) -> String {
    let mut out = String::new();
    let title = [scenario.name(), scenario.why()];
    let title: Vec<&str> = title.into_iter().filter(|part| !part.is_empty()).collect();
    if !title.is_empty() {
        line(&mut out, format_args!("# {}", title.join(": ")));
    }
    let settings = scenario.settings();
    line(
        &mut out,
        format_args!(
            "model {}: explore_share {}, weight_alpha {}, stats_half_life {} s, \
             min_sample_tokens {}, prune_after {} s",
            scenario.model(),
            settings.explore_share.get(),
            settings.weight_alpha.get(),
            seconds(settings.stats_half_life.0),
            settings.min_sample_tokens,
            seconds(settings.prune_after.0),
        ),
    );
    let prefix = format!("{} | ", scenario.model());
    for (number, (step, result)) in (1..).zip(scenario.steps().iter().zip(&scenario.run())) {
        let at = format!("{} s", seconds(step.at.0));
        line(&mut out, format_args!("{number:>3}  {at:>9}  {}", said(&prefix, step, result)));
        if let StepResult::Table(table) = result {
            write_table(&mut out, &prefix, table);
        }
    }
    out
}

/// The step and, but for a table, what came out.
fn said(prefix: &str, step: &Step, result: &StepResult) -> String {
    let asked = match &step.op {
        Op::Nodes => "the nodes change".to_owned(),
        Op::Record { signature, tokens, seconds, epoch } => {
            let of = epoch.map_or_else(String::new, |epoch| format!(" of epoch {epoch}"));
            let unit = if *tokens == 1 { "token" } else { "tokens" };
            format!("a sample{of}: {}, {tokens} {unit} in {seconds} s", short(prefix, signature))
        }
        Op::Choose { draws } => {
            format!("a request: explore {}, pick {}", draws.explore, draws.pick)
        }
        Op::Prune => "what is too old is forgotten".to_owned(),
        Op::Table => "the routes".to_owned(),
    };
    match result {
        StepResult::Nodes { topology_epoch } => format!("{asked} => epoch {topology_epoch}"),
        StepResult::Recorded { result, .. } => format!("{asked} => {result}"),
        StepResult::Chosen { mode, signature } => {
            format!("{asked} => {mode}: {}", short(prefix, signature))
        }
        StepResult::NoRoute => format!("{asked} => nowhere: 503 no_route"),
        StepResult::Pruned { forgotten } => format!("{asked} => {forgotten} gone"),
        StepResult::Table(table) if table.candidates.is_empty() => {
            format!("{asked}, epoch {}: none", table.topology_epoch)
        }
        StepResult::Table(table) => format!("{asked}, epoch {}:", table.topology_epoch),
    }
}

const HEAD: [&str; 9] = [
    "route",
    "computes",
    "prior tps",
    "tps",
    "coefficient",
    "share",
    "samples",
    "weight",
    "status",
];

fn write_table(out: &mut String, prefix: &str, table: &ModelTable) {
    if table.candidates.is_empty() {
        return;
    }
    let mut lines = vec![HEAD.map(str::to_owned)];
    lines.extend(table.candidates.iter().map(|row| cells(prefix, row)));
    let mut widths = [0; HEAD.len()];
    for cells in &lines {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for cells in &lines {
        let mut text = String::new();
        for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
            // Words to the left, numbers to the right.
            let is_word = [0, 1, HEAD.len() - 1].contains(&column);
            let cell = if is_word { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
            text.push_str("  ");
            text.push_str(&cell);
        }
        line(out, format_args!("     {}", text.trim_end()));
    }
}

fn cells(prefix: &str, row: &Row) -> [String; HEAD.len()] {
    let known = |number: Option<f64>| number.map_or_else(|| "-".to_owned(), |n| format!("{n:.2}"));
    let computes: Vec<String> =
        row.hops.iter().map(|hop| format!("{}-{}", hop.start_layer, hop.end_layer)).collect();
    [
        short(prefix, &row.signature).to_owned(),
        computes.join(", "),
        format!("{:.2}", row.prior_tps),
        known(row.tps),
        known(row.coefficient),
        format!("{:.1} %", row.expected_share * 100.0),
        row.samples.to_string(),
        // Half a sample is the bound of what is proven, so that it must not be rounded to.
        format!("{:.3}", row.weight),
        row.status.to_owned(),
    ]
}

/// A signature without the model, which is named once.
fn short<'a>(prefix: &str, signature: &'a str) -> &'a str {
    signature.strip_prefix(prefix).unwrap_or(signature)
}

fn seconds(millis: u64) -> f64 {
    millis as f64 / 1000.0
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = out.write_fmt(text);
    out.push('\n');
}
