//! What was measured of each route: a decayed mean, and how much stands behind it.
//!
//! An arm is kept as (mean, mass, time of the last sample); nothing decays until it is looked at.
//! Bounded: at most [`Arms::MOST`] arms, the one whose last sample is oldest makes room, counted.

use super::settings::Settings;
use crate::fleet::Millis;
use std::collections::HashMap;
use std::sync::Arc;

/// Below this weight an arm is not proven.
const PROVEN: f64 = 0.5;
/// A sample above this many tokens per second is no measurement.
pub(super) const MOST_TPS: f64 = 1e9;

/// How a dispatched request ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ended {
    /// Its answer came to its regular end.
    Normally {
        /// Tokens of the answer.
        completion_tokens: u64,
        /// From dispatch to the last byte.
        seconds: f64,
    },
    /// The worker failed, or the answer was cut.
    Failed,
    /// The client left, or the edge gave up.
    Aborted,
}

/// What a request says of its route.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'a> {
    /// Which route.
    pub signature: &'a str,
    /// The topology's epoch when the request was dispatched.
    pub epoch: u64,
    /// How it ended.
    pub ended: Ended,
}

/// What became of a sample; label of `route_samples_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SampleResult {
    /// Learned from.
    Accepted,
    /// Fewer than `min_sample_tokens`.
    Short,
    /// No time passed, or faster than anything is.
    Unmeasurable,
    /// The request failed.
    Failed,
    /// The request was aborted.
    Aborted,
    /// Dispatched under an older topology than the arm's samples.
    StaleEpoch,
}

impl SampleResult {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Accepted,
        Self::Short,
        Self::Unmeasurable,
        Self::Failed,
        Self::Aborted,
        Self::StaleEpoch,
    ];

    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Short => "short",
            Self::Unmeasurable => "unmeasurable",
            Self::Failed => "failed",
            Self::Aborted => "aborted",
            Self::StaleEpoch => "stale_epoch",
        }
    }
}

/// What is known of an arm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Status {
    /// Never measured.
    #[default]
    Unsampled,
    /// Measured under an older topology.
    Stale,
    /// Measured too long ago.
    Decayed,
    /// Measured, and recently enough.
    Proven,
}

impl Status {
    /// The word of `GET /v1/routing`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unsampled => "unsampled",
            Self::Stale => "stale",
            Self::Decayed => "decayed",
            Self::Proven => "proven",
        }
    }
}

/// An arm as it counts at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Standing {
    pub(super) status: Status,
    /// Decayed mean, tokens per second; 0 if unsampled.
    pub(super) mean: f64,
    pub(super) weight: f64,
    pub(super) samples: u64,
    /// Scouts that are under way.
    pub(super) scouts: u32,
}

impl Standing {
    pub(super) fn is_proven(&self) -> bool {
        self.status == Status::Proven
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Arm {
    pub(super) mean: f64,
    pub(super) mass: f64,
    /// When the last sample came, milliseconds; may lie before this process's time began.
    pub(super) last: i64,
    /// All there ever were, of older epochs too.
    pub(super) samples: u64,
    pub(super) epoch: u64,
}

impl Arm {
    pub(super) fn weight(&self, now: Millis, settings: &Settings) -> f64 {
        self.mass * settings.decay(time(now).saturating_sub(self.last))
    }

    fn status(&self, weight: f64, epoch: u64) -> Status {
        if self.epoch < epoch {
            Status::Stale
        } else if weight < PROVEN {
            Status::Decayed
        } else {
            Status::Proven
        }
    }

    fn add(&mut self, tps: f64, now: Millis, settings: &Settings) {
        let mass = self.weight(now, settings);
        self.mean = (self.mean * mass + tps) / (mass + 1.0);
        self.mass = mass + 1.0;
        self.last = self.last.max(time(now));
        self.samples = self.samples.saturating_add(1);
    }
}

/// One model's arms, by signature.
#[derive(Debug, Default)]
pub(super) struct Arms {
    pub(super) arms: HashMap<Arc<str>, Arm>,
    /// As many entries as scouts are under way, at most.
    scouts: HashMap<Arc<str>, u32>,
    pub(super) evicted: u64,
}

impl Arms {
    /// Arms kept per model.
    pub(super) const MOST: usize = 256;

    pub(super) fn standing(
        &self,
        signature: &str,
        epoch: u64,
        now: Millis,
        settings: &Settings,
    ) -> Standing {
        let scouts = if self.scouts.is_empty() { None } else { self.scouts.get(signature) };
        let scouts = scouts.copied().unwrap_or(0);
        let Some(arm) = self.arms.get(signature) else {
            return Standing { scouts, ..Standing::default() };
        };
        let weight = arm.weight(now, settings);
        let (mean, samples) = (arm.mean, arm.samples);
        Standing { status: arm.status(weight, epoch), mean, weight, samples, scouts }
    }

    pub(super) fn scout_starts(&mut self, signature: &Arc<str>) {
        let under_way = self.scouts.entry(Arc::clone(signature)).or_default();
        *under_way = under_way.saturating_add(1);
    }

    pub(super) fn scout_ends(&mut self, signature: &str) {
        let Some(under_way) = self.scouts.get_mut(signature) else { return };
        *under_way = under_way.saturating_sub(1);
        if *under_way == 0 {
            self.scouts.remove(signature);
        }
    }

    pub(super) fn record(
        &mut self,
        sample: &Sample<'_>,
        now: Millis,
        settings: &Settings,
    ) -> SampleResult {
        let tps = match measure(sample.ended, settings) {
            Ok(tps) => tps,
            Err(reason) => return reason,
        };
        let fresh = Arm { mean: tps, mass: 1.0, last: time(now), samples: 1, epoch: sample.epoch };
        match self.arms.get_mut(sample.signature) {
            None => self.insert(sample.signature, fresh),
            Some(arm) if sample.epoch < arm.epoch => return SampleResult::StaleEpoch,
            Some(arm) if arm.epoch < sample.epoch => {
                *arm = Arm { samples: arm.samples.saturating_add(1), ..fresh };
            }
            Some(arm) => arm.add(tps, now, settings),
        }
        SampleResult::Accepted
    }

    /// Puts an arm in; the one whose last sample is oldest makes room.
    pub(super) fn insert(&mut self, signature: &str, arm: Arm) {
        if Self::MOST <= self.arms.len() && !self.arms.contains_key(signature) {
            let oldest = self.arms.iter().min_by(|(one, a), (other, b)| {
                let by_age = a.last.cmp(&b.last);
                by_age.then_with(|| one.cmp(other))
            });
            if let Some(name) = oldest.map(|(name, _)| Arc::clone(name)) {
                self.arms.remove(&name);
                self.evicted = self.evicted.saturating_add(1);
            }
        }
        self.arms.insert(signature.into(), arm);
    }

    /// Forgets arms without a sample for longer than `prune_after`, and says how many.
    pub(super) fn prune(&mut self, now: Millis, settings: &Settings) -> usize {
        let before = self.arms.len();
        let most = time(settings.prune_after);
        self.arms.retain(|_, arm| time(now).saturating_sub(arm.last) <= most);
        before - self.arms.len()
    }
}

/// Tokens per second, or why there are none.
fn measure(ended: Ended, settings: &Settings) -> Result<f64, SampleResult> {
    let (tokens, seconds) = match ended {
        Ended::Normally { completion_tokens, seconds } => (completion_tokens, seconds),
        Ended::Failed => return Err(SampleResult::Failed),
        Ended::Aborted => return Err(SampleResult::Aborted),
    };
    if tokens < settings.min_sample_tokens {
        return Err(SampleResult::Short);
    }
    let tps = tokens as f64 / seconds;
    if 0.0 < seconds && 0.0 < tps && tps <= MOST_TPS {
        Ok(tps)
    } else {
        Err(SampleResult::Unmeasurable)
    }
}

/// Signed, so that what is older than this process has a time too.
pub(super) fn time(at: Millis) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
