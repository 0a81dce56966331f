//! Where requests were sent and why, per model.

use super::register::Register;
use super::requests::{counters, histograms};
use once_cell::sync::OnceCell;
use prometheus::{Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, Opts};
use tidegate_policy::decision::{CacheDecision, Decision, Reason, Trace};

/// Edges of the deepest gated match, blocks.
const OVERLAP_EDGES: [f64; 12] =
    [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0];

/// The families.
#[derive(Debug)]
pub struct DecisionFamilies {
    pub(super) policy_decisions: IntCounterVec,
    cache_aware_decisions: IntCounterVec,
    saturation_pins: IntCounterVec,
    affinity_lost: IntCounterVec,
    guard: IntCounterVec,
    diverted_overlap_blocks: HistogramVec,
    diverted_tokens: IntCounterVec,
    route_price: GaugeVec,
}

impl DecisionFamilies {
    pub(super) fn register(registry: &mut Register) -> prometheus::Result<Self> {
        let families = Self {
            saturation_pins: counters(
                "tidegate_saturation_pins_total",
                "Requests pinned to an owner because nobody was below the floor; \
                 equals policy_decisions_total of reason saturation_pin.",
                &["model"],
            )?,
            policy_decisions: counters(
                "tidegate_policy_decisions_total",
                "Routed requests by reason; the reasons of a model add up to its routed requests.",
                &["model", "policy", "reason"],
            )?,
            cache_aware_decisions: counters(
                "tidegate_cache_aware_decisions_total",
                "Routed cache-aware requests; the decisions of a model add up to them.",
                &["model", "decision"],
            )?,
            affinity_lost: counters(
                "tidegate_affinity_lost_total",
                "Requests routed off every owner while the whole fleet queued.",
                &["model"],
            )?,
            guard: counters(
                "tidegate_pressure_guard_total",
                "Pairs of near-tied owners the pressure guard compared, and those it overrode.",
                &["model", "result"],
            )?,
            diverted_overlap_blocks: histograms(
                "tidegate_diverted_overlap_blocks",
                "Deepest match among the owners diverted requests were kept from, blocks.",
                &OVERLAP_EDGES,
            )?,
            diverted_tokens: counters(
                "tidegate_diverted_tokens_total",
                "Prompt tokens computed beyond the fewest anywhere in the fleet (cost selection).",
                &["model"],
            )?,
            route_price: GaugeVec::new(
                Opts::new(
                    "tidegate_route_price",
                    "What a token of prefill costs everybody else at the worker last chosen, \
                     tokens of waiting (cost selection).",
                ),
                &["model"],
            )?,
        };
        registry.register(Box::new(families.diverted_tokens.clone()))?;
        registry.register(Box::new(families.route_price.clone()))?;
        registry.register(Box::new(families.saturation_pins.clone()))?;
        registry.register(Box::new(families.policy_decisions.clone()))?;
        registry.register(Box::new(families.cache_aware_decisions.clone()))?;
        registry.register(Box::new(families.affinity_lost.clone()))?;
        registry.register(Box::new(families.guard.clone()))?;
        registry.register(Box::new(families.diverted_overlap_blocks.clone()))?;
        Ok(families)
    }

    /// Handles of one model under its policy.
    pub fn model(&self, model: &str, policy: &'static str) -> DecisionMetrics {
        DecisionMetrics {
            model: model.to_owned(),
            policy,
            policy_decisions: self.policy_decisions.clone(),
            by_reason: Default::default(),
            cache_aware_decisions: self.cache_aware_decisions.clone(),
            by_decision: Default::default(),
            saturation_pins: self.saturation_pins.with_label_values(&[model]),
            affinity_lost: self.affinity_lost.with_label_values(&[model]),
            guard_compared: self.guard.with_label_values(&[model, "compared"]),
            guard_overridden: self.guard.with_label_values(&[model, "overridden"]),
            diverted_overlap_blocks: self.diverted_overlap_blocks.with_label_values(&[model]),
            diverted_tokens: self.diverted_tokens.with_label_values(&[model]),
            route_price: self.route_price.with_label_values(&[model]),
        }
    }
}

/// One model's handles.
#[derive(Debug)]
pub struct DecisionMetrics {
    model: String,
    policy: &'static str,
    policy_decisions: IntCounterVec,
    by_reason: [OnceCell<IntCounter>; Reason::ALL.len()],
    cache_aware_decisions: IntCounterVec,
    by_decision: [OnceCell<IntCounter>; CacheDecision::ALL.len()],
    saturation_pins: IntCounter,
    affinity_lost: IntCounter,
    guard_compared: IntCounter,
    guard_overridden: IntCounter,
    diverted_overlap_blocks: Histogram,
    diverted_tokens: IntCounter,
    route_price: Gauge,
}

impl DecisionMetrics {
    /// Books the decision a request was routed by, once.
    pub fn book(&self, decision: &Decision) {
        let labels = [&self.model, self.policy, decision.reason.as_str()];
        self.by_reason[decision.reason as usize]
            .get_or_init(|| self.policy_decisions.with_label_values(&labels))
            .inc();
        if decision.reason == Reason::SaturationPin {
            self.saturation_pins.inc();
        }
        let trace = &decision.trace;
        self.guard_compared.inc_by(trace.guard_compared.into());
        self.guard_overridden.inc_by(trace.guard_overrides.into());
        if trace.affinity_lost {
            self.affinity_lost.inc();
        }
        if let Some(cost) = &trace.cost {
            self.diverted_tokens.inc_by(cost.diverted_tokens);
            self.route_price.set(cost.token_price as f64 / 1000.0);
        }
        if let Some(cache) = decision.cache {
            self.book_cache(cache, trace);
        }
    }

    fn book_cache(&self, decision: CacheDecision, trace: &Trace) {
        let labels = [&self.model, decision.as_str()];
        self.by_decision[decision as usize]
            .get_or_init(|| self.cache_aware_decisions.with_label_values(&labels))
            .inc();
        if decision == CacheDecision::CacheWorkerQueued {
            self.diverted_overlap_blocks.observe(trace.best_rejected_blocks.into());
        }
    }
}
