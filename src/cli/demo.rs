//! `tidegate demo`: simulated engines, the edge in front of them and some traffic, in one process
//! on loopback, with the decisions shown as they happen. A second model is in layer shards.

mod admin;
mod sharded;

use crate::boot::{self, Start};
use crate::config::{Overrides, Source};
use crate::simulate::client::Outcome;
use crate::simulate::server::{FleetConfig, LoadEndpoint, SimulatedFleet};
use crate::simulate::traffic::{self, TrafficConfig, TrafficEvent};
use sharded::Sharded;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// What the demo is made of.
#[derive(Clone, Debug)]
pub struct Demo {
    /// Simulated engines.
    pub workers: usize,
    /// Where traffic comes in; a free port if unset and 8080 is taken.
    pub listen: Option<SocketAddr>,
    /// The admin listener; a free port if unset and 9909 is taken.
    pub admin: Option<SocketAddr>,
    /// Ends after so long; otherwise Ctrl-C does.
    pub duration: Option<Duration>,
}

const MODEL: &str = "simulated";
/// Preferred ports: those of the documents.
const TRAFFIC_PORT: u16 = 8080;
/// See [`TRAFFIC_PORT`].
const ADMIN_PORT: u16 = 9909;

/// Runs until it is ended.
///
/// # Errors
/// What kept it from starting.
pub fn run(demo: &Demo) -> Result<(), Box<dyn std::error::Error>> {
    let listen = address(demo.listen, TRAFFIC_PORT)?;
    let admin = address(demo.admin, ADMIN_PORT)?;
    let outside =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let fleet = outside.block_on(SimulatedFleet::start(demo.workers, fleet_config()))?;
    let sharded = outside.block_on(Sharded::start())?;
    let home = Home::new()?;
    let common = yaml(&fleet, listen, admin);
    std::fs::write(home.file(), common.clone() + &sharded.yaml_at_first())?;
    let mut source = Source::file(home.file(), Overrides::default());
    let config = source.load()?.config;
    println!("{}", introduction(demo.workers, listen, admin));
    let (file, duration) = (home.file(), demo.duration);
    outside.spawn(async move {
        while !admin::is_ready(admin).await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::spawn(sharded.show(listen, admin, file, common));
        show(fleet, listen, duration).await;
        drop(home);
        ::log::logger().flush();
        std::process::exit(0);
    });
    Ok(boot::serve(Arc::new(config), Some(source), Start::default())?)
}

/// Where its configuration file is, which is rewritten when a node joins; gone when dropped.
struct Home(PathBuf);

impl Home {
    fn new() -> std::io::Result<Self> {
        let home = std::env::temp_dir().join(format!("tidegate-demo-{}", std::process::id()));
        std::fs::create_dir(&home)?;
        Ok(Self(home))
    }

    fn file(&self) -> PathBuf {
        self.0.join("demo.yaml")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // The system clears the directory for temporary files in any case.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What was asked for, or the preferred port, or any free one.
fn address(asked: Option<SocketAddr>, preferred: u16) -> std::io::Result<SocketAddr> {
    if let Some(address) = asked {
        return Ok(address);
    }
    let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    bind(preferred).or_else(|_| bind(0))?.local_addr()
}

/// Small engines, so that a burst fills every queue within seconds.
fn fleet_config() -> FleetConfig {
    let mut config = FleetConfig { model: MODEL.to_owned(), ..FleetConfig::default() };
    config.engine.max_running = 8;
    config.engine.kv_tokens = 120_000;
    // The page that tells how full the KV cache is.
    config.load_endpoint = LoadEndpoint::V1Loads;
    config
}

fn yaml(fleet: &SimulatedFleet, listen: SocketAddr, admin: SocketAddr) -> String {
    let mut yaml = format!(
        "version: 1\nthreads: 2\ntidegate:\n  listeners: [{{address: \"{listen}\"}}]\n  admin: {{address: \"{admin}\"}}\n  \
         shutdown: {{drain_delay: 0s}}\n  models:\n    - name: {MODEL}\n      aliases: [default]\n      policy: cache_aware\n      \
         cache_aware: {{worker_queue_limit: 4, saturation_queue_floor: 1}}\n      workers:\n"
    );
    for (i, engine) in fleet.addresses().iter().enumerate() {
        let _ = writeln!(yaml, "        - {{id: w{i}, url: \"http://{engine}\"}}");
    }
    yaml
}

fn introduction(workers: usize, listen: SocketAddr, admin: SocketAddr) -> String {
    format!(
        "{workers} simulated engines behind Tidegate; a burst every 30 s fills their queues.\n\
         A second model, `sharded`, is in layer shards on other nodes, one of which joins after 20 s;\n\
         lines with --- say how fast its routes were measured to be.\n\
         \n  dashboard  http://{admin}/\n  ask it     curl -s http://{listen}/v1/chat/completions -H 'content-type: application/json' \\\n             \
         -d '{{\"messages\":[{{\"role\":\"user\",\"content\":\"hello\"}}]}}'\n  \
         metrics    http://{admin}/metrics\n  workers    http://{admin}/v1/workers\n  \
         decisions  http://{admin}/v1/decisions\n  routes     http://{admin}/v1/routing\n  end        Ctrl-C\n"
    )
}

/// Sends the traffic and prints a line per answer, for so long.
async fn show(fleet: SimulatedFleet, listen: SocketAddr, duration: Option<Duration>) {
    let (sender, mut events) = mpsc::channel(1024);
    tokio::spawn(traffic::run(TrafficConfig::new(listen, MODEL), fleet.clock(), sender));
    let mut end = std::pin::pin!(async {
        match duration {
            Some(duration) => tokio::time::sleep(duration).await,
            None => std::future::pending().await,
        }
    });
    let mut totals = Totals::default();
    println!(
        "{:>8}  {:>12}  {:<18} {:<7} {:>9} {:>13}",
        "time", "conversation", "decision", "worker", "TTFT", "cached/prompt"
    );
    loop {
        tokio::select! {
            event = events.recv() => match event {
                Some(event) => totals.print(&event),
                None => return,
            },
            () = &mut end => break,
        }
    }
    println!("\n{}", totals.summary());
}

/// What was seen so far.
#[derive(Debug, Default)]
struct Totals {
    answers: u64,
    failures: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
    by_decision: BTreeMap<String, u64>,
}

impl Totals {
    fn print(&mut self, event: &TrafficEvent) {
        let Some(outcome) = &event.outcome else { return };
        let time = format!("{:.1} s", event.at.as_secs_f64());
        let who = format!("{}.{}", event.conversation, event.turn);
        if let Some(failure) = &outcome.failure {
            self.failures += 1;
            println!("{time:>8}  {who:>12}  failed: {failure}");
            return;
        }
        self.add(outcome);
        println!("{time:>8}  {who:>12}  {}", row(outcome));
    }

    fn add(&mut self, outcome: &Outcome) {
        self.answers += 1;
        self.prompt_tokens += outcome.prompt_tokens;
        self.cached_tokens += outcome.cached_tokens;
        *self.by_decision.entry(outcome.decision.clone().unwrap_or_default()).or_default() += 1;
    }

    fn summary(&self) -> String {
        let rate = 100.0 * self.cached_tokens as f64 / self.prompt_tokens.max(1) as f64;
        let decisions: Vec<String> = self
            .by_decision
            .iter()
            .map(|(decision, count)| format!("{decision} {count}"))
            .collect();
        format!(
            "{} answers, {} failed, {rate:.1} % of prompt tokens cached; {}",
            self.answers,
            self.failures,
            decisions.join(", ")
        )
    }
}

fn row(outcome: &Outcome) -> String {
    let ttft =
        outcome.first_token.map_or_else(String::new, |wait| format!("{} ms", wait.as_millis()));
    format!(
        "{:<18} {:<7} {ttft:>9} {:>13}",
        outcome.decision.as_deref().unwrap_or("-"),
        outcome.worker.as_deref().unwrap_or("-"),
        format!("{}/{}", outcome.cached_tokens, outcome.prompt_tokens)
    )
}
