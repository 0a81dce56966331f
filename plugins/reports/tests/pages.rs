//! Whole answers as engines of these versions give them.

#![allow(clippy::unwrap_used)]

use tidegate_reports::{LoadReport, PrefillCounters, ReportFormat, parse};

fn page(file: &str) -> LoadReport {
    let path = format!("{}/testdata/{file}", env!("CARGO_MANIFEST_DIR"));
    parse(&std::fs::read(path).unwrap(), None).unwrap()
}

fn unknown(format: ReportFormat) -> LoadReport {
    LoadReport {
        format,
        waiting: None,
        running: None,
        max_running: None,
        total_tokens: None,
        max_total_tokens: None,
        waiting_uncached_tokens: None,
        kv_usage: None,
        ranks: 1,
        prefill: Vec::new(),
    }
}

#[test]
fn the_oldest_sglang_counts_tokens_and_knows_no_queue() {
    let silent = unknown(ReportFormat::GetLoad);
    assert_eq!(page("sglang-0.4.3.json"), LoadReport { total_tokens: Some(48_211), ..silent });
}

#[test]
fn sglang_lists_its_ranks_and_counts_the_waiting_among_all() {
    let expected = LoadReport {
        waiting: Some(3 + 6),
        running: Some(8 + 9 + 8 + 8),
        total_tokens: Some(181_204 + 160_077 + 203_991 + 120_650),
        ranks: 4,
        ..unknown(ReportFormat::GetLoad)
    };
    assert_eq!(page("sglang-0.5.3.json"), expected);
}

#[test]
fn newer_sglang_says_everything_per_rank() {
    let expected = LoadReport {
        waiting: Some(6),
        running: Some(78),
        max_running: Some(512),
        total_tokens: Some(201_334 + 12_288 + 266_010 + 4_096),
        max_total_tokens: Some(1_048_576),
        waiting_uncached_tokens: Some(16_384),
        kv_usage: Some(0.5074),
        ranks: 2,
        prefill: vec![
            PrefillCounters { uncached_tokens: 90_112_000, busy_us: 9_876_543 },
            PrefillCounters { uncached_tokens: 88_000_512, busy_us: 9_712_345 },
        ],
        ..unknown(ReportFormat::V1Loads)
    };
    assert_eq!(page("sglang-0.5.9.json"), expected);
}

#[test]
fn sglang_metrics_are_summed_over_ranks() {
    let expected = LoadReport {
        waiting: Some(7),
        running: Some(42),
        kv_usage: Some(0.38),
        ranks: 2,
        ..unknown(ReportFormat::SglangMetrics)
    };
    assert_eq!(page("sglang-0.5.5.prom"), expected);
}

#[test]
fn vllm_metrics_are_summed_over_engines() {
    let expected = LoadReport {
        waiting: Some(12),
        running: Some(59),
        kv_usage: Some(0.7312),
        ranks: 2,
        ..unknown(ReportFormat::VllmMetrics)
    };
    assert_eq!(page("vllm-0.11.0.prom"), expected);
}

#[test]
fn older_vllm_names_its_cache_differently() {
    let expected = LoadReport {
        waiting: Some(3),
        running: Some(7),
        kv_usage: Some(0.0861),
        ..unknown(ReportFormat::VllmMetrics)
    };
    assert_eq!(page("vllm-0.6.3.prom"), expected);
}

#[test]
fn llamacpp_defers_what_waits() {
    let expected =
        LoadReport { waiting: Some(9), running: Some(4), ..unknown(ReportFormat::LlamacppMetrics) };
    assert_eq!(page("llamacpp-b6700.prom"), expected);
}
