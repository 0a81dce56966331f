//! What one worker's polls add up to: the last report, why there is none, whether it is frozen.
//!
//! No answer is no news: the last report then ages until it is stale. An answer that is no report
//! is news: the load is unknown from then on.

use super::clock::after;
use crate::config;
use crate::metrics::ReportState;
use tidegate_policy::fleet::{Millis, Report};
use tidegate_policy::ledger::Mark;
use tidegate_reports::{LoadReport, prefill_throughput};

/// One poll, as it was when it was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub(super) at: Millis,
    /// What this edge had outstanding there.
    pub(super) mark: Mark,
    /// This edge's requests there, answering ones included.
    pub(super) in_flight: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Reading {
    last: Option<Taken>,
    /// Why there is no last report.
    missing: ReportState,
    /// Prefill tokens per second between the last two reports that show any.
    throughput: Option<u64>,
}

#[derive(Debug)]
struct Taken {
    report: LoadReport,
    sent: Sent,
    same: Unchanged,
}

/// Since when reports are equal, and what this edge did meanwhile. In-flight counts are compared
/// at polls: a request that came and went between two polls need not show in any report.
#[derive(Clone, Copy, Debug)]
struct Unchanged {
    since: Millis,
    least_in_flight: u32,
    most_in_flight: u32,
}

impl Unchanged {
    fn from(sent: &Sent) -> Self {
        Self { since: sent.at, least_in_flight: sent.in_flight, most_in_flight: sent.in_flight }
    }

    fn still(self, sent: &Sent) -> Self {
        Self {
            since: self.since,
            least_in_flight: self.least_in_flight.min(sent.in_flight),
            most_in_flight: self.most_in_flight.max(sent.in_flight),
        }
    }
}

/// What a report gives away of its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// Nothing new.
    Running,
    /// Its counters went backwards.
    Restarted,
}

impl Reading {
    /// A readable report came.
    pub(super) fn took(&mut self, report: LoadReport, sent: Sent) -> Engine {
        let before = self.last.take();
        let same = match &before {
            Some(before) if before.report == report => before.same.still(&sent),
            Some(_) | None => Unchanged::from(&sent),
        };
        let engine = match &before {
            Some(before) if went_backwards(&before.report, &report) => Engine::Restarted,
            Some(_) | None => Engine::Running,
        };
        self.throughput = match (engine, &before) {
            (Engine::Restarted, _) => None,
            (Engine::Running, None) => self.throughput,
            (Engine::Running, Some(before)) => {
                prefill_throughput(&before.report, &report).or(self.throughput)
            }
        };
        self.last = Some(Taken { report, sent, same });
        engine
    }

    /// An answer came that is no report, for this reason; is that new?
    pub(super) fn lost(&mut self, why: ReportState) -> bool {
        let before = std::mem::replace(&mut self.missing, why);
        self.last.take().is_some() || before != why
    }

    /// The engine is another one: its last report and its speed are history.
    pub(super) fn restarted(&mut self) {
        *self = Self::default();
    }

    /// Prefill speed by its own counters, tokens/s.
    pub(super) fn throughput(&self) -> Option<u64> {
        self.throughput
    }

    /// The line at the worker when the last report's poll was sent.
    pub(super) fn mark(&self) -> Option<Mark> {
        Some(self.last.as_ref()?.sent.mark)
    }

    /// KV cache in use by the last report, 0 to 1.
    pub(super) fn kv_usage(&self) -> Option<f64> {
        self.last.as_ref()?.report.kv_usage
    }

    /// Data-parallel ranks by the last report.
    pub(super) fn ranks(&self) -> Option<u32> {
        Some(self.last.as_ref()?.report.ranks)
    }

    /// Why there is no report, if there is none.
    pub(super) fn missing(&self) -> ReportState {
        self.missing
    }

    /// The last report as the decision sees it; a frozen one is stale at once.
    pub(super) fn report(&self, rules: &config::LoadReports) -> Option<Report> {
        let Taken { report, sent, same } = self.last.as_ref()?;
        let frozen = same.least_in_flight < same.most_in_flight
            && after(same.since, rules.frozen_after) <= sent.at;
        let fresh_until = if frozen { sent.at } else { after(sent.at, rules.max_age) };
        Some(Report {
            captured_at: sent.at,
            fresh_until,
            waiting: report.waiting,
            running: report.running,
            max_running: report.max_running,
            total_tokens: report.total_tokens,
            max_total_tokens: report.max_total_tokens,
            waiting_uncached_tokens: report.waiting_uncached_tokens,
            estimated_prefill_queue_ms: self.estimated_queue_ms(report),
            own_then: sent.mark.outstanding,
            own_in_flight: sent.mark.in_flight,
        })
    }

    /// `1000 * waiting_uncached / throughput`.
    fn estimated_queue_ms(&self, report: &LoadReport) -> Option<u64> {
        let tokens = report.waiting_uncached_tokens?;
        tokens.saturating_mul(1000).checked_div(self.throughput?)
    }
}

/// Counters only ever grow while an engine lives.
fn went_backwards(before: &LoadReport, now: &LoadReport) -> bool {
    before.prefill.iter().zip(&now.prefill).any(|(before, now)| {
        now.uncached_tokens < before.uncached_tokens || now.busy_us < before.busy_us
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;
    use tidegate_policy::ledger::Ledger;
    use tidegate_reports::{PrefillCounters, ReportFormat};

    fn rules() -> config::LoadReports {
        config::LoadReports {
            format: config::ReportChoice::Auto,
            interval: Duration::from_millis(500),
            timeout: Duration::from_millis(400),
            max_age: Duration::from_secs(2),
            frozen_after: Duration::from_secs(10),
            auth: None,
        }
    }

    fn report(waiting: u64) -> LoadReport {
        LoadReport {
            format: ReportFormat::GetLoad,
            waiting: Some(waiting),
            running: Some(1),
            max_running: None,
            total_tokens: None,
            max_total_tokens: None,
            waiting_uncached_tokens: None,
            kv_usage: None,
            ranks: 1,
            prefill: Vec::new(),
        }
    }

    fn counting(uncached_tokens: u64, busy_us: u64) -> LoadReport {
        LoadReport {
            format: ReportFormat::V1Loads,
            waiting_uncached_tokens: Some(5_000),
            prefill: vec![PrefillCounters { uncached_tokens, busy_us }],
            ..report(0)
        }
    }

    fn sent(at: u64, in_flight: u32) -> Sent {
        Sent { at: Millis(at), mark: Ledger::default().mark(), in_flight }
    }

    fn fresh_until(reading: &Reading) -> u64 {
        reading.report(&rules()).unwrap().fresh_until.0
    }

    #[test]
    fn age_counts_from_when_the_poll_was_sent() {
        let mut reading = Reading::default();
        reading.took(report(3), sent(1_000, 0));
        let seen = reading.report(&rules()).unwrap();
        assert_eq!((seen.captured_at, seen.fresh_until), (Millis(1_000), Millis(3_000)));
        assert_eq!(seen.waiting, Some(3));
    }

    #[test]
    fn an_answer_that_is_no_report_makes_the_load_unknown_at_once() {
        let mut reading = Reading::default();
        assert_eq!(reading.missing(), ReportState::Never);
        reading.took(report(0), sent(0, 0));
        reading.lost(ReportState::Unauthorized);
        assert!(reading.report(&rules()).is_none());
        assert_eq!(reading.missing(), ReportState::Unauthorized);
    }

    #[test]
    fn a_report_that_own_traffic_must_have_changed_and_did_not_is_frozen() {
        let mut reading = Reading::default();
        for at in (0..10_000).step_by(500) {
            reading.took(report(0), sent(at, u32::from(at == 4_000)));
        }
        assert_eq!(fresh_until(&reading), 9_500 + 2_000, "not yet ten seconds");
        reading.took(report(0), sent(10_000, 0));
        assert_eq!(fresh_until(&reading), 10_000, "stale at once");
        reading.took(report(1), sent(10_500, 0));
        assert_eq!(fresh_until(&reading), 12_500, "it moves again");
    }

    #[test]
    fn without_own_traffic_a_steady_report_stays_true() {
        for in_flight in [0, 7] {
            let mut reading = Reading::default();
            for at in (0..60_000).step_by(500) {
                reading.took(report(0), sent(at, in_flight));
            }
            assert_eq!(fresh_until(&reading), 59_500 + 2_000);
        }
    }

    #[test]
    fn counters_that_go_backwards_give_a_restart_away() {
        let mut reading = Reading::default();
        assert_eq!(reading.took(counting(100, 10), sent(0, 0)), Engine::Running);
        assert_eq!(reading.took(counting(100, 10), sent(1, 0)), Engine::Running);
        assert_eq!(reading.took(counting(99, 11), sent(2, 0)), Engine::Restarted);
        assert_eq!(reading.took(counting(99, 10), sent(3, 0)), Engine::Restarted);
    }
}
