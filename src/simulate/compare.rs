//! Several rule sets over the same arrivals.

use super::arrivals::Shape;
use super::figures::Figures;
use super::rule_set::RuleSet;
use super::traffic_source::Source;
use super::world::{self, Scene, WorldError};
use parking_lot::Mutex;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is compared over what.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'a> {
    /// Engines, edges, reports.
    pub scene: &'a Scene,
    /// Where arrivals come from.
    pub source: &'a Source,
    /// What is made of them.
    pub shape: &'a Shape,
    /// The rule sets.
    pub sets: &'a [RuleSet],
    /// Each is one run of each rule set, with the same arrivals for all.
    pub seeds: &'a [u64],
    /// Runs at a time.
    pub jobs: NonZeroUsize,
}

/// What one rule set came to.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The rule set's name.
    pub name: String,
    /// By seed.
    pub runs: Vec<Figures>,
}

impl Compared {
    /// The middle of a figure over the runs; the mean of two.
    pub fn median(&self, of: impl Fn(&Figures) -> f64) -> f64 {
        median(self.runs.iter().map(of))
    }

    /// The least and the most of a figure.
    pub fn range(&self, of: impl Fn(&Figures) -> f64) -> (f64, f64) {
        let values = || self.runs.iter().map(&of);
        (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max))
    }

    /// How far apart the runs lie, as a part of the median.
    pub fn spread(&self, of: impl Fn(&Figures) -> f64) -> f64 {
        let (least, most) = self.range(&of);
        (most - least) / self.median(of).max(1e-9)
    }
}

/// The middle value; the mean of two; 0 of none.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2).copied().unwrap_or(0.0);
    let lower = values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0.0);
    f64::midpoint(lower, upper)
}

impl Comparison<'_> {
    /// Runs in all.
    pub fn runs(&self) -> usize {
        self.sets.len() * self.seeds.len()
    }

    /// Runs everything; `done` is told of each run that ends.
    ///
    /// # Errors
    /// The first [`WorldError`].
    pub fn run(&self, done: impl Fn() + Sync) -> Result<Vec<Compared>, WorldError> {
        let next = AtomicUsize::new(0);
        let empty = |_| Mutex::new(None);
        let results: Vec<Mutex<Option<Result<Figures, WorldError>>>> =
            (0..self.runs()).map(empty).collect();
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.get().min(self.runs()) {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(result) = results.get(at) else { return };
                        let figures = self.one(at / self.seeds.len(), at % self.seeds.len());
                        *result.lock() = Some(figures);
                        done();
                    }
                });
            }
        });
        let mut results = results.into_iter();
        let mut compared = Vec::with_capacity(self.sets.len());
        for set in self.sets {
            let runs = results.by_ref().take(self.seeds.len()).filter_map(Mutex::into_inner);
            compared
                .push(Compared { name: set.name.clone(), runs: runs.collect::<Result<_, _>>()? });
        }
        Ok(compared)
    }

    fn one(&self, set: usize, seed: usize) -> Result<Figures, WorldError> {
        let (set, seed) = (&self.sets[set], self.seeds[seed]);
        let arrivals = self.source.arrivals(self.shape, seed);
        world::run(self.scene, &set.config, &arrivals, seed).map(|run| run.figures())
    }
}
