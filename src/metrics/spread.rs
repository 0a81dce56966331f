//! How times are spread, finer than the edges a Prometheus histogram may have: what a quantile of the
//! dashboard is read from.
//!
//! Buckets are an eighth of an octave wide, so a quantile is off by less than a tenth. Whoever draws
//! takes the counts away; while nobody does they add up.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Buckets per factor of two.
const PER_OCTAVE: usize = 8;
/// 1 ms to 17 minutes; what is faster or slower is in the first or the last bucket.
const BUCKETS: usize = 20 * PER_OCTAVE;

/// Counts of times.
#[derive(Debug)]
pub struct Spread([AtomicU32; BUCKETS]);

impl Default for Spread {
    fn default() -> Self {
        Self([const { AtomicU32::new(0) }; BUCKETS])
    }
}

impl Spread {
    /// Counts one.
    pub fn record(&self, time: Duration) {
        let octaves = (time.as_secs_f64() * 1000.0).max(1.0).log2();
        let bucket = (octaves * PER_OCTAVE as f64) as usize;
        self.0[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
    }

    /// What was counted since the last time.
    pub fn take(&self) -> Counts {
        let mut counts = Counts::default();
        for (count, bucket) in counts.0.iter_mut().zip(&self.0) {
            *count = bucket.swap(0, Ordering::Relaxed);
        }
        counts
    }
}

/// Counts that were taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts(Box<[u32; BUCKETS]>);

impl Default for Counts {
    fn default() -> Self {
        Self(Box::new([0; BUCKETS]))
    }
}

impl Counts {
    /// Nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|count| *count == 0)
    }

    /// Both together.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(other.0.iter()) {
            *count = count.saturating_add(*more);
        }
    }

    /// The time below which this share lies, milliseconds; `None` of nothing.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let all: u64 = self.0.iter().map(|count| u64::from(*count)).sum();
        let wanted = all as f64 * share;
        let mut below = 0.0;
        for (bucket, count) in self.0.iter().enumerate().filter(|(_, count)| 0 < **count) {
            let count = f64::from(*count);
            if wanted <= below + count {
                let octaves = (bucket as f64 + (wanted - below) / count) / PER_OCTAVE as f64;
                return Some(octaves.exp2());
            }
            below += count;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn spread(millis: impl IntoIterator<Item = u64>) -> Counts {
        let spread = Spread::default();
        millis.into_iter().for_each(|time| spread.record(Duration::from_millis(time)));
        spread.take()
    }

    #[test]
    fn quantiles_are_right_within_a_tenth() {
        let counts = spread(1..=1000);
        for (share, exact) in [(0.01, 10.0), (0.5, 500.0), (0.99, 990.0)] {
            let found = counts.quantile(share).unwrap();
            assert!((found / exact - 1.0).abs() < 0.1, "{share}: {found}");
        }
    }

    #[test]
    fn what_is_out_of_range_is_in_the_outer_buckets() {
        assert!(spread([0]).quantile(0.5).unwrap() < 1.1);
        assert!(900_000.0 < spread([u64::from(u32::MAX)]).quantile(0.5).unwrap());
    }

    #[test]
    fn counts_are_taken_once_and_nothing_has_no_quantile() {
        let spread = Spread::default();
        spread.record(Duration::from_millis(7));
        assert!(!spread.take().is_empty());
        assert!(spread.take().is_empty());
        assert_eq!(Counts::default().quantile(0.5), None);
    }

    #[test]
    fn sums_are_of_both() {
        let mut both = spread([10; 99]);
        both.add(&spread([5_000]));
        assert!(both.quantile(0.5).unwrap() < 11.0);
        assert!(4_500.0 < both.quantile(1.0).unwrap());
    }
}
