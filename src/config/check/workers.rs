//! `workers:` of a model.

use super::{auth, url};
use crate::config::kinds::{choice, count, readable, tally, text};
use crate::config::section::{Item, Section};
use crate::config::words::{ROLES, STATES};
use crate::config::{Policy, Scheme, UpstreamAuth, Worker, WorkerHost, WorkerTls, WorkerUrl};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;
use tidegate_policy::fleet::{Role, WorkerId};

/// Index slots are 16 bits wide and removed workers keep theirs for a while.
const MOST_WORKERS: usize = 10_000;

/// All workers of a model, in the order of the file.
pub(super) fn workers(
    model: &mut Section<'_>,
    policy: &Policy,
    common_auth: Option<&UpstreamAuth>,
    base: &Path,
) -> Vec<Worker> {
    let sections = model.sections("workers").unwrap_or_default();
    if !model.failed("workers") && (sections.is_empty() || MOST_WORKERS < sections.len()) {
        model.problem("workers", &format!("must be a list of 1 to {MOST_WORKERS} workers"));
    }
    let weightless = matches!(policy, Policy::LeastLoad { .. }) && !model.is_overridden("policy");
    let mut taken = BTreeMap::new();
    let mut workers = Vec::new();
    for mut section in sections {
        let worker = worker(&mut section, common_auth, base);
        if weightless && worker.weight != NonZeroU32::MIN {
            section.problem("weight", "does nothing under the policy least_load");
        }
        if let Some(other) = taken.get(&worker.id) {
            section.problem("id", &format!("is the id of {other} already"));
        } else if !section.failed("id") {
            let _ = taken.insert(worker.id.clone(), section.path.clone());
        }
        workers.push(worker);
    }
    if !workers.is_empty() && workers.iter().all(|worker| worker.role == Role::Decode) {
        model.problem("workers", "must have one of the role plain or prefill");
    }
    workers
}

fn worker(from: &mut Section<'_>, common_auth: Option<&UpstreamAuth>, base: &Path) -> Worker {
    for key in ["first_layer", "last_layer", "tps", "reputation"] {
        from.refuse(key, "belongs to the policy `learned`, which is not available in this version");
    }
    let id = from.required("id", worker_id).unwrap_or_else(|| WorkerId::from(""));
    let url = from.required("url", url::worker_url);
    let tls = tls(from, url.as_ref(), base);
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
        tls,
        upstream_auth: auth::credentials(from.section("upstream_auth"))
            .or_else(|| common_auth.cloned()),
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

fn tls(from: &mut Section<'_>, url: Option<&WorkerUrl>, base: &Path) -> WorkerTls {
    let mut section = from.section("tls");
    let tls = WorkerTls {
        sni: section.optional("sni", None, text(253)),
        ca: section.optional("ca", None, readable(base)),
    };
    let given = tls != WorkerTls::default();
    if given && url.is_some_and(|url| url.scheme == Scheme::Http) {
        section.scope.problem(&section.path, "", "does nothing without an https:// URL");
    }
    tls
}
