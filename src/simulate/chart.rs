//! A comparison as a picture: one panel a figure, one line a rule set, in SVG.
//!
//! Each mark is the median over the seeds, the bar behind it reaches from the least to the most.
//! Scales begin at zero, so lengths can be compared; a figure far beyond the others is cut at the
//! edge, and its number says what it is.

use super::compare::Compared;
use super::figures::Figures;
use std::fmt::Write;

const ROW: usize = 22;
const TOP: usize = 46;
const PANEL: usize = 190;
const GAP: usize = 24;
const LETTER: usize = 7;
/// Beyond so many times the median of all rule sets a mark is at the edge.
const REACH: f64 = 3.0;

type Panel = (&'static str, fn(&Figures) -> f64);

const PANELS: [Panel; 6] = [
    ("hit rate, %", |f| 100.0 * f.hit_rate),
    ("first token p50, s", |f| f.first_token.p50),
    ("first token p90, s", |f| f.first_token.p90),
    ("first token p99, s", |f| f.first_token.p99),
    ("whole answer p50, s", |f| f.total.p50),
    ("in the queue p99, s", |f| f.waited.p99),
];

/// The picture.
pub fn svg(compared: &[Compared], title: &str) -> String {
    let longest = compared.iter().map(|set| set.name.chars().count()).max().unwrap_or(0);
    let left = 2 * GAP + LETTER * longest;
    let width = left + PANELS.len() * (PANEL + GAP) + GAP;
    let height = TOP + ROW * (compared.len() + 1);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{GAP}\" y=\"20\" font-size=\"14\" font-weight=\"bold\">{}</text>\n",
        escaped(title)
    );
    for (at, set) in compared.iter().enumerate() {
        let (x, y) = (left - GAP / 2, baseline(at));
        let name = escaped(&set.name);
        // Writing to a string cannot fail.
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\">{name}</text>");
    }
    for (at, panel) in PANELS.iter().enumerate() {
        push_panel(&mut svg, left + at * (PANEL + GAP), panel, compared);
    }
    svg.push_str("</svg>\n");
    svg
}

fn push_panel(svg: &mut String, x: usize, (title, of): &Panel, compared: &[Compared]) {
    let y = TOP - 6;
    let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" fill=\"#555555\">{title}</text>");
    let most = edge(compared, *of);
    let place = |value: f64| x as f64 + PANEL as f64 * (value / most).clamp(0.0, 1.0);
    for (at, set) in compared.iter().enumerate() {
        let (middle, y) = (set.median(*of), baseline(at));
        let (least, longest) = set.range(*of);
        let (top, mark) = (y - 11, place(middle));
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{top}\" width=\"{PANEL}\" height=\"14\" fill=\"#f2f4f7\"/>\n\
             <rect x=\"{x}\" y=\"{top}\" width=\"{:.1}\" height=\"14\" fill=\"#9db8d9\"/>\n\
             <line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{line}\" y2=\"{line}\" stroke=\"#1f3b63\" stroke-width=\"2\"/>\n\
             <text x=\"{}\" y=\"{y}\" text-anchor=\"end\">{}</text>",
            mark - x as f64,
            place(least),
            place(longest),
            x + PANEL - 4,
            number(middle),
            line = y - 4,
        );
    }
}

/// The value at the right edge of a panel.
fn edge(compared: &[Compared], of: fn(&Figures) -> f64) -> f64 {
    let mut medians: Vec<f64> = compared.iter().map(|set| set.median(of)).collect();
    medians.sort_by(f64::total_cmp);
    let middle = medians.get(medians.len() / 2).copied().unwrap_or(0.0);
    let most = medians.last().copied().unwrap_or(0.0);
    // Room for the number behind the longest bar.
    1.25 * most.min(REACH * middle).max(most / 1e3).max(1e-9)
}

fn baseline(row: usize) -> usize {
    TOP + ROW * (row + 1) - 8
}

fn number(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::figures::Run;
    use super::*;

    #[test]
    fn a_picture_has_a_line_for_each_rule_set_in_each_panel_and_no_markup_of_names() {
        let set = |name: &str| Compared {
            name: name.to_owned(),
            runs: vec![Run::new(0).figures(), Run::new(0).figures()],
        };
        let svg = svg(&[set("cost"), set("a<b>&c")], "trace <x>");
        assert_eq!(svg.matches("<line").count(), 2 * PANELS.len());
        assert!(svg.contains("a&lt;b&gt;&amp;c") && !svg.contains("<b>"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }
}
