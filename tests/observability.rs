//! The reference of metrics has what the edge exports and nothing else; the Grafana dashboard and the
//! Prometheus alerts name only that, and mean something to Prometheus, whose own tool says so.

#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use tidegate::metrics::{Family, Metrics, Outcome, RetryCause, WorkerView};
use tidegate::prompt::Dialect;
use tidegate_policy::decision::{CacheDecision, Decision, Reason};

/// Labels by series name, and of each the values there are, if they are a closed set.
struct Exported {
    labels: BTreeMap<String, BTreeSet<String>>,
    values: BTreeMap<(String, String), BTreeSet<String>>,
}

/// Labels whose values are the operator's own words.
const OWN_WORDS: [&str; 4] = ["model", "worker", "policy", "signature"];

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// All there is, from an edge at which everything has happened.
fn exported() -> Exported {
    let metrics = Metrics::new().unwrap();
    let mut labels = BTreeMap::new();
    for family in metrics.families() {
        let ends: &[&str] = match family.kind {
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        let of: BTreeSet<String> = family.labels.iter().cloned().collect();
        labels.extend(ends.iter().map(|end| (format!("{}{end}", family.name), of.clone())));
    }
    let mut values: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for line in everything_happened(&metrics).lines().filter(|line| !line.starts_with('#')) {
        let (series, _) = line.rsplit_once(' ').unwrap();
        let Some((name, pairs)) = series.split_once('{') else { continue };
        for pair in pairs.trim_end_matches('}').split(',') {
            let (label, value) = pair.split_once('=').unwrap();
            if label != "le" && !OWN_WORDS.contains(&label) {
                let of = values.entry((name.to_owned(), label.to_owned())).or_default();
                of.insert(value.trim_matches('"').to_owned());
            }
        }
    }
    for (series, labels) in &labels {
        for label in labels.iter().filter(|label| !OWN_WORDS.contains(&label.as_str())) {
            let of = (series.clone(), label.clone());
            assert!(values.contains_key(&of), "{of:?} has to happen in everything_happened");
        }
    }
    Exported { labels, values }
}

/// The page of an edge at which everything has happened once.
fn everything_happened(metrics: &Metrics) -> String {
    let worker = metrics.workers.worker("m", "w0");
    worker.show(&WorkerView::default());
    let requests = metrics.requests.model("m");
    for dialect in Dialect::ALL {
        for outcome in Outcome::ALL {
            // 0: none was sent.
            (0..=5).for_each(|class| requests.ended(dialect, 100 * class, outcome));
        }
    }
    RetryCause::ALL.into_iter().for_each(|cause| metrics.requests.retry(cause));
    let decisions = metrics.decisions.model("m", "cache_aware");
    let causes = CacheDecision::ALL.into_iter().map(Some).cycle();
    let enough = Reason::ALL.len().max(CacheDecision::ALL.len());
    for (reason, cache) in Reason::ALL.into_iter().cycle().zip(causes).take(enough) {
        let trace = Default::default();
        decisions.book(&Decision { at: 0, reason, cache, uncached_tokens: 0, trace });
    }
    let _ = (metrics.routes.model("m"), metrics.queue.model("m"));
    metrics.process.show_indexes(&[]);
    metrics.page().unwrap()
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
    let mut faults = Vec::new();
    // What the scrape adds.
    let mut known = BTreeSet::from(["job", "instance", "le"]);
    let mut groups = Vec::new();
    for (word, after) in identifiers(expression) {
        if word.starts_with("tidegate_") {
            let Some(labels) = exported.labels.get(word) else {
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
                let valid = exported.values.get(&(word.to_owned(), label.to_owned()));
                let Some(valid) = valid.filter(|_| value != ".*") else { continue };
                for value in value.split('|').filter(|value| !valid.contains(*value)) {
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
    let metrics = Metrics::new().unwrap();
    let names = metrics.families().iter().map(|family| &family.name);
    let missing: Vec<&String> = names.filter(|name| !shown.contains(*name)).collect();
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

const REFERENCE: &str = include_str!("../conf/metrics.md");

/// Words between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Cells of a table's line.
fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

/// What a name says of the unit.
fn unit(name: &str) -> Option<&'static str> {
    let words = [("_seconds", "seconds"), ("_ratio", "0 to 1"), ("tokens_total", "tokens")];
    words.into_iter().find_map(|(part, unit)| name.contains(part).then_some(unit))
}

#[test]
fn the_reference_has_every_metric_with_its_type_labels_unit_and_meaning() {
    let metrics = Metrics::new().unwrap();
    let row = |family: &Family, unit: &str| {
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let (labels, Family { name, kind, help, .. }) = (labels.join(", "), family);
        format!("| `{name}` | {kind} | {labels} | {unit} | {help} |").replace("  ", " ")
    };
    let lines = REFERENCE.lines().filter(|line| line.starts_with("| `tidegate_"));
    let mut written: BTreeMap<&str, &str> = lines.map(|line| (quoted(line)[0], line)).collect();
    for family in metrics.families() {
        let line = written.remove(family.name.as_str()).unwrap_or_default();
        let own = cells(line).get(3).copied().unwrap_or("?");
        let expected = row(family, unit(&family.name).unwrap_or(own));
        assert_eq!(line, expected, "conf/metrics.md has not what the edge exports");
        assert!(!["", "?"].contains(&own), "no unit: {line}");
    }
    assert!(written.is_empty(), "conf/metrics.md has what the edge does not: {written:?}");
}

#[test]
fn the_reference_has_every_value_of_every_label() {
    let mut written: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    let mut of = Vec::new();
    for line in REFERENCE.lines() {
        if line.starts_with('#') {
            let words = quoted(line);
            let (label, families) = words.split_first().unwrap_or((&"", &[]));
            of = families.iter().map(|family| (family.to_string(), label.to_string())).collect();
        } else if line.starts_with("| `") && !of.is_empty() {
            let (value, meaning) = (quoted(line)[0], cells(line)[1]);
            assert!(!meaning.is_empty(), "{line}");
            of.iter().for_each(|of| {
                written.entry(of.clone()).or_default().insert(value.to_owned());
            });
        }
    }
    assert_eq!(written, exported().values);
}
