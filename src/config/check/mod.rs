//! The only way to a [`Config`]: one file per group, every problem recorded, values before policy.

mod auth;
mod cost;
mod discovery;
mod edge;
mod guards;
mod learned;
mod listeners;
mod models;
mod policy;
mod server;
mod unwise;
mod url;
mod workers;

use super::files::Files;
use super::kinds::path;
use super::node::Node;
use super::scope::Scope;
use super::section::Section;
use super::{Config, ConfigErrors, Overrides};
use std::path::Path;

/// Checks a tree; also gives every key that was asked for.
pub(super) fn config(
    root: &Node,
    base: &Path,
    overrides: &Overrides,
    files: &Files,
) -> (Result<Config, ConfigErrors>, Vec<String>) {
    let scope = Scope::new(overrides);
    let given = Given { base, overrides, files };
    let built = build(root, &given, &scope);
    for source in scope.unused_overrides() {
        scope.problem(&source, "", "does nothing: no model's policy has this setting");
    }
    let (verdict, known) = scope.finish();
    let warned = |()| Config { warnings: unwise::warnings(&built, root, overrides), ..built };
    (verdict.map(warned), known)
}

/// What a tree is read with.
struct Given<'a> {
    base: &'a Path,
    overrides: &'a Overrides,
    files: &'a Files,
}

fn build<'a>(root: &'a Node, given: &Given<'_>, scope: &'a Scope<'a>) -> Config {
    let mut top = Section::root(root, scope);
    let server = server::keys(&mut top);
    if !top.has("tidegate") {
        top.problem("tidegate", "is missing: it holds at least `models`");
    }
    let mut own = top.section("tidegate");
    let listeners = listeners::traffic(&mut own, given.base, given.files);
    let admin = listeners::admin(&mut own, &listeners);
    let common = models::Common {
        load_reports: guards::load_reports(
            own.section("load_reports"),
            &guards::load_reports_default(),
        ),
        health: guards::health(own.section("health"), &guards::health_default()),
        breaker: guards::breaker(own.section("breaker"), &guards::breaker_default()),
        timeouts: guards::timeouts(own.section("timeouts"), &guards::timeouts_default()),
        retries: guards::retries(own.section("retries"), &guards::retries_default()),
        upstream_auth: auth::credentials(own.section("upstream_auth")),
        base: given.base,
        files: given.files,
        overrides: given.overrides,
    };
    Config {
        pingora: server.yaml,
        grace_period: server.grace_period,
        upgrade_sock: server.upgrade_sock,
        listeners,
        admin,
        limits: edge::limits(own.section("limits")),
        http: edge::http(own.section("http")),
        shutdown: edge::shutdown(own.section("shutdown")),
        index: edge::index(own.section("index")),
        dns_interval: edge::dns_interval(&mut own),
        state_file: own.optional("state_file", None, path(given.base)),
        access_log: edge::access_log(own.section("access_log")),
        models: models::models(&mut own, &common),
        timeouts: common.timeouts,
        warnings: ConfigErrors::default(),
    }
}
