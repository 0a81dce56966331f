//! A comparison as a table: a line a rule set, medians over its seeds.

use crate::simulate::compare::{Compared, median};
use crate::simulate::figures::Figures;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A column: its title, the figure, and how it is written.
type Column = (&'static str, fn(&Figures) -> f64, fn(f64) -> String);

const COLUMNS: [Column; 13] = [
    ("hit %", |f| 100.0 * f.hit_rate, one_digit),
    ("TTFT gm", |f| f.first_token.geometric_mean, seconds),
    ("p50", |f| f.first_token.p50, seconds),
    ("p90", |f| f.first_token.p90, seconds),
    ("p99", |f| f.first_token.p99, seconds),
    ("whole p50", |f| f.total.p50, seconds),
    ("p90", |f| f.total.p90, seconds),
    ("p99", |f| f.total.p99, seconds),
    ("queue p50", |f| f.waited.p50, seconds),
    ("p99", |f| f.waited.p99, seconds),
    ("Mtok", |f| f.computed_tokens as f64 / 1e6, one_digit),
    ("imbal", |f| f.imbalance, two_digits),
    ("lost", |f| (f.failed + f.shed) as f64, no_digits),
];

/// The table, in Markdown.
pub(super) fn table(compared: &[Compared]) -> String {
    let mut rows = vec![titles()];
    rows.extend(compared.iter().map(|set| row(set, compared.first())));
    let columns = rows[0].len();
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (at, cell) in row.iter().enumerate() {
            let width = widths[at];
            // Writing to a string cannot fail.
            let _ = if at == 0 {
                write!(text, "| {cell:width$} ")
            } else {
                write!(text, "| {cell:>width$} ")
            };
        }
        text.push_str("|\n");
        if number == 0 {
            let rule = widths.iter().map(|width| format!("|{}", "-".repeat(width + 2)));
            text.extend(rule);
            text.push_str("|\n");
        }
    }
    text
}

/// Why requests went where they went: a line a rule set, means over its seeds.
pub(super) fn decisions(compared: &[Compared]) -> String {
    let mut text = String::new();
    for set in compared {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for (reason, count) in set.runs.iter().flat_map(|run| &run.decisions) {
            *counts.entry(reason).or_default() += count;
        }
        let all: u64 = counts.values().sum();
        let share = |count: u64| 100.0 * count as f64 / (all as f64).max(1.0);
        let shares =
            counts.iter().map(|(reason, count)| format!("{reason} {:.1} %", share(*count)));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}: {}", set.name, shares.collect::<Vec<_>>().join(", "));
    }
    text
}

fn titles() -> Vec<String> {
    let first = ["rule set".to_owned()];
    let titles = COLUMNS.iter().map(|(title, ..)| (*title).to_owned());
    first.into_iter().chain(titles).chain(["gm range".to_owned(), "gm ratio".to_owned()]).collect()
}

fn row(set: &Compared, first: Option<&Compared>) -> Vec<String> {
    let mean = |figures: &Figures| figures.first_token.geometric_mean;
    let cells = COLUMNS.iter().map(|(_, of, written)| written(set.median(of)));
    let (least, most) = set.range(mean);
    let ratios = first.into_iter().flat_map(|first| set.runs.iter().zip(&first.runs));
    let ratio = median(ratios.map(|(own, first)| mean(own) / mean(first).max(1e-9)));
    let range = format!("{}-{}", seconds(least), seconds(most));
    let name = [set.name.clone()];
    name.into_iter().chain(cells).chain([range, two_digits(ratio)]).collect()
}

/// Three significant digits, at most to the millisecond.
fn seconds(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.3}"),
        value if value < 100.0 => format!("{value:.2}"),
        value => format!("{value:.1}"),
    }
}

fn no_digits(value: f64) -> String {
    format!("{value:.0}")
}

fn one_digit(value: f64) -> String {
    format!("{value:.1}")
}

fn two_digits(value: f64) -> String {
    format!("{value:.2}")
}
