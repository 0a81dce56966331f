//! A real hour's first 1,500 requests over sockets, through the edge, at eight simulated engines in
//! compressed time. The output shows hit rate, time to first token and decisions.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::Path;
use std::time::Duration;
use support::edge::{Edge, workers};
use tidegate::simulate::replay::{ReplayConfig, Summary, replay};
use tidegate::simulate::server::{FleetConfig, SimulatedFleet};
use tidegate::simulate::trace::{self, TraceRequest};

const ENGINES: usize = 8;
/// Simulated seconds per wall second. Reports are polled every 20 ms: half a simulated second.
const SPEED: f64 = 25.0;

fn requests() -> Vec<TraceRequest> {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/conversation_trace_1500.jsonl");
    let mut requests = trace::read_file(&file).unwrap();
    trace::spread(&mut requests, 1);
    requests
}

/// Draws the arrivals of `seconds` from `start` on forward by `factor`; what comes later follows.
fn with_burst(
    mut requests: Vec<TraceRequest>,
    start: u64,
    seconds: u64,
    factor: u32,
) -> Vec<TraceRequest> {
    let (start, length) = (Duration::from_secs(start), Duration::from_secs(seconds));
    for request in &mut requests {
        let inside = request.at.saturating_sub(start).min(length);
        request.at -= inside - inside / factor;
    }
    requests
}

async fn run(what: &str, policy: &str, requests: &[TraceRequest]) -> Summary {
    let mut config = FleetConfig {
        speed: SPEED,
        bytes_per_token: 1,
        tokens_per_event: 32,
        ..FleetConfig::default()
    };
    config.model = "m".to_owned();
    let fleet = SimulatedFleet::start(ENGINES, config).await.unwrap();
    let urls: Vec<String> =
        fleet.addresses().iter().map(|address| format!("http://{address}")).collect();
    let edge = Edge::start(&format!(
        "  load_reports: {{interval: 20ms, timeout: 400ms, max_age: 1s}}\n  models:\n    - name: m\n      {policy}\n      workers:\n{}",
        workers(&urls)
    ))
    .await;
    let replayed = ReplayConfig {
        target: edge.traffic,
        model: "m".to_owned(),
        speed: SPEED,
        bytes_per_token: 1,
        timeout: Duration::from_secs(240),
    };
    let summary = replay(requests, &replayed).await;
    println!("{what}: {summary}\n");
    fleet.shutdown().await;
    summary
}

const PIN: &str = "cache_aware: {worker_queue_limit: 8, saturation_queue_floor: 1}";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_are_found_and_a_burst_does_not_scatter_them() {
    let calm = requests();
    let burst = with_burst(requests(), 120, 60, 6);
    let (rotated, affine) = tokio::join!(
        run("round robin", "policy: round_robin", &calm),
        run("pure affinity", "cache_aware: {selection: ladder}", &calm),
    );
    let (pinned, burst) = tokio::join!(
        run("gate and pin", PIN, &calm),
        run("gate and pin, with a burst", PIN, &burst),
    );
    for summary in [&rotated, &affine, &pinned, &burst] {
        assert_eq!((summary.ok, summary.failed), (1500, 0), "{summary}");
    }
    let points = |summary: &Summary| 100.0 * summary.hit_rate();
    assert!(points(&affine) - 1.0 <= points(&pinned), "within a point of pure affinity");
    assert!(3.0 * points(&rotated) <= points(&pinned), "at least three times round robin");
    assert!(points(&pinned) - 2.0 <= points(&burst), "a burst does not scatter the owners");
    assert!(burst.by_decision.contains_key("saturation_pin"), "the burst queues the whole fleet");
}
