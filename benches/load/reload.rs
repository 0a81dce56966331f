//! How long another configuration of 1,000 workers and 50 models takes to be in force, what that costs, and what
//! requests feel of it.

use crate::admin;
use crate::engine::Engine;
use crate::proxies::{self, FILE, Proxy, Start};
use crate::wrk::{self, Load, Seen};
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;

const MODELS: usize = 50;
const WORKERS: usize = 1000;
/// From one reload to the next: what one leaves to do is done by then.
const PERIOD: Duration = Duration::from_secs(2);

pub fn run(engine: &Engine, rounds: usize) {
    let edge = start(engine.address).run().unwrap();
    let reloads = Reloads { edge: &edge, engine: engine.address };
    std::thread::sleep(2 * PERIOD);
    let polling = reloads.cpu_in_a_period(|| Duration::ZERO).1;
    println!(
        "\n{WORKERS} workers, {MODELS} models, each reload changes a rule and a worker of every model; medians (most) \
         of {rounds}\n"
    );
    println!("| | in force after | CPU, less the polling |");
    println!("|---|---|---|");
    let mut turn = 0;
    let mut row = |name: &str, change: &dyn Fn(usize) -> Duration| {
        let (mut times, mut costs) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            turn += 1;
            let (time, cpu) = reloads.cpu_in_a_period(|| change(turn));
            times.push(time);
            costs.push(cpu.saturating_sub(polling));
        }
        println!("| {name} | {} | {} |", spread(times), spread(costs));
    };
    row("POST /v1/reload", &|turn| reloads.post(turn));
    row("the file changes", &|turn| reloads.rename(turn));

    println!("\n| 32 connections meanwhile | requests | lost | CPU/request | p50 | longest |");
    println!("|---|---|---|---|---|---|");
    let seconds = PERIOD.as_secs() * rounds as u64 + 1;
    let requests = || wrk::run(edge.address, Load::named("2k"), seconds);
    let before = edge.cpu();
    felt("no reload", &requests(), edge.cpu() - before);
    let before = edge.cpu();
    let seen = std::thread::scope(|scope| {
        let requests = scope.spawn(requests);
        for turn in turn + 1..=turn + rounds {
            reloads.cpu_in_a_period(|| reloads.rename(turn));
        }
        requests.join().unwrap()
    });
    felt(&format!("{rounds} reloads"), &seen, edge.cpu() - before);
    assert_eq!(seen.bad, 0, "requests were lost");
}

fn start(engine: SocketAddr) -> Start {
    proxies::edge_of("edge", |address, directory| configuration(address, directory, engine, 0))
}

fn felt(name: &str, seen: &Seen, cpu: Duration) {
    let Seen { requests, bad, p50_us, longest_us, .. } = seen;
    let cpu_us = cpu.as_secs_f64() * 1e6 / *requests as f64;
    let longest = longest_us / 1e3;
    println!("| {name} | {requests} | {bad} | {cpu_us:.0} µs | {p50_us:.0} µs | {longest:.1} ms |");
}

fn configuration(
    address: SocketAddr,
    directory: &TempDir,
    engine: SocketAddr,
    turn: usize,
) -> String {
    let each = WORKERS / MODELS;
    let models = (0..MODELS).map(|model| {
        // The generator asks for `m`.
        let name = if model == 0 { "m".to_owned() } else { format!("m{model}") };
        let workers = (model * each..(model + 1) * each).map(|at| {
            let id = if at == model * each { format!("w{at}-{turn}") } else { format!("w{at}") };
            proxies::worker(&id, at, engine)
        });
        let rules = format!(
            "policy: cache_aware\n      cache_aware: {{min_matched_tokens: {}}}",
            1024 + turn
        );
        format!(
            "    - name: {name}\n      {rules}\n      workers:\n{}",
            workers.collect::<String>()
        )
    });
    proxies::yaml(address, directory, "", &models.collect::<String>())
}

struct Reloads<'a> {
    edge: &'a Proxy,
    engine: SocketAddr,
}

impl Reloads<'_> {
    /// Until the edge says that it is in force.
    fn post(&self, turn: usize) -> Duration {
        self.write(turn);
        let begin = Instant::now();
        let answer = admin::call(proxies::admin(self.edge.address), "POST /v1/reload");
        let time = begin.elapsed();
        assert!(answer.contains("generation"), "{answer}");
        self.is_in_force(turn);
        time
    }

    /// By the edge's own clock, so that asking for it does not disturb: from the file's time to the reload's.
    fn rename(&self, turn: usize) -> Duration {
        let written = self.write(turn).duration_since(SystemTime::UNIX_EPOCH).unwrap();
        std::thread::sleep(PERIOD / 2);
        self.is_in_force(turn);
        let page = admin::call(proxies::admin(self.edge.address), "GET /metrics");
        let name = "\ntidegate_config_last_reload_timestamp_seconds ";
        let value = page.split(name).nth(1).and_then(|rest| rest.split('\n').next()).unwrap();
        Duration::from_secs_f64(value.parse().unwrap()).saturating_sub(written)
    }

    fn write(&self, turn: usize) -> SystemTime {
        let (directory, address) = (&self.edge.directory, self.edge.address);
        let (file, beside) = (directory.path().join(FILE), directory.path().join("new"));
        std::fs::write(&beside, configuration(address, directory, self.engine, turn)).unwrap();
        std::fs::rename(&beside, &file).unwrap();
        SystemTime::now()
    }

    fn is_in_force(&self, turn: usize) {
        let config = admin::call(proxies::admin(self.edge.address), "GET /v1/config");
        assert!(config.contains(&format!("\"id\":\"w0-{turn}\"")), "not in force: {config}");
    }

    fn cpu_in_a_period(&self, act: impl FnOnce() -> Duration) -> (Duration, Duration) {
        let (before, begin) = (self.edge.cpu(), Instant::now());
        let time = act();
        std::thread::sleep(PERIOD.saturating_sub(begin.elapsed()));
        (time, self.edge.cpu() - before)
    }
}

fn spread(mut times: Vec<Duration>) -> String {
    times.sort();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    format!("{:.0} ms ({:.0})", ms(times[times.len() / 2]), ms(times[times.len() - 1]))
}
