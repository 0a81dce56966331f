//! Names for settings that are to be compared: `ladder:limit=8,floor=1/2`.
//!
//! `NAME[:KEY=VALUE[/VALUE...],...]`. The name is where it starts, each key is one of the policy
//! settings as flags and variables have them, and several values are several rule sets. All goes
//! through the configuration's own check, so nothing can be compared that could not be configured.

use crate::config::{
    self, Config, ConfigErrors, Overrides, POLICY_SETTINGS, Policy, PolicySetting, QuickStart,
    Scheme, Source, WorkerHost, WorkerSource, WorkerUrl,
};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tidegate_policy::fleet::WorkerId;

/// One thing to compare.
#[derive(Clone, Debug)]
pub struct RuleSet {
    /// What it is called in tables.
    pub name: String,
    /// All it is.
    pub config: Arc<Config>,
}

/// Why a text names no rule set.
#[derive(Debug, Error)]
pub enum RuleSetError {
    /// There is no such name.
    #[error("`{0}` is no rule set: give one of {names}, or a YAML file", names = names())]
    Name(String),
    /// There is no such key.
    #[error("`{0}` is no policy setting (nor `interval`, the report interval)")]
    Key(String),
    /// A part has no `=`.
    #[error("`{0}`: each setting is KEY=VALUE")]
    NoValue(String),
    /// `interval` is no time.
    #[error("`{0}` is no report interval: give a time such as 500ms or 2s")]
    Interval(String),
    /// Which model is meant is not said.
    #[error("the configuration has not this one model; say which: {0}")]
    Model(String),
    /// The settings cannot be.
    #[error("{name}: {errors}")]
    Config {
        /// Which rule set.
        name: String,
        /// What is wrong.
        errors: ConfigErrors,
    },
}

type Setting = (&'static str, &'static str);

/// Where a name starts. `gate` pins only an owner whose queue is exactly at its limit: the rules have
/// no gate that neither readmits nor pins.
const STARTS: &[(&str, &[Setting])] = &[
    ("cost", &[("selection", "cost")]),
    ("ladder", &[("selection", "ladder")]),
    ("affinity", &[("selection", "ladder")]),
    (
        "gate",
        &[
            ("selection", "ladder"),
            ("worker_queue_limit", "8"),
            ("saturation_queue_floor", "1"),
            ("pin_max_queue", "worker_queue_limit"),
        ],
    ),
    ("readmit", &[("selection", "ladder"), ("worker_queue_limit", "8")]),
    (
        "pin",
        &[("selection", "ladder"), ("worker_queue_limit", "8"), ("saturation_queue_floor", "1")],
    ),
    ("least_load", &[("policy", "least_load")]),
    ("random", &[("policy", "least_load"), ("min_load_choices", "1")]),
    ("round_robin", &[("policy", "round_robin")]),
];

/// Short for what is compared most.
const ALIASES: &[Setting] = &[
    ("limit", "worker_queue_limit"),
    ("floor", "saturation_queue_floor"),
    ("choices", "min_load_choices"),
    ("correction", "dispatch_correction"),
];

/// The report interval, which is no policy setting.
const INTERVAL: &str = "interval";
/// The configuration as it is.
const AS_CONFIGURED: &str = "file";

fn names() -> String {
    let names: Vec<&str> = STARTS.iter().map(|(name, _)| *name).collect();
    format!("{}, {AS_CONFIGURED}", names.join(", "))
}

/// A text, taken apart: what it starts at, and one list of settings for each rule set.
struct Parsed<'t> {
    start: &'t str,
    variants: Vec<Vec<(&'t str, &'t str)>>,
}

impl<'t> Parsed<'t> {
    fn new(text: &'t str) -> Result<Self, RuleSetError> {
        let (start, settings) = text.split_once(':').unwrap_or((text, ""));
        let mut variants = vec![Vec::new()];
        for setting in settings.split(',').filter(|setting| !setting.is_empty()) {
            let (key, values) =
                setting.split_once('=').ok_or_else(|| RuleSetError::NoValue(setting.to_owned()))?;
            let key = key.trim();
            let longer = |variant: &Vec<(&'t str, &'t str)>| {
                let mut all = Vec::new();
                for value in values.split('/') {
                    let mut variant = variant.clone();
                    variant.push((key, value.trim()));
                    all.push(variant);
                }
                all
            };
            variants = variants.iter().flat_map(longer).collect();
        }
        Ok(Self { start: start.trim(), variants })
    }
}

/// Makes rule sets of texts, for one model.
#[derive(Clone, Debug, Default)]
pub struct RuleSets {
    /// What is no policy is taken from this file; `None`: defaults.
    pub file: Option<PathBuf>,
    /// The model of the file that is simulated; `None`: the only one.
    pub model: Option<String>,
    /// Engines there are; `None`: as many as the model has workers.
    pub engines: Option<NonZeroU32>,
}

impl RuleSets {
    /// The rule sets a text names.
    ///
    /// # Errors
    /// [`RuleSetError`].
    pub fn named(&self, text: &str) -> Result<Vec<RuleSet>, RuleSetError> {
        let Parsed { start, variants } = Parsed::new(text)?;
        variants.iter().map(|settings| self.one(start, settings)).collect()
    }

    fn one(&self, start: &str, settings: &[(&str, &str)]) -> Result<RuleSet, RuleSetError> {
        let said: Vec<String> =
            settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let colon = if said.is_empty() { "" } else { ":" };
        let name = format!("{start}{colon}{}", said.join(","));
        let mut interval = None;
        let mut policy = Vec::new();
        for &(key, value) in settings {
            if key == INTERVAL {
                interval = Some(time(value)?);
            } else {
                policy.push((setting(key)?, value));
            }
        }
        let refused = |errors| RuleSetError::Config { name: name.clone(), errors };
        let mut config = match STARTS.iter().find(|(known, _)| *known == start) {
            Some((_, first)) => {
                let chosen = from_start(first, &policy).map_err(refused)?;
                let base = match &self.file {
                    Some(file) => read(file, &[]).map_err(refused)?,
                    None => from_start(&[], &[]).map_err(refused)?,
                };
                self.simulated(base, Some(chosen.models[0].policy.clone()))?
            }
            None => {
                let file = match &self.file {
                    Some(file) if start == AS_CONFIGURED => file.clone(),
                    _ if Path::new(start).is_file() => start.into(),
                    _ => return Err(RuleSetError::Name(start.to_owned())),
                };
                self.simulated(read(&file, &policy).map_err(refused)?, None)?
            }
        };
        if let (Some(interval), Some(model)) = (interval, config.models.first_mut()) {
            let reports = &mut Arc::make_mut(model).load_reports;
            // Between two polls a report must not grow stale: that would be another comparison.
            reports.max_age = reports.max_age.max(3 * interval);
            reports.interval = interval;
        }
        Ok(RuleSet { name, config: Arc::new(config) })
    }

    /// The configuration with one model, whose workers are simulated engines.
    fn simulated(&self, config: Config, policy: Option<Policy>) -> Result<Config, RuleSetError> {
        let model = match &self.model {
            Some(name) => config.models.iter().find(|model| model.name == *name),
            None => config.models.first().filter(|_| config.models.len() == 1),
        };
        let Some(model) = model else {
            let names = config.models.iter().map(|model| model.name.clone()).collect::<Vec<_>>();
            return Err(RuleSetError::Model(names.join(", ")));
        };
        let mut model = config::Model::clone(model);
        let engines = self.engines.map_or(model.workers.len(), |engines| engines.get() as usize);
        let template = std::mem::take(&mut model.workers);
        model.workers = (0..engines).map(|at| engine(&template, at, engines)).collect();
        model.discovery = None;
        model.health.enabled = false;
        model.policy = policy.unwrap_or(model.policy);
        Ok(Config { models: vec![Arc::new(model)], ..config })
    }
}

/// The policy setting that a key names.
fn setting(key: &str) -> Result<&'static PolicySetting, RuleSetError> {
    let long = ALIASES.iter().find(|(short, _)| *short == key).map_or(key, |(_, long)| long);
    let known = POLICY_SETTINGS.iter().find(|setting| setting.key == long);
    known.ok_or_else(|| RuleSetError::Key(key.to_owned()))
}

fn time(text: &str) -> Result<Duration, RuleSetError> {
    let interval = config::duration_of(text).filter(|interval| !interval.is_zero());
    interval.ok_or_else(|| RuleSetError::Interval(text.to_owned()))
}

/// A run without a file under these settings, the later over the earlier. A value that is the name
/// of another setting is that one's value.
fn from_start(
    first: &[Setting],
    then: &[(&'static PolicySetting, &str)],
) -> Result<Config, ConfigErrors> {
    let mut values: BTreeMap<&str, &str> = first.iter().copied().collect();
    values.extend(then.iter().map(|(setting, value)| (setting.key, *value)));
    let flags = POLICY_SETTINGS.iter().filter_map(|setting| {
        let value = values.get(setting.key)?;
        Some((setting, *values.get(value).unwrap_or(value)))
    });
    let over = |overrides: Overrides, (setting, value)| overrides.with_flag(setting, value);
    let workers = vec!["http://127.0.0.1:1".to_owned()];
    let quick = QuickStart { workers, ..QuickStart::default() };
    Config::from_quick_start(&quick, &flags.fold(Overrides::default(), over))
}

fn read(file: &Path, settings: &[(&'static PolicySetting, &str)]) -> Result<Config, ConfigErrors> {
    let over = |overrides: Overrides, (setting, value): &(&'static PolicySetting, &str)| {
        overrides.with_flag(setting, *value)
    };
    let overrides = settings.iter().fold(Overrides::from_process(), over);
    Source::file(file.to_owned(), overrides).load().map(|loaded| loaded.config)
}

/// An engine with the settings of the worker in its place, or of the first one.
fn engine(template: &[config::Worker], at: usize, engines: usize) -> config::Worker {
    let own = template.get(at);
    let id = match own.filter(|_| template.len() == engines) {
        Some(own) => own.id.clone(),
        None => WorkerId::from(
            format!("e{at:0width$}", width = (engines - 1).to_string().len()).as_str(),
        ),
    };
    // No address is ever connected to; it only has to be one.
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let url = WorkerUrl { scheme: Scheme::Http, host: WorkerHost::Ip(address) };
    let source = WorkerSource::Listed;
    match own.or(template.first()) {
        Some(own) => config::Worker { id, url, source, ..own.clone() },
        None => config::Worker::new(id, url, source),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn sets(text: &str) -> Result<Vec<RuleSet>, RuleSetError> {
        RuleSets { engines: NonZeroU32::new(3), ..RuleSets::default() }.named(text)
    }

    fn rules(set: &RuleSet) -> &tidegate_policy::rules::Rules {
        set.config.models[0].policy.cache_aware().unwrap()
    }

    #[test]
    fn every_name_is_a_rule_set_for_as_many_engines_as_there_are() {
        for (name, _) in STARTS {
            let sets = sets(name).unwrap();
            assert_eq!((sets.len(), sets[0].name.as_str()), (1, *name));
            assert_eq!(sets[0].config.models[0].workers.len(), 3);
        }
    }

    #[test]
    fn values_of_a_grid_are_rule_sets_of_their_own() {
        let sets = sets("ladder:limit=4/8,floor=1/2").unwrap();
        let names: Vec<&str> = sets.iter().map(|set| set.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "ladder:limit=4,floor=1",
                "ladder:limit=4,floor=2",
                "ladder:limit=8,floor=1",
                "ladder:limit=8,floor=2",
            ]
        );
        assert_eq!(rules(&sets[3]).saturation_queue_floor.unwrap().get(), 2);
    }

    #[test]
    fn a_gate_pins_nobody_beyond_its_own_limit() {
        let sets = sets("gate:limit=4").unwrap();
        assert_eq!(rules(&sets[0]).pin_max_queue, Some(4));
    }

    #[test]
    fn the_report_interval_is_a_setting_too() {
        let sets = sets("cost:interval=100ms/2s").unwrap();
        let intervals: Vec<Duration> =
            sets.iter().map(|set| set.config.models[0].load_reports.interval).collect();
        assert_eq!(intervals, [Duration::from_millis(100), Duration::from_secs(2)]);
    }

    #[test]
    fn what_could_not_be_configured_cannot_be_compared() {
        for (text, why) in [
            ("ladders", "`ladders` is no rule set"),
            ("cost:limit=4", "--worker-queue-limit: \"4\": belongs to `selection: ladder`"),
            ("ladder:floor=4", "needs `worker_queue_limit`"),
            ("ladder:speed=4", "`speed` is no policy setting"),
            ("ladder:limit", "`limit`: each setting is KEY=VALUE"),
            ("cost:interval=0s", "`0s` is no report interval"),
            ("file", "`file` is no rule set"),
        ] {
            let error = sets(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
