//! How fast a worker prefills, from two of its reports.

use crate::{LoadReport, PrefillCounters};

/// Prefill tokens per second between two reports of one worker: `10^6 * Δtokens / Δbusy_us` of each
/// rank with both deltas above 0, summed over ranks, because ranks prefill side by side. A rank that
/// prefilled nothing adds nothing. `None` if no rank did, or if the reports cannot be compared: other
/// ranks, no counters, or a counter that went back because the engine was restarted.
pub fn prefill_throughput(before: &LoadReport, after: &LoadReport) -> Option<u64> {
    if before.prefill.len() != after.prefill.len() {
        return None;
    }
    let mut sum = 0u64;
    for (then, now) in before.prefill.iter().zip(&after.prefill) {
        sum = sum.saturating_add(of_rank(*then, *now)?);
    }
    (sum != 0).then_some(sum)
}

/// `None` if a counter went back.
fn of_rank(then: PrefillCounters, now: PrefillCounters) -> Option<u64> {
    let tokens = now.uncached_tokens.checked_sub(then.uncached_tokens)?;
    let busy_us = now.busy_us.checked_sub(then.busy_us)?;
    Some(rate(tokens, 1_000_000, busy_us).unwrap_or(0))
}

/// Milliseconds until a queue is prefilled: `1000 * waiting_uncached / throughput`; tokens and
/// tokens per second. `None` if `throughput` is 0.
pub fn estimated_prefill_queue_ms(waiting_uncached: u64, throughput: u64) -> Option<u64> {
    rate(waiting_uncached, 1000, throughput)
}

/// `amount * scale / per`, rounded down, capped; `None` if `per` is 0.
fn rate(amount: u64, scale: u64, per: u64) -> Option<u64> {
    let scaled = u128::from(amount) * u128::from(scale);
    let rate = scaled.checked_div(u128::from(per))?;
    Some(u64::try_from(rate).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReportFormat;

    fn report(ranks: &[(u64, u64)]) -> LoadReport {
        let counters = |&(uncached_tokens, busy_us)| PrefillCounters { uncached_tokens, busy_us };
        LoadReport {
            prefill: ranks.iter().map(counters).collect(),
            ..LoadReport::silent(ReportFormat::V1Loads, ranks.len() as u32)
        }
    }

    #[test]
    fn ranks_prefill_side_by_side() {
        let before = report(&[(1_000, 500_000), (0, 0)]);
        let after = report(&[(9_000, 1_500_000), (3_000, 500_000)]);
        assert_eq!(prefill_throughput(&before, &after), Some(8_000 + 6_000));
    }

    #[test]
    fn an_idle_rank_adds_nothing_and_an_idle_worker_has_no_throughput() {
        let before = report(&[(1_000, 500), (7, 7)]);
        assert_eq!(prefill_throughput(&before, &report(&[(1_002, 502), (7, 7)])), Some(1_000_000));
        assert_eq!(prefill_throughput(&before, &before), None);
        assert_eq!(prefill_throughput(&before, &report(&[(1_002, 500), (7, 9)])), None);
    }

    #[test]
    fn a_restarted_or_another_engine_cannot_be_compared() {
        let before = report(&[(1_000, 500_000), (1_000, 500_000)]);
        assert_eq!(prefill_throughput(&before, &report(&[(10, 600_000), (2_000, 600_000)])), None);
        assert_eq!(prefill_throughput(&before, &report(&[(2_000, 10), (2_000, 600_000)])), None);
        assert_eq!(prefill_throughput(&before, &report(&[(2_000, 600_000)])), None);
        assert_eq!(prefill_throughput(&report(&[]), &report(&[])), None);
    }

    #[test]
    fn a_queue_takes_its_tokens_over_the_throughput() {
        assert_eq!(estimated_prefill_queue_ms(12_345, 10_000), Some(1_234));
        assert_eq!(estimated_prefill_queue_ms(0, 10_000), Some(0));
        assert_eq!(estimated_prefill_queue_ms(1, 0), None);
        assert_eq!(estimated_prefill_queue_ms(u64::MAX, 1), Some(u64::MAX));
    }
}
