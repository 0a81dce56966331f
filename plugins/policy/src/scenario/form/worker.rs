//! A worker of a scenario: what it reports, and what this edge has sent there.

use super::super::NOW;
use crate::fleet::{Live, Millis, Report, Role, Slot, Speed, SpeedSource, Worker};
use crate::ledger::{Ledger, Outstanding, Standing};
use serde::Deserialize;
use std::sync::Arc;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkerForm {
    pub(super) id: String,
    pub(super) model: Option<String>,
    #[serde(default)]
    role: RoleForm,
    #[serde(default = "yes")]
    routable: bool,
    #[serde(default = "one")]
    dp_size: u32,
    load: Option<LoadForm>,
    #[serde(default)]
    dispatched_since: OutstandingForm,
    #[serde(default)]
    inflight: OutstandingForm,
    ledger: Option<LedgerForm>,
    prefill_tps: Option<u64>,
    #[serde(default)]
    speed_source: SpeedSourceForm,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RoleForm {
    #[default]
    Plain,
    Prefill,
    Decode,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadForm {
    waiting: Option<u64>,
    running: Option<u64>,
    max_running: Option<u64>,
    total_tokens: Option<u64>,
    max_total_tokens: Option<u64>,
    waiting_uncached_tokens: Option<u64>,
    estimated_prefill_queue_ms: Option<u64>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct OutstandingForm {
    uncached_tokens: u64,
    requests: u64,
}

/// The line this edge has at the worker.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct LedgerForm {
    outstanding_tokens: u64,
    #[serde(default)]
    head_tokens: u64,
    #[serde(default)]
    head_elapsed_ms: u64,
    #[serde(default)]
    outstanding_tokens_at_report: u64,
    #[serde(default)]
    outstanding_requests_at_report: u64,
    #[serde(default)]
    unstreamed: bool,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SpeedSourceForm {
    Configured,
    Reported,
    #[default]
    Measured,
}

fn yes() -> bool {
    true
}

fn one() -> u32 {
    1
}

impl WorkerForm {
    pub(super) fn worker(&self, slot: Slot) -> Worker {
        let (standing, own_then) = match &self.ledger {
            Some(ledger) => self.with_ledger(ledger),
            None => self.without_ledger(),
        };
        let live = Live::with_ledger(Ledger::standing(standing));
        live.set_routable(self.routable);
        let source = self.speed_source.source();
        Worker {
            id: self.id.as_str().into(),
            slot,
            role: self.role.role(),
            weight: 1,
            ranks: self.dp_size,
            report: self.load.as_ref().map(|load| load.report(own_then)),
            speed: self.prefill_tps.map(|tokens_per_second| Speed { tokens_per_second, source }),
            live: Arc::new(live),
        }
    }

    /// What was sent since the report is part of what is in flight, said or not.
    fn without_ledger(&self) -> (Standing, Outstanding) {
        let since_report = self.dispatched_since.outstanding();
        let inflight = self.inflight.outstanding();
        let outstanding = Outstanding {
            uncached_tokens: inflight.uncached_tokens.max(since_report.uncached_tokens),
            requests: inflight.requests.max(since_report.requests),
        };
        let own_then = Outstanding {
            uncached_tokens: outstanding.uncached_tokens - since_report.uncached_tokens,
            requests: outstanding.requests - since_report.requests,
        };
        (Standing { outstanding, since_report, ..Standing::default() }, own_then)
    }

    /// What is outstanding beyond what was at the report was sent since, at the least.
    fn with_ledger(&self, ledger: &LedgerForm) -> (Standing, Outstanding) {
        let own_then = Outstanding {
            uncached_tokens: ledger.outstanding_tokens_at_report,
            requests: ledger.outstanding_requests_at_report,
        };
        let since = self.dispatched_since.outstanding();
        let grown = ledger.outstanding_tokens.saturating_sub(own_then.uncached_tokens);
        let standing = Standing {
            outstanding: Outstanding {
                uncached_tokens: ledger.outstanding_tokens,
                requests: self.inflight.requests.max(since.requests),
            },
            since_report: Outstanding {
                uncached_tokens: since.uncached_tokens.max(grown),
                requests: since.requests,
            },
            head_tokens: ledger.head_tokens,
            head_since: Millis(NOW.0.saturating_sub(ledger.head_elapsed_ms)),
            unstreamed: u64::from(ledger.unstreamed),
        };
        (standing, own_then)
    }
}

impl SpeedSourceForm {
    fn source(self) -> SpeedSource {
        match self {
            Self::Configured => SpeedSource::Configured,
            Self::Reported => SpeedSource::Reported,
            Self::Measured => SpeedSource::Measured,
        }
    }
}

impl RoleForm {
    fn role(self) -> Role {
        match self {
            Self::Plain => Role::Plain,
            Self::Prefill => Role::Prefill,
            Self::Decode => Role::Decode,
        }
    }
}

impl OutstandingForm {
    fn outstanding(self) -> Outstanding {
        Outstanding { uncached_tokens: self.uncached_tokens, requests: self.requests }
    }
}

impl LoadForm {
    fn report(&self, own_then: Outstanding) -> Report {
        Report {
            captured_at: NOW,
            fresh_until: Millis(NOW.0 + 1),
            waiting: self.waiting,
            running: self.running,
            max_running: self.max_running,
            total_tokens: self.total_tokens,
            max_total_tokens: self.max_total_tokens,
            waiting_uncached_tokens: self.waiting_uncached_tokens,
            estimated_prefill_queue_ms: self.estimated_prefill_queue_ms,
            own_then,
            own_in_flight: 0,
        }
    }
}
