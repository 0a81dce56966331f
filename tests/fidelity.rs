//! Virtual time against sockets: the same trace through the real edge at the demo's engines, and
//! through `tidegate simulate`'s world, comes to the same hit rate. A busy machine moves times to the
//! first token over sockets, so the test of those is run by hand, alone, and takes minutes:
//! `cargo test --test fidelity -- --ignored --nocapture`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;
use support::edge::{Edge, workers};
use support::until;
use tidegate::simulate::access_log;
use tidegate::simulate::arrivals::Shape;
use tidegate::simulate::engine::EngineConfig;
use tidegate::simulate::figures::Figures;
use tidegate::simulate::replay::{ReplayConfig, Summary, replay};
use tidegate::simulate::rule_set::RuleSets;
use tidegate::simulate::server::{FleetConfig, LoadEndpoint, SimulatedFleet};
use tidegate::simulate::trace::{self, TraceRequest};
use tidegate::simulate::world::{self, Scene};

const ENGINES: u32 = 6;
/// Simulated seconds per wall second: a millisecond of the machine's is five of the engines'.
const SPEED: f64 = 5.0;
/// Between two polls, wall time; simulated time has half a second.
const INTERVAL: Duration = Duration::from_millis(100);
/// The same decisions a moment later find other reports.
const POINTS: f64 = 2.0;
/// How far apart the middle first tokens may lie, of those in virtual time.
const APART: f64 = 0.1;
/// Runs whose middle that is.
const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];
const RULES: [(&str, &str); 2] = [
    ("cost", "cache_aware: {selection: cost}"),
    ("pin", "cache_aware: {worker_queue_limit: 8, saturation_queue_floor: 1}"),
];

fn requests(seed: u64) -> Vec<TraceRequest> {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/conversation_trace_1500.jsonl");
    let until = Some(Duration::from_secs(100));
    Shape { until, ..Shape::default() }.of(trace::read_file(&file).unwrap(), seed)
}

/// What clients saw, and the edge's log.
async fn over_sockets(policy: &str, requests: &[TraceRequest]) -> (Summary, String) {
    let config = FleetConfig {
        model: "m".to_owned(),
        speed: SPEED,
        bytes_per_token: 1,
        tokens_per_event: 32,
        ..FleetConfig::default()
    };
    let fleet = SimulatedFleet::start(ENGINES as usize, config).await.unwrap();
    let urls: Vec<String> =
        fleet.addresses().iter().map(|address| format!("http://{address}")).collect();
    let interval = INTERVAL.as_millis();
    let edge = Edge::start(&format!(
        "  access_log: {{prefixes: true}}\n  load_reports: {{interval: {interval}ms, timeout: 400ms, max_age: 2s}}\n  models:\n    - name: m\n      {policy}\n      workers:\n{}",
        workers(&urls)
    ))
    .await;
    let replayed = ReplayConfig {
        target: edge.traffic,
        model: "m".to_owned(),
        speed: SPEED,
        bytes_per_token: 1,
        timeout: Duration::from_secs(120),
    };
    let summary = replay(requests, &replayed).await;
    edge.booked(requests.len()).await;
    fleet.shutdown().await;
    let all_lines = async || {
        let log = edge.log();
        (log.matches("\"request_id\"").count() == requests.len()).then_some(log)
    };
    (summary, until("the access log", all_lines).await)
}

fn in_virtual_time(rules: &str, requests: &[TraceRequest]) -> Figures {
    let named = RuleSets { engines: NonZeroU32::new(ENGINES), ..RuleSets::default() };
    let sets = named.named(rules).unwrap();
    let scene = Scene {
        engines: vec![EngineConfig::default(); ENGINES as usize],
        edges: 1,
        reports: LoadEndpoint::GetLoad,
        report_delay: Duration::ZERO,
        report_loss: 0.0,
        unstreamed: 0.0,
        bytes_per_token: 1,
        outages: Vec::new(),
    };
    world::run(&scene, &sets[0].config, requests, 1).unwrap().figures()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn virtual_time_and_sockets_agree() {
    let requests = requests(1);
    let [(_, cost), (_, pin)] = RULES;
    let (cost, pinned) = tokio::join!(over_sockets(cost, &requests), over_sockets(pin, &requests));
    for (rules, (sockets, log)) in [("cost", cost), ("pin", pinned)] {
        let figures = in_virtual_time(rules, &requests);
        assert_eq!((sockets.ok, figures.answered), (requests.len() as u64, requests.len() as u64));
        let points = 100.0 * (sockets.hit_rate() - figures.hit_rate);
        assert!(points.abs() <= POINTS, "{rules}: {points} points apart");
        let logged = in_virtual_time(rules, &replayed_from(&log));
        assert_eq!(logged.answered, requests.len() as u64);
        let points = 100.0 * (logged.hit_rate - figures.hit_rate);
        assert!(points.abs() <= POINTS, "{rules}: {points} points apart by the log");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "times over sockets: for a machine with nothing else to do"]
async fn first_tokens_over_sockets_take_as_long_as_in_virtual_time() {
    for (rules, policy) in RULES {
        let mut apart = Vec::new();
        for seed in SEEDS {
            let requests = requests(seed);
            let (sockets, _) = over_sockets(policy, &requests).await;
            let figures = in_virtual_time(rules, &requests);
            let half = sockets.first_token_at(0.5).as_secs_f64();
            println!(
                "{rules}, seed {seed}: hit rate {:.2} % and {:.2} %, first token p50 {half:.3} s and {:.3} s, latest {:?}",
                100.0 * sockets.hit_rate(),
                100.0 * figures.hit_rate,
                figures.first_token.p50,
                sockets.late
            );
            apart.push(half / figures.first_token.p50 - 1.0);
        }
        apart.sort_by(f64::total_cmp);
        let middle = apart[apart.len() / 2];
        println!(
            "{rules}: p50 {:+.1} % in the median, {:+.1} % to {:+.1} %",
            100.0 * middle,
            100.0 * apart[0],
            100.0 * apart[apart.len() - 1]
        );
        assert!(middle.abs() <= APART, "{rules}: {apart:?}");
    }
}

/// The requests the access log tells of, at their simulated times.
fn replayed_from(log: &str) -> Vec<TraceRequest> {
    let logged = access_log::read(log.as_bytes()).unwrap();
    let mut requests = access_log::trace(&logged).unwrap();
    requests.iter_mut().for_each(|request| request.at = request.at.mul_f64(SPEED));
    requests
}
