//! The decisions as data: every scenario of the vectors, every field they name.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Map, Value};
use tidegate_policy::scenario::routes::{self, RouteScenario};
use tidegate_policy::scenario::{Scenario, read};

const LADDER: &str = include_str!("../testdata/cache_aware.json");
const COST: &str = include_str!("../testdata/cost.json");
const ROUTES: &str = include_str!("../testdata/learned_routes.json");

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

/// The steps of a scenario that come out otherwise than expected.
fn wrong_steps(scenario: &RouteScenario) -> Vec<String> {
    let results = scenario.run();
    assert_eq!(results.len(), scenario.steps().len());
    let mut wrong = Vec::new();
    for (number, (step, result)) in (1..).zip(scenario.steps().iter().zip(&results)) {
        let got = serde_json::to_value(result).unwrap();
        let Some(want) = step.expect.as_ref().filter(|want| !is_near(want, &got)) else { continue };
        wrong.push(format!("{}: step {number}: want {want}, got {got}", scenario.name()));
    }
    wrong
}

#[test]
fn every_vector_of_learned_routes_agrees_in_every_step() {
    let scenarios = routes::read(ROUTES).unwrap();
    assert_eq!(scenarios.len(), 14);
    let expectations = |scenario: &RouteScenario| {
        scenario.steps().iter().filter(|step| step.expect.is_some()).count()
    };
    assert_eq!(scenarios.iter().map(expectations).sum::<usize>(), 47);
    let wrong: Vec<String> = scenarios.iter().flat_map(wrong_steps).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_wrong_expectation_of_learned_routes_would_be_noticed() {
    for (right, wrong) in [
        ("0.666667", "0.66667"),
        ("\"scout\"", "\"exploit\""),
        ("\"accepted\": false", "\"accepted\": true"),
        ("\"start_layer\": 22", "\"start_layer\": 0"),
        ("\"expect\": null", "\"expect\": {\"mode\": \"exploit\"}"),
    ] {
        let text = ROUTES.replace(right, wrong);
        let wrong = routes::read(&text).unwrap().iter().flat_map(wrong_steps).count();
        assert!(0 < wrong, "{right}");
    }
}
