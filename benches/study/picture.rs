//! The base scenes as lines over the load: a column a kind of traffic, a row a figure.
//!
//! Times are on a logarithmic scale, which is the same for a whole row; marks are medians.

use super::rules::{COST, RULES};
use super::scenes::{LOADS, Played, Traffic};
use super::tables;
use std::fmt::Write;
use tidegate::simulate::figures::Figures;

type Panel = (&'static str, fn(&Figures) -> f64, Scale);

#[derive(Clone, Copy)]
enum Scale {
    Logarithmic,
    /// From 0.
    Plain,
}

const PANELS: [Panel; 3] = [
    ("first token p50, s", |run| run.first_token.p50, Scale::Logarithmic),
    ("first token p99, s", |run| run.first_token.p99, Scale::Logarithmic),
    ("hit rate, %", |run| 100.0 * run.hit_rate, Scale::Plain),
];

const COLOURS: [&str; RULES.len()] =
    ["#b0b0b0", "#8c8c8c", "#e0a030", "#2f9e6e", "#c0504d", "#7f6bb3", "#4f9fd0", "#111111"];

const WIDE: usize = 160;
const HIGH: usize = 130;
const LEFT: usize = 64;
const TOP: usize = 62;
const GAP: usize = 26;

pub(crate) fn svg(traffic: &[Traffic], played: &[Played]) -> String {
    let width = LEFT + traffic.len() * (WIDE + GAP);
    let height = TOP + PANELS.len() * (HIGH + GAP) + GAP;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"18\" font-size=\"13\">16 engines, one edge, reports every 0.5 s, medians of {}; \
         across: load, 1 = all engines can do if nothing is computed twice</text>\n",
        tables::seeds()
    );
    legend(&mut svg);
    for (row, panel) in PANELS.iter().enumerate() {
        let axis = Axis::of(panel, played);
        for (column, of) in traffic.iter().enumerate() {
            let corner = (LEFT + column * (WIDE + GAP), TOP + row * (HIGH + GAP));
            let base = |of: &&Played| of.scene.is_base() && of.scene.traffic == column;
            let own: Vec<&Played> = played.iter().filter(base).collect();
            draw(&mut svg, corner, panel, &axis, &own);
            if row == 0 {
                text(&mut svg, (corner.0 + WIDE / 2, TOP - 8), "middle", of.name);
            }
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn legend(svg: &mut String) {
    for (at, rule) in RULES.iter().enumerate() {
        let x = LEFT + at * 100;
        let (colour, wide) = (COLOURS[at], stroke(at));
        // Writing to a string cannot fail.
        let _ =
            writeln!(svg, "<path d=\"M{x} 33h22\" stroke=\"{colour}\" stroke-width=\"{wide}\"/>");
        text(svg, (x + 28, 37), "start", rule.name);
    }
}

fn stroke(rule: usize) -> f64 {
    if rule == COST { 2.5 } else { 1.3 }
}

fn text(svg: &mut String, (x, y): (usize, usize), anchor: &str, what: &str) {
    let _ = writeln!(
        svg,
        "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" fill=\"#333333\">{what}</text>"
    );
}

/// From where to where a row of panels reaches, and its lines.
struct Axis {
    from: f64,
    to: f64,
    lines: Vec<f64>,
    scale: Scale,
}

impl Axis {
    fn of((_, figure, scale): &Panel, played: &[Played]) -> Self {
        let base = played.iter().filter(|of| of.scene.is_base());
        let values: Vec<f64> =
            base.flat_map(|of| &of.rules).map(|set| set.median(*figure)).collect();
        let most = values.iter().copied().fold(0.0, f64::max);
        match scale {
            Scale::Plain => Self {
                from: 0.0,
                to: 100.0,
                lines: vec![0.0, 25.0, 50.0, 75.0, 100.0],
                scale: *scale,
            },
            Scale::Logarithmic => {
                let least = values.iter().copied().fold(most, f64::min).max(1e-3);
                let (from, to) = (least.log10().floor(), most.log10().ceil());
                let lines = (from as i32..=to as i32).map(|power| 10_f64.powi(power)).collect();
                Self { from, to, lines, scale: *scale }
            }
        }
    }

    /// Distance from the top of a panel.
    fn down(&self, value: f64) -> f64 {
        let value = match self.scale {
            Scale::Logarithmic => value.max(1e-3).log10(),
            Scale::Plain => value,
        };
        HIGH as f64 * (1.0 - (value - self.from) / (self.to - self.from)).clamp(0.0, 1.0)
    }
}

fn draw(svg: &mut String, (x, y): (usize, usize), panel: &Panel, axis: &Axis, played: &[&Played]) {
    let (title, figure, _) = panel;
    for line in &axis.lines {
        let at = y as f64 + axis.down(*line);
        let _ = writeln!(svg, "<path d=\"M{x} {at:.1}h{WIDE}\" stroke=\"#e4e4e4\"/>");
        if x == LEFT {
            text(svg, (x - 6, at as usize + 4), "end", &format!("{line}"));
        }
    }
    if x == LEFT {
        let (x, y) = (14, y + HIGH / 2);
        let _ = writeln!(
            svg,
            "<text transform=\"translate({x} {y}) rotate(-90)\" text-anchor=\"middle\" fill=\"#333333\">{title}</text>"
        );
    }
    let across = |load: f64| {
        let (first, last) = (LOADS[0], LOADS[LOADS.len() - 1]);
        x as f64 + WIDE as f64 * (load - first) / (last - first)
    };
    for load in LOADS {
        text(svg, (across(load) as usize, y + HIGH + 14), "middle", &format!("{load}"));
    }
    for (at, colour) in COLOURS.iter().enumerate() {
        let points = played.iter().map(|of| {
            let down = y as f64 + axis.down(of.rules[at].median(*figure));
            format!("{:.1},{down:.1}", across(of.scene.load))
        });
        let points = points.collect::<Vec<_>>().join(" ");
        let wide = stroke(at);
        let _ = writeln!(
            svg,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{wide}\"/>"
        );
    }
}
