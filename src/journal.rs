//! The last few hundred requests, each with its decision and how it ended.

mod row;

pub use row::Row;

use crate::metrics::Outcome;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tidegate_policy::decision::{Considered, CostTrace, Decision};
use tidegate_policy::fleet::{Fleet, WorkerId};
use tidegate_policy::learned::Selection;
use tidegate_policy::prefix::{PrefixKey, PrefixKeys};

/// The log target of the access log.
pub const ACCESS_LOG: &str = "access";

/// Access log lines that were dropped because who reads the log is too slow: of the whole process, as
/// the log is.
pub static LOST_LINES: AtomicU64 = AtomicU64::new(0);

/// Requests remembered.
const CAPACITY: usize = 512;

/// A ring of records.
#[derive(Debug, Default)]
pub struct Journal {
    records: Mutex<VecDeque<Arc<Record>>>,
}

impl Journal {
    /// Remembers a request that ended; the oldest one is forgotten.
    pub fn push(&self, record: Arc<Record>) {
        let mut records = self.records.lock();
        let oldest = if records.len() == CAPACITY { records.pop_front() } else { None };
        records.push_back(record);
        drop(records);
        drop(oldest);
    }

    /// Newest first.
    pub fn latest(&self) -> Vec<Arc<Record>> {
        self.records.lock().iter().rev().cloned().collect()
    }
}

/// One request, as the access log and `/v1/decisions` show it. No prompt text, no secrets.
#[derive(Clone, Debug)]
pub struct Record {
    /// When it ended, seconds since 1970.
    pub time: f64,
    /// `x-request-id`.
    pub request_id: String,
    /// The client's address without its port; `None`: it came by a unix socket.
    pub client: Option<Arc<str>>,
    /// Configured model name, or `other`.
    pub model: Arc<str>,
    /// The path's label.
    pub path: &'static str,
    /// Status sent to the client; 0 = none.
    pub status: u16,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it was routed there.
    pub decision: Option<&'static str>,
    /// Where it was routed.
    pub worker: Option<WorkerId>,
    /// Error code, if the edge answered.
    pub error: Option<&'static str>,
    /// Prompt tokens.
    pub prompt_tokens: PromptTokens,
    /// Completion tokens, reported or counted content events.
    pub completion_tokens: Option<u64>,
    /// Head read to first content, milliseconds.
    pub ttft_ms: Option<u64>,
    /// Head read to end, milliseconds.
    pub total_ms: u64,
    /// How long it waited at the edge for a worker, milliseconds.
    pub queued_ms: Option<u64>,
    /// Workers tried.
    pub attempts: u32,
    /// The route it took, under the policy `learned`.
    pub route: Option<RouteSelected>,
    /// The rungs; not part of the access log.
    pub rungs: Option<Rungs>,
}

/// The event of a route that was chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RouteSelected {
    /// `route selected`.
    pub event: &'static str,
    /// `scout`, `exploit`, `pinned` or `greedy-fallback`.
    pub mode: &'static str,
    /// Which route.
    pub signature: String,
}

impl From<&Selection> for RouteSelected {
    fn from(selection: &Selection) -> Self {
        Self {
            event: "route selected",
            mode: selection.mode.as_str(),
            signature: selection.signature.to_string(),
        }
    }
}

/// The four counts of a prompt; absent ones are unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptTokens {
    /// What the decision went by.
    pub estimated: Option<u64>,
    /// What the answer said.
    pub reported: Option<u64>,
    /// What the index held at the chosen worker.
    pub matched: Option<u64>,
    /// What the answer said was cached.
    pub cached: Option<u64>,
}

/// Most keys of a [`PrefixRow`].
const MOST_KEYS: u64 = 32;

/// Some of a prompt's prefix keys: every so many bytes one, which stands for all before it. The
/// distance is a power of two blocks, so that keys of prompts of any length fall on each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefixRow {
    /// Prompt bytes.
    pub bytes: u64,
    /// From one key to the next, bytes.
    pub step: u64,
    /// In hexadecimal.
    pub keys: Vec<String>,
}

impl PrefixRow {
    /// Of a prompt in blocks of this many bytes.
    pub fn new(keys: &PrefixKeys, block_bytes: u32) -> Self {
        let whole = keys.bytes() / u64::from(block_bytes.max(1));
        let blocks = whole.div_ceil(MOST_KEYS).next_power_of_two();
        let each = usize::try_from(blocks).unwrap_or(usize::MAX);
        let whole = usize::try_from(whole).unwrap_or(usize::MAX).min(keys.keys().len());
        // The last one is partial, if it is: nobody else's prompt ends there.
        let last = keys.keys()[..whole].chunks_exact(each).filter_map(<[PrefixKey]>::last);
        Self {
            bytes: keys.bytes(),
            step: blocks * u64::from(block_bytes),
            keys: last.map(|key| format!("{:016x}", key.0)).collect(),
        }
    }
}

/// A decision rung by rung, with names instead of positions.
#[derive(Clone, Debug, Serialize)]
pub struct Rungs {
    /// Version of the fleet snapshot.
    pub snapshot: u64,
    /// The candidates, best first, and what became of each.
    pub candidates: Vec<CandidateRow>,
    /// Candidates the gate rejected.
    pub gate_rejected: u32,
    /// Deepest match among them, blocks.
    pub best_rejected_blocks: u32,
    /// Every fleet worker is gated.
    pub fleet_all_queued: bool,
    /// The re-admission rung was used.
    pub queue_gate_fell_back: bool,
    /// Candidates hard admission looked at.
    pub admission_evaluated: u32,
    /// Candidates it rejected.
    pub admission_rejected: u32,
    /// What the evaluated candidates' pressure was measured by.
    pub pressure_source: &'static str,
    /// The same for the pin.
    pub pin_pressure_source: Option<&'static str>,
    /// Pairs the pressure guard compared.
    pub guard_compared: u32,
    /// Pairs whose winner it changed.
    pub guard_overrides: u32,
    /// A gate is configured and no worker has a fresh queue.
    pub gate_inert: bool,
    /// How a cache-aware decision is counted.
    pub cache_decision: Option<&'static str>,
    /// What the chosen worker costs, under cost selection.
    pub cost: Option<CostRow>,
}

/// The chosen worker's cost, tokens.
#[derive(Clone, Debug, Serialize)]
pub struct CostRow {
    /// Uncached tokens ahead of it there.
    pub line: u64,
    /// The fleet's mean line.
    pub mean_line: u64,
    /// What its prefill costs everybody else.
    pub price: u64,
    /// What was compared.
    pub score: u64,
    /// Tokens to compute beyond the fewest anywhere.
    pub diverted_tokens: u64,
}

/// One candidate.
#[derive(Clone, Debug, Serialize)]
pub struct CandidateRow {
    /// Who.
    #[serde(serialize_with = "name")]
    pub worker: WorkerId,
    /// Matched blocks.
    pub blocks: u32,
    /// Tokens it would have to compute.
    pub uncached_tokens: u64,
    /// The queue the gate looked at.
    pub queue: Option<u64>,
    /// What became of it.
    pub verdict: &'static str,
}

fn name<S: Serializer>(worker: &WorkerId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(worker.as_str())
}

impl Rungs {
    /// Names what the decision's trace refers to by position.
    pub fn new(fleet: &Fleet, decision: &Decision) -> Self {
        let trace = &decision.trace;
        Self {
            snapshot: fleet.version(),
            candidates: trace.considered.iter().map(|row| CandidateRow::new(fleet, row)).collect(),
            gate_rejected: trace.gate_rejected,
            best_rejected_blocks: trace.best_rejected_blocks,
            fleet_all_queued: trace.fleet_all_queued,
            queue_gate_fell_back: trace.queue_gate_fell_back,
            admission_evaluated: trace.admission_evaluated,
            admission_rejected: trace.admission_rejected,
            pressure_source: trace.pressure_source.as_str(),
            pin_pressure_source: trace.pin_pressure_source.map(|source| source.as_str()),
            guard_compared: trace.guard_compared,
            guard_overrides: trace.guard_overrides,
            gate_inert: trace.gate_inert,
            cache_decision: decision.cache.map(|cache| cache.as_str()),
            cost: trace.cost.as_ref().map(CostRow::new),
        }
    }
}

impl CostRow {
    fn new(cost: &CostTrace) -> Self {
        // JSON numbers end at 64 bits.
        let clipped = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        Self {
            line: cost.chosen.line,
            mean_line: cost.mean_line,
            price: clipped(cost.chosen.price),
            score: clipped(cost.chosen.score),
            diverted_tokens: cost.diverted_tokens,
        }
    }
}

impl CandidateRow {
    fn new(fleet: &Fleet, considered: &Considered) -> Self {
        Self {
            worker: fleet.workers()[considered.at].id.clone(),
            blocks: considered.blocks,
            uncached_tokens: considered.uncached_tokens,
            queue: considered.queue,
            verdict: considered.verdict.as_str(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::num::NonZeroU32;
    use tidegate_policy::prefix::Root;

    /// A request that ended at this time of day.
    pub(super) fn record(time: f64) -> Record {
        Record {
            time,
            request_id: String::new(),
            client: None,
            model: "".into(),
            path: "",
            status: 200,
            outcome: Outcome::Ok,
            decision: None,
            worker: None,
            error: None,
            prompt_tokens: PromptTokens::default(),
            completion_tokens: None,
            ttft_ms: None,
            total_ms: 0,
            queued_ms: None,
            attempts: 1,
            route: None,
            rungs: None,
        }
    }

    #[test]
    fn the_newest_is_the_one_that_ended_last_whatever_the_clock_said() {
        let journal = Journal::default();
        let times = [86_400.0, 0.0, 172_800.0, 86_400.0];
        (0..CAPACITY - 1).for_each(|_| journal.push(Arc::new(record(1e9))));
        times.iter().for_each(|time| journal.push(Arc::new(record(*time))));
        let latest = journal.latest();
        let latest: Vec<f64> = latest.iter().take(5).map(|record| record.time).collect();
        assert_eq!(latest, [86_400.0, 172_800.0, 0.0, 86_400.0, 1e9]);
        assert_eq!(journal.latest().len(), CAPACITY);
    }

    fn keys(bytes: u64) -> PrefixKeys {
        let block = NonZeroU32::new(512).unwrap();
        PrefixKeys::of_digests(block, Root::new("m"), bytes, 0..bytes.div_ceil(512))
    }

    #[test]
    fn keys_of_a_longer_prompt_are_further_apart_and_fall_on_those_of_a_shorter() {
        for (bytes, step, count) in [
            (511, 512, 0),
            (512, 512, 1),
            (32 * 512, 512, 32),
            (33 * 512, 1_024, 16),
            (400_000, 16_384, 24),
        ] {
            let row = PrefixRow::new(&keys(bytes), 512);
            assert_eq!((row.bytes, row.step, row.keys.len()), (bytes, step, count), "{bytes}");
        }
        let (short, long) =
            (PrefixRow::new(&keys(30 * 512), 512), PrefixRow::new(&keys(60 * 512), 512));
        assert_eq!(
            long.keys[..15],
            short.keys.iter().skip(1).step_by(2).cloned().collect::<Vec<_>>()
        );
    }
}
