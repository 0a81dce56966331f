//! `models:`.

use super::workers::Terms;
use super::{auth, guards, learned, policy, workers};
use crate::config::files::Files;
use crate::config::kinds::{count, duration, tally, text};
use crate::config::section::Section;
use crate::config::{
    Breaker, Health, LoadReports, Model, Overrides, Policy, Queue, Retries, Timeouts, UpstreamAuth,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const MOST_MODELS: usize = 1000;
const MOST_ALIASES: usize = 64;
const MOST_NAME: usize = 200;
const MOST_WAITING: u32 = 1_000_000;
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// What a model's own sections are read over.
pub(super) struct Common<'a> {
    pub(super) load_reports: LoadReports,
    pub(super) health: Health,
    pub(super) breaker: Breaker,
    pub(super) timeouts: Timeouts,
    pub(super) retries: Retries,
    pub(super) upstream_auth: Option<UpstreamAuth>,
    /// Where relative paths start.
    pub(super) base: &'a Path,
    pub(super) files: &'a Files,
    pub(super) overrides: &'a Overrides,
}

/// All models, in the order of the file.
pub(super) fn models(own: &mut Section<'_>, common: &Common<'_>) -> Vec<Arc<Model>> {
    let sections = own.sections("models").unwrap_or_default();
    if !own.failed("models") && (sections.is_empty() || MOST_MODELS < sections.len()) {
        own.problem("models", &format!("must be a list of 1 to {MOST_MODELS} models"));
    }
    let alone = sections.len() == 1;
    let mut names = Names { taken: BTreeMap::new(), alone };
    let read = |section: Section<'_>| Arc::new(model(section.with_overrides(), common, &mut names));
    sections.into_iter().map(read).collect()
}

/// Names and aliases so far, and where they were given.
struct Names {
    taken: BTreeMap<String, String>,
    alone: bool,
}

impl Names {
    /// Why `name` cannot be used at `path`; else it is taken from now on.
    fn take(&mut self, name: &str, path: &str) -> Option<String> {
        if name == "*" && !self.alone {
            return Some("takes all names, so it must be the only model".into());
        }
        if let Some(other) = self.taken.get(name) {
            return Some(format!("is taken by {other} already"));
        }
        self.taken.insert(name.to_owned(), path.to_owned());
        None
    }
}

fn model(mut from: Section<'_>, common: &Common<'_>, names: &mut Names) -> Model {
    let name = from.required("name", text(MOST_NAME)).unwrap_or_default();
    if let Some(problem) = names.take(&name, &format!("{}.name", from.path))
        && !name.is_empty()
    {
        from.problem("name", &problem);
    }
    let aliases = aliases(&mut from, names);
    let chosen = policy::policy(&mut from);
    let upstream_auth = auth::credentials(from.section("upstream_auth"));
    let upstream_auth = upstream_auth.or_else(|| common.upstream_auth.clone());
    let is_weightless = matches!(chosen.policy, Policy::LeastLoad { .. } | Policy::Learned(_));
    let weightless = is_weightless && !from.is_overridden("policy");
    let terms = Terms {
        weightless: weightless.then_some(chosen.policy.as_str()),
        shards: chosen.shards,
        auth: upstream_auth.as_ref(),
        base: common.base,
        files: common.files,
        overrides: common.overrides,
    };
    let (workers, discovery) = workers::workers(&mut from, &terms);
    let shed_queue_limit = from.optional("shed_queue_limit", None, tally);
    let queue = queue(&mut from);
    let warmup = from.read("warmup", Duration::ZERO, duration(Duration::ZERO..=LONGEST_WAIT));
    if !warmup.is_zero() && matches!(chosen.policy, Policy::Learned(_)) {
        from.problem("warmup", "does nothing under the policy learned, which explores");
    }
    let is_bounded = shed_queue_limit.is_some()
        || discovery.is_some()
        || workers.iter().any(|worker| worker.max_inflight.is_some());
    if queue.is_some() && !is_bounded {
        from.problem(
            "queue",
            "does nothing without `shed_queue_limit` or a worker's `max_inflight`",
        );
    }
    if let Policy::Learned(of) = &chosen.policy {
        learned::workers(&mut from, &workers, of.layers);
    }
    Model {
        name,
        aliases,
        affinity_headers: chosen.affinity_headers,
        shed_queue_limit,
        warmup,
        queue,
        load_reports: guards::load_reports(from.section("load_reports"), &common.load_reports),
        health: guards::health(from.section("health"), &common.health),
        breaker: guards::breaker(from.section("breaker"), &common.breaker),
        timeouts: guards::model_timeouts(from.section("timeouts"), &common.timeouts),
        retries: guards::retries(from.section("retries"), &common.retries),
        workers,
        discovery,
        policy: chosen.policy,
    }
}

/// Where requests wait. Never there by default: a wait hides from clients that the fleet is too small.
fn queue(from: &mut Section<'_>) -> Option<Queue> {
    let is_wanted = from.has("queue");
    let mut section = from.section("queue");
    if !is_wanted {
        // Asked for all the same, so that they are known keys.
        let _ = section.optional("max_requests", None, count(MOST_WAITING));
        let _ = section.optional("max_wait", None, duration(SHORTEST_WAIT..=LONGEST_WAIT));
        return None;
    }
    let max_requests = section.required("max_requests", count(MOST_WAITING));
    let max_wait = section.required("max_wait", duration(SHORTEST_WAIT..=LONGEST_WAIT));
    Some(Queue { max_requests: max_requests?, max_wait: max_wait? })
}

fn aliases(from: &mut Section<'_>, names: &mut Names) -> Vec<String> {
    let items = from.items("aliases");
    if MOST_ALIASES < items.len() {
        from.problem("aliases", &format!("must have at most {MOST_ALIASES} entries"));
    }
    let mut aliases = Vec::new();
    for item in items {
        let Some(alias) = item.convert(from.scope, text(MOST_NAME)) else { continue };
        let problem = match alias.as_str() {
            "*" => Some("must be a name; a model named `*` takes all names".into()),
            alias => names.take(alias, &item.path),
        };
        match problem {
            Some(problem) => from.scope.problem(&item.path, &item.shown, &problem),
            None => aliases.push(alias),
        }
    }
    aliases
}
