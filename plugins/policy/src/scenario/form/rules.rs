//! The `rules` of a scenario: names and defaults as in the configuration, checked alike.

use super::super::ScenarioError;
use crate::rules::{
    Bonus, CostRules, Factor, PinOrder, Price, Ratio, Rules, Selection, SpeedSnap, TiePercent,
};
use serde::Deserialize;
use std::num::{NonZeroU32, NonZeroU64};

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Form {
    selection: Option<SelectionForm>,
    worker_queue_limit: Option<u64>,
    saturation_queue_floor: Option<u64>,
    min_matched_tokens: Option<u64>,
    min_match_ratio: Option<f64>,
    candidate_min_workers: u32,
    candidate_ratio: f64,
    candidate_max_workers: u32,
    switch_margin_tokens: u64,
    pressure_guard: bool,
    pressure_abs_tokens: u64,
    pressure_rel: f64,
    pressure_abs_ms: Option<u64>,
    max_pending_prefill_tokens: Option<u64>,
    min_load_choices: Option<u32>,
    pin_order: PinOrderForm,
    pin_max_queue: Option<u64>,
    dispatch_correction: bool,
    scale_with_dp: bool,
    price_worker: f64,
    price_fleet: f64,
    tie_percent: u8,
    speed_snap: f64,
    home_bonus: f64,
    home_bonus_foreign: f64,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SelectionForm {
    Ladder,
    Cost,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PinOrderForm {
    Pressure,
    Locality,
}

impl Default for Form {
    fn default() -> Self {
        let (rules, cost) = (Rules::default(), CostRules::default());
        Self {
            selection: None,
            worker_queue_limit: rules.worker_queue_limit.map(NonZeroU64::get),
            saturation_queue_floor: rules.saturation_queue_floor.map(NonZeroU64::get),
            min_matched_tokens: rules.min_matched_tokens,
            min_match_ratio: rules.min_match_ratio.map(Ratio::get),
            candidate_min_workers: rules.candidate_min_workers.get(),
            candidate_ratio: rules.candidate_ratio.get(),
            candidate_max_workers: rules.candidate_max_workers.get(),
            switch_margin_tokens: rules.switch_margin_tokens,
            pressure_guard: rules.pressure_guard,
            pressure_abs_tokens: rules.pressure_abs_tokens,
            pressure_rel: rules.pressure_rel.get(),
            pressure_abs_ms: rules.pressure_abs_ms,
            max_pending_prefill_tokens: rules.max_pending_prefill_tokens,
            min_load_choices: rules.min_load_choices.map(NonZeroU32::get),
            pin_order: match rules.pin_order {
                PinOrder::Pressure => PinOrderForm::Pressure,
                PinOrder::Locality => PinOrderForm::Locality,
            },
            pin_max_queue: rules.pin_max_queue,
            dispatch_correction: rules.dispatch_correction,
            scale_with_dp: rules.scale_with_dp,
            price_worker: cost.price_worker.get(),
            price_fleet: cost.price_fleet.get(),
            tie_percent: cost.tie_percent.get(),
            speed_snap: cost.speed_snap.get(),
            home_bonus: cost.home_bonus.get(),
            home_bonus_foreign: cost.home_bonus_foreign.get(),
        }
    }
}

impl Form {
    /// The rules. Given candidates are over the threshold already, which then only says what a
    /// fallback is called, and a fallback from candidates is `diverted` whatever the threshold.
    pub(super) fn check(&self, name: &str, candidates_given: bool) -> Result<Rules, ScenarioError> {
        let checked = Checked { name };
        let ratio = self.min_match_ratio.map(|ratio| checked.ratio("min_match_ratio", ratio));
        let (limit, floor) = self.gate(&checked)?;
        let most = checked.count("candidate_max_workers", self.candidate_max_workers)?;
        if Rules::MAX_CANDIDATES < most.get() as usize {
            return Err(checked.wrong("candidate_max_workers", "must be at most 32"));
        }
        let choices = self.min_load_choices.map(|k| checked.count("min_load_choices", k));
        Ok(Rules {
            selection: self.selection(&checked)?,
            worker_queue_limit: limit,
            saturation_queue_floor: floor,
            min_matched_tokens: self.min_matched_tokens.filter(|_| !candidates_given),
            min_match_ratio: ratio.transpose()?.filter(|_| !candidates_given),
            candidate_min_workers: checked
                .count("candidate_min_workers", self.candidate_min_workers)?,
            candidate_ratio: checked.ratio("candidate_ratio", self.candidate_ratio)?,
            candidate_max_workers: most,
            switch_margin_tokens: self.switch_margin_tokens,
            pressure_guard: self.pressure_guard,
            pressure_abs_tokens: self.pressure_abs_tokens,
            pressure_rel: Factor::new(self.pressure_rel)
                .ok_or_else(|| checked.wrong("pressure_rel", "must be above 1"))?,
            pressure_abs_ms: self.pressure_abs_ms,
            max_pending_prefill_tokens: self.max_pending_prefill_tokens,
            min_load_choices: choices.transpose()?,
            pin_order: match self.pin_order {
                PinOrderForm::Pressure => PinOrder::Pressure,
                PinOrderForm::Locality => PinOrder::Locality,
            },
            pin_max_queue: self.pin_max_queue,
            dispatch_correction: self.dispatch_correction,
            scale_with_dp: self.scale_with_dp,
        })
    }

    /// Unset: the ladder where there is a gate, else cost.
    fn selection(&self, checked: &Checked<'_>) -> Result<Selection, ScenarioError> {
        let cost = self.cost(checked)?;
        Ok(match (self.selection, self.worker_queue_limit) {
            (Some(SelectionForm::Ladder), _) | (None, Some(_)) => Selection::Ladder,
            (Some(SelectionForm::Cost), _) | (None, None) => Selection::Cost(cost),
        })
    }

    fn cost(&self, checked: &Checked<'_>) -> Result<CostRules, ScenarioError> {
        let price = |key, value| {
            Price::new(value).ok_or_else(|| checked.wrong(key, "must be within 0 and 64"))
        };
        let bonus = |key, value| {
            Bonus::new(value).ok_or_else(|| checked.wrong(key, "must be at least 0 and below 1"))
        };
        let rules = CostRules {
            price_worker: price("price_worker", self.price_worker)?,
            price_fleet: price("price_fleet", self.price_fleet)?,
            tie_percent: TiePercent::new(self.tie_percent)
                .ok_or_else(|| checked.wrong("tie_percent", "must be within 0 and 20"))?,
            speed_snap: SpeedSnap::new(self.speed_snap)
                .ok_or_else(|| checked.wrong("speed_snap", "must be within 1 and 1000000"))?,
            home_bonus: bonus("home_bonus", self.home_bonus)?,
            home_bonus_foreign: bonus("home_bonus_foreign", self.home_bonus_foreign)?,
        };
        match rules.conflict() {
            None => Ok(rules),
            Some(conflict) => Err(checked.wrong(conflict.key, conflict.must)),
        }
    }

    fn gate(&self, checked: &Checked<'_>) -> Result<Gate, ScenarioError> {
        const LIMIT: &str = "worker_queue_limit";
        const FLOOR: &str = "saturation_queue_floor";
        let nonzero = |key, value: Option<u64>| match value {
            None => Ok(None),
            Some(value) => match NonZeroU64::new(value) {
                Some(value) => Ok(Some(value)),
                None => Err(checked.wrong(key, "must be at least 1")),
            },
        };
        let limit = nonzero(LIMIT, self.worker_queue_limit)?;
        let floor = nonzero(FLOOR, self.saturation_queue_floor)?;
        match (limit, floor) {
            (None, Some(_)) => Err(checked.wrong(
                FLOOR,
                "needs worker_queue_limit: there is no diversion to cancel without it",
            )),
            (Some(limit), Some(floor)) if limit < floor => {
                Err(checked.wrong(FLOOR, "must be at most worker_queue_limit"))
            }
            (Some(_), Some(_)) | (_, None) => Ok((limit, floor)),
        }
    }
}

/// Limit and floor.
type Gate = (Option<NonZeroU64>, Option<NonZeroU64>);

pub(in crate::scenario) struct Checked<'a> {
    pub(in crate::scenario) name: &'a str,
}

impl Checked<'_> {
    pub(in crate::scenario) fn wrong(
        &self,
        key: &'static str,
        must: &'static str,
    ) -> ScenarioError {
        ScenarioError::Rule { name: self.name.to_owned(), key, must }
    }

    pub(in crate::scenario) fn count(
        &self,
        key: &'static str,
        value: u32,
    ) -> Result<NonZeroU32, ScenarioError> {
        NonZeroU32::new(value).ok_or_else(|| self.wrong(key, "must be at least 1"))
    }

    pub(in crate::scenario) fn ratio(
        &self,
        key: &'static str,
        value: f64,
    ) -> Result<Ratio, ScenarioError> {
        Ratio::new(value).ok_or_else(|| self.wrong(key, "must be within 0 and 1"))
    }
}
