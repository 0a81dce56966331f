//! What inference engines say about their load.
//!
//! [`parse`] reads any known form; the shape decides, not the path it came from. Unknown is never
//! zero: a number that is missing, negative or absurd makes the field, or the whole report, unknown.
//!
//! One number is needed: how many requests wait. It makes the report unreadable if it cannot be
//! trusted; every other number is only itself unknown. A report speaks for all data-parallel ranks
//! of a worker or for none of them. Deliberately absent: I/O, clocks, the age of a report, and any
//! guess at a number the engine did not give.

use thiserror::Error;

mod get_load;
mod json;
mod number;
mod prometheus_text;
mod ranks;
mod samples;
mod throughput;
mod v1_loads;

pub use json::dp_size_of_server_info;
pub use throughput::{estimated_prefill_queue_ms, prefill_throughput};

/// Longest answer that is read, bytes.
pub const MAX_BODY_BYTES: usize = 1 << 20;

/// Most data-parallel ranks, or label sets of one metric, a report may have.
pub const MAX_RANKS: usize = 1024;

/// The forms a worker can report in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReportFormat {
    /// `/get_load`: one number, or one object per data-parallel rank.
    GetLoad,
    /// `/v1/loads`.
    V1Loads,
    /// SGLang's Prometheus text.
    SglangMetrics,
    /// vLLM's Prometheus text.
    VllmMetrics,
    /// llama.cpp's Prometheus text.
    LlamacppMetrics,
}

impl ReportFormat {
    /// The name `load_reports.format` has for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::GetLoad => "get_load",
            Self::V1Loads => "v1_loads",
            Self::SglangMetrics => "sglang_metrics",
            Self::VllmMetrics => "vllm_metrics",
            Self::LlamacppMetrics => "llamacpp_metrics",
        }
    }
}

/// One readable report, summed over data-parallel ranks. Absent fields are unknown.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadReport {
    /// The form it came in.
    pub format: ReportFormat,
    /// Requests queued.
    pub waiting: Option<u64>,
    /// Requests being computed.
    pub running: Option<u64>,
    /// Most requests computed at once.
    pub max_running: Option<u64>,
    /// KV tokens in use.
    pub total_tokens: Option<u64>,
    /// KV tokens there are.
    pub max_total_tokens: Option<u64>,
    /// Uncached prompt tokens of queued requests.
    pub waiting_uncached_tokens: Option<u64>,
    /// KV cache in use, 0 to 1; the fullest rank's.
    pub kv_usage: Option<f64>,
    /// Data-parallel ranks seen.
    pub ranks: u32,
    /// Per rank, in their order: prefill counters since the engine's start. Empty if a rank lacks
    /// them.
    pub prefill: Vec<PrefillCounters>,
}

impl LoadReport {
    /// A report of `ranks` ranks that says nothing.
    pub(crate) fn silent(format: ReportFormat, ranks: u32) -> Self {
        Self {
            format,
            waiting: None,
            running: None,
            max_running: None,
            total_tokens: None,
            max_total_tokens: None,
            waiting_uncached_tokens: None,
            kv_usage: None,
            ranks,
            prefill: Vec::new(),
        }
    }
}

/// `total_prefill_uncached_tokens` and `total_prefill_busy_us` of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefillCounters {
    /// Tokens prefilled since the engine's start.
    pub uncached_tokens: u64,
    /// Microseconds spent on it.
    pub busy_us: u64,
}

/// Why an answer is no report. `rank` is the data-parallel rank; its place in the answer where the
/// form does not number them.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ReportError {
    /// Neither JSON of a known shape nor Prometheus text with a known metric.
    #[error("not a load report")]
    Foreign,
    /// JSON that is cut or broken.
    #[error("broken JSON at line {line}, column {column}")]
    BrokenJson {
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
    },
    /// A sample of a known metric that does not follow Prometheus' text format.
    #[error("broken metric at line {line}")]
    BrokenSample {
        /// Counted from 1.
        line: usize,
    },
    /// The answer is longer than what is read.
    #[error("longer than {limit} bytes")]
    TooLong {
        /// [`MAX_BODY_BYTES`].
        limit: usize,
    },
    /// A list without ranks.
    #[error("no rank in the list")]
    Empty,
    /// A needed number is not there.
    #[error("rank {rank}: {field} is missing")]
    Missing {
        /// Whose.
        rank: u32,
        /// Which.
        field: &'static str,
    },
    /// A needed number is null.
    #[error("rank {rank}: {field} is null")]
    Null {
        /// Whose.
        rank: u32,
        /// Which.
        field: &'static str,
    },
    /// A needed number is below 0.
    #[error("rank {rank}: {field} is negative")]
    Negative {
        /// Whose.
        rank: u32,
        /// Which.
        field: &'static str,
    },
    /// A needed number is not whole.
    #[error("rank {rank}: {field} is not a whole number")]
    Fractional {
        /// Whose.
        rank: u32,
        /// Which.
        field: &'static str,
    },
    /// A needed number, or the sum over the ranks, is above 2^53.
    #[error("rank {rank}: {field} is above 2^53")]
    TooLarge {
        /// Whose.
        rank: u32,
        /// Which.
        field: &'static str,
    },
    /// A needed number is something else.
    #[error("rank {rank}: {field} is not a number")]
    NotANumber {
        /// Whose.
        rank: u32,
        /// Which.
        field: &'static str,
    },
    /// Two ranks have the same number.
    #[error("rank {rank} appears twice")]
    DuplicateRank {
        /// Which.
        rank: u32,
    },
    /// Ranks are not 0 to n-1.
    #[error("rank {rank} among {ranks} ranks")]
    RankOutOfRange {
        /// Which; capped.
        rank: u32,
        /// How many there are.
        ranks: u32,
    },
    /// Two samples of one metric with the same labels.
    #[error("{field} has two samples with the same labels")]
    DuplicateSample {
        /// Which metric.
        field: &'static str,
    },
    /// The worker has more ranks than reported.
    #[error("{seen} of {expected} ranks")]
    TooFewRanks {
        /// In the report.
        seen: u32,
        /// Of the worker.
        expected: u32,
    },
    /// More ranks or label sets than are read.
    #[error("more than {limit} ranks")]
    TooManyRanks {
        /// [`MAX_RANKS`].
        limit: usize,
    },
    /// A rank has no KV cache yet and runs nothing: it has just started, which is not idle.
    #[error("rank {rank} has just started and is not ready")]
    NotReady {
        /// Which.
        rank: u32,
    },
}

/// Reads an answer's body. `dp_size`: data-parallel ranks the worker has, if known; fewer in the
/// report make it unreadable. Takes time linear in the body, up to the sorting of its ranks.
pub fn parse(body: &[u8], dp_size: Option<u32>) -> Result<LoadReport, ReportError> {
    if MAX_BODY_BYTES < body.len() {
        return Err(ReportError::TooLong { limit: MAX_BODY_BYTES });
    }
    let report = match body.trim_ascii_start().first() {
        Some(b'[') => get_load::parse(body),
        Some(b'{') => json::parse_object(body),
        Some(_) => prometheus_text::parse(body),
        None => Err(ReportError::Foreign),
    }?;
    match dp_size {
        Some(expected) if report.ranks < expected => {
            Err(ReportError::TooFewRanks { seen: report.ranks, expected })
        }
        Some(_) | None => Ok(report),
    }
}
