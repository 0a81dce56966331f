//! What a report says of the work at a worker, computed once per report.

use super::MOST_TOKENS;
use crate::fleet::Report;

/// Work at a worker by its report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedWork {
    /// Beyond what this edge had outstanding, uncached tokens.
    foreign_tokens: u64,
    /// The same in requests, where the report has no tokens; one of the two is zero.
    foreign_requests: u64,
    /// Uncached tokens in the queue, whoever sent them; `u64::MAX` = unknown, which bounds nothing.
    waiting_uncached_tokens: u64,
}

impl ReportedWork {
    /// What this report says.
    pub fn of(report: &Report) -> Self {
        let then = report.own_then;
        let (foreign_tokens, foreign_requests) =
            match (report.waiting_uncached_tokens, report.waiting) {
                (Some(tokens), _) => {
                    (tokens.saturating_sub(then.uncached_tokens).min(MOST_TOKENS), 0)
                }
                (None, Some(requests)) => (0, requests.saturating_sub(then.requests)),
                (None, None) => (0, 0),
            };
        let waiting_uncached_tokens =
            report.waiting_uncached_tokens.map_or(u64::MAX, |tokens| tokens.min(MOST_TOKENS));
        Self { foreign_tokens, foreign_requests, waiting_uncached_tokens }
    }

    /// Work that is not this edge's, tokens; a request of unknown length is a mean one.
    #[inline]
    pub(super) fn foreign(&self, mean_uncached_tokens: u64) -> u64 {
        // A branch that is always the same is cheaper than a product that is always zero.
        if self.foreign_requests == 0 {
            return self.foreign_tokens;
        }
        self.foreign_requests.saturating_mul(mean_uncached_tokens).min(MOST_TOKENS)
    }

    /// Uncached tokens in the queue, if the report says.
    #[inline]
    pub(super) fn waiting(&self) -> Option<u64> {
        Some(self.waiting_uncached_tokens).filter(|&tokens| tokens < u64::MAX)
    }
}
