use super::*;
use crate::rules::{CostRules, Selection};

const ONE: &str = r#"{"name": "n", "request": {"input_tokens": 100},
 "workers": [{"id": "a", "load": null}]}"#;

fn one(text: &str) -> Scenario {
    read(text).unwrap().remove(0)
}

fn complaint(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

/// The scenario with one more top-level key, or with this one replaced.
fn with(key: &str, value: &str) -> String {
    let mut scenario: Value = serde_json::from_str(ONE).unwrap();
    scenario[key] = serde_json::from_str(value).unwrap();
    scenario.to_string()
}

#[test]
fn one_a_list_and_json_lines_are_read() {
    assert_eq!(read(ONE).unwrap().len(), 1);
    assert_eq!(read(&format!("[{ONE}, {ONE}]")).unwrap().len(), 2);
    let line = ONE.replace('\n', "");
    assert_eq!(read(&format!("{line}\n\n{line}\n{line}\n")).unwrap().len(), 3);
}

#[test]
fn nothing_and_no_json_are_refused() {
    assert_eq!(complaint(""), "no scenario in it");
    assert_eq!(complaint("[]"), "no scenario in it");
    assert!(complaint("{").contains("line 1"));
    assert!(read("7").is_err());
}

#[test]
fn unknown_keys_are_refused_by_name_wherever_they_are() {
    for text in [
        with("surplus", "1"),
        with("rules", r#"{"surplus": 1}"#),
        with("request", r#"{"input_tokens": 1, "surplus": 1}"#),
        with("workers", r#"[{"id": "a", "surplus": 1}]"#),
        with("workers", r#"[{"id": "a", "load": {"surplus": 1}}]"#),
        with("workers", r#"[{"id": "a", "inflight": {"surplus": 1}}]"#),
        with("workers", r#"[{"id": "a", "ledger": {"outstanding_tokens": 1, "surplus": 1}}]"#),
        with("candidates", r#"[{"id": "a", "uncached_tokens": 1, "blocks": 1, "surplus": 1}]"#),
        with("expect", r#"{"surplus": 1}"#),
    ] {
        let complaint = complaint(&text);
        assert!(complaint.contains("`n`") && complaint.contains("surplus"), "{complaint}");
    }
}

#[test]
fn a_rule_of_the_other_selection_is_refused_by_name() {
    let text = with("rules", r#"{"selection": "cost", "pin_order": "locality"}"#);
    assert_eq!(complaint(&text), "scenario `n`: pin_order belongs to `selection: ladder`");
    let text = with("rules", r#"{"worker_queue_limit": 8, "price_worker": 4}"#);
    assert_eq!(complaint(&text), "scenario `n`: price_worker belongs to `selection: cost`");
}

#[test]
fn without_a_gate_the_selection_is_cost_unless_it_is_said() {
    let selection = |rules: &str| one(&with("rules", rules)).rules().selection.as_str();
    assert_eq!(selection("{}"), "cost");
    assert_eq!(selection(r#"{"worker_queue_limit": null}"#), "cost");
    assert_eq!(selection(r#"{"worker_queue_limit": 8}"#), "ladder");
    assert_eq!(selection(r#"{"selection": "ladder"}"#), "ladder");
    let both = r#"{"selection": "cost", "worker_queue_limit": 8}"#;
    assert!(complaint(&with("rules", both)).contains("worker_queue_limit belongs to"));
}

#[test]
fn rules_that_could_not_be_configured_are_refused_by_name() {
    for (rules, key) in [
        (r#"{"worker_queue_limit": 0}"#, "worker_queue_limit"),
        (r#"{"saturation_queue_floor": 1}"#, "saturation_queue_floor needs worker_queue_limit"),
        (r#"{"worker_queue_limit": 4, "saturation_queue_floor": 0}"#, "saturation_queue_floor"),
        (r#"{"worker_queue_limit": 4, "saturation_queue_floor": 5}"#, "saturation_queue_floor"),
        (r#"{"min_load_choices": 0}"#, "min_load_choices"),
        (r#"{"min_match_ratio": 1.5}"#, "min_match_ratio"),
        (r#"{"candidate_ratio": -0.1}"#, "candidate_ratio"),
        (r#"{"candidate_min_workers": 0}"#, "candidate_min_workers"),
        (r#"{"candidate_max_workers": 33}"#, "candidate_max_workers"),
        (r#"{"pressure_rel": 1}"#, "pressure_rel"),
        (r#"{"price_worker": 65}"#, "price_worker must be within 0 and 64"),
        (r#"{"price_worker": 0}"#, "price_worker must be above 0"),
        (r#"{"price_fleet": -1}"#, "price_fleet"),
        (r#"{"tie_percent": 21}"#, "tie_percent"),
        (r#"{"speed_snap": 0.5}"#, "speed_snap"),
        (r#"{"home_bonus": 1}"#, "home_bonus"),
        (r#"{"home_bonus_foreign": 0.8}"#, "home_bonus_foreign must be below 1 together"),
    ] {
        let complaint = complaint(&with("rules", rules));
        assert!(complaint.contains(key), "{complaint}");
    }
}

#[test]
fn a_floor_as_high_as_the_limit_is_allowed() {
    let scenario = one(&with("rules", r#"{"worker_queue_limit": 4, "saturation_queue_floor": 4}"#));
    assert_eq!(scenario.rules().saturation_queue_floor, std::num::NonZeroU64::new(4));
}

#[test]
fn absent_rules_have_their_defaults() {
    let cost = Selection::Cost(CostRules::default());
    assert_eq!(one(ONE).rules(), &Rules { selection: cost, ..Rules::default() });
    let ladder = one(&with("rules", r#"{"selection": "ladder"}"#));
    assert_eq!(ladder.rules(), &Rules::default());
    let off = one(&with("rules", r#"{"min_matched_tokens": null}"#));
    assert_eq!(off.rules().min_matched_tokens, None);
}

#[test]
fn names_that_are_there_twice_and_strangers_are_refused() {
    let owner = r#"{"id": "a", "uncached_tokens": 1, "blocks": 1}"#;
    assert!(complaint(&with("candidates", &format!("[{owner},{owner}]"))).contains("twice"));
    assert!(complaint(&with("workers", r#"[{"id": "a"}, {"id": "a"}]"#)).contains("twice"));
    let stranger = r#"[{"id": "z", "uncached_tokens": 1, "blocks": 1}]"#;
    assert!(complaint(&with("candidates", stranger)).contains("candidate `z` is not among"));
    let homeless = with("request", r#"{"input_tokens": 1, "home": "z"}"#);
    assert!(complaint(&homeless).contains("home `z` is not among"));
}

#[test]
fn wrong_kinds_of_values_are_refused() {
    for text in [
        with("request", r#"{"input_tokens": -1}"#),
        with("rules", r#"{"selection": "best"}"#),
        with("workers", r#"[{"id": "a", "role": "chef"}]"#),
        with("workers", r#"[{"id": "a", "load": {"waiting": 1.5}}]"#),
        with("workers", "7"),
    ] {
        assert!(matches!(read(&text), Err(ScenarioError::Form { .. })), "{text}");
    }
}

#[test]
fn nobody_routable_is_null() {
    let outcome = one(&with("workers", r#"[{"id": "a", "routable": false}]"#)).run();
    assert_eq!((outcome.worker, outcome.reason, outcome.decision), (None, None, None));
    assert_eq!(one(&with("workers", "[]")).run().worker, None);
}

#[test]
fn a_worker_of_another_model_is_not_in_the_fleet() {
    let workers = r#"[{"id": "a", "model": "m"}, {"id": "b", "model": "o"}, {"id": "c"}]"#;
    let ids = |text: &str| {
        one(text).fleet().workers().iter().map(|w| w.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&with("workers", workers)), ["c"]);
    let mut named: Value = serde_json::from_str(&with("workers", workers)).unwrap();
    named["request"]["model"] = "m".into();
    assert_eq!(ids(&named.to_string()), ["a", "c"]);
}

#[test]
fn every_field_of_an_outcome_is_named() {
    let Value::Object(fields) = serde_json::to_value(one(ONE).run()).unwrap() else {
        unreachable!()
    };
    let mut names = Outcome::FIELDS.to_vec();
    names.sort_unstable();
    assert_eq!(fields.keys().map(String::as_str).collect::<Vec<_>>(), names);
}

#[test]
fn foreign_bytes_never_panic() {
    for end in 0..ONE.len() {
        let _ = read(&ONE[..end]);
    }
    assert!(read(&"[".repeat(100_000)).is_err());
}
