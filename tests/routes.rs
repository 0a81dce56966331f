//! `tidegate routes`: scenarios through the command.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::Value;
use std::io::Write;
use std::process::{Output, Stdio};
use support::edge::command;

/// The vectors of the policy crate; the library's own test says that they agree in every step.
const VECTORS: &str = include_str!("../plugins/policy/testdata/learned_routes.json");

fn routes(input: &str, flags: &[&str]) -> Output {
    let mut child = command()
        .args(["routes", "--scenario", "-"])
        .args(flags)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn stdout(output: Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Is it the same, numbers to 1e-6?
fn is_near(want: &Value, got: &Value) -> bool {
    match (want, got) {
        (Value::Object(want), Value::Object(got)) => {
            want.len() == got.len()
                && want.iter().all(|(key, want)| got.get(key).is_some_and(|got| is_near(want, got)))
        }
        (Value::Array(want), Value::Array(got)) => {
            want.len() == got.len() && want.iter().zip(got).all(|(want, got)| is_near(want, got))
        }
        (Value::Number(want), Value::Number(got)) => {
            (want.as_f64().unwrap() - got.as_f64().unwrap()).abs() <= 1e-6
        }
        _ => want == got,
    }
}

#[test]
fn every_vector_agrees_through_the_command() {
    let scenarios: Vec<Value> = serde_json::from_str(VECTORS).unwrap();
    let json = stdout(routes(VECTORS, &["--json"]));
    let lines: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), scenarios.len());
    for (scenario, line) in scenarios.iter().zip(&lines) {
        assert_eq!(line["name"], scenario["name"]);
        let steps = scenario["steps"].as_array().unwrap();
        let results = line["steps"].as_array().unwrap();
        assert_eq!(results.len(), steps.len(), "{}", scenario["name"]);
        for (step, result) in steps.iter().zip(results) {
            let want = step.get("expect").unwrap_or(result);
            assert!(is_near(want, result), "{}: want {want}, got {result}", scenario["name"]);
        }
    }
}

#[test]
fn the_text_says_what_is_computed_where_and_why_a_sample_was_no_use() {
    let text = stdout(routes(VECTORS, &[]));
    for part in [
        "# traffic_follows_measured_speed: 3:2 measured speed",
        "gpu-a[0-21] -> cpu-b[0-39]  0-21, 22-39",
        "60.0 %",
        "=> exploit: cpu-b[0-39]",
        "1 token in 0.001 s => short",
        "100 tokens in 10 s => stale_epoch",
        "=> nowhere: 503 no_route",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
}

#[test]
fn one_scenario_and_json_lines_are_read_too() {
    let scenarios: Vec<Value> = serde_json::from_str(VECTORS).unwrap();
    let lines: String = scenarios.iter().map(|scenario| format!("{scenario}\n")).collect();
    let all = stdout(routes(VECTORS, &["--json"]));
    assert_eq!(stdout(routes(&lines, &["--json"])), all);
    assert_eq!(
        stdout(routes(&scenarios[0].to_string(), &["--json"])).lines().next(),
        all.lines().next()
    );
}

#[test]
fn what_is_no_scenario_is_bad_usage_and_named() {
    for (input, part) in [
        ("{}", "model"),
        (r#"{"name": "n", "model": "m", "last_layer": 3, "nodes": [], "surplus": 1}"#, "surplus"),
        ("", "no scenario"),
    ] {
        let output = routes(input, &["--json"]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(part) && output.stdout.is_empty(), "{stderr}");
    }
    let missing =
        command().args(["routes", "--scenario", "/nowhere/routes.json"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("/nowhere/routes.json"));
}
