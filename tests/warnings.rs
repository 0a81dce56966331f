//! What is legal and hardly meant is said: by `check`, in the log, in `/v1/config`; and nothing of it
//! about the files we ship.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::Path;
use std::process::Command;
use support::edge::{Edge, command};
use support::engine::engines;
use tidegate::config::{Config, ConfigError, Overrides, POLICY_SETTINGS};

const WORKERS: &str = "[{id: w0, url: \"http://127.0.0.1:1\"}]";

fn warnings(yaml: &str, overrides: &Overrides) -> Vec<ConfigError> {
    let config = Config::from_yaml(yaml, Path::new(""), overrides).unwrap();
    config.warnings.into_iter().collect()
}

/// One model with these keys of all models and of its own; what is said of it.
fn said(common: &str, own: &str, workers: &str) -> Vec<(String, String)> {
    let yaml =
        format!("tidegate:\n  {common}\n  models: [{{name: m, {own} workers: {workers}}}]\n");
    let found = warnings(&yaml, &Overrides::default());
    found.into_iter().map(|warning| (warning.path, warning.message)).collect()
}

#[track_caller]
fn says(common: &str, own: &str, workers: &str, path: &str, words: &str) {
    let found = said(common, own, workers);
    let [(at, message)] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(at, path);
    assert!(message.contains(words), "{message}");
}

#[test]
fn reports_that_are_stale_before_the_next_one_are_called_out_where_that_is_set() {
    let words = "is below `interval` (3s)";
    let at = "tidegate.load_reports.max_age";
    says("load_reports: {interval: 3s, max_age: 1s}", "", WORKERS, at, words);
    let own = "load_reports: {interval: 3s},";
    let at = "tidegate.models[0].load_reports.max_age";
    says("index: {}", own, WORKERS, at, words);
    let common = "load_reports: {timeout: 2s}";
    says(common, "", WORKERS, "tidegate.load_reports.timeout", "stale when it comes");
    assert_eq!(said("load_reports: {interval: 2s}", "", WORKERS), []);
}

#[test]
fn a_gate_or_a_shed_limit_without_reports_is_called_out() {
    let gate = "load_reports: {format: none}, cache_aware: {worker_queue_limit: 4},";
    let at = "tidegate.models[0].cache_aware.worker_queue_limit";
    says("index: {}", gate, WORKERS, at, "the gate lets everything pass");
    let shed = "load_reports: {format: none}, policy: least_load, shed_queue_limit: 4,";
    says("index: {}", shed, WORKERS, "tidegate.models[0].shed_queue_limit", "nothing is ever shed");
    assert_eq!(said("load_reports: {format: none}", "", WORKERS), []);
}

#[test]
fn a_floor_above_what_a_worker_may_have_in_flight_is_called_out() {
    let workers = "[{id: w0, url: \"http://127.0.0.1:1\", max_inflight: 3}]";
    let own = |floor| {
        format!("cache_aware: {{worker_queue_limit: {floor}, saturation_queue_floor: {floor}}},")
    };
    let at = "tidegate.models[0].cache_aware.saturation_queue_floor";
    says("index: {}", &own(4), workers, at, "`max_inflight` of `w0` (3)");
    assert_eq!(said("index: {}", &own(3), workers), []);
}

#[test]
fn guards_that_work_against_each_other_are_called_out() {
    let common = "health: {interval: 40s}";
    says(common, "", WORKERS, "tidegate.health.interval", "longer than `breaker.cool_down` (30s)");
    assert_eq!(said("health: {interval: 30s}", "", WORKERS), []);
    let idle = "timeouts: {worker_idle: 5s}";
    says(
        idle,
        "",
        WORKERS,
        "tidegate.timeouts.worker_idle",
        "engines close idle connections after 5s",
    );
    let blind = "health: {enabled: false}, load_reports: {format: none},";
    let at = "tidegate.models[0].health.enabled";
    says("index: {}", blind, WORKERS, at, "only failing requests tell");
}

#[test]
fn a_model_nobody_serves_and_layers_nobody_covers_are_called_out() {
    let drained = "[{id: w0, url: \"http://127.0.0.1:1\", state: draining}]";
    says("index: {}", "", drained, "tidegate.models[0].workers", "none of them takes new requests");
    let learned = "policy: learned, layers: 40,";
    let shards = |state| {
        format!(
            "[{{id: a, url: \"http://127.0.0.1:1\", last_layer: 21}}, \
              {{id: b, url: \"http://127.0.0.1:2\", first_layer: 22, state: {state}}}]"
        )
    };
    let at = "tidegate.models[0].workers";
    says("index: {}", learned, &shards("draining"), at, "nobody goes on at layer 22");
    assert_eq!(said("index: {}", learned, &shards("active")), []);
    let never = "policy: learned, layers: 40, learned: {explore_share: 0},";
    let at = "tidegate.models[0].learned.explore_share";
    says("index: {}", never, &shards("active"), at, "never measured");
}

#[test]
fn what_all_models_share_is_said_once_and_a_flag_is_named_as_the_place() {
    let yaml = format!(
        "tidegate:\n  timeouts: {{worker_idle: 9s}}\n  models: [{{name: a, workers: {WORKERS}}}, {{name: b, workers: {WORKERS}}}]\n"
    );
    assert_eq!(warnings(&yaml, &Overrides::default()).len(), 1);
    let yaml = format!(
        "tidegate:\n  load_reports: {{format: none}}\n  models: [{{name: a, workers: {WORKERS}}}]\n"
    );
    let limit = POLICY_SETTINGS.iter().find(|setting| setting.key == "worker_queue_limit").unwrap();
    let flags = Overrides::default().with_flag(limit, "4");
    assert_eq!(warnings(&yaml, &flags)[0].path, "--worker-queue-limit");
}

#[test]
fn the_files_we_ship_are_meant() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf");
    let mut seen = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|kind| kind != "yaml") {
            continue;
        }
        // Secrets are taken from there; settings of ours are not given.
        let secret = |name: &str| (!name.starts_with("TIDEGATE")).then(|| "x".to_owned());
        let overrides = Overrides::default().with_environment(secret);
        let config = Config::from_path(&path, &overrides).unwrap();
        assert!(config.warnings.is_empty(), "{}: {}", path.display(), config.warnings);
        seen += 1;
    }
    assert!(5 < seen);
}

#[test]
fn check_ends_well_and_says_it_on_stderr() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("edge.yaml");
    let yaml = format!(
        "tidegate:\n  timeouts: {{worker_idle: 9s}}\n  models: [{{name: m, workers: {WORKERS}}}]\n"
    );
    std::fs::write(&file, yaml).unwrap();
    let mut check: Command = command();
    let output = check.arg("check").arg("-c").arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "OK: 1 model, 1 worker\n");
    let warned = String::from_utf8(output.stderr).unwrap();
    assert!(
        warned.starts_with("warning: tidegate.timeouts.worker_idle: 9s: engines close"),
        "{warned}"
    );
}

#[tokio::test]
async fn the_running_edge_logs_it_and_shows_what_reports_reveal_beside_it() {
    let (engines, urls) = engines(1).await;
    // Computes two at once, so a floor of four calls a waiting batch idle.
    engines[0].set_load(Some(
        r#"{"loads": [{"dp_rank": 0, "num_running_reqs": 1, "num_waiting_reqs": 0, "num_used_tokens": 10,
            "max_total_num_tokens": 1000, "max_running_requests": 2}]}"#,
    ));
    let edge = Edge::start(&format!(
        "  timeouts: {{worker_idle: 9s}}\n  load_reports: {{interval: 20ms, format: get_load}}\n  models:\n    - name: m\n      \
         cache_aware: {{worker_queue_limit: 4, saturation_queue_floor: 4}}\n      workers: [{{id: w0, url: \"{}\"}}]\n",
        urls[0]
    ))
    .await;
    edge.reports_are("fresh").await;
    assert!(
        edge.log().contains("configuration: tidegate.timeouts.worker_idle: 9s"),
        "{}",
        edge.log()
    );
    let config = edge.admin("/v1/config").await.json();
    let paths: Vec<&str> = config["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| of["path"].as_str().unwrap())
        .collect();
    let floor = "tidegate.models[0].cache_aware.saturation_queue_floor";
    assert_eq!(paths, ["tidegate.timeouts.worker_idle", floor]);
}
