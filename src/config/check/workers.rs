//! `workers:` of a model.

use super::learned::{self, Shards};
use super::{auth, discovery, url};
use crate::config::files::Files;
use crate::config::kinds::{choice, count, path, tally, text};
use crate::config::section::{Item, Section};
use crate::config::words::{ROLES, STATES};
use crate::config::{
    Discovery, Overrides, Scheme, UpstreamAuth, Worker, WorkerHost, WorkerSource, WorkerTls,
    WorkerUrl,
};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;
use tidegate_policy::fleet::{Role, WorkerId};

/// Index slots are 16 bits wide and removed workers keep theirs for a while.
const MOST_WORKERS: usize = 10_000;

/// What workers are read by, wherever they are listed.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a> {
    /// The model's policy, if weights do nothing under it.
    pub(super) weightless: Option<&'static str>,
    pub(super) shards: Shards,
    pub(super) auth: Option<&'a UpstreamAuth>,
    /// Where relative paths start.
    pub(super) base: &'a Path,
    pub(super) files: &'a Files,
    pub(super) overrides: &'a Overrides,
}

/// Ids so far, and where they were given.
pub(super) type Taken = BTreeMap<WorkerId, String>;

/// All workers of a model, in the order of the file, those of its file of workers last.
pub(super) fn workers(
    model: &mut Section<'_>,
    terms: &Terms<'_>,
) -> (Vec<Worker>, Option<Discovery>) {
    let mut taken = Taken::new();
    let mut workers = list(model, terms, &mut taken, WorkerSource::Listed);
    let found = discovery::discovery(model, terms, &mut taken);
    if workers.is_empty() && !model.failed("workers") && !model.has("discovery") {
        model.problem("workers", &too_few_or_many());
    }
    workers.extend(found.workers);
    if !workers.is_empty() && workers.iter().all(|worker| worker.role == Role::Decode) {
        model.problem("workers", "must have one of the role plain or prefill");
    }
    (workers, found.discovery)
}

/// The workers listed in one file.
pub(super) fn list(
    from: &mut Section<'_>,
    terms: &Terms<'_>,
    taken: &mut Taken,
    source: WorkerSource,
) -> Vec<Worker> {
    let sections = from.sections("workers").unwrap_or_default();
    if MOST_WORKERS < sections.len() {
        from.problem("workers", &too_few_or_many());
    }
    let mut workers = Vec::new();
    for mut section in sections {
        let worker = worker(&mut section, terms, source);
        if let Some(policy) = terms.weightless.filter(|_| worker.weight != NonZeroU32::MIN) {
            section.problem("weight", &format!("does nothing under the policy {policy}"));
        }
        if let Some(other) = taken.get(&worker.id) {
            section.problem("id", &format!("is the id of {other} already"));
        } else if !section.failed("id") {
            let _ = taken.insert(worker.id.clone(), section.path.clone());
        }
        workers.push(worker);
    }
    workers
}

fn too_few_or_many() -> String {
    format!("must be a list of 1 to {MOST_WORKERS} workers")
}

fn worker(from: &mut Section<'_>, terms: &Terms<'_>, source: WorkerSource) -> Worker {
    let id = from.required("id", worker_id).unwrap_or_else(|| WorkerId::from(""));
    let url = from.required("url", url::worker_url);
    let tls = tls(from, url.as_ref(), terms);
    // A refused URL is on record; nothing is built with its stand-in.
    let stand_in = || WorkerUrl { scheme: Scheme::Http, host: WorkerHost::Unix("/".into()) };
    Worker {
        id,
        url: url.unwrap_or_else(stand_in),
        role: from.read("role", Role::Plain, choice(ROLES)),
        weight: from.read("weight", NonZeroU32::MIN, count(65_535)),
        dp_size: from.optional("dp_size", None, count(65_535)),
        kv_capacity_tokens: from.optional("kv_capacity_tokens", None, tally),
        prefill_tps: from.optional("prefill_tps", None, tally),
        max_inflight: from.optional("max_inflight", None, count(u32::MAX)),
        draining: from.read("state", false, choice(STATES)),
        shard: learned::shard(from, terms.shards),
        tls,
        upstream_auth: auth::credentials(from.section("upstream_auth"))
            .or_else(|| terms.auth.cloned()),
        source,
    }
}

fn worker_id(item: &Item<'_>) -> Result<WorkerId, String> {
    let valid = |text: &&str| {
        let word = |b: u8| b.is_ascii_alphanumeric() || b"._:-".contains(&b);
        (1..=64).contains(&text.len()) && text.bytes().all(word)
    };
    let id = item.text().filter(valid).map(WorkerId::from);
    id.ok_or_else(|| {
        "must be 1 to 64 letters, digits or `.`, `_`, `:`, `-`; put a number in quotes".into()
    })
}

fn tls(from: &mut Section<'_>, url: Option<&WorkerUrl>, terms: &Terms<'_>) -> WorkerTls {
    let mut section = from.section("tls");
    let authorities = |item: &Item<'_>| terms.files.authorities(&path(terms.base)(item)?);
    let tls = WorkerTls {
        sni: section.optional("sni", None, text(253)),
        ca: section.optional("ca", None, authorities),
    };
    let given = tls != WorkerTls::default();
    if given && url.is_some_and(|url| url.scheme == Scheme::Http) {
        section.scope.problem(&section.path, "", "does nothing without an https:// URL");
    }
    tls
}
