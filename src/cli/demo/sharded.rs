//! The demo's second model: layer shards on simulated nodes, one of which joins later and is
//! throttled for a while.

use super::admin;
use crate::simulate::nodes::Nodes;
use crate::simulate::server::{FleetConfig, FleetError, SimulatedFleet};
use crate::simulate::traffic::{self, Burst, TrafficConfig};
use serde_json::Value;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Its name.
pub(super) const MODEL: &str = "sharded";
const LAYERS: u32 = 40;

/// A node with its layers and its tokens per second through all of them.
struct Node {
    id: &'static str,
    first_layer: u32,
    last_layer: u32,
    tps: f64,
}

impl Node {
    fn layers_per_second(&self) -> f64 {
        self.tps * (f64::from(self.last_layer - self.first_layer) + 1.0)
    }
}

/// The last one joins later.
const NODES: [Node; 3] = [
    Node { id: "gpu-a", first_layer: 0, last_layer: 21, tps: 120.0 },
    Node { id: "cpu-b", first_layer: 0, last_layer: 39, tps: 20.0 },
    Node { id: "gpu-c", first_layer: 22, last_layer: 39, tps: 100.0 },
];
const AT_FIRST: usize = 2;

/// After the start.
const JOINS: Duration = Duration::from_secs(20);
const THROTTLED: Duration = Duration::from_secs(45);
const RECOVERS: Duration = Duration::from_secs(75);
const THROTTLE: f64 = 5.0;
/// Between two looks at the routes.
const LOOK: Duration = Duration::from_secs(5);

/// The nodes behind their addresses.
pub(super) struct Sharded {
    fleet: SimulatedFleet,
    nodes: Nodes,
}

impl Sharded {
    pub(super) async fn start() -> Result<Self, FleetError> {
        let nodes = Nodes::default();
        for node in &NODES {
            nodes.set(node.id, node.layers_per_second());
        }
        let mut config = FleetConfig { model: MODEL.to_owned(), ..FleetConfig::default() };
        config.nodes = nodes.clone();
        // The head's own engine is no hindrance: the route sets the pace.
        config.engine.decode_base_ms = 1.0;
        config.engine.decode_seq_ms = 0.0;
        Ok(Self { fleet: SimulatedFleet::start(NODES.len(), config).await?, nodes })
    }

    /// Its part of the configuration, with the first `count` nodes.
    pub(super) fn yaml(&self, count: usize) -> String {
        let mut yaml = format!(
            "    - name: {MODEL}\n      policy: learned\n      layers: {LAYERS}\n      \
             load_reports: {{format: none}}\n      learned: {{stats_half_life: 10s}}\n      workers:\n"
        );
        for (node, address) in NODES.iter().zip(self.fleet.addresses()).take(count) {
            let Node { id, first_layer, last_layer, tps } = node;
            let _ = writeln!(
                yaml,
                "        - {{id: {id}, url: \"http://{address}\", first_layer: {first_layer}, \
                 last_layer: {last_layer}, tps: {tps}}}"
            );
        }
        yaml
    }

    /// The same without the node that joins later.
    pub(super) fn yaml_at_first(&self) -> String {
        self.yaml(AT_FIRST)
    }

    /// Sends traffic, lets things happen, and prints the routes now and then. `file` is rewritten
    /// with `common` and all nodes when the last one joins.
    pub(super) async fn show(
        self,
        listen: SocketAddr,
        admin: SocketAddr,
        file: PathBuf,
        common: String,
    ) {
        let (sender, mut events) = mpsc::channel(64);
        tokio::spawn(traffic::run(traffic_of(listen), self.fleet.clock(), sender));
        // What became of each is seen in the routes.
        tokio::spawn(async move { while events.recv().await.is_some() {} });
        let join = {
            let everything = common + &self.yaml(NODES.len());
            move || std::fs::write(&file, &everything)
        };
        let last = &NODES[NODES.len() - 1];
        let speed = last.layers_per_second();
        let begun = Instant::now();
        let mut happened = 0;
        loop {
            tokio::time::sleep(LOOK).await;
            let now = begun.elapsed();
            match happened {
                0 if JOINS <= now => match join() {
                    Ok(()) => println!("--- node {} joins", last.id),
                    Err(error) => eprintln!("node {} cannot join: {error}", last.id),
                },
                1 if THROTTLED <= now => {
                    self.nodes.set(last.id, speed / THROTTLE);
                    println!("--- node {} is throttled {THROTTLE}x", last.id);
                }
                2 if RECOVERS <= now => {
                    self.nodes.set(last.id, speed);
                    println!("--- node {} recovers", last.id);
                }
                _ => {
                    print_routes(admin).await;
                    continue;
                }
            }
            happened += 1;
        }
    }
}

/// Two requests a second, without bursts.
fn traffic_of(listen: SocketAddr) -> TrafficConfig {
    let burst = Burst { every: Duration::from_secs(3600), lasts: Duration::ZERO, factor: 1.0 };
    TrafficConfig {
        rate: 2.0,
        system_tokens: 100,
        question_tokens: 16..=64,
        answer_tokens: 16..=48,
        burst,
        ..TrafficConfig::new(listen, MODEL)
    }
}

async fn print_routes(address: SocketAddr) {
    let path = format!("/v1/routing?model={MODEL}");
    let Some(body) = admin::get(address, &path).await.and_then(admin::body) else { return };
    let table: Value = serde_json::from_slice(&body).unwrap_or_default();
    let table = &table["models"][0];
    for row in table["candidates"].as_array().into_iter().flatten() {
        println!("--- epoch {}  {}", table["topology_epoch"], told(row));
    }
}

fn told(row: &Value) -> String {
    let signature = row["signature"].as_str().unwrap_or_default();
    let route = signature.split_once(" | ").map_or(signature, |(_, route)| route);
    let number = |name: &str| row[name].as_f64();
    let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.2}"));
    format!(
        "{route:<30} {:>7} tokens/s, coefficient {:>5}, share {:>3.0} %, {}",
        shown(number("tps")),
        shown(number("coefficient")),
        100.0 * number("expected_share").unwrap_or(0.0),
        row["status"].as_str().unwrap_or_default()
    )
}
