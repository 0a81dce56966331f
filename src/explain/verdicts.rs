//! What became of a candidate, in a sentence.

use super::text::{counted, grouped};
use super::{Case, rules};
use crate::config::Policy;
use tidegate_policy::decision::{Considered, Decision, PressureSource, Reason, Verdict};
use tidegate_policy::fleet::Report;
use tidegate_policy::gate;
use tidegate_policy::rules::PinOrder;

/// Why this candidate was taken or dropped.
pub(super) fn why(case: &Case<'_>, decision: &Decision, row: &Considered) -> String {
    match row.verdict {
        Verdict::Gated => gated(case, row),
        Verdict::NoRoom => no_room(case, row),
        Verdict::OutsideMargin => outside_margin(case, decision, row),
        Verdict::Lost => lost(case, decision, row),
        Verdict::Chosen => chosen(decision, row),
    }
}

/// Gated, or a gated owner whose queue is too long to be pinned to.
fn gated(case: &Case<'_>, row: &Considered) -> String {
    let queue = row.queue.map_or_else(|| "an unknown number".to_owned(), grouped);
    let limit =
        limit(case, row).map_or_else(String::new, |limit| format!(", the limit is {limit}"));
    format!("{queue} waiting there{limit}")
}

fn limit(case: &Case<'_>, row: &Considered) -> Option<u64> {
    let rules = rules(case)?;
    let ranks = case.fleet.workers()[row.at].ranks;
    Some(gate::scaled(rules.worker_queue_limit?, ranks, rules))
}

/// The first condition of hard admission that fails.
fn no_room(case: &Case<'_>, row: &Considered) -> String {
    let report = case.fleet.workers()[row.at].fresh(case.request.now);
    report
        .and_then(|report| slots(case, report).or_else(|| kv(case, report)))
        .unwrap_or_else(|| pending(case, report, row))
}

/// A gate stands in for the question of slots.
fn slots(case: &Case<'_>, report: &Report) -> Option<String> {
    let is_gated = rules(case).is_some_and(|rules| rules.worker_queue_limit.is_some());
    let (running, most) = (report.running?, report.max_running?);
    (!is_gated && most <= running)
        .then(|| format!("{} of {} slots are taken", grouped(running), grouped(most)))
}

fn kv(case: &Case<'_>, report: &Report) -> Option<String> {
    let input_tokens = case.request.input_tokens();
    let (used, most) = (report.total_tokens?, report.max_total_tokens?);
    (most < used.saturating_add(input_tokens)).then(|| {
        let (used, input, most) = (grouped(used), grouped(input_tokens), grouped(most));
        format!("{used} KV tokens in use and {input} to come, of {most}")
    })
}

fn pending(case: &Case<'_>, report: Option<&Report>, row: &Considered) -> String {
    let waiting = report.and_then(|report| report.waiting_uncached_tokens).unwrap_or(0);
    let most = rules(case).and_then(|rules| rules.max_pending_prefill_tokens).unwrap_or(0);
    format!(
        "{} tokens wait there for prefill and {} would come, max_pending_prefill_tokens is {}",
        grouped(waiting),
        grouped(row.uncached_tokens),
        grouped(most)
    )
}

fn outside_margin(case: &Case<'_>, decision: &Decision, row: &Considered) -> String {
    let considered = &decision.trace.considered;
    let survivors = considered.iter().filter(|other| match other.verdict {
        Verdict::Gated | Verdict::NoRoom => false,
        Verdict::OutsideMargin | Verdict::Lost | Verdict::Chosen => true,
    });
    let least = survivors.map(|other| other.uncached_tokens).min().unwrap_or(0);
    let margin = rules(case).map_or(0, |rules| rules.switch_margin_tokens);
    format!(
        "{} tokens more to compute than the best, the margin is {}",
        grouped(row.uncached_tokens.saturating_sub(least)),
        grouped(margin)
    )
}

/// Beaten by the winner: by depth, by pressure, or by the pressure guard.
fn lost(case: &Case<'_>, decision: &Decision, row: &Considered) -> String {
    let winner = case.fleet.workers()[decision.at].id.as_str();
    let more = row.uncached_tokens.saturating_sub(decision.uncached_tokens);
    if decision.reason == Reason::SaturationPin {
        return match case.policy {
            Policy::CacheAware(rules) if rules.pin_order == PinOrder::Locality => {
                format!("{winner} comes first by what is left to compute")
            }
            Policy::CacheAware(_)
            | Policy::LeastLoad { .. }
            | Policy::RoundRobin
            | Policy::Learned(_) => {
                format!("{winner} comes first by {}", measure(decision.trace.pin_pressure_source))
            }
        };
    }
    if 0 < more {
        return format!("{} more to compute than at {winner}", counted(more, "token"));
    }
    let source = measure(Some(decision.trace.pressure_source));
    if row.uncached_tokens < decision.uncached_tokens {
        return format!("holds more, but is materially busier than {winner}, by {source}");
    }
    format!("{winner} comes first by {source}")
}

fn chosen(decision: &Decision, row: &Considered) -> String {
    if decision.reason == Reason::SaturationPin {
        return format!("back to its owner, {} to compute", counted(row.uncached_tokens, "token"));
    }
    format!("wins, {} to compute", counted(row.uncached_tokens, "token"))
}

/// What pressure was measured by; ties go to the smaller id.
pub(super) fn measure(source: Option<PressureSource>) -> &'static str {
    match source {
        Some(PressureSource::EstimatedPrefillQueueMs) => "estimated prefill time of its queue",
        Some(PressureSource::NativeQueueTokens) => "uncached tokens in its queue",
        Some(PressureSource::ReportedQueue) => "reported queue",
        Some(PressureSource::RouterLocal) | None => "what this edge has sent there",
    }
}
