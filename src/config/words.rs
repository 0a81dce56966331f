//! The closed sets of words in the file, used to read it and to show what is in force.

use super::{Forwarded, HalfClose, ReportChoice};
use tidegate_policy::fleet::Role;
use tidegate_policy::learned::Choice;
use tidegate_policy::rules::PinOrder;

/// A word and what it stands for.
pub(super) type Words<T> = &'static [(&'static str, T)];

/// The word for a value; every value has one.
pub(super) fn word<T: PartialEq>(words: Words<T>, value: &T) -> &'static str {
    words.iter().find(|(_, of)| of == value).map_or("", |(word, _)| word)
}

pub(super) const FORWARDED: Words<Forwarded> =
    &[("append", Forwarded::Append), ("set", Forwarded::Set), ("off", Forwarded::Off)];

pub(super) const HALF_CLOSE: Words<HalfClose> =
    &[("abort", HalfClose::Abort), ("tolerate", HalfClose::Tolerate)];

pub(super) const FORMATS: Words<ReportChoice> = &[
    ("auto", ReportChoice::Auto),
    ("get_load", ReportChoice::GetLoad),
    ("v1_loads", ReportChoice::V1Loads),
    ("sglang_metrics", ReportChoice::SglangMetrics),
    ("vllm_metrics", ReportChoice::VllmMetrics),
    ("llamacpp_metrics", ReportChoice::LlamacppMetrics),
    ("none", ReportChoice::None),
];

pub(super) const PIN_ORDERS: Words<PinOrder> =
    &[("pressure", PinOrder::Pressure), ("locality", PinOrder::Locality)];

pub(super) const ROLES: Words<Role> =
    &[("plain", Role::Plain), ("prefill", Role::Prefill), ("decode", Role::Decode)];

pub(super) const CHOICES: Words<Choice> = &[
    (Choice::Proportional.as_str(), Choice::Proportional),
    (Choice::Thompson.as_str(), Choice::Thompson),
];

/// The value says whether the worker drains.
pub(super) const STATES: Words<bool> = &[("active", false), ("draining", true)];
