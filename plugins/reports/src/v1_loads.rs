//! `/v1/loads` of SGLang: an object with a list of ranks in `loads`, or a lone rank without it.
//! `aggregate` is ignored: it has been seen to contradict the ranks.

use crate::number::Scalar;
use crate::ranks::{self, Rank};
use crate::{LoadReport, MAX_RANKS, PrefillCounters, ReportError, ReportFormat, json};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawRank {
    dp_rank: Scalar,
    num_running_reqs: Scalar,
    num_waiting_reqs: Scalar,
    num_used_tokens: Scalar,
    num_total_tokens: Scalar,
    max_total_num_tokens: Scalar,
    token_usage: Scalar,
    max_running_requests: Scalar,
    num_waiting_uncached_tokens: Scalar,
    total_prefill_uncached_tokens: Scalar,
    total_prefill_busy_us: Scalar,
}

impl From<RawRank> for Rank {
    fn from(raw: RawRank) -> Self {
        Self {
            dp_rank: raw.dp_rank,
            waiting: raw.num_waiting_reqs,
            running: raw.num_running_reqs.count().ok(),
            max_running: raw.max_running_requests.capacity(),
            total_tokens: raw.num_total_tokens.count().ok(),
            used_tokens: raw.num_used_tokens.count().ok(),
            max_total_tokens: raw.max_total_num_tokens,
            waiting_uncached_tokens: raw.num_waiting_uncached_tokens.count().ok(),
            kv_usage: raw.token_usage.ratio(),
            prefill: prefill(raw.total_prefill_uncached_tokens, raw.total_prefill_busy_us),
        }
    }
}

fn prefill(tokens: Scalar, busy_us: Scalar) -> Option<PrefillCounters> {
    let (uncached_tokens, busy_us) = (tokens.count().ok()?, busy_us.count().ok()?);
    Some(PrefillCounters { uncached_tokens, busy_us })
}

/// Reads what was in `loads`.
pub(crate) fn from_list(list: Vec<&RawValue>) -> Result<LoadReport, ReportError> {
    if MAX_RANKS < list.len() {
        return Err(ReportError::TooManyRanks { limit: MAX_RANKS });
    }
    let ranks = list.into_iter().map(|raw| json::object::<RawRank>(raw.get().as_bytes()));
    from_ranks(ranks.collect::<Result<_, _>>()?)
}

/// Reads a rank that came without a list.
pub(crate) fn parse_lone(body: &[u8]) -> Result<LoadReport, ReportError> {
    from_ranks(vec![json::object::<RawRank>(body)?])
}

fn from_ranks(found: Vec<RawRank>) -> Result<LoadReport, ReportError> {
    ranks::sum(ReportFormat::V1Loads, found.into_iter().map(Rank::from).collect())
}
