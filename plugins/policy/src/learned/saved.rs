//! Statistics on their way to another process, or from one.
//!
//! Times are ages, because each process has a clock of its own; epochs are compared by the nodes
//! they stand for, because each process counts its own.

use super::routes::Routes;
use super::settings::Settings;
use super::stats::{Arm, Arms, MOST_TPS, time};
use super::topology::Topology;
use crate::fleet::Millis;
use serde::{Deserialize, Serialize};

/// No arm can have more samples that still count.
const MOST_MASS: f64 = 1e12;

/// What one model's routes have learned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// Epoch of the topology.
    pub epoch: u64,
    /// What the epoch stands for: `node[first-last]`, sorted.
    pub nodes: Vec<String>,
    /// The arms by signature.
    pub arms: Vec<SavedArm>,
}

/// One arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedArm {
    /// Which.
    pub signature: String,
    /// Decayed mean, tokens per second.
    pub mean: f64,
    /// Samples that counted when the last one came.
    pub mass: f64,
    /// Since the last sample, milliseconds.
    pub age_ms: u64,
    /// Samples accepted so far.
    pub samples: u64,
    /// Epoch of the samples.
    pub epoch: u64,
}

impl SavedArm {
    /// The arm in this process's time and epochs; `None`: no measurement.
    fn arm(&self, now: Millis, epoch: u64) -> Option<Arm> {
        let measured = 0.0 < self.mean && self.mean <= MOST_TPS;
        let counts = (0.0..=MOST_MASS).contains(&self.mass);
        let age = i64::try_from(self.age_ms).unwrap_or(i64::MAX);
        (measured && counts).then_some(Arm {
            mean: self.mean,
            mass: self.mass,
            last: time(now).saturating_sub(age),
            samples: self.samples,
            epoch,
        })
    }
}

impl Routes {
    /// What is known, to be taken in by [`Routes::import`].
    pub fn export(&self, now: Millis) -> Saved {
        let arms = self.arms.lock();
        let topology = self.topology();
        let saved = |(signature, arm): (&std::sync::Arc<str>, &Arm)| SavedArm {
            signature: signature.to_string(),
            mean: arm.mean,
            mass: arm.mass,
            age_ms: u64::try_from(time(now).saturating_sub(arm.last)).unwrap_or(0),
            samples: arm.samples,
            epoch: arm.epoch,
        };
        let mut saved: Vec<SavedArm> = arms.arms.iter().map(saved).collect();
        saved.sort_by(|a, b| a.signature.cmp(&b.signature));
        Saved { epoch: topology.epoch(), nodes: nodes(&topology), arms: saved }
    }

    /// Takes in what another process learned, and says how many arms; what is no measurement is left
    /// out. Arms that both know are merged by decayed weight if they are of the same epoch, else the
    /// newer one stays. If the nodes are other ones, what comes in is stale.
    ///
    /// To be called before requests are dispatched: it may raise the epoch, and what is in flight
    /// under an older one is no sample.
    pub fn import(&self, saved: &Saved, now: Millis, settings: &Settings) -> usize {
        let mut arms = self.arms.lock();
        let topology = self.topology();
        let (own, same) = (topology.epoch(), saved.nodes == nodes(&topology));
        let foreign = if same { saved.epoch } else { saved.epoch.saturating_add(1) };
        let epoch = own.max(foreign);
        for arm in arms.arms.values_mut().filter(|arm| own <= arm.epoch) {
            arm.epoch = epoch;
        }
        let mut taken = 0;
        // A file can hold more arms than there is room for.
        for saved_arm in saved.arms.iter().take(Arms::MOST) {
            let is_present = same && saved.epoch <= saved_arm.epoch;
            let arm_epoch =
                if is_present { epoch } else { saved_arm.epoch.min(epoch.saturating_sub(1)) };
            let Some(arm) = saved_arm.arm(now, arm_epoch) else { continue };
            let merged = match arms.arms.get(saved_arm.signature.as_str()) {
                Some(known) => merged(*known, arm, settings),
                None => arm,
            };
            arms.insert(&saved_arm.signature, merged);
            taken += 1;
        }
        self.replace(|present| present.clone().at_epoch(epoch));
        taken
    }
}

fn nodes(topology: &Topology) -> Vec<String> {
    let mut nodes: Vec<String> = topology.labels().iter().map(ToString::to_string).collect();
    nodes.sort_unstable();
    nodes
}

/// Both at the later one's time, each by what is left of its mass.
fn merged(one: Arm, other: Arm, settings: &Settings) -> Arm {
    if one.epoch != other.epoch {
        return if one.epoch < other.epoch { other } else { one };
    }
    let last = one.last.max(other.last);
    let left = |arm: &Arm| arm.mass * settings.decay(last.saturating_sub(arm.last));
    let (mine, theirs) = (left(&one), left(&other));
    let mass = mine + theirs;
    let sum = one.mean * mine + other.mean * theirs;
    let mean = if 0.0 < mass { sum / mass } else { one.mean };
    let samples = one.samples.saturating_add(other.samples);
    Arm { mean, mass, last, samples, epoch: one.epoch }
}

#[cfg(test)]
mod tests;
