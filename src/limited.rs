//! What is bounded: warnings, which do not flood (the first occurrence, then one in 64), and bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Semaphore;

/// What one permit of [`room`] stands for: a semaphore has too few of them to count single bytes.
pub(crate) const PERMIT_BYTES: u64 = 1024;

/// Room for so many bytes that are held at once.
pub(crate) fn room(bytes: u64) -> Arc<Semaphore> {
    let permits = usize::try_from(bytes / PERMIT_BYTES).unwrap_or(usize::MAX);
    Arc::new(Semaphore::new(permits.clamp(1, Semaphore::MAX_PERMITS)))
}

const ONE_IN: u64 = 64;

/// Counts occurrences of one thing and says which of them to log.
#[derive(Debug, Default)]
pub struct Sampler {
    seen: AtomicU64,
}

impl Sampler {
    /// None yet.
    pub const fn new() -> Self {
        Self { seen: AtomicU64::new(0) }
    }

    /// Counts one more; the number of occurrences so far if this one is to be logged.
    pub fn occurred(&self) -> Option<u64> {
        let before = self.seen.fetch_add(1, Ordering::Relaxed);
        before.is_multiple_of(ONE_IN).then_some(before + 1)
    }

    /// The thing ended; its next occurrence is a first one.
    pub fn ended(&self) {
        self.seen.store(0, Ordering::Relaxed);
    }
}

/// Remembers a state, so that each change is logged once.
#[derive(Debug, Default)]
pub struct Changes<T>(parking_lot::Mutex<Option<T>>);

impl<T: PartialEq + Clone> Changes<T> {
    /// The state before, if `state` is another one; `Some(None)` the first time.
    pub fn to(&self, state: T) -> Option<Option<T>> {
        let mut last = self.0.lock();
        if last.as_ref() == Some(&state) {
            return None;
        }
        Some(last.replace(state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_then_one_in_64_is_logged() {
        let sampler = Sampler::new();
        let logged: Vec<u64> = (0..130).filter_map(|_| sampler.occurred()).collect();
        assert_eq!(logged, [1, 65, 129]);
    }

    #[test]
    fn after_an_end_the_next_occurrence_is_a_first_one() {
        let sampler = Sampler::new();
        assert_eq!(sampler.occurred(), Some(1));
        assert_eq!(sampler.occurred(), None);
        sampler.ended();
        assert_eq!(sampler.occurred(), Some(1));
    }

    #[test]
    fn a_change_is_told_once() {
        let changes = Changes::default();
        assert_eq!(changes.to("up"), Some(None));
        assert_eq!(changes.to("up"), None);
        assert_eq!(changes.to("down"), Some(Some("up")));
    }
}
