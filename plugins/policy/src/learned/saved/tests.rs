use super::super::testing::{HYBRID, MIXED, SLOW, fleet, learn, routes, topology};
use super::*;

const NOW: Millis = Millis(10_000_000);

fn settings() -> Settings {
    Settings::default()
}

fn row(routes: &Routes, signature: &str, now: Millis) -> (Option<f64>, f64, &'static str) {
    let table = routes.table(&fleet(&MIXED), now, &settings());
    let row = table.candidates.into_iter().find(|row| row.signature == signature).unwrap();
    (row.tps, row.weight, row.status)
}

#[test]
fn another_process_goes_on_where_this_one_was_though_its_clock_starts_anew() {
    let old = routes(&MIXED);
    old.change_topology(topology(&MIXED));
    learn(&old, HYBRID, 12.0, Millis(NOW.0 - 600_000));
    let saved = old.export(NOW);
    let text = serde_json::to_string(&saved).unwrap();
    let new = routes(&MIXED);
    let saved: Saved = serde_json::from_str(&text).unwrap();
    assert_eq!(new.import(&saved, Millis(5), &settings()), 1);
    assert_eq!(row(&new, HYBRID, Millis(5)), (Some(12.0), 0.5, "proven"));
    assert_eq!(row(&new, HYBRID, Millis(5)), row(&old, HYBRID, NOW));
    assert_eq!(new.topology().epoch(), 1);
}

#[test]
fn what_comes_from_other_nodes_is_stale() {
    let old = routes(&[MIXED[1]]);
    learn(&old, SLOW, 8.0, NOW);
    let new = routes(&MIXED);
    learn(&new, HYBRID, 12.0, NOW);
    new.import(&old.export(NOW), NOW, &settings());
    assert_eq!(row(&new, SLOW, NOW), (Some(8.0), 1.0, "stale"));
    assert_eq!(row(&new, HYBRID, NOW), (Some(12.0), 1.0, "proven"));
}

#[test]
fn arms_that_both_know_merge_by_decayed_weight() {
    let (one, other) = (routes(&MIXED), routes(&MIXED));
    learn(&one, SLOW, 10.0, Millis(NOW.0 - 600_000));
    learn(&other, SLOW, 40.0, NOW);
    one.import(&other.export(NOW), NOW, &settings());
    // Half a sample of 10 and one of 40.
    assert_eq!(row(&one, SLOW, NOW), (Some(30.0), 1.5, "proven"));
}

#[test]
fn the_newer_topology_wins_where_they_differ() {
    let (one, other) = (routes(&MIXED), routes(&MIXED));
    learn(&other, SLOW, 40.0, NOW);
    other.change_topology(topology(&MIXED));
    learn(&one, SLOW, 10.0, NOW);
    one.import(&other.export(NOW), NOW, &settings());
    assert_eq!(row(&one, SLOW, NOW), (Some(10.0), 1.0, "proven"));
}

#[test]
fn what_is_no_measurement_is_left_out_and_nothing_overflows() {
    let arm = |mean, mass, age_ms, epoch| SavedArm {
        signature: SLOW.to_owned(),
        mean,
        mass,
        age_ms,
        samples: u64::MAX,
        epoch,
    };
    for bad in [
        arm(f64::NAN, 1.0, 0, 0),
        arm(0.0, 1.0, 0, 0),
        arm(-1.0, 1.0, 0, 0),
        arm(f64::INFINITY, 1.0, 0, 0),
        arm(1.0, f64::INFINITY, 0, 0),
        arm(1e300, 1.0, 0, 0),
        arm(1.0, f64::NAN, 0, 0),
        arm(1.0, -1.0, 0, 0),
    ] {
        let routes = routes(&MIXED);
        let saved = Saved { epoch: 0, nodes: Vec::new(), arms: vec![bad] };
        assert_eq!(routes.import(&saved, NOW, &settings()), 0, "{saved:?}");
    }
    let routes = routes(&MIXED);
    let mut saved = routes.export(NOW);
    (saved.epoch, saved.arms) = (u64::MAX, vec![arm(1e9, 1e12, u64::MAX, u64::MAX); 2]);
    routes.import(&saved, NOW, &settings());
    learn(&routes, SLOW, 8.0, NOW);
    assert_eq!(row(&routes, SLOW, NOW), (Some(8.0), 1.0, "proven"));
    assert_eq!(routes.change_topology(topology(&MIXED)), u64::MAX);
}

#[test]
fn a_file_with_more_arms_than_there_is_room_for_is_cut() {
    let routes = routes(&MIXED);
    let mut saved = routes.export(NOW);
    saved.arms = (0..1_000)
        .map(|number| SavedArm {
            signature: number.to_string(),
            mean: 1.0,
            mass: 1.0,
            age_ms: 0,
            samples: 1,
            epoch: 0,
        })
        .collect();
    assert_eq!(routes.import(&saved, NOW, &settings()), Arms::MOST);
    assert_eq!(routes.export(NOW).arms.len(), Arms::MOST);
}
