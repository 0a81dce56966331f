//! What we answer: a worker, one reason, and the audit of how it came to that.

use crate::learned::Mode;

/// Why a request went where it went. At once metric label, log field, response header and test
/// assertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// An owner won the tournament.
    CacheCandidate,
    /// Everybody queues: back to an owner.
    SaturationPin,
    /// Nobody owns the prefix: its rendezvous home.
    Home,
    /// Owners existed and were gated, had no room, or cost more.
    Diverted,
    /// Cost selection: holds as much as anybody, but for 1,024 tokens.
    Owner,
    /// Cost selection: nobody holds any of it, and this is not its home.
    LeastCost,
    /// No prompt, or one too short to matter.
    LeastLoad,
    /// Policy `round_robin`.
    RoundRobin,
    /// Policy `learned`: a route that is not proven, to measure it.
    Scout,
    /// Policy `learned`: a proven route.
    Exploit,
    /// Policy `learned`: the client's own route.
    Pinned,
    /// Policy `learned`: no route is proven, the best prior.
    GreedyFallback,
}

impl Reason {
    /// All of them: those of the ladder in its order, those of cost selection, those of learned routes.
    pub const ALL: [Self; 12] = [
        Self::CacheCandidate,
        Self::SaturationPin,
        Self::Home,
        Self::Diverted,
        Self::Owner,
        Self::LeastCost,
        Self::LeastLoad,
        Self::RoundRobin,
        Self::Scout,
        Self::Exploit,
        Self::Pinned,
        Self::GreedyFallback,
    ];

    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CacheCandidate => "cache_candidate",
            Self::SaturationPin => "saturation_pin",
            Self::Home => "home",
            Self::Diverted => "diverted",
            Self::Owner => "owner",
            Self::LeastCost => "least_cost",
            Self::LeastLoad => "least_load",
            Self::RoundRobin => "round_robin",
            Self::Scout => Mode::Scout.as_str(),
            Self::Exploit => Mode::Exploit.as_str(),
            Self::Pinned => Mode::Pinned.as_str(),
            Self::GreedyFallback => Mode::GreedyFallback.as_str(),
        }
    }
}

impl From<Mode> for Reason {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Scout => Self::Scout,
            Mode::Exploit => Self::Exploit,
            Mode::Pinned => Self::Pinned,
            Mode::GreedyFallback => Self::GreedyFallback,
        }
    }
}

/// How a cache-aware decision is counted; exactly one per routed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheDecision {
    /// The tournament decided, or an owner costs least.
    CacheHit,
    /// The whole fleet queues.
    AllQueued,
    /// Nobody held it; under the ladder also: owners passed the gate and had no room.
    CacheMiss,
    /// The gate took every owner while somebody else was free, or the owners cost more.
    CacheWorkerQueued,
}

impl CacheDecision {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::CacheHit, Self::AllQueued, Self::CacheMiss, Self::CacheWorkerQueued];

    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CacheHit => "cache_hit",
            Self::AllQueued => "all_queued",
            Self::CacheMiss => "cache_miss",
            Self::CacheWorkerQueued => "cache_worker_queued",
        }
    }
}

/// What pressures were compared by; one source for a whole compared set. The greater needs less of a
/// worker, so a set's source is the greatest of its workers'.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PressureSource {
    /// Milliseconds until the queue is prefilled.
    EstimatedPrefillQueueMs,
    /// Uncached tokens in the queue.
    NativeQueueTokens,
    /// Requests in the queue.
    ReportedQueue,
    /// What this edge has sent.
    #[default]
    RouterLocal,
}

impl PressureSource {
    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EstimatedPrefillQueueMs => "estimated_prefill_queue_ms",
            Self::NativeQueueTokens => "native_queue_tokens",
            Self::ReportedQueue => "reported_queue",
            Self::RouterLocal => "router_local",
        }
    }
}

/// What became of one candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its queue is at or over the limit.
    Gated,
    /// It fails hard admission.
    NoRoom,
    /// More than the margin behind the least uncached.
    OutsideMargin,
    /// Lost the tournament, or the pin to a less pressured owner.
    Lost,
    /// Won the tournament or the pin. What the fallback chooses is no candidate's victory.
    Chosen,
}

impl Verdict {
    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gated => "gated",
            Self::NoRoom => "no_room",
            Self::OutsideMargin => "outside_margin",
            Self::Lost => "lost",
            Self::Chosen => "chosen",
        }
    }
}

/// One candidate and what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Considered {
    /// Position in the fleet.
    pub at: usize,
    /// Matched blocks.
    pub blocks: u32,
    /// Tokens it would have to compute.
    pub uncached_tokens: u64,
    /// The queue the gate looked at; `None` = unknown.
    pub queue: Option<u64>,
    /// What became of it.
    pub verdict: Verdict,
}

/// What a worker costs this request under cost selection, in tokens of the fleet's prefill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Position in the fleet.
    pub at: usize,
    /// `L`: uncached tokens ahead of it.
    pub line: u64,
    /// `u`: uncached tokens of its own.
    pub uncached_tokens: u64,
    /// What its prefill costs everybody else, the second addend; the first is `line` and
    /// `uncached_tokens`.
    pub price: u128,
    /// Both, for the worker's speed and the home's bonus.
    pub score: u128,
    /// Does it pass hard admission?
    pub has_room: bool,
}

/// The audit of a choice by cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostTrace {
    /// The chosen worker's.
    pub chosen: Cost,
    /// `Lbar`: the fleet's mean line, tokens.
    pub mean_line: u64,
    /// What a token of prefill costs everybody else at the chosen worker, in thousandths of a token.
    pub token_price: u128,
    /// Tokens to compute beyond the fewest anywhere in the fleet.
    pub diverted_tokens: u64,
    /// The prompt's rendezvous home, if nobody holds its home block.
    pub home: Option<usize>,
    /// Every worker's, by position; only if it was asked for.
    pub costs: Vec<Cost>,
}

impl CostTrace {
    /// Those of [`CostTrace::costs`] that were compared: with room, or all if nobody has room.
    pub fn compared(&self) -> impl Iterator<Item = &Cost> {
        let is_room = self.costs.iter().any(|cost| cost.has_room);
        self.costs.iter().filter(move |cost| cost.has_room || !is_room)
    }
}

/// The audit of one decision; names as in the rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The candidates, best first. Not in place: a decision is moved several times, and cost selection
    /// has none.
    pub considered: Vec<Considered>,
    /// Candidates the gate rejected.
    pub gate_rejected: u32,
    /// Deepest match among them, blocks; under cost selection of all owners, if diverted.
    pub best_rejected_blocks: u32,
    /// Limit set, fleet not empty, every fleet worker gate-rejected.
    pub fleet_all_queued: bool,
    /// The re-admission rung was used.
    pub queue_gate_fell_back: bool,
    /// Candidates hard admission looked at.
    pub admission_evaluated: u32,
    /// Candidates it rejected.
    pub admission_rejected: u32,
    /// Source of the evaluated set.
    pub pressure_source: PressureSource,
    /// Source of the pin's own lookup, if a pin was made.
    pub pin_pressure_source: Option<PressureSource>,
    /// Pairs inside the margin the guard looked at with a native source.
    pub guard_compared: u32,
    /// Those whose winner it changed.
    pub guard_overrides: u32,
    /// A gate is configured and no fleet worker has a fresh queue.
    pub gate_inert: bool,
    /// Routed off every owner while all queued.
    pub affinity_lost: bool,
    /// What it was chosen by under cost selection; the rungs' own fields are empty then.
    pub cost: Option<CostTrace>,
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Position in the fleet's workers.
    pub at: usize,
    /// Why.
    pub reason: Reason,
    /// How it is counted: always under the cache-aware policy, where a request without a prompt is a
    /// `cache_miss`; never under another.
    pub cache: Option<CacheDecision>,
    /// Tokens the chosen worker has to compute.
    pub uncached_tokens: u64,
    /// How it came to that.
    pub trace: Trace,
}
