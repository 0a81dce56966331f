//! The Grafana dashboard and the Prometheus alerts name only what the edge exports, and mean
//! something to Prometheus, whose own tool says so.

#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tidegate::metrics::{
    Limited, Metrics, Outcome, PollResult, QueueOutcome, ReportState, RetryCause, RoutesView, Slow,
    WorkerView,
};
use tidegate::prompt::Dialect;
use tidegate_policy::decision::{CacheDecision, Decision, Reason};
use tidegate_policy::index::Cause;
use tidegate_policy::learned::{Mode, SampleResult};

/// Labels by series name.
type Exported = BTreeMap<String, BTreeSet<String>>;

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Everything on the page of an edge at which everything has happened once.
fn exported() -> Exported {
    let metrics = Metrics::new().unwrap();
    let worker = metrics.workers.worker("m", "w0");
    worker.show(&WorkerView {
        state: ReportState::Fresh,
        age: Some(Duration::from_secs(1)),
        waiting: Some(1),
        running: Some(1),
        kv_usage: Some(0.5),
        warmth: Some(0.5),
        ..WorkerView::default()
    });
    metrics.workers.bytes_per_token("m").set(4.0);
    metrics.requests.model("m").ended(Dialect::Chat, 200, Outcome::Ok);
    metrics.requests.retry(RetryCause::Connect);
    metrics.decisions.model("m", "cache_aware").book(&Decision {
        at: 0,
        reason: Reason::SaturationPin,
        cache: Some(CacheDecision::AllQueued),
        uncached_tokens: 0,
        trace: Default::default(),
    });
    let _ = metrics.routes.model("m");
    let tps = vec![("m | w0[0-0]".to_owned(), 1.0)];
    metrics.routes.show(&[RoutesView { model: "m".to_owned(), epoch: 1, tps }]);
    metrics.process.show_indexes(&[]);
    let _ = metrics.queue.model("m");
    let page = metrics.page().unwrap();
    let mut exported = Exported::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (series, _) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels = labels.trim_end_matches('}').split(',').filter_map(|l| l.split_once('='));
        let labels = labels.map(|(label, _)| label.to_owned());
        exported.entry(name.to_owned()).or_default().extend(labels);
    }
    // Dropped before this, it would have taken its series along.
    drop(worker);
    exported
}

/// Values of labels that are closed sets.
fn closed_sets() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let outcomes = Outcome::ALL.iter().map(|outcome| outcome.as_str());
    // Of requests, of polls, of waits at the edge.
    let outcomes = outcomes
        .chain(PollResult::ALL.iter().map(|result| result.as_str()))
        .chain(QueueOutcome::ALL.iter().map(|outcome| outcome.as_str()));
    BTreeMap::from([
        ("outcome", outcomes.collect()),
        ("state", ReportState::ALL.iter().map(|state| state.as_str()).collect()),
        ("reason", Reason::ALL.iter().map(|reason| reason.as_str()).collect()),
        ("decision", CacheDecision::ALL.iter().map(|decision| decision.as_str()).collect()),
        ("cause", Cause::ALL.iter().map(|cause| cause.as_str()).collect()),
        ("mode", Mode::ALL.iter().map(|mode| mode.as_str()).collect()),
        (
            "result",
            // Of reloads, of the pressure guard, of connections, of samples.
            ["applied", "rejected", "compared", "overridden"]
                .into_iter()
                .chain(Limited::ALL.iter().map(|result| result.as_str()))
                .chain(SampleResult::ALL.iter().map(|result| result.as_str()))
                .collect(),
        ),
        ("phase", Slow::ALL.iter().map(|phase| phase.as_str()).collect()),
        ("kind", BTreeSet::from(["prompt", "cached", "completion"])),
        ("path", Dialect::ALL.iter().map(|dialect| dialect.as_str()).collect()),
    ])
}

/// Every expression of the alerts, by its alert.
fn alert_expressions() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(file("conf/prometheus-alerts.yml")).unwrap();
    let rules: serde_yaml::Value = serde_yaml::from_str(&text).unwrap();
    let rules = rules["groups"][0]["rules"].as_sequence().unwrap();
    let text = |value: &serde_yaml::Value| value.as_str().unwrap().to_owned();
    rules.iter().map(|rule| (text(&rule["alert"]), text(&rule["expr"]))).collect()
}

/// Every expression of the dashboard, by its panel, with Grafana's variables filled in.
fn dashboard_expressions() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(file("conf/grafana-dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let annotations = dashboard["annotations"]["list"].as_array().unwrap();
    let mut found = Vec::new();
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let title = panel["title"].as_str().unwrap();
        for target in panel["targets"].as_array().unwrap() {
            found.push((title.to_owned(), target["expr"].as_str().unwrap().to_owned()));
        }
    }
    for annotation in annotations {
        found.push(("annotation".to_owned(), annotation["expr"].as_str().unwrap().to_owned()));
    }
    for (_, expression) in &mut found {
        for (variable, value) in [
            ("$__rate_interval", "1m"),
            ("$__interval", "15s"),
            ("$instance", ".*"),
            ("$model", ".*"),
        ] {
            *expression = expression.replace(variable, value);
        }
        assert!(!expression.contains('$'), "unknown variable in {expression}");
    }
    found
}

/// Names from a PromQL text: an identifier and what follows it.
fn identifiers(expression: &str) -> Vec<(&str, &str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphabetic() || c == '_') {
        let tail = &rest[start..];
        let end = tail.find(|c| !is_part(c)).unwrap_or(tail.len());
        found.push((&tail[..end], &tail[end..]));
        rest = &tail[end..];
    }
    found
}

/// What is wrong with an expression, as sentences.
fn faults(expression: &str, exported: &Exported) -> Vec<String> {
    let closed = closed_sets();
    let mut faults = Vec::new();
    // What the scrape adds.
    let mut known = BTreeSet::from(["job", "instance", "le"]);
    let mut groups = Vec::new();
    for (word, after) in identifiers(expression) {
        if word.starts_with("tidegate_") {
            let Some(labels) = exported.get(word) else {
                faults.push(format!("{word} is not exported"));
                continue;
            };
            known.extend(labels.iter().map(String::as_str));
            let matchers = after.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            for matcher in matchers.map_or("", |(inside, _)| inside).split(',') {
                let Some((label, value)) = matcher.split_once(['=', '!']) else { continue };
                if !labels.contains(label) && !["job", "instance"].contains(&label) {
                    faults.push(format!("{word} has no label {label}"));
                }
                let value = value.trim_matches(['=', '~', '"']);
                let Some(valid) = closed.get(label).filter(|_| value != ".*") else { continue };
                for value in value.split('|').filter(|value| !valid.contains(value)) {
                    faults.push(format!("{label} is never {value}"));
                }
            }
        } else if ["by", "on", "without", "ignoring"].contains(&word) {
            let list = after.trim_start().strip_prefix('(').and_then(|rest| rest.split_once(')'));
            groups.extend(list.map_or("", |(inside, _)| inside).split(',').map(str::trim));
        }
    }
    let unknown = groups.iter().filter(|label| !known.contains(**label));
    faults.extend(unknown.map(|label| format!("grouped by {label}, which nothing here has")));
    faults
}

#[test]
fn the_dashboard_and_the_alerts_use_only_what_the_edge_exports() {
    let exported = exported();
    let mut all = dashboard_expressions();
    all.extend(alert_expressions());
    assert!(!all.is_empty());
    let faults: Vec<String> = all
        .iter()
        .flat_map(|(name, expression)| {
            faults(expression, &exported).into_iter().map(move |fault| format!("{name}: {fault}"))
        })
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_dashboard_shows_every_family() {
    let shown: BTreeSet<String> = dashboard_expressions()
        .iter()
        .flat_map(|(_, text)| identifiers(text))
        .map(|(word, _)| word.trim_end_matches("_bucket").to_owned())
        .collect();
    let family = |name: &str| {
        let suffix = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        suffix.unwrap_or(name).to_owned()
    };
    let missing: BTreeSet<String> =
        exported().keys().map(|name| family(name)).filter(|name| !shown.contains(name)).collect();
    assert!(missing.is_empty(), "no panel has {missing:?}");
}

#[test]
fn a_wrong_name_label_value_or_group_is_noticed() {
    let exported = exported();
    for (expression, fault) in [
        ("rate(tidegate_request_total[5m])", "tidegate_request_total is not exported"),
        (r#"tidegate_in_flight{model="m"}"#, "tidegate_in_flight has no label model"),
        (r#"tidegate_report_state{state=~"fresh|old"}"#, "state is never old"),
        ("sum by (mode) (tidegate_in_flight)", "grouped by mode, which nothing here has"),
    ] {
        assert_eq!(faults(expression, &exported), [fault]);
    }
}

/// Runs Prometheus' own tool, which has to succeed.
fn promtool(arguments: &[&str], path: &Path) {
    let output = match Command::new("promtool").args(arguments).arg(path).output() {
        Ok(output) => output,
        Err(why) => panic!("promtool cannot be run ({why}): install the package `prometheus`"),
    };
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "promtool {arguments:?}: {out}{err}");
}

#[test]
fn every_alert_fires_in_its_situation_and_not_before() {
    promtool(&["check", "rules"], &file("conf/prometheus-alerts.yml"));
    promtool(&["test", "rules"], &file("tests/data/prometheus-alerts-test.yml"));
    let tests = std::fs::read_to_string(file("tests/data/prometheus-alerts-test.yml")).unwrap();
    for (alert, _) in alert_expressions() {
        let fires = format!("alertname: {alert}\n        exp_alerts:");
        assert!(tests.contains(&fires), "no test has {alert} fire");
    }
}

#[test]
fn prometheus_accepts_every_expression_of_the_dashboard() {
    let rules = dashboard_expressions();
    let rules: Vec<Value> = rules
        .iter()
        .enumerate()
        .map(|(at, (_, expr))| serde_json::json!({"record": format!("panel:{at}"), "expr": expr}))
        .collect();
    // JSON is YAML.
    let document = serde_json::json!({"groups": [{"name": "dashboard", "rules": rules}]});
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("dashboard.yml");
    std::fs::write(&path, document.to_string()).unwrap();
    promtool(&["check", "rules"], &path);
}
