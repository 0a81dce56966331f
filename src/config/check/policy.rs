//! `policy:` and the settings of each: `cache_aware:`, `least_load:` and `learned:`.

use super::auth::header_name;
use super::cost;
use super::learned;
use super::learned::Shards;
use crate::config::Policy;
use crate::config::kinds::{MANY, boolean, choice, count, integer, number, tally};
use crate::config::section::{Item, Section};
use crate::config::words::PIN_ORDERS;
use tidegate_policy::rules::{Factor, Ratio, Rules, Selection};

/// What a model's policy sections say.
pub(super) struct Chosen {
    pub(super) policy: Policy,
    pub(super) affinity_headers: Vec<String>,
    /// How its workers' shards are read.
    pub(super) shards: Shards,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    CacheAware,
    LeastLoad,
    RoundRobin,
    Learned,
}

const POLICIES: &[(&str, Word)] = &[
    ("cache_aware", Word::CacheAware),
    ("least_load", Word::LeastLoad),
    ("round_robin", Word::RoundRobin),
    ("learned", Word::Learned),
];

/// The settings of a policy that is not chosen are checked all the same, then refused: values
/// before policy.
pub(super) fn policy(model: &mut Section<'_>) -> Chosen {
    let word = model.read("policy", Word::CacheAware, choice(POLICIES));
    let known = !model.failed("policy");

    let mut section = settings(model, "cache_aware", word == Word::CacheAware);
    let rules = rules(&mut section);
    let affinity_headers = affinity_headers(&mut section);
    idle(model, section, known && word != Word::CacheAware);

    let mut section = settings(model, "least_load", word == Word::LeastLoad);
    let choices = section.optional("min_load_choices", None, count(u32::MAX));
    idle(model, section, known && word != Word::LeastLoad);

    let layers = learned::layers(model);
    let mut section = settings(model, "learned", word == Word::Learned);
    let learned = learned::settings(&mut section, layers);
    idle(model, section, known && word != Word::Learned);

    let shards = match word {
        Word::Learned => Shards::Read(layers),
        _ if model.is_overridden("policy") || !known => Shards::Ignored,
        Word::CacheAware | Word::LeastLoad | Word::RoundRobin => {
            if layers.is_some() {
                model.problem("layers", "belongs to the policy `learned`");
            }
            Shards::Refused
        }
    };
    let policy = match word {
        Word::CacheAware => Policy::CacheAware(rules),
        Word::LeastLoad => Policy::LeastLoad { choices },
        Word::RoundRobin => Policy::RoundRobin,
        Word::Learned => Policy::Learned(learned),
    };
    Chosen { policy, affinity_headers, shards }
}

/// A policy's section; flags and variables go over it if the policy is chosen.
fn settings<'a>(model: &mut Section<'a>, key: &'static str, chosen: bool) -> Section<'a> {
    let section = model.section(key);
    if chosen { section.with_overrides() } else { section }
}

/// Refuses settings of a policy that is not chosen; not if a flag or variable chose another policy
/// than the file, or one could not try that without editing the file.
fn idle(model: &Section<'_>, section: Section<'_>, idle: bool) {
    if idle && section.is_given() && !model.is_overridden("policy") {
        let message = "does nothing under this policy; remove it or set `policy` accordingly";
        section.scope.problem(&section.path, "", message);
    }
}

/// The settings of `cache_aware`.
fn rules(from: &mut Section<'_>) -> Rules {
    let ladder = ladder(from);
    let has_gate = ladder.worker_queue_limit.is_some() || from.failed("worker_queue_limit");
    let selection = cost::selection(from, has_gate);
    let floor_told = limit_and_floor(from, &ladder);
    match selection {
        Selection::Ladder => settings_without_effect(from, &ladder, &Rules::default()),
        Selection::Cost(_) => {}
    }
    cost::refuse_others(from, selection, floor_told);
    let min_matched_tokens = ladder.min_matched_tokens;
    match selection {
        Selection::Ladder => ladder,
        Selection::Cost(_) => Rules { selection, min_matched_tokens, ..Rules::default() },
    }
}

/// Every setting but cost selection's own.
fn ladder(from: &mut Section<'_>) -> Rules {
    let base = Rules::default();
    // The index of the decision is fixed in size: at most 32.
    let most = Rules::MAX_CANDIDATES as u32;
    Rules {
        selection: Selection::Ladder,
        worker_queue_limit: from.optional("worker_queue_limit", base.worker_queue_limit, tally),
        saturation_queue_floor: from.optional("saturation_queue_floor", None, tally),
        min_matched_tokens: from.optional(
            "min_matched_tokens",
            base.min_matched_tokens,
            integer(0..=MANY),
        ),
        min_match_ratio: from.optional("min_match_ratio", base.min_match_ratio, ratio),
        candidate_min_workers: from.read(
            "candidate_min_workers",
            base.candidate_min_workers,
            count(most),
        ),
        candidate_ratio: from.read("candidate_ratio", base.candidate_ratio, ratio),
        candidate_max_workers: from.read(
            "candidate_max_workers",
            base.candidate_max_workers,
            count(most),
        ),
        switch_margin_tokens: from.read(
            "switch_margin_tokens",
            base.switch_margin_tokens,
            integer(0..=MANY),
        ),
        pressure_guard: from.read("pressure_guard", base.pressure_guard, boolean),
        pressure_abs_tokens: from.read(
            "pressure_abs_tokens",
            base.pressure_abs_tokens,
            integer(0..=MANY),
        ),
        pressure_rel: from.read("pressure_rel", base.pressure_rel, factor),
        pressure_abs_ms: from.optional("pressure_abs_ms", base.pressure_abs_ms, integer(0..=MANY)),
        max_pending_prefill_tokens: from.optional(
            "max_pending_prefill_tokens",
            base.max_pending_prefill_tokens,
            integer(0..=MANY),
        ),
        min_load_choices: from.optional("min_load_choices", None, count(u32::MAX)),
        pin_order: from.read("pin_order", base.pin_order, choice(PIN_ORDERS)),
        pin_max_queue: from.optional("pin_max_queue", base.pin_max_queue, integer(0..=MANY)),
        dispatch_correction: from.read("dispatch_correction", base.dispatch_correction, boolean),
        scale_with_dp: from.read("scale_with_dp", base.scale_with_dp, boolean),
    }
}

pub(super) fn ratio(item: &Item<'_>) -> Result<Ratio, String> {
    let value = number(0.0..=1.0)(item)?;
    Ratio::new(value).ok_or_else(|| "must be from 0 to 1".into())
}

fn factor(item: &Item<'_>) -> Result<Factor, String> {
    let value = number(1.0..=1e9)(item).map_err(|_| ABOVE_ONE)?;
    Factor::new(value).ok_or_else(|| ABOVE_ONE.into())
}

const ABOVE_ONE: &str = "must be a number above 1, at most 1000000000";

/// Returns the key it had something to say of.
fn limit_and_floor(from: &mut Section<'_>, rules: &Rules) -> &'static [&'static str] {
    const FLOOR: &str = "saturation_queue_floor";
    if from.failed("worker_queue_limit") {
        return &[];
    }
    match (rules.saturation_queue_floor, rules.worker_queue_limit) {
        (None, _) => &[],
        (Some(_), None) => {
            let message = "needs `worker_queue_limit`: there is no diversion to cancel without it";
            from.problem(FLOOR, message);
            &[FLOOR]
        }
        (Some(floor), Some(limit)) if limit < floor => {
            let message = format!(
                "must not be above `worker_queue_limit` ({limit}): a worker between the two would \
                 be gated and still prevent the pin"
            );
            from.problem(FLOOR, &message);
            &[FLOOR]
        }
        (Some(_), Some(_)) => &[],
    }
}

/// A setting that does nothing is refused, unless it says what is so without it.
fn settings_without_effect(from: &mut Section<'_>, rules: &Rules, base: &Rules) {
    let limit = rules.worker_queue_limit;
    if rules.saturation_queue_floor.is_none() && !from.failed("saturation_queue_floor") {
        let message = "does nothing without `saturation_queue_floor`";
        if rules.pin_order != base.pin_order {
            from.problem("pin_order", message);
        }
        if rules.pin_max_queue.is_some() {
            from.problem("pin_max_queue", message);
        }
    } else if let Some((most, limit)) = rules.pin_max_queue.zip(limit)
        && most < limit.get()
    {
        let message = format!(
            "must be at least `worker_queue_limit` ({limit}): no gated owner has a shorter queue"
        );
        from.problem("pin_max_queue", &message);
    }
    if rules.scale_with_dp && limit.is_none() && !from.failed("worker_queue_limit") {
        from.problem("scale_with_dp", "does nothing without `worker_queue_limit`");
    }
    if rules.candidate_max_workers < rules.candidate_min_workers {
        let most = rules.candidate_max_workers;
        let message = format!("must not be above `candidate_max_workers` ({most})");
        from.problem("candidate_min_workers", &message);
    }
    if !rules.pressure_guard {
        let message = "does nothing with `pressure_guard: false`";
        if rules.pressure_abs_tokens != base.pressure_abs_tokens {
            from.problem("pressure_abs_tokens", message);
        }
        if rules.pressure_rel != base.pressure_rel {
            from.problem("pressure_rel", message);
        }
        if rules.pressure_abs_ms.is_some() {
            from.problem("pressure_abs_ms", message);
        }
    }
}

fn affinity_headers(from: &mut Section<'_>) -> Vec<String> {
    const MOST: usize = 16;
    let items = from.items("affinity_headers");
    if MOST < items.len() {
        from.problem("affinity_headers", &format!("must have at most {MOST} entries"));
    }
    items.iter().filter_map(|item| item.convert(from.scope, header_name)).collect()
}
