use super::super::testing::{HYBRID, MIXED, SLOW, fleet, learn, routes};
use super::*;
use serde_json::json;

#[test]
fn the_header_has_the_names_of_the_contract_and_the_choice_only_if_it_is_another() {
    let shown = serde_json::to_value(Settings::default().shown()).unwrap();
    let four = json!({"explore_share": 0.3, "weight_alpha": 1.0, "stats_half_life_s": 600.0, "min_sample_tokens": 8});
    assert_eq!(shown, four);
    let settings = Settings { choice: Choice::Thompson, ..Settings::default() };
    assert_eq!(serde_json::to_value(settings.shown()).unwrap()["choice"], "thompson");
}

#[test]
fn a_row_has_the_names_of_the_contract() {
    let routes = routes(&MIXED);
    learn(&routes, HYBRID, 12.0, Millis(0));
    let table = routes.table(&fleet(&MIXED), Millis(0), &Settings::default());
    let table = serde_json::to_value(table).unwrap();
    assert_eq!((&table["model"], &table["topology_epoch"]), (&json!("m"), &json!(0)));
    let row = &table["candidates"][1];
    assert_eq!(
        row,
        &json!({
            "signature": HYBRID,
            "hops": [
                {"node": "gpu-a", "start_layer": 0, "end_layer": 21},
                {"node": "cpu-b", "start_layer": 22, "end_layer": 39},
            ],
            "prior_tps": 6.0, "tps": 12.0, "coefficient": 1.0, "expected_share": 0.7,
            "samples": 1, "weight": 1.0, "status": "proven",
        })
    );
}

#[test]
fn the_next_scout_of_the_table_is_the_next_one_of_the_choice() {
    let nodes = [MIXED[0], MIXED[1], ("cpu-z", 0, 39, 1.0, 0)];
    let routes = routes(&nodes);
    learn(&routes, HYBRID, 12.0, Millis(0));
    let (fleet, settings) = (fleet(&nodes), Settings::default());
    let share = |signature: &str| {
        let table = routes.table(&fleet, Millis(0), &settings);
        table.candidates.iter().find(|row| row.signature == signature).unwrap().expected_share
    };
    assert_eq!((share(SLOW), share("m | cpu-z[0-39]")), (0.3, 0.0));
    let draws = super::super::Draws { explore: 0.0, pick: 0.0 };
    let selection =
        routes.choose(&fleet, &Request::of_nobody(Millis(0)), &settings, draws).unwrap();
    assert_eq!(&*selection.signature, SLOW);
    let _ticket = routes.dispatched(&selection);
    assert_eq!((share(SLOW), share("m | cpu-z[0-39]")), (0.0, 0.3));
}
