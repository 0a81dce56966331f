//! `/metrics` of SGLang, vLLM and llama.cpp. The metric names tell them apart.

use crate::number::{MAX_COUNT, Scalar};
use crate::ranks::fullest;
use crate::samples::{self, Labels};
use crate::{LoadReport, MAX_RANKS, ReportError, ReportFormat};

/// What one engine calls things.
struct Engine {
    format: ReportFormat,
    waiting: &'static str,
    running: &'static str,
    /// Its KV cache's use, 0 to 1. Two names: the present one and the one older versions have.
    usage: Option<(&'static str, &'static str)>,
    /// The label that numbers data-parallel ranks.
    rank_label: Option<&'static str>,
}

const ENGINES: [Engine; 3] = [
    Engine {
        format: ReportFormat::SglangMetrics,
        waiting: "sglang:num_queue_reqs",
        running: "sglang:num_running_reqs",
        usage: Some(("sglang:token_usage", "sglang:token_usage")),
        rank_label: Some("dp_rank"),
    },
    Engine {
        format: ReportFormat::VllmMetrics,
        waiting: "vllm:num_requests_waiting",
        running: "vllm:num_requests_running",
        usage: Some(("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")),
        rank_label: Some("engine"),
    },
    Engine {
        format: ReportFormat::LlamacppMetrics,
        waiting: "llamacpp:requests_deferred",
        running: "llamacpp:requests_processing",
        usage: None,
        rank_label: None,
    },
];

/// The samples of one metric.
#[derive(Default)]
struct Series<'a>(Vec<(Labels<'a>, Scalar)>);

/// The samples of one engine's metrics.
#[derive(Default)]
struct Page<'a> {
    waiting: Series<'a>,
    running: Series<'a>,
    usage: Series<'a>,
    old_usage: Series<'a>,
}

/// Reads a page; of a page with the metrics of several engines the first in [`ENGINES`].
pub(crate) fn parse(body: &[u8]) -> Result<LoadReport, ReportError> {
    let text = std::str::from_utf8(body).map_err(|_| ReportError::Foreign)?;
    let mut pages = ENGINES.map(|_| Page::default());
    for (line, text) in (1usize..).zip(text.split('\n')) {
        if text.trim_end() == "# EOF" {
            break;
        }
        let (name, rest) = samples::split_name(text.trim_ascii_start());
        if let Some(series) = series_of(&mut pages, name) {
            series.push(samples::read(rest).ok_or(ReportError::BrokenSample { line })?)?;
        }
    }
    let mut known = ENGINES.iter().zip(pages).filter(|(_, page)| !page.is_empty());
    known.next().map_or(Err(ReportError::Foreign), |(engine, page)| engine.report(page))
}

/// Where samples of this name go, if anywhere.
fn series_of<'p, 'a>(pages: &'p mut [Page<'a>; 3], name: &str) -> Option<&'p mut Series<'a>> {
    for (engine, page) in ENGINES.iter().zip(pages) {
        if name == engine.waiting {
            return Some(&mut page.waiting);
        }
        if name == engine.running {
            return Some(&mut page.running);
        }
        match engine.usage {
            Some((usage, _)) if name == usage => return Some(&mut page.usage),
            Some((_, old)) if name == old => return Some(&mut page.old_usage),
            Some(_) | None => {}
        }
    }
    None
}

impl Engine {
    fn report(&self, mut page: Page<'_>) -> Result<LoadReport, ReportError> {
        let waiting = page.waiting.sorted(self.waiting)?;
        let running = page.running.sorted(self.running)?;
        let (name, old_name) = self.usage.unwrap_or_default();
        let (usage, old_usage) = (page.usage.sorted(name)?, page.old_usage.sorted(old_name)?);
        let usage = if usage.0.is_empty() { old_usage } else { usage };
        let covers = |series: &Series<'_>| series.has_labels_of(waiting);
        Ok(LoadReport {
            waiting: Some(waiting.needed_sum(self.waiting)?),
            running: covers(running).then(|| running.sum()).flatten(),
            kv_usage: covers(usage).then(|| usage.fullest()).flatten(),
            ..LoadReport::silent(self.format, waiting.ranks(self.rank_label))
        })
    }
}

impl Page<'_> {
    fn is_empty(&self) -> bool {
        [&self.waiting, &self.running, &self.usage, &self.old_usage]
            .iter()
            .all(|series| series.0.is_empty())
    }
}

impl<'a> Series<'a> {
    fn push(&mut self, sample: (Labels<'a>, Scalar)) -> Result<(), ReportError> {
        if MAX_RANKS <= self.0.len() {
            return Err(ReportError::TooManyRanks { limit: MAX_RANKS });
        }
        self.0.push(sample);
        Ok(())
    }

    /// Brings the samples in the order of their labels, which must differ.
    fn sorted(&mut self, field: &'static str) -> Result<&Self, ReportError> {
        self.0.sort_by(|a, b| a.0.cmp(&b.0));
        if self.0.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(ReportError::DuplicateSample { field });
        }
        Ok(self)
    }

    /// A metric that is there for other ranks only says nothing about the worker.
    fn has_labels_of(&self, other: &Self) -> bool {
        self.0.iter().map(|sample| &sample.0).eq(other.0.iter().map(|sample| &sample.0))
    }

    fn needed_sum(&self, field: &'static str) -> Result<u64, ReportError> {
        if self.0.is_empty() {
            return Err(ReportError::Missing { rank: 0, field });
        }
        let mut sum = 0;
        for (rank, (_, value)) in (0u32..).zip(&self.0) {
            sum += value.count().map_err(|flaw| flaw.at(rank, field))?;
            if MAX_COUNT < sum {
                return Err(ReportError::TooLarge { rank, field });
            }
        }
        Ok(sum)
    }

    fn sum(&self) -> Option<u64> {
        self.needed_sum("").ok()
    }

    fn fullest(&self) -> Option<f64> {
        fullest(self.0.iter().map(|(_, value)| value.ratio()))
    }

    /// How many ranks the labels tell apart, at least one.
    fn ranks(&self, label: Option<&str>) -> u32 {
        let mut names: Vec<&str> = Vec::with_capacity(self.0.len());
        for (labels, _) in &self.0 {
            let found = labels.iter().find(|(name, _)| Some(*name) == label);
            names.extend(found.map(|(_, value)| value.as_ref()));
        }
        names.sort_unstable();
        names.dedup();
        names.len().max(1) as u32
    }
}
