//! The story for a terminal.

use super::{
    CandidateView, CostView, Explanation, ReportAge, RungResult, Setting, WhatIf, WorkerView,
};
use serde_json::Number;
use std::cmp::Ordering;
use std::fmt::Write;

/// Workers shown that are neither candidates nor the winner.
const MOST_OTHERS: usize = 8;

/// Cells of a table's line. The ladder's: worker, held, to compute, queue, report, what became of
/// it.
type Line = [String; 6];

/// Cells of a line of cost selection's table.
type CostLine = [String; 9];

impl Explanation {
    /// For a terminal: the request, the workers, the rungs, the winner, and the what-ifs.
    pub fn text(&self) -> String {
        let mut out = String::new();
        self.write_head(&mut out);
        let rows = if self.costs.is_empty() { pad(&self.lines()) } else { pad(&self.cost_lines()) };
        rows.iter().for_each(|row| line(&mut out, format_args!("{row}")));
        self.write_routes(&mut out);
        self.write_rungs(&mut out);
        self.write_winner(&mut out);
        visible(&out)
    }

    fn write_head(&self, out: &mut String) {
        let name = if self.model.is_empty() { String::new() } else { format!("{}, ", self.model) };
        line(out, format_args!("model   {name}policy {}", self.policy));
        let blocks = self.blocks.map_or_else(String::new, |blocks| {
            format!(" in {}", counted(u64::from(blocks), "block"))
        });
        match self.input_tokens {
            Some(tokens) => line(out, format_args!("prompt  {}{blocks}", counted(tokens, "token"))),
            None => line(out, format_args!("prompt  none")),
        }
        let shown = |value: &Number| value.as_u64().map_or_else(|| value.to_string(), grouped);
        let set = |rule: &Setting| rule.value.as_ref().map_or_else(|| "unset".to_owned(), shown);
        let rules: Vec<String> =
            self.rules.iter().map(|rule| format!("{} {}", rule.name, set(rule))).collect();
        if !rules.is_empty() {
            line(out, format_args!("rules   {}", rules.join(", ")));
        }
        out.push('\n');
    }

    fn lines(&self) -> Vec<Line> {
        let head =
            ["worker", "held (blocks)", "to compute", "queue", "report", "what became of it"];
        let mut lines = vec![head.map(str::to_owned)];
        lines.extend(
            self.candidates.iter().map(|row| candidate_line(row, self.is_winner(&row.worker))),
        );
        let (mut shown, mut hidden) = (0, 0);
        for worker in &self.workers {
            let is_winner = self.is_winner(&worker.worker);
            if self.candidates.iter().any(|row| row.worker == worker.worker) {
                continue;
            }
            if !is_winner && MOST_OTHERS <= shown {
                hidden += 1;
                continue;
            }
            shown += usize::from(!is_winner);
            lines.push(worker_line(worker, is_winner));
        }
        if 0 < hidden {
            let mut rest = Line::default();
            rest[0] = format!("and {}", counted(hidden, "other"));
            lines.push(rest);
        }
        lines
    }

    /// Cheapest first, as many as of the ladder's.
    fn cost_lines(&self) -> Vec<CostLine> {
        let head = [
            "worker",
            "ahead",
            "to compute",
            "= wait",
            "+ price",
            "score",
            "queue",
            "report",
            "what became of it",
        ];
        let mut lines = vec![head.map(str::to_owned)];
        let mut costs: Vec<&CostView> = self.costs.iter().collect();
        costs.sort_by_key(|cost| (!self.is_winner(&cost.worker), !cost.compared, cost.score));
        lines.extend(costs.iter().take(1 + MOST_OTHERS).map(|cost| self.cost_line(cost)));
        let hidden = costs.len().saturating_sub(1 + MOST_OTHERS) as u64;
        if 0 < hidden {
            let mut rest = CostLine::default();
            rest[0] = format!("and {}", counted(hidden, "other"));
            lines.push(rest);
        }
        lines
    }

    /// Both addends, their sum for the worker's speed, and what its report says.
    fn cost_line(&self, cost: &CostView) -> CostLine {
        let worker = self.workers.iter().find(|worker| worker.worker == cost.worker);
        [
            cost.worker.clone(),
            grouped(cost.line),
            grouped(cost.uncached_tokens),
            grouped(cost.line.saturating_add(cost.uncached_tokens)),
            grouped(cost.price),
            grouped(cost.score),
            worker.map_or_else(String::new, |worker| queue(worker.queue)),
            worker.map_or_else(String::new, |worker| report(&worker.report)),
            cost.why.clone(),
        ]
    }

    fn is_winner(&self, worker: &str) -> bool {
        self.winner.as_ref().is_some_and(|winner| winner.worker == worker)
    }

    fn write_rungs(&self, out: &mut String) {
        out.push('\n');
        for (number, rung) in (1..).zip(&self.rungs) {
            let result = match rung.result {
                RungResult::Off => "off",
                RungResult::NotReached => "-",
                RungResult::Passed => "passed",
                RungResult::Closed => "closed",
                RungResult::Decided => "DECIDED",
            };
            line(out, format_args!("{number} {:<15} {result:<8} {}", rung.rung, rung.why));
        }
    }

    fn write_winner(&self, out: &mut String) {
        out.push('\n');
        let Some(winner) = &self.winner else {
            let code = self.refusal.as_deref().unwrap_or("no_routable_worker");
            if let Some(queue) =
                self.queue.filter(|queue| queue.waiting < queue.max_requests as usize)
            {
                let (waiting, most) = (queue.waiting, queue.max_wait_ms);
                line(
                    out,
                    format_args!("=> waits behind {waiting} others, {most} ms at most; then"),
                );
            }
            let status = match code {
                "invalid_route" => 400,
                "fleet_saturated" => 429,
                _ => 503,
            };
            return line(out, format_args!("=> nowhere: {status} {code}"));
        };
        let cache = winner
            .cache_decision
            .as_deref()
            .map_or_else(String::new, |cache| format!(" ({cache})"));
        let to_compute = counted(winner.uncached_tokens, "token");
        line(
            out,
            format_args!("=> {}  {}{cache}, {to_compute} to compute", winner.worker, winner.reason),
        );
        for other in &self.what_if {
            line(
                out,
                format_args!("   {:<14} {}", format!("{}:", other.change), self.outcome(other)),
            );
        }
    }

    fn outcome(&self, other: &WhatIf) -> String {
        let (Some(worker), Some(reason)) = (&other.worker, &other.reason) else {
            return "nowhere".to_owned();
        };
        if self.is_winner(worker) {
            let same_reason = self.winner.as_ref().is_some_and(|winner| winner.reason == *reason);
            return if same_reason {
                "the same".to_owned()
            } else {
                format!("the same worker, {reason}")
            };
        }
        let uncached = other.uncached_tokens.unwrap_or(0);
        let now = self.winner.as_ref().map_or(0, |winner| winner.uncached_tokens);
        let difference = match uncached.cmp(&now) {
            Ordering::Less => format!(" ({} fewer)", grouped(now - uncached)),
            Ordering::Equal => String::new(),
            Ordering::Greater => format!(" ({} more)", grouped(uncached - now)),
        };
        let at = self.workers.iter().find(|known| known.worker == *worker);
        let ahead = at.map_or(0, |worker| worker.line_tokens);
        let queue = at.and_then(|worker| worker.queue);
        let waiting =
            queue.map_or_else(String::new, |queue| format!(", {} waiting", grouped(queue)));
        let to_compute = counted(uncached, "token");
        format!(
            "{worker}  {reason}, {to_compute} to compute{difference} behind {}{waiting}",
            grouped(ahead)
        )
    }
}

fn candidate_line(row: &CandidateView, is_winner: bool) -> Line {
    let verdict = match (row.verdict.as_str(), is_winner) {
        ("chosen", _) => "CHOSEN".to_owned(),
        (other, true) => format!("CHOSEN by the fallback; {}", other.replace('_', " ")),
        (other, false) => other.replace('_', " "),
    };
    [
        row.worker.clone(),
        held(row.matched_tokens, row.blocks),
        grouped(row.uncached_tokens),
        queue(row.queue),
        report(&row.report),
        format!("{verdict}: {}", row.why),
    ]
}

fn worker_line(worker: &WorkerView, is_winner: bool) -> Line {
    let said = match (is_winner, worker.routable, worker.eligible) {
        (true, _, _) => "CHOSEN, not an owner",
        (false, false, _) => "not routable",
        (false, true, false) => "cannot prefill",
        (false, true, true) => "not an owner",
    };
    [
        worker.worker.clone(),
        if worker.matched_blocks == 0 {
            "-".to_owned()
        } else {
            format!("({})", worker.matched_blocks)
        },
        grouped(worker.uncached_tokens),
        queue(worker.queue),
        report(&worker.report),
        said.to_owned(),
    ]
}

fn held(tokens: u64, blocks: u32) -> String {
    format!("{} ({blocks})", grouped(tokens))
}

fn queue(queue: Option<u64>) -> String {
    queue.map_or_else(|| "unknown".to_owned(), grouped)
}

fn report(report: &ReportAge) -> String {
    match report.age_ms {
        Some(age) => format!("{} {}", report.state, duration(age)),
        None => report.state.clone(),
    }
}

fn duration(millis: u64) -> String {
    match millis {
        0..10_000 => format!("{} ms", grouped(millis)),
        _ => format!("{} s", grouped(millis / 1000)),
    }
}

/// Lines of a table: the first column to the left, the last as it is, the others to the right.
pub(super) fn pad<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let mut widths = [0; N];
    for cells in rows {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let padded = |cells: &[String; N]| {
        let cells = cells.iter().zip(widths).enumerate().map(|(at, (cell, width))| match at {
            0 => format!("{cell:<width$}"),
            _ if at + 1 == N => cell.clone(),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ")
    };
    rows.iter().map(|cells| padded(cells).trim_end().to_owned()).collect()
}

pub(super) fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{text}");
}

/// `1 owner`, `2 owners`, `12,000 tokens`.
pub(super) fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(count))
}

/// Thousands apart: `12,000`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if 0 < at && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Control characters of names and messages from elsewhere must not reach a terminal.
pub fn visible(text: &str) -> String {
    text.chars()
        .map(|char| if char.is_control() && char != '\n' { '\u{fffd}' } else { char })
        .collect()
}
