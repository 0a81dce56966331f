use super::*;
use serde_json::json;

fn one() -> Value {
    json!({
        "name": "n", "model": "m", "first_layer": 0, "last_layer": 3,
        "nodes": [{"id": "a", "first_layer": 0, "last_layer": 3, "tps": 5.0}],
        "steps": [{"op": "table", "at_s": 1}]
    })
}

fn with(pointer: &str, value: Value) -> String {
    let mut scenario = one();
    *scenario.pointer_mut(pointer).unwrap() = value;
    scenario.to_string()
}

fn with_step(step: Value) -> String {
    let mut scenario = one();
    scenario["steps"].as_array_mut().unwrap().push(step);
    scenario.to_string()
}

fn complaint(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

#[test]
fn one_a_list_and_json_lines_are_read_and_nothing_is_refused() {
    let one = one();
    assert_eq!(read(&one.to_string()).unwrap().len(), 1);
    assert_eq!(read(&format!("[{one}, {one}]")).unwrap().len(), 2);
    assert_eq!(read(&format!("{one}\n\n{one}\n")).unwrap().len(), 2);
    assert_eq!(complaint("[]"), "no scenario in it");
}

#[test]
fn unknown_keys_are_refused_by_name_wherever_they_are() {
    let mut top = one();
    top["surplus"] = json!(1);
    let mut config = one();
    config["config"] = json!({"surplus": 1});
    let mut node = one();
    node["nodes"][0]["surplus"] = json!(1);
    for text in [
        top.to_string(),
        config.to_string(),
        node.to_string(),
        with_step(json!({"op": "prune", "at_s": 1, "surplus": 1})),
        with_step(json!({"op": "prune", "at_s": 1, "expect": {"surplus": 1}})),
        with_step(json!({"op": "surplus", "at_s": 1})),
    ] {
        let complaint = complaint(&text);
        assert!(complaint.contains("`n`") && complaint.contains("surplus"), "{complaint}");
    }
}

#[test]
fn settings_that_could_not_be_configured_are_refused_by_name() {
    for (key, value) in [
        ("explore_share", json!(1.1)),
        ("weight_alpha", json!(-1)),
        ("stats_half_life", json!(0)),
        ("prune_after", json!(-5)),
        ("max_candidates", json!(0)),
        ("max_candidates", json!(65)),
    ] {
        let mut scenario = one();
        scenario["config"] = json!({key: value});
        let complaint = complaint(&scenario.to_string());
        assert!(complaint.contains(key), "{complaint}");
    }
}

#[test]
fn steps_that_cannot_happen_are_refused_by_number_and_key() {
    let choose = |u: f64| json!({"op": "choose", "at_s": 1, "u_explore": 0.1, "u_pick": u});
    let record = |epoch: u64| json!({"op": "record", "at_s": 1, "signature": "s", "tokens": 9, "seconds": 1, "epoch": epoch});
    for (text, part) in [
        (with_step(json!({"op": "table", "at_s": 0.5})), "step 2: at_s"),
        (with_step(json!({"op": "table", "at_s": -1})), "step 2: at_s"),
        (with_step(choose(1.5)), "step 2: u_pick"),
        (with_step(record(1)), "step 2: epoch"),
    ] {
        let complaint = complaint(&text);
        assert!(complaint.contains(part), "{complaint}");
    }
    assert!(read(&with_step(record(0))).is_ok());
}

#[test]
fn nodes_and_layers_that_are_none_are_refused() {
    let node = json!({"id": "a", "first_layer": 0, "last_layer": 3, "tps": 5.0});
    for (text, part) in [
        (with("/last_layer", json!(2)), "the model has 0-2"),
        (with("/first_layer", json!(4)), "last_layer must not come before first_layer"),
        (with("/nodes/0/first_layer", json!(4)), "last_layer of a node"),
        (with("/nodes/0/tps", json!(0)), "tps of node `a`"),
        (with("/nodes", json!([node, node])), "`a` is there twice"),
    ] {
        let complaint = complaint(&text);
        assert!(complaint.contains(part), "{complaint}");
    }
}

#[test]
fn new_nodes_are_a_new_epoch_even_if_they_are_the_old_ones() {
    let nodes = one()["nodes"].clone();
    let text = with_step(json!({"op": "nodes", "at_s": 2, "nodes": nodes}));
    let results = read(&text).unwrap()[0].run();
    assert_eq!(results[1], StepResult::Nodes { topology_epoch: 1 });
}

#[test]
fn an_expected_null_is_told_from_none() {
    let choose = json!({"op": "choose", "at_s": 1, "u_explore": 0, "u_pick": 0});
    let mut with_null = choose.clone();
    with_null["expect"] = Value::Null;
    let expect = |step: Value| read(&with_step(step)).unwrap()[0].steps()[1].expect.clone();
    assert_eq!((expect(choose), expect(with_null)), (None, Some(Value::Null)));
}

#[test]
fn foreign_bytes_never_panic() {
    let text = one().to_string();
    for end in 0..text.len() {
        let _ = read(&text[..end]);
    }
    assert!(read(&"[".repeat(100_000)).is_err());
}
