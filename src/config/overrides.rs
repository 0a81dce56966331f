//! What goes over the file: flags, then variables of the environment.

use super::node::Node;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A setting that can be given as `--a-b` or `TIDEGATE_A_B` for every model it applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicySetting {
    /// As in the file.
    pub key: &'static str,
    /// As flag and variable, with `_` between words.
    pub name: &'static str,
    /// What stands for the value in `--help`.
    pub value: &'static str,
    /// One line for `--help`; empty: only its name is listed there.
    pub help: &'static str,
}

impl PolicySetting {
    /// The flag without `--`.
    pub fn flag(&self) -> String {
        self.name.replace('_', "-")
    }

    /// The variable's name.
    pub fn variable(&self) -> String {
        format!("TIDEGATE_{}", self.name.to_ascii_uppercase())
    }
}

const fn setting(key: &'static str, value: &'static str, help: &'static str) -> PolicySetting {
    PolicySetting { key, name: key, value, help }
}

const fn of_routes(key: &'static str, name: &'static str, value: &'static str) -> PolicySetting {
    PolicySetting { key, name, value, help: "" }
}

/// All of them: `policy`, then the keys of `cache_aware` and of `learned`.
pub const POLICY_SETTINGS: &[PolicySetting] = &[
    setting("policy", "P", "cache_aware (default), learned, least_load or round_robin"),
    setting("selection", "S", "ladder or cost [ladder with a gate, else cost]"),
    setting("worker_queue_limit", "N", "A worker with N waiting requests is gated"),
    setting("saturation_queue_floor", "N", "Pin to an owner when no fresh queue is below N"),
    setting("min_matched_tokens", "N", "Least matched tokens of an owner [1024; null: off]"),
    setting("min_match_ratio", "R", "Least matched share of an owner"),
    setting("candidate_min_workers", "N", ""),
    setting("candidate_ratio", "R", ""),
    setting("candidate_max_workers", "N", ""),
    setting("switch_margin_tokens", "N", "Owners this near the least uncached compete [1024]"),
    setting("pressure_guard", "B", "A materially more pressured owner loses [true]"),
    setting("pressure_abs_tokens", "N", "Materially: by more than N uncached tokens [1024]"),
    setting("pressure_rel", "F", "and by more than this factor [1.5]"),
    setting("pressure_abs_ms", "N", "or by more than N ms of prefill and the factor"),
    setting("max_pending_prefill_tokens", "N", "Most uncached tokens waiting at a worker"),
    setting("min_load_choices", "K", "Fall back to the least pressured of K drawn"),
    setting("pin_order", "O", "pressure (default) or locality"),
    setting("pin_max_queue", "N", "Pin to no owner with a longer queue"),
    setting("dispatch_correction", "B", "Add what was sent after the report [true]"),
    setting("scale_with_dp", "B", "Limit and floor per data-parallel rank [false]"),
    setting("price_worker", "P", "Cost: price of a worker's own line [4]"),
    setting("price_fleet", "P", "Cost: price of the fleet's mean line [2]"),
    setting("tie_percent", "N", "Cost: scores this near the least tie [2]"),
    setting("speed_snap", "F", "Cost: a measured speed this near the fleet's is it [2]"),
    setting("home_bonus", "R", "Cost: off the score of a cold prompt's home [0.2]"),
    setting("home_bonus_foreign", "R", "Cost: the same, times other edges' share [0.5]"),
    setting("affinity_headers", "A,B", "Request headers that replace the home key"),
    of_routes("choice", "route_choice", "C"),
    of_routes("explore_share", "route_explore_share", "R"),
    of_routes("weight_alpha", "route_weight_alpha", "F"),
    of_routes("stats_half_life", "route_stats_half_life", "T"),
    of_routes("min_sample_tokens", "route_min_sample_tokens", "N"),
    of_routes("max_candidates", "route_max_candidates", "N"),
    of_routes("prune_after", "route_prune_after", "T"),
    of_routes("seed", "seed", "N"),
];

type Environment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Flags and the environment. They stay on top of every file read with them.
#[derive(Clone)]
pub struct Overrides {
    flags: BTreeMap<String, String>,
    environment: Environment,
}

impl Default for Overrides {
    /// No flags and an empty environment.
    fn default() -> Self {
        Self { flags: BTreeMap::new(), environment: Arc::new(|_| None) }
    }
}

impl fmt::Debug for Overrides {
    /// The environment is not printed: it has secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overrides").field("flags", &self.flags).finish_non_exhaustive()
    }
}

impl Overrides {
    /// No flags, and the environment of this process.
    pub fn from_process() -> Self {
        Self::default().with_environment(|name| std::env::var(name).ok())
    }

    /// Another environment.
    pub fn with_environment(
        mut self,
        environment: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.environment = Arc::new(environment);
        self
    }

    /// A flag's value.
    pub fn with_flag(mut self, setting: &PolicySetting, value: impl Into<String>) -> Self {
        self.flags.insert(setting.key.to_owned(), value.into());
        self
    }

    /// A variable of the environment.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        (self.environment)(name)
    }

    /// Where `key` was given outside the file, and its text. An empty variable counts as unset.
    pub(super) fn get(&self, key: &str) -> Option<(String, String)> {
        let setting = POLICY_SETTINGS.iter().find(|setting| setting.key == key)?;
        if let Some(text) = self.flags.get(key) {
            return Some((format!("--{}", setting.flag()), text.clone()));
        }
        let variable = setting.variable();
        let text = self.variable(&variable).filter(|text| !text.is_empty())?;
        Some((variable, text))
    }

    /// Every setting given outside the file, and where.
    pub(super) fn given(&self) -> impl Iterator<Item = (&'static str, String)> {
        POLICY_SETTINGS.iter().filter_map(|s| self.get(s.key).map(|(source, _)| (s.key, source)))
    }
}

/// A run without a file: workers `w0`, `w1`, ... of one model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuickStart {
    /// URLs; at least one.
    pub workers: Vec<String>,
    /// The model's name; `*` if unset, which takes all names.
    pub model: Option<String>,
    /// Traffic listener; `127.0.0.1:8080` if unset.
    pub listen: Option<String>,
    /// Admin listener; `127.0.0.1:9909` if unset.
    pub admin: Option<String>,
}

impl QuickStart {
    /// Which flag a path of [`QuickStart::tree`] came from.
    pub(super) const FLAGS: &'static [(&'static str, &'static str)] = &[
        ("tidegate.models[0].workers", "--worker"),
        ("tidegate.models[0].name", "--model"),
        ("tidegate.listeners", "--listen"),
        ("tidegate.admin", "--admin"),
    ];

    /// The same as a file.
    pub(super) fn tree(&self) -> Node {
        let text = |text: &str| Node::Text(text.to_owned());
        let worker = |(at, url): (usize, &String)| {
            Node::map([("id", Node::Text(format!("w{at}"))), ("url", text(url))])
        };
        let model = Node::map([
            ("name", text(self.model.as_deref().unwrap_or("*"))),
            ("workers", Node::List(self.workers.iter().enumerate().map(worker).collect())),
        ]);
        let address = |given: &Option<String>| match given {
            Some(address) => Node::map([("address", text(address))]),
            None => Node::map([]),
        };
        let own = Node::map([
            ("listeners", Node::List(vec![address(&self.listen)])),
            ("admin", address(&self.admin)),
            ("models", Node::List(vec![model])),
        ]);
        Node::map([("tidegate", own)])
    }
}
