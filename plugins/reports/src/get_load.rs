//! `/get_load` of SGLang: a list with one object per data-parallel rank, or, in its oldest form,
//! one number. Also read where a lone rank comes without the list.

use crate::number::Scalar;
use crate::ranks::{self, Rank};
use crate::{LoadReport, MAX_RANKS, ReportError, ReportFormat, json};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawRank {
    dp_rank: Scalar,
    /// Includes those waiting.
    num_reqs: Scalar,
    num_waiting_reqs: Scalar,
    num_tokens: Scalar,
}

impl From<RawRank> for Rank {
    fn from(raw: RawRank) -> Self {
        Self {
            dp_rank: raw.dp_rank,
            waiting: raw.num_waiting_reqs,
            running: running(raw.num_reqs, raw.num_waiting_reqs),
            used_tokens: raw.num_tokens.count().ok(),
            ..Self::default()
        }
    }
}

/// Unknown if more requests wait than there are.
fn running(all: Scalar, waiting: Scalar) -> Option<u64> {
    all.count().ok()?.checked_sub(waiting.count().ok()?)
}

/// Reads the list.
pub(crate) fn parse(body: &[u8]) -> Result<LoadReport, ReportError> {
    let list: Vec<&RawValue> = serde_json::from_slice(body).map_err(json::broken)?;
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
    ranks::sum(ReportFormat::GetLoad, found.into_iter().map(Rank::from).collect())
}

/// `{"load": N}` counts KV tokens. It says nothing about a queue.
pub(crate) fn from_load(load: Scalar) -> Result<LoadReport, ReportError> {
    let tokens = load.count().map_err(|flaw| flaw.at(0, "load"))?;
    let silent = LoadReport::silent(ReportFormat::GetLoad, 1);
    Ok(LoadReport { total_tokens: Some(tokens), ..silent })
}
