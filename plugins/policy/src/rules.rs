//! What is allowed: numbers that were checked once, so that the decision has no errors to report.

mod cost;

pub use cost::{Bonus, Conflict, CostRules, Price, SpeedSnap, TiePercent};

use std::num::{NonZeroU32, NonZeroU64};

/// Part of a whole, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Ratio(f64);

impl Ratio {
    /// `None` unless `0 <= value <= 1`.
    pub const fn new(value: f64) -> Option<Self> {
        match value {
            0.0..=1.0 => Some(Self(value)),
            _ => None,
        }
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// A factor above 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Factor(f64);

impl Factor {
    /// `None` unless finite and above 1.
    pub fn new(value: f64) -> Option<Self> {
        (value.is_finite() && value > 1.0).then_some(Self(value))
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// How a saturation pin chooses among gated owners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PinOrder {
    /// The least pressured.
    #[default]
    Pressure,
    /// The deepest match.
    Locality,
}

/// Which rule chooses under the cache-aware policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    /// Gate, admission, tournament, pin and fallback, rung by rung.
    #[default]
    Ladder,
    /// The least predicted wait plus price of prefill.
    Cost(CostRules),
}

/// The settings of the cache-aware policy; names and defaults as in the configuration. All but
/// `min_matched_tokens` are the ladder's and have their defaults under [`Selection::Cost`].
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Which rule chooses, with the settings of its own.
    pub selection: Selection,
    /// A worker with this many waiting requests is gated.
    pub worker_queue_limit: Option<NonZeroU64>,
    /// Pin when no fleet worker's fresh queue is below this.
    pub saturation_queue_floor: Option<NonZeroU64>,
    /// Least matched tokens of a candidate. Under either selection it places the home key, and a
    /// shorter prompt has no owners.
    pub min_matched_tokens: Option<u64>,
    /// Least matched share of a candidate.
    pub min_match_ratio: Option<Ratio>,
    /// Candidates kept in any fleet.
    pub candidate_min_workers: NonZeroU32,
    /// Candidates kept as a share of the fleet.
    pub candidate_ratio: Ratio,
    /// Most candidates kept; at most [`Rules::MAX_CANDIDATES`].
    pub candidate_max_workers: NonZeroU32,
    /// Only candidates this close to the least uncached compete.
    pub switch_margin_tokens: u64,
    /// Inside the margin a materially more pressured side loses first.
    pub pressure_guard: bool,
    /// Materially: by more than this many waiting uncached tokens, and
    pub pressure_abs_tokens: u64,
    /// by more than this factor;
    pub pressure_rel: Factor,
    /// or the same on milliseconds.
    pub pressure_abs_ms: Option<u64>,
    /// Hard admission's bound on waiting uncached tokens.
    pub max_pending_prefill_tokens: Option<u64>,
    /// The fallback draws this many workers and takes the least pressured.
    pub min_load_choices: Option<NonZeroU32>,
    /// How a pin chooses.
    pub pin_order: PinOrder,
    /// An owner with a longer queue is not pinned.
    pub pin_max_queue: Option<u64>,
    /// Add what was sent after the report was taken.
    pub dispatch_correction: bool,
    /// Multiply limit and floor by the worker's rank count.
    pub scale_with_dp: bool,
}

impl Selection {
    /// Settings of the ladder alone.
    pub const LADDER_KEYS: [&str; 17] = [
        "worker_queue_limit",
        "saturation_queue_floor",
        "min_match_ratio",
        "candidate_min_workers",
        "candidate_ratio",
        "candidate_max_workers",
        "switch_margin_tokens",
        "pressure_guard",
        "pressure_abs_tokens",
        "pressure_rel",
        "pressure_abs_ms",
        "max_pending_prefill_tokens",
        "min_load_choices",
        "pin_order",
        "pin_max_queue",
        "dispatch_correction",
        "scale_with_dp",
    ];

    /// Settings of cost selection alone.
    pub const COST_KEYS: [&str; 6] = [
        "price_worker",
        "price_fleet",
        "tie_percent",
        "speed_snap",
        "home_bonus",
        "home_bonus_foreign",
    ];

    /// Its name in the configuration.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Ladder => "ladder",
            Self::Cost(_) => "cost",
        }
    }

    /// The other one's settings, and its name.
    pub const fn other(&self) -> (&'static [&'static str], &'static str) {
        match self {
            Self::Ladder => (&Self::COST_KEYS, "cost"),
            Self::Cost(_) => (&Self::LADDER_KEYS, "ladder"),
        }
    }
}

impl Rules {
    /// Bound on candidates, whatever the settings.
    pub const MAX_CANDIDATES: usize = 32;

    /// How near the fleet's a measured speed counts as the fleet's.
    pub fn speed_snap(&self) -> SpeedSnap {
        match self.selection {
            Selection::Ladder => SpeedSnap::default(),
            Selection::Cost(cost) => cost.speed_snap,
        }
    }
}

impl Default for Rules {
    fn default() -> Self {
        const EIGHT: NonZeroU32 = NonZeroU32::new(8).unwrap();
        const MOST: NonZeroU32 = NonZeroU32::new(Rules::MAX_CANDIDATES as u32).unwrap();
        Self {
            selection: Selection::Ladder,
            worker_queue_limit: None,
            saturation_queue_floor: None,
            min_matched_tokens: Some(1024),
            min_match_ratio: None,
            candidate_min_workers: EIGHT,
            candidate_ratio: Ratio(0.05),
            candidate_max_workers: MOST,
            switch_margin_tokens: 1024,
            pressure_guard: true,
            pressure_abs_tokens: 1024,
            pressure_rel: Factor(1.5),
            pressure_abs_ms: None,
            max_pending_prefill_tokens: None,
            min_load_choices: None,
            pin_order: PinOrder::Pressure,
            pin_max_queue: None,
            dispatch_correction: true,
            scale_with_dp: false,
        }
    }
}
