//! The comparison in Markdown.

use super::rules::{COST, RULES};
use super::scenes::{FLEETS, LOADS, Played, SEEDS, Scene, Traffic, mean};
use std::fmt::Write;
use tidegate::simulate::compare::{Compared, median};
use tidegate::simulate::figures::Figures;

type Figure = fn(&Figures) -> f64;

/// Scenes in which the default loses most, so many of them.
const WORST: usize = 6;
/// This near the best is as good.
const NEAR: f64 = 1.05;

/// The figures of which the default's are compared.
const COMPARED: [(&str, Figure); 3] = [
    ("geometric mean", mean),
    ("p50", |run| run.first_token.p50),
    ("p99", |run| run.first_token.p99),
];

pub(crate) fn all(traffic: &[Traffic], played: &[Played]) -> String {
    let base: Vec<&Played> = played.iter().filter(|of| of.scene.is_base()).collect();
    let all: Vec<&Played> = played.iter().collect();
    let mut text = String::new();
    for (at, of) in traffic.iter().enumerate() {
        let own: Vec<&Played> = base.iter().copied().filter(|of| of.scene.traffic == at).collect();
        text += &format!(
            "\n{}: p50 · p99 of the first token in seconds · hit rate\n\n{}",
            of.name,
            loads(&own)
        );
    }
    text += &format!(
        "\nThe default against the best other rule of each scene: {}\n\n{}",
        compared(),
        cost(traffic, &base)
    );
    text += &format!("\nThe same with other fleets\n\n{}", fleets(traffic, &all));
    text += &format!(
        "\nEvery rule against the best other one, geometric mean, {} scenes\n\n{}",
        all.len(),
        standing(traffic, &all)
    );
    text += &format!("\nWhere the default loses most\n\n{}", worst(traffic, &all));
    text += &format!("\nSettings picked, of {} scenes\n\n{}", all.len(), picked(&all));
    text
}

fn compared() -> String {
    COMPARED.map(|(name, _)| name).join(" · ")
}

fn loads(played: &[&Played]) -> String {
    let mut rows = vec![titles("load", LOADS.map(|load| format!("{load}")))];
    for (at, rule) in RULES.iter().enumerate() {
        let cells = played.iter().map(|of| {
            let own = &of.rules[at];
            let seconds = |figure: Figure| seconds(own.median(figure));
            let hit = 100.0 * own.median(|run| run.hit_rate);
            format!("{} · {} · {hit:.0} %", seconds(COMPARED[1].1), seconds(COMPARED[2].1))
        });
        rows.push(row(rule.name, cells));
    }
    table(&rows)
}

fn cost(traffic: &[Traffic], played: &[&Played]) -> String {
    let mut rows = vec![titles("load", LOADS.map(|load| format!("{load}")))];
    for (at, of) in traffic.iter().enumerate() {
        let own = played.iter().filter(|of| of.scene.traffic == at);
        rows.push(row(of.name, own.map(|of| against_others(of))));
    }
    table(&rows)
}

fn fleets(traffic: &[Traffic], played: &[&Played]) -> String {
    let scenes: Vec<(usize, f64)> = {
        let mut all: Vec<(usize, f64)> = Vec::new();
        for of in played.iter().filter(|of| !of.scene.is_base()) {
            let scene = (of.scene.traffic, of.scene.load);
            if !all.contains(&scene) {
                all.push(scene);
            }
        }
        all
    };
    let title = |(at, load): &(usize, f64)| format!("{} {load}", traffic[*at].name);
    let mut rows = vec![titles("", scenes.iter().map(title))];
    for fleet in &FLEETS[1..] {
        let cells = scenes.iter().filter_map(|&(at, load)| {
            let is_it =
                |scene: &Scene| (scene.traffic, scene.load, scene.fleet) == (at, load, *fleet);
            let of = played.iter().find(|of| is_it(&of.scene))?;
            let other = best(of, mean, COST);
            Some(format!("{:.2} {}", ratio(of, mean, COST), RULES[other].name))
        });
        rows.push(row(fleet.name, cells));
    }
    table(&rows)
}

fn standing(traffic: &[Traffic], played: &[&Played]) -> String {
    let columns = ["within 5 %", "median", "worst", "where"].map(str::to_owned);
    let mut rows = vec![titles("rule", columns)];
    for (at, rule) in RULES.iter().enumerate() {
        let ratios: Vec<f64> = played.iter().map(|of| ratio(of, mean, at)).collect();
        let near = ratios.iter().filter(|ratio| **ratio <= NEAR).count();
        let (scene, worst) = ratios.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap();
        let cells = [
            format!("{:.0} %", 100.0 * near as f64 / ratios.len() as f64),
            format!("{:.2}", median(ratios.iter().copied())),
            format!("{worst:.2}"),
            place(traffic, &played[scene].scene),
        ];
        rows.push(row(rule.name, cells.into_iter()));
    }
    table(&rows)
}

fn worst(traffic: &[Traffic], played: &[&Played]) -> String {
    let mut played = played.to_vec();
    played.sort_by(|a, b| ratio(b, mean, COST).total_cmp(&ratio(a, mean, COST)));
    let mut text = String::new();
    for of in played.iter().take(WORST) {
        let other = best(of, mean, COST);
        let figures = |set: &Compared| {
            let (least, most) = set.range(mean);
            format!(
                "{} s ({} to {}), p50 {}, p99 {}, hit rate {:.1} %",
                seconds(set.median(mean)),
                seconds(least),
                seconds(most),
                seconds(set.median(COMPARED[1].1)),
                seconds(set.median(COMPARED[2].1)),
                100.0 * set.median(|run| run.hit_rate)
            )
        };
        let own = &of.rules[COST];
        let other = &of.rules[other];
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "- {}: {:.2}. cost: {}; {}: {}\n  `{}`",
            place(traffic, &of.scene),
            ratio(of, mean, COST),
            figures(own),
            other.name,
            figures(other),
            of.scene.command(traffic, [&own.name, &other.name]),
        );
    }
    text
}

fn picked(played: &[&Played]) -> String {
    let mut text = String::new();
    for (at, rule) in RULES.iter().enumerate().filter(|(_, rule)| 1 < rule.settings.len()) {
        let count = |text: &&str| played.iter().filter(|of| of.rules[at].name == **text).count();
        let counts = rule.settings.iter().map(|text| format!("{text} {}", count(text)));
        let _ = writeln!(text, "- {}: {}", rule.name, counts.collect::<Vec<_>>().join(", "));
    }
    text
}

fn place(traffic: &[Traffic], scene: &Scene) -> String {
    let fleet = if scene.is_base() { String::new() } else { format!(", {}", scene.fleet.name) };
    format!("{} at {}{fleet}", traffic[scene.traffic].name, scene.load)
}

fn against_others(of: &Played) -> String {
    let ratios = COMPARED.map(|(_, figure)| format!("{:.2}", ratio(of, figure, COST)));
    format!("{} ({})", ratios.join(" · "), RULES[best(of, mean, COST)].name)
}

/// The best of the others.
fn best(of: &Played, figure: Figure, rule: usize) -> usize {
    let others = (0..RULES.len()).filter(|at| *at != rule);
    let by = |at: &usize| of.rules[*at].median(figure);
    others.min_by(|a, b| by(a).total_cmp(&by(b))).unwrap()
}

/// A rule's median against that of the best other one.
pub(crate) fn ratio(of: &Played, figure: Figure, rule: usize) -> f64 {
    of.rules[rule].median(figure) / of.rules[best(of, figure, rule)].median(figure).max(1e-9)
}

fn titles(first: &str, then: impl IntoIterator<Item = String>) -> Vec<String> {
    std::iter::once(first.to_owned()).chain(then).collect()
}

fn row(first: &str, then: impl Iterator<Item = String>) -> Vec<String> {
    titles(first, then)
}

fn table(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        let _ = writeln!(text, "| {} |", row.join(" | "));
        if at == 0 {
            let _ = writeln!(text, "{}|", "|---".repeat(row.len()));
        }
    }
    text
}

/// Two significant digits and what is before the point.
fn seconds(value: f64) -> String {
    match value {
        value if value < 0.995 => format!("{value:.2}"),
        value if value < 9.95 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

/// The range of seeds, for the picture's title.
pub(crate) fn seeds() -> String {
    format!("seeds {} to {}", SEEDS[0], SEEDS[SEEDS.len() - 1])
}
