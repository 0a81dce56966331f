//! Both selections as data: every scenario of the decision vectors, every field they name.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Map, Value};
use tidegate_policy::scenario::{Scenario, read};

const LADDER: &str = include_str!("../testdata/cache_aware.json");
const COST: &str = include_str!("../testdata/cost.json");

/// What a scenario expects and does not get.
fn complaints(scenario: &Scenario) -> Vec<String> {
    let outcome = scenario.run();
    let Value::Object(got) = serde_json::to_value(&outcome).unwrap() else { unreachable!() };
    let wrong = |(key, want): &(&String, &Value)| !agrees(key, want, &got);
    let complain = |(key, want): (&String, &Value)| {
        format!(
            "{}: {key}: want {want}, got {:?}",
            scenario.name(),
            got.get(key).or(got.get("worker"))
        )
    };
    scenario.expect().iter().filter(wrong).map(complain).collect()
}

fn agrees(key: &str, want: &Value, got: &Map<String, Value>) -> bool {
    match key {
        "worker_in" => want.as_array().unwrap().contains(&got["worker"]),
        "reason" if want == "fallback" => {
            ["home", "least_load", "diverted"].contains(&got["reason"].as_str().unwrap())
        }
        _ => got.get(key) == Some(want),
    }
}

fn assert_all_agree(text: &str, count: usize) {
    let scenarios = read(text).unwrap();
    assert_eq!(scenarios.len(), count);
    let complaints: Vec<String> = scenarios.iter().flat_map(complaints).collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn every_vector_of_the_ladder_agrees_in_every_field() {
    assert_all_agree(LADDER, 41);
}

#[test]
fn every_vector_of_cost_selection_agrees_in_every_field() {
    assert_all_agree(COST, 18);
}

#[test]
fn a_wrong_expectation_would_be_noticed() {
    for text in [
        LADDER.replace("\"cache_hit\"", "\"cache_miss\""),
        COST.replace("104916", "104917"),
        COST.replace("\"mean_line\": 57666", "\"mean_line\": 57667"),
    ] {
        let complaints: Vec<String> = read(&text).unwrap().iter().flat_map(complaints).collect();
        assert!(!complaints.is_empty());
    }
}
