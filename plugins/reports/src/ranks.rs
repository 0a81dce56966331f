//! From ranks to one report: which ranks there must be, and what is summed.

use crate::number::{MAX_COUNT, Scalar};
use crate::{LoadReport, MAX_RANKS, PrefillCounters, ReportError, ReportFormat};

/// What one data-parallel rank said. Absent fields are unknown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rank {
    pub(crate) dp_rank: Scalar,
    /// `num_waiting_reqs`, the one number that is needed.
    pub(crate) waiting: Scalar,
    pub(crate) running: Option<u64>,
    pub(crate) max_running: Option<u64>,
    pub(crate) total_tokens: Option<u64>,
    pub(crate) used_tokens: Option<u64>,
    pub(crate) max_total_tokens: Scalar,
    pub(crate) waiting_uncached_tokens: Option<u64>,
    pub(crate) kv_usage: Option<f64>,
    pub(crate) prefill: Option<PrefillCounters>,
}

/// Sums the ranks of one worker; their order is irrelevant.
pub(crate) fn sum(format: ReportFormat, found: Vec<Rank>) -> Result<LoadReport, ReportError> {
    let ranks = in_order(found)?;
    let mut waiting = 0;
    for (number, rank) in (0u32..).zip(&ranks) {
        waiting += rank.waiting.count().map_err(|flaw| flaw.at(number, "num_waiting_reqs"))?;
        if MAX_COUNT < waiting {
            return Err(ReportError::TooLarge { rank: number, field: "num_waiting_reqs" });
        }
        if rank.max_total_tokens.count() == Ok(0) && rank.running == Some(0) {
            return Err(ReportError::NotReady { rank: number });
        }
    }
    Ok(LoadReport {
        waiting: Some(waiting),
        running: total(&ranks, |rank| rank.running),
        max_running: total(&ranks, |rank| rank.max_running),
        total_tokens: total(&ranks, |rank| rank.total_tokens)
            .or_else(|| total(&ranks, |rank| rank.used_tokens)),
        max_total_tokens: total(&ranks, |rank| rank.max_total_tokens.capacity()),
        waiting_uncached_tokens: total(&ranks, |rank| rank.waiting_uncached_tokens),
        kv_usage: fullest(ranks.iter().map(|rank| rank.kv_usage)),
        prefill: ranks.iter().map(|rank| rank.prefill).collect::<Option<_>>().unwrap_or_default(),
        ..LoadReport::silent(format, ranks.len() as u32)
    })
}

/// Sorts by number; they must be 0 to n-1. A lone rank need not say that it is rank 0.
fn in_order(found: Vec<Rank>) -> Result<Vec<Rank>, ReportError> {
    if found.is_empty() {
        return Err(ReportError::Empty);
    }
    if MAX_RANKS < found.len() {
        return Err(ReportError::TooManyRanks { limit: MAX_RANKS });
    }
    if let [lone] = found.as_slice()
        && matches!(lone.dp_rank, Scalar::Missing | Scalar::Null)
    {
        return Ok(found);
    }
    let mut numbered = Vec::with_capacity(found.len());
    for (place, rank) in (0u32..).zip(found) {
        let number = rank.dp_rank.count().map_err(|flaw| flaw.at(place, "dp_rank"))?;
        numbered.push((number, rank));
    }
    numbered.sort_by_key(|(number, _)| *number);
    let ranks = numbered.len() as u32;
    for (expected, (number, _)) in (0u64..).zip(&numbered) {
        let rank = u32::try_from(*number).unwrap_or(u32::MAX);
        if *number < expected {
            return Err(ReportError::DuplicateRank { rank });
        }
        if expected < *number {
            return Err(ReportError::RankOutOfRange { rank, ranks });
        }
    }
    Ok(numbered.into_iter().map(|(_, rank)| rank).collect())
}

/// The sum, unknown if any rank lacks the number or the sum is absurd.
fn total(ranks: &[Rank], field: impl Fn(&Rank) -> Option<u64>) -> Option<u64> {
    let mut sum = 0u64;
    for rank in ranks {
        // Each is at most 2^53 and there are at most 2^10: no overflow.
        sum += field(rank)?;
    }
    (sum <= MAX_COUNT).then_some(sum)
}

/// The largest, unknown if any is unknown.
pub(crate) fn fullest(usages: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    usages.reduce(|a, b| Some(a?.max(b?))).flatten()
}
