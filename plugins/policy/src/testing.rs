//! Fleets for the rungs' tests, written as short as one would say them.

use crate::decision::{Decision, Verdict};
use crate::fleet::{Fleet, ForeignShare, Live, Millis, Report, Role, Slot, Worker};
use crate::ledger::{Ledger, Outstanding, Standing};
use crate::request::{Holding, Prompt, Request};
use crate::rules::Rules;
use crate::scene::Scene;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

/// The instant of every test's decision.
pub(crate) const NOW: Millis = Millis(1_000);

/// A fresh report of these two counts.
pub(crate) fn queue(waiting: u64, running: u64) -> Report {
    Report {
        captured_at: NOW,
        fresh_until: Millis(NOW.0 + 1),
        waiting: Some(waiting),
        running: Some(running),
        ..Report::default()
    }
}

/// A fresh native report with room: 4 of 64 running, 1,000 of 100,000 tokens.
pub(crate) fn native(waiting: u64, waiting_uncached_tokens: u64) -> Report {
    Report {
        max_running: Some(64),
        total_tokens: Some(1_000),
        max_total_tokens: Some(100_000),
        waiting_uncached_tokens: Some(waiting_uncached_tokens),
        ..queue(waiting, 4)
    }
}

/// The same with a full KV cache.
pub(crate) fn full(waiting: u64) -> Report {
    Report { total_tokens: Some(100_000), ..native(waiting, 0) }
}

/// A routable worker with this report.
pub(crate) fn worker(id: &str, report: impl Into<Option<Report>>) -> Worker {
    let live = Live::default();
    live.set_routable(true);
    Worker {
        id: id.into(),
        slot: Slot(0),
        role: Role::Plain,
        weight: 1,
        ranks: 1,
        report: report.into(),
        speed: None,
        live: Arc::new(live),
    }
}

/// The same with requests and tokens of this edge outstanding, some of them sent since the report.
pub(crate) fn sent(worker: Worker, local: (u64, u64), since: (u64, u64)) -> Worker {
    let outstanding = |(requests, uncached_tokens)| Outstanding { requests, uncached_tokens };
    let live = Live::with_ledger(Ledger::standing(Standing {
        outstanding: outstanding(local),
        since_report: outstanding(since),
        ..Standing::default()
    }));
    live.set_routable(worker.live.is_routable());
    Worker { live: Arc::new(live), ..worker }
}

/// A fleet in which a worker's slot is its place in the list.
pub(crate) fn fleet(workers: impl IntoIterator<Item = Worker>) -> Fleet {
    let slotted =
        (0..).zip(workers).map(|(slot, worker)| Worker { slot: Slot(slot), ..worker }).collect();
    Fleet::new(1, slotted)
}

/// `count` workers named `w000` and so on, all with this report.
pub(crate) fn alike(count: usize, report: impl Into<Option<Report>>) -> Fleet {
    let report = report.into();
    fleet((0..count).map(|at| worker(&format!("w{at:03}"), report.clone())))
}

/// One request with everything it borrows.
pub(crate) struct Ask {
    pub(crate) input_tokens: u64,
    pub(crate) holdings: Vec<Holding>,
    pub(crate) home: u64,
    pub(crate) excluded: Vec<Slot>,
    pub(crate) dice: u64,
    pub(crate) turn: u64,
    pub(crate) mean_uncached_tokens: u64,
    pub(crate) home_blocks: Option<u32>,
    pub(crate) foreign_share: ForeignShare,
}

/// A prompt that nobody holds.
pub(crate) fn ask(input_tokens: u64) -> Ask {
    Ask {
        input_tokens,
        holdings: Vec::new(),
        home: 0,
        excluded: Vec::new(),
        dice: 0,
        turn: 0,
        mean_uncached_tokens: 0,
        home_blocks: None,
        foreign_share: ForeignShare::default(),
    }
}

impl Ask {
    /// The worker at this position has so many tokens to compute.
    pub(crate) fn held(mut self, at: usize, uncached_tokens: u64) -> Self {
        let matched = self.input_tokens.saturating_sub(uncached_tokens);
        let blocks = u32::try_from(matched / 128).unwrap_or(u32::MAX).max(1);
        self.holdings.push(Holding { at, blocks, uncached_tokens });
        self.holdings.sort_by_key(|held| held.at);
        self
    }

    pub(crate) fn request(&self) -> Request<'_> {
        let prompt = Prompt {
            input_tokens: self.input_tokens,
            holdings: &self.holdings,
            home: self.home,
            home_blocks: self.home_blocks,
        };
        Request { prompt: Some(prompt), ..self.promptless() }
    }

    pub(crate) fn promptless(&self) -> Request<'_> {
        Request {
            now: NOW,
            prompt: None,
            excluded: &self.excluded,
            dice: self.dice,
            turn: self.turn,
            mean_uncached_tokens: self.mean_uncached_tokens,
            foreign_share: self.foreign_share,
        }
    }
}

/// Default rules with this gate.
pub(crate) fn gate(limit: u64, floor: Option<u64>) -> Rules {
    Rules {
        worker_queue_limit: NonZeroU64::new(limit),
        saturation_queue_floor: floor.and_then(NonZeroU64::new),
        ..Rules::default()
    }
}

pub(crate) fn some(count: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(count)
}

/// What became of the candidates, best first.
pub(crate) fn verdicts(decision: &Decision) -> Vec<Verdict> {
    decision.trace.considered.iter().map(|considered| considered.verdict).collect()
}

/// A scene of these three.
pub(crate) fn scene<'a>(fleet: &'a Fleet, request: &'a Request<'a>, rules: &'a Rules) -> Scene<'a> {
    Scene { fleet, request, rules }
}
