//! `tidegate explain`: of scenarios it says what the decision vectors expect, of a live edge where a
//! request would go, without sending it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::Value;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use support::client::{chat, post};
use support::edge::{Edge, workers};
use support::engine::{Engine, Reply};

const VECTORS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/plugins/policy/testdata/cache_aware.json");
const COST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/plugins/policy/testdata/cost.json");

fn explain(args: &[&str]) -> Output {
    explain_from("", args)
}

fn explain_from(stdin: &str, args: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("explain")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may leave without reading; then there is nothing to write to.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    child.wait_with_output().unwrap()
}

fn vectors() -> Vec<Value> {
    vectors_of(VECTORS)
}

fn vectors_of(file: &str) -> Vec<Value> {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// `worker_in` and the reason `fallback` stand for several answers; the rest is exact.
fn agrees(key: &str, expected: &Value, said: &Value) -> bool {
    match key {
        "worker_in" => expected.as_array().unwrap().contains(&said["worker"]),
        "reason" if expected == "fallback" => {
            ["home", "least_load", "diverted"].iter().any(|reason| said["reason"] == *reason)
        }
        _ => said[key] == *expected,
    }
}

#[test]
fn every_vector_comes_out_as_expected() {
    assert_all_agree(VECTORS);
    assert_all_agree(COST);
}

fn assert_all_agree(file: &str) {
    let output = explain(&["--scenario", file, "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let said: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let vectors = vectors_of(file);
    assert_eq!(said.len(), vectors.len());
    for (vector, said) in vectors.iter().zip(&said) {
        assert_eq!(said["name"], vector["name"]);
        for (key, expected) in vector["expect"].as_object().unwrap() {
            assert!(
                agrees(key, expected, said),
                "{}: {key} is not {expected}: {said}",
                vector["name"]
            );
        }
    }
}

#[test]
fn one_scenario_and_json_lines_are_read_from_standard_input() {
    let vectors = vectors();
    let lines = format!("{}\n{}\n", vectors[0], vectors[1]);
    for (text, count) in [(vectors[0].to_string(), 1), (lines, 2)] {
        let output = explain_from(&text, &["--scenario", "-", "--json"]);
        assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), count);
    }
}

#[test]
fn a_person_is_shown_the_name_the_rungs_and_the_winner() {
    let output = explain_from(&vectors()[0].to_string(), &["--scenario", "-"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("# gate_rejects_the_deeper_owner: "), "{text}");
    assert!(text.contains("5 tournament      DECIDED  other is the only owner left"), "{text}");
    assert!(text.contains("\n=> other  cache_candidate (cache_hit)"), "{text}");
}

#[test]
fn a_bad_scenario_is_named_and_ends_with_2() {
    let bad = r#"{"name": "odd", "rules": {"saturation_queue_floor": 1},
        "request": {"input_tokens": 1}, "workers": []}"#;
    let output = explain_from(bad, &["--scenario", "-"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("odd") && said.contains("saturation_queue_floor"), "{said}");
}

#[test]
fn bad_usage_ends_with_2() {
    for args in [&[][..], &["--scenario", "/no/such/file"], &["--admin", "http://127.0.0.1:1"]] {
        assert_eq!(explain(args).status.code(), Some(2), "{args:?}");
    }
    let wrong = ["--admin", "ftp://127.0.0.1:1", "--request", "-"];
    assert_eq!(explain(&wrong).status.code(), Some(2));
}

#[test]
fn an_edge_that_is_not_there_ends_with_1() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{closed}");
    let output = explain(&["--admin", &url, "--request", "-"]);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn a_live_edge_tells_who_owns_the_prompt_and_sends_nothing() {
    let engines = [Engine::start().await, Engine::start().await];
    for engine in &engines {
        engine.set_queue(0, 0);
        engine.answer(|_| Reply::completion());
    }
    let urls: Vec<String> = engines.iter().map(Engine::url).collect();
    let edge = Edge::start(&format!(
        "  load_reports: {{interval: 20ms, format: get_load}}\n  models:\n    - name: m\n      policy: cache_aware\n      \
         cache_aware: {{worker_queue_limit: 4, min_matched_tokens: 256}}\n      workers:\n{}",
        workers(&urls)
    ))
    .await;
    edge.reports_are("fresh").await;
    let prompt = chat("m", &"the quick brown fox jumps over the lazy dog ".repeat(300));
    let first = post(edge.traffic, "/v1/chat/completions", &prompt).await;
    let owner = first.header("x-tidegate-worker").unwrap().to_owned();

    let url = format!("http://{}", edge.admin);
    let asked = |body: String, json: Option<&'static str>| {
        let url = url.clone();
        let args = move || {
            let args = ["--admin", &url, "--request", "-"];
            explain_from(&body, &args.into_iter().chain(json).collect::<Vec<_>>())
        };
        tokio::task::spawn_blocking(args)
    };
    let output = asked(prompt.clone(), None).await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains(&format!("\n=> {owner}  cache_candidate (cache_hit)")), "{text}");
    assert!(text.contains("gate off:      the same"), "{text}");

    let output = asked(prompt, Some("--json")).await.unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["winner"]["worker"], owner.as_str());
    assert_eq!(said["candidates"][0]["report"]["state"], "fresh");

    let output = asked(chat("none", "hello"), None).await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("the model `none` does not exist"));

    let decisions = edge.admin("/v1/decisions").await.json();
    assert_eq!(decisions["decisions"].as_array().unwrap().len(), 1, "only the request itself");
}
