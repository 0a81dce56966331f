//! Which selection, and the settings of cost selection.

use crate::config::kinds::{choice, integer, number};
use crate::config::section::{Item, Section};
use tidegate_policy::rules::{Bonus, CostRules, Price, Selection, SpeedSnap, TiePercent};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Ladder,
    Cost,
}

const WORDS: &[(&str, Word)] = &[("ladder", Word::Ladder), ("cost", Word::Cost)];

/// `selection`, and what belongs to cost alone. Unset: the ladder where `has_gate`, else cost.
pub(super) fn selection(from: &mut Section<'_>, has_gate: bool) -> Selection {
    let default = if has_gate { Word::Ladder } else { Word::Cost };
    let word = from.read("selection", default, choice(WORDS));
    let cost = rules(from);
    match word {
        Word::Ladder => Selection::Ladder,
        Word::Cost => Selection::Cost(cost),
    }
}

fn rules(from: &mut Section<'_>) -> CostRules {
    let base = CostRules::default();
    let rules = CostRules {
        price_worker: from.read("price_worker", base.price_worker, price),
        price_fleet: from.read("price_fleet", base.price_fleet, price),
        tie_percent: from.read("tie_percent", base.tie_percent, tie_percent),
        speed_snap: from.read("speed_snap", base.speed_snap, speed_snap),
        home_bonus: from.read("home_bonus", base.home_bonus, bonus),
        home_bonus_foreign: from.read("home_bonus_foreign", base.home_bonus_foreign, bonus),
    };
    if let Some(conflict) = rules.conflict() {
        from.problem(conflict.key, conflict.must);
    }
    rules
}

/// Refuses the other selection's settings, but for those in `told`, of which more was said.
pub(super) fn refuse_others(from: &mut Section<'_>, selection: Selection, told: &[&str]) {
    let (keys, other) = selection.other();
    for key in keys.iter().filter(|key| !told.contains(key)) {
        if from.has(key) && !from.failed(key) {
            let own = selection.as_str();
            let message = format!("belongs to `selection: {other}`, and this is `{own}`");
            from.problem(key, &message);
        }
    }
}

fn price(item: &Item<'_>) -> Result<Price, String> {
    let value = number(0.0..=Price::MOST)(item)?;
    Price::new(value).ok_or_else(|| "must be from 0 to 64".into())
}

fn tie_percent(item: &Item<'_>) -> Result<TiePercent, String> {
    let value = integer(0..=TiePercent::MOST.into())(item)?;
    let percent = u8::try_from(value).ok().and_then(TiePercent::new);
    percent.ok_or_else(|| "must be from 0 to 20".into())
}

fn speed_snap(item: &Item<'_>) -> Result<SpeedSnap, String> {
    let value = number(1.0..=SpeedSnap::MOST)(item)?;
    SpeedSnap::new(value).ok_or_else(|| "must be a number of at least 1".into())
}

fn bonus(item: &Item<'_>) -> Result<Bonus, String> {
    const MUST: &str = "must be a number from 0 and below 1";
    let value = number(0.0..=1.0)(item).map_err(|_| MUST)?;
    Bonus::new(value).ok_or_else(|| MUST.into())
}
