//! What is configured of the policy: numbers that were checked once.

use crate::fleet::Millis;
use crate::rules::Ratio;
use std::num::NonZeroU32;

/// A power that is finite and not negative.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Exponent(f64);

impl Exponent {
    /// `None` unless finite and at least 0.
    pub fn new(value: f64) -> Option<Self> {
        (value.is_finite() && 0.0 <= value).then_some(Self(value))
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// How routes share the traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Proven ones by their means; a fixed share scouts.
    #[default]
    Proportional,
    /// Thompson sampling: each request takes the route that looks fastest in one draw from what is
    /// believed of each. What is uncertain is scouted as often as it may be the fastest, and what
    /// queues now counts. `explore_share` and `weight_alpha` have no effect.
    Thompson,
}

impl Choice {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Proportional, Self::Thompson];

    /// The word of the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Proportional => "proportional",
            Self::Thompson => "thompson",
        }
    }
}

/// Names and defaults as in the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How routes share the traffic.
    pub choice: Choice,
    /// Part of the requests that scout while some route is not proven.
    pub explore_share: Ratio,
    /// Proven routes share by `mean ^ weight_alpha`.
    pub weight_alpha: Exponent,
    /// A sample counts half after this long; 0 counts as 1 ms.
    pub stats_half_life: Millis,
    /// Completions of fewer tokens teach nothing.
    pub min_sample_tokens: u64,
    /// Most routes considered; at most [`Settings::MAX_CANDIDATES`] count.
    pub max_candidates: NonZeroU32,
    /// A route without a sample for longer is forgotten.
    pub prune_after: Millis,
}

impl Settings {
    /// Bound on candidates, whatever the settings.
    pub const MAX_CANDIDATES: u32 = 64;

    pub(super) fn most_candidates(&self) -> usize {
        self.max_candidates.get().min(Self::MAX_CANDIDATES) as usize
    }

    /// Part of a sample that still counts after `age` milliseconds.
    pub(super) fn decay(&self, age: i64) -> f64 {
        let half_lives = age.max(0) as f64 / self.stats_half_life.0.max(1) as f64;
        (-half_lives).exp2()
    }
}

impl Default for Settings {
    fn default() -> Self {
        const SHARE: Ratio = Ratio::new(0.3).unwrap();
        const EIGHT: NonZeroU32 = NonZeroU32::new(8).unwrap();
        Self {
            choice: Choice::Proportional,
            explore_share: SHARE,
            weight_alpha: Exponent(1.0),
            stats_half_life: Millis(600_000),
            min_sample_tokens: 8,
            max_candidates: EIGHT,
            prune_after: Millis(24 * 3_600_000),
        }
    }
}
