#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use std::num::NonZeroU32;
use std::sync::Arc;
use tidegate_policy::scenario::{self, Scenario};

const VECTORS: &str = include_str!("../../plugins/policy/testdata/cache_aware.json");

fn explained(scenario: &Scenario) -> Explanation {
    Explanation::new(&Case {
        model: "qwen3-32b",
        policy: &Policy::CacheAware(scenario.rules().clone()),
        fleet: scenario.fleet(),
        request: scenario.request(),
        blocks: None,
        routes: None,
        pin: None,
    })
}

fn explanation(text: &str) -> Explanation {
    explained(&scenario::read(text).unwrap()[0])
}

fn rung<'a>(explanation: &'a Explanation, name: &str) -> &'a Rung {
    explanation.rungs.iter().find(|rung| rung.rung == name).unwrap()
}

/// Two owners that queue and a third worker; `third` is its load.
fn saturated(rules: &str, third: &str) -> Explanation {
    explanation(&format!(
        r#"{{"rules": {{{rules}}}, "request": {{"input_tokens": 12000}},
        "workers": [
            {{"id": "w0", "load": {{"waiting": 9, "running": 32}}}},
            {{"id": "w1", "load": {{"waiting": 20, "running": 32}}}},
            {{"id": "w2", "load": {third}}}],
        "candidates": [
            {{"id": "w0", "uncached_tokens": 512, "blocks": 90}},
            {{"id": "w1", "uncached_tokens": 256, "blocks": 92}}]}}"#
    ))
}

/// What else was tried.
fn changes(told: &Explanation) -> Vec<&str> {
    told.what_if.iter().map(|other| other.change.as_str()).collect()
}

const GATE_AND_FLOOR: &str = r#""worker_queue_limit": 8, "saturation_queue_floor": 1"#;

#[test]
fn a_pin_is_told_at_a_glance() {
    let text = saturated(GATE_AND_FLOOR, r#"{"waiting": 3, "running": 32}"#).text();
    let expected = "\
model   qwen3-32b, policy cache_aware
prompt  12,000 tokens
rules   worker_queue_limit 8, saturation_queue_floor 1, min_matched_tokens unset, switch_margin_tokens 1,024

worker  held (blocks)  to compute  queue      report  what became of it
w1        11,744 (92)         256     20  fresh 0 ms  lost: w0 comes first by reported queue
w0        11,488 (90)         512      9  fresh 0 ms  CHOSEN: back to its owner, 512 tokens to compute
w2                  -      12,000      3  fresh 0 ms  not an owner

1 candidates      passed   2 owners of this prefix, w1 holds 11,744 tokens
2 gate            closed   2 of 2 owners at or over the limit of 8
3 readmission     off      saturation_queue_floor is set: the pin decides
4 admission       -        no owner left to look at
5 tournament      -        no owner left to compete
6 saturation_pin  DECIDED  nobody is known to be below the floor of 1: back to w0, first by reported queue
7 fallback        -        decided above

=> w0  saturation_pin (all_queued), 512 tokens to compute
   gate off:      w1  cache_candidate, 256 tokens to compute (256 fewer) behind 240,000, 20 waiting
   floor unset:   w2  diverted, 12,000 tokens to compute (11,488 more) behind 36,000, 3 waiting
   by cost:       the same worker, owner
   least load:    w2  least_load, 12,000 tokens to compute (11,488 more) behind 36,000, 3 waiting
";
    assert_eq!(text, expected, "\n{text}");
}

#[test]
fn a_diversion_names_who_vetoed_the_pin() {
    let told = saturated(GATE_AND_FLOOR, r#"{"waiting": 0, "running": 4}"#);
    assert_eq!(rung(&told, "saturation_pin").result, RungResult::Closed);
    assert_eq!(rung(&told, "saturation_pin").why, "w2 has 0 waiting, below the floor of 1");
    assert_eq!(told.candidates[0].why, "20 waiting there, the limit is 8");
    let winner = told.winner.unwrap();
    assert_eq!((winner.worker.as_str(), winner.reason.as_str()), ("w2", "diverted"));
    assert_eq!(told.what_if[1].worker.as_deref(), Some("w2"));
}

#[test]
fn without_a_floor_it_says_who_kept_the_owners_out() {
    let told = saturated(r#""worker_queue_limit": 8"#, "null");
    let why = &rung(&told, "readmission").why;
    assert_eq!(why, "not everybody is known to queue: w2 has no fresh queue");
    assert_eq!(changes(&told), ["gate off", "by cost", "least load"]);
}

#[test]
fn without_a_gate_there_is_nothing_to_switch_off() {
    let told = saturated(r#""selection": "ladder""#, "null");
    assert_eq!(rung(&told, "gate").result, RungResult::Off);
    assert_eq!(changes(&told), ["by cost", "least load"]);
}

#[test]
fn an_owner_without_room_says_what_is_full() {
    let owner = |load: &str| {
        let told = explanation(&format!(
            r#"{{"rules": {{"selection": "ladder", "max_pending_prefill_tokens": 1000}}, "request": {{"input_tokens": 5000}},
            "workers": [{{"id": "w0", "load": {load}}}, {{"id": "w1", "load": null}}],
            "candidates": [{{"id": "w0", "uncached_tokens": 900, "blocks": 9}}]}}"#
        ));
        (told.candidates[0].verdict.clone(), told.candidates[0].why.clone())
    };
    let load = |running: u64, used: u64, pending: u64| {
        owner(&format!(
            r#"{{"waiting": 0, "running": {running}, "max_running": 32, "total_tokens": {used},
                "max_total_tokens": 100000, "waiting_uncached_tokens": {pending}}}"#
        ))
    };
    let no_room = |why: &str| ("no_room".to_owned(), why.to_owned());
    assert_eq!(load(32, 0, 0), no_room("32 of 32 slots are taken"));
    assert_eq!(
        load(1, 98_000, 0),
        no_room("98,000 KV tokens in use and 5,000 to come, of 100,000")
    );
    assert_eq!(
        load(1, 0, 101),
        no_room(
            "101 tokens wait there for prefill and 900 would come, max_pending_prefill_tokens is 1,000"
        )
    );
    assert_eq!(load(1, 0, 100).0, "chosen");
}

#[test]
fn behind_a_gate_taken_slots_are_not_what_keeps_a_request_out() {
    let told = explanation(
        r#"{"rules": {"worker_queue_limit": 8}, "request": {"input_tokens": 5000},
            "workers": [{"id": "w0", "load": {"waiting": 1, "running": 32, "max_running": 32,
                "total_tokens": 98000, "max_total_tokens": 100000, "waiting_uncached_tokens": 0}},
                {"id": "w1", "load": null}],
            "candidates": [{"id": "w0", "uncached_tokens": 900, "blocks": 9}]}"#,
    );
    let why = &told.candidates[0].why;
    assert_eq!(why, "98,000 KV tokens in use and 5,000 to come, of 100,000");
}

#[test]
fn a_winner_that_the_fallback_found_among_the_owners_is_marked() {
    let text = explanation(
        r#"{"rules": {"worker_queue_limit": 4, "saturation_queue_floor": 1, "pin_max_queue": 5},
        "request": {"input_tokens": 100}, "workers": [{"id": "w0", "load": {"waiting": 9}}],
        "candidates": [{"id": "w0", "uncached_tokens": 10, "blocks": 9}]}"#,
    )
    .text();
    let marked = "CHOSEN by the fallback; gated: 9 waiting there, the limit is 4";
    assert!(text.contains(marked), "{text}");
}

#[test]
fn exactly_one_rung_decides_in_every_vector_and_it_is_the_reasons() {
    for scenario in scenario::read(VECTORS).unwrap() {
        let told = explained(&scenario);
        let deciding: Vec<&str> = told
            .rungs
            .iter()
            .filter(|rung| rung.result == RungResult::Decided)
            .map(|rung| rung.rung.as_str())
            .collect();
        let expected = match told.winner.as_ref().unwrap().reason.as_str() {
            "cache_candidate" => "tournament",
            "saturation_pin" => "saturation_pin",
            _ => "fallback",
        };
        assert_eq!(deciding, [expected], "{}", scenario.name());
    }
}

#[test]
fn every_candidate_of_every_vector_has_its_sentence() {
    for scenario in scenario::read(VECTORS).unwrap() {
        for row in explained(&scenario).candidates {
            assert!(!row.why.is_empty(), "{}: {}", scenario.name(), row.worker);
            assert_eq!(
                row.verdict == "gated",
                row.why.contains("waiting there"),
                "{}",
                scenario.name()
            );
        }
    }
}

#[test]
fn the_story_survives_its_way_over_the_wire() {
    let told = saturated(GATE_AND_FLOOR, "null");
    let sent = serde_json::to_string(&told).unwrap();
    assert_eq!(serde_json::from_str::<Explanation>(&sent).unwrap(), told);
}

#[test]
fn a_fleet_of_three_hundred_does_not_flood_the_terminal() {
    let workers: Vec<String> = (0..300).map(|at| format!(r#"{{"id": "w{at:03}"}}"#)).collect();
    let told = explanation(&format!(
        r#"{{"request": {{"input_tokens": 100}}, "workers": [{}]}}"#,
        workers.join(",")
    ));
    let text = told.text();
    assert!(text.contains("and 291 others"), "{text}");
    assert!(text.lines().count() < 30, "{text}");
}

#[test]
fn a_hostile_name_cannot_command_the_terminal() {
    let told = Explanation { model: "\u{1b}[2Jgone".to_owned(), ..saturated("", "null") };
    assert!(!told.text().contains('\u{1b}'));
}

#[test]
fn thousands_are_set_apart() {
    let shown: Vec<String> = [0, 999, 1_000, 123_456, 1_000_000].map(text::grouped).into();
    assert_eq!(shown, ["0", "999", "1,000", "123,456", "1,000,000"]);
    assert_eq!(text::counted(1, "owner"), "1 owner");
    assert_eq!(text::counted(2, "owner"), "2 owners");
}

const COST: &str = include_str!("../../plugins/policy/testdata/cost.json");

#[test]
fn a_choice_by_cost_shows_both_addends_of_every_worker() {
    let text = explanation(
        r#"{"request": {"input_tokens": 8000, "mean_uncached_tokens": 4000},
        "workers": [
            {"id": "a", "ledger": {"outstanding_tokens": 60000}},
            {"id": "b", "ledger": {"outstanding_tokens": 0}},
            {"id": "full", "load": {"waiting": 0, "running": 8, "max_running": 8, "total_tokens": 0,
             "max_total_tokens": 100000, "waiting_uncached_tokens": 0}}],
        "candidates": [{"id": "a", "uncached_tokens": 500, "blocks": 10}]}"#,
    )
    .text();
    let expected = "\
model   qwen3-32b, policy cache_aware
prompt  8,000 tokens
rules   price_worker 4, price_fleet 2, tie_percent 2, speed_snap 2, home_bonus 0.2, home_bonus_foreign 0.5

worker   ahead  to compute  = wait  + price   score    queue      report  what became of it
b            0       8,000   8,000   80,000  88,000  unknown       never  CHOSEN
a       60,000         500  60,500   35,000  95,500  unknown       never  8 % more
full         0       8,000   8,000   80,000  88,000        0  fresh 0 ms  no room

1 owners          passed   1 worker with some of it, a holds 7,500 tokens
2 admission       passed   1 of 3 workers without room
3 cost            DECIDED  away from its owners: b has the least cost, 0 tokens ahead and 8,000 to compute, at a price of 80,000; the mean line is 20,000

=> b  diverted (cache_worker_queued), 8,000 tokens to compute
   pure affinity: a  cache_candidate, 500 tokens to compute (7,500 fewer) behind 60,000
   least load:    the same worker, least_load
";
    assert_eq!(text, expected, "\n{text}");
}

#[test]
fn every_cost_vector_is_told_with_the_scores_it_expects() {
    for scenario in scenario::read(COST).unwrap() {
        let told = explained(&scenario);
        let scores: serde_json::Map<_, _> = told
            .costs
            .iter()
            .filter(|cost| cost.compared)
            .map(|cost| (cost.worker.clone(), cost.score.into()))
            .collect();
        let scores = serde_json::Value::Object(scores);
        assert_eq!(scenario.expect()["scores"], scores, "{}", scenario.name());
        assert_eq!(told.rungs.last().unwrap().result, RungResult::Decided);
        let chosen = told.costs.iter().filter(|cost| cost.why.starts_with("CHOSEN"));
        assert_eq!(chosen.count(), 1, "{}", scenario.name());
    }
}

/// Two nodes of one model, the second of which is known to be slow.
fn routed(pin: Option<&str>) -> Explanation {
    use tidegate_policy::fleet::{Live, Millis, Role, Slot, Worker};
    use tidegate_policy::learned::{Ended, Layers, Node, Sample, Settings, Topology};
    let live = Arc::new(Live::default());
    live.set_routable(true);
    let nodes = [("gpu", 0, 21, 120.0), ("cpu", 0, 39, 6.0)];
    let worker = |(slot, (id, ..)): (u16, &(&str, u32, u32, f64))| Worker {
        id: (*id).into(),
        slot: Slot(slot),
        role: Role::Plain,
        weight: 1,
        ranks: 1,
        report: None,
        speed: None,
        live: Arc::clone(&live),
    };
    let fleet = Fleet::new(1, (0..).zip(&nodes).map(worker).collect());
    let node = |(slot, (id, first, last, tps)): (u16, &(&str, u32, u32, f64))| Node {
        id: (*id).into(),
        slot: Slot(slot),
        layers: Layers::new(*first, *last).unwrap(),
        tps: *tps,
        reputation: 1.0,
    };
    let model = Layers::new(0, 39).unwrap();
    let topology = Topology::new("m", model, (0..).zip(&nodes).map(node).collect()).unwrap();
    let routes = Routes::new(topology);
    let ended = Ended::Normally { completion_tokens: 60, seconds: 10.0 };
    let sample = Sample { signature: "m | cpu[0-39]", epoch: 0, ended };
    let settings = Settings::default();
    let _ = routes.record(&sample, Millis(0), &settings);
    let learned = crate::config::Learned { layers: NonZeroU32::new(40), settings, seed: None };
    let pin = pin.and_then(|json| Pin::read(json).unwrap());
    let request = Request {
        now: Millis(0),
        prompt: None,
        excluded: &[],
        // Its first draw is above the share of scouts.
        dice: 1,
        turn: 0,
        mean_uncached_tokens: 0,
        foreign_share: tidegate_policy::fleet::ForeignShare::default(),
    };
    Explanation::new(&Case {
        model: "m",
        policy: &Policy::Learned(learned),
        fleet: &fleet,
        request,
        blocks: None,
        routes: Some(&routes),
        pin: pin.as_ref(),
    })
}

#[test]
fn a_learned_route_is_told_with_its_rivals() {
    let explanation = routed(None);
    let winner = explanation.winner.as_ref().unwrap();
    assert_eq!((winner.worker.as_str(), winner.reason.as_str()), ("cpu", "exploit"));
    let shares: Vec<f64> = explanation.routes.iter().map(|row| row.expected_share).collect();
    assert_eq!(shares, [0.7, 0.3]);
    let text = explanation.text();
    for words in [
        "m | gpu[0-21] -> cpu[0-39]    6.0      -   30 %    0.00  unsampled\n",
        "m | cpu[0-39]                 6.0    6.0   70 %    1.00  proven, CHOSEN\n",
        "1 learned         DECIDED  m | cpu[0-39]: proven; such routes share by their speeds",
    ] {
        assert!(text.contains(words), "{text}");
    }
    let pinned = routed(Some(r#"["gpu", "cpu"]"#));
    assert_eq!(pinned.winner.as_ref().unwrap().reason, "pinned");
    assert!(pinned.text().contains("the client's own route"), "{}", pinned.text());
    let gap = routed(Some(r#"["gpu"]"#));
    assert!(gap.text().contains("=> nowhere: 400 invalid_route"), "{}", gap.text());
    assert!(gap.text().contains("ends at layer 21"), "{}", gap.text());
}
