//! What the edge costs beside bare Pingora, nginx and HAProxy: `cargo bench --bench load -- PART [KEY=VALUE ...]`.
//!
//! | part | tells |
//! |---|---|
//! | `overhead` | CPU per request, throughput and p50 of every proxy, by kind of request |
//! | `fleet` | the same for the edge alone, by number of workers, each scraped |
//! | `routers` | the same for public routers of LLM requests, if `ROUTERS` names a directory that has them |
//! | `reload` | a new configuration of 1,000 workers and 50 models: until it is in force, what it costs, what it loses |
//! | `prompts` | resident memory of an edge that a million different prompts go through (`prompts=1000000`) |
//!
//! `rounds=5 seconds=1 kinds=2k:1,2k,16k only=bare,tidegate` are the settings of the first three; a kind is a body's
//! size or `sse`, and connections if not 32. All proxies serve the same engine, which answers at once, one after the
//! other in each round, so a noisy machine is noisy for all; the tables have medians. With two cores the proxy has one
//! of them, generator (wrk) and engine the other, and the tables say how much of it they took: well below 100 %, the
//! proxy was what everybody waited for. CPU is what the kernel booked for the proxy's processes, divided by the
//! requests wrk has counted. `bare` is Pingora alone; `reading` also reads and hashes each body before it picks the
//! peer, as a router of prompts has to. Before anything is measured every proxy has to pass bodies on unchanged.
//!
//! What is in flight when a run ends has cost CPU and is no request yet, so many slow answers at a time take longer
//! runs: `overhead kinds=sse:1000 seconds=5 only=bare,reading,tidegate`.
//!
//! The bare proxy and the edge are built by the same profile: `--profile dist` measures what is shipped.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

mod admin;
mod bare;
mod check;
mod engine;
mod process;
mod prompts;
mod proxies;
mod reading;
mod reload;
mod routers;
mod table;
mod wrk;

use engine::Engine;
use proxies::{Proxy, Start};
use std::time::Instant;
use table::Sample;
use wrk::Load;

// As the edge has it, so that the bare proxy is built the same.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|one| one != "--bench").collect();
    let part = arguments.first().map_or("overhead", String::as_str);
    match part {
        // Processes of the bench itself.
        "engine" => engine::serve(&arguments[1]),
        "bare" => bare::serve(&arguments[1], &arguments[2]),
        "reading" => bare::serve_reading(&arguments[1], &arguments[2]),
        _ => tell(part, &engine::start(), &Settings::read(&arguments)),
    }
}

fn tell(part: &str, engine: &Engine, settings: &Settings) {
    match part {
        "overhead" => overhead(engine, settings),
        "fleet" => fleet(engine, settings),
        "routers" => routers(engine, settings),
        "reload" => reload::run(engine, settings.rounds),
        "prompts" => prompts::run(engine, settings.prompts),
        other => panic!("no part `{other}`: overhead, fleet, routers, reload or prompts"),
    }
}

struct Settings {
    rounds: usize,
    seconds: u64,
    kinds: Option<Vec<Load>>,
    only: Option<Vec<String>>,
    prompts: Option<u64>,
}

impl Settings {
    fn read(arguments: &[String]) -> Self {
        let find = |key: &str| {
            let value = |one: &String| one.strip_prefix(key)?.strip_prefix('=').map(str::to_owned);
            arguments.iter().find_map(value)
        };
        let number = |key: &str| {
            let number = |value: String| value.parse().unwrap_or_else(|_| panic!("{key}={value}"));
            find(key).map(number)
        };
        let list = |value: String| value.split(',').map(str::to_owned).collect::<Vec<_>>();
        Self {
            rounds: number("rounds").unwrap_or(5) as usize,
            seconds: number("seconds").unwrap_or(1),
            kinds: find("kinds").map(loads),
            only: find("only").map(list),
            prompts: number("prompts"),
        }
    }

    fn started(&self, starts: impl IntoIterator<Item = Start>) -> Vec<Proxy> {
        let wanted =
            |name: &str| self.only.as_ref().is_none_or(|only| only.iter().any(|one| one == name));
        starts.into_iter().filter(|start| wanted(start.name)).filter_map(Start::run).collect()
    }
}

fn loads(names: impl AsRef<str>) -> Vec<Load> {
    names.as_ref().split(',').map(Load::named).collect()
}

fn overhead(engine: &Engine, settings: &Settings) {
    let proxies = settings.started(proxies::all(engine.address));
    proxies.iter().for_each(check::passes_bodies_on);
    measure(engine, settings, "2k:1,2k,2k:1000,16k,220k,sse", &proxies);
}

fn fleet(engine: &Engine, settings: &Settings) {
    let sizes =
        [("8 workers", 8), ("64 workers", 64), ("256 workers", 256), ("1000 workers", 1000)];
    let fleets = sizes.map(|(name, workers)| proxies::fleet(name, workers, engine.address));
    measure(engine, settings, "2k,16k,220k,sse", &settings.started(fleets));
}

fn routers(engine: &Engine, settings: &Settings) {
    let mut starts = proxies::all(engine.address);
    starts.retain(|start| ["direct", "nginx", "bare", "tidegate"].contains(&start.name));
    starts.extend(routers::all(engine.address));
    let proxies = settings.started(starts);
    proxies.iter().for_each(check::serves);
    measure(engine, settings, "2k,16k", &proxies);
}

/// `default` are the kinds where the command names none.
fn measure(engine: &Engine, settings: &Settings, default: &str, proxies: &[Proxy]) {
    for &load in settings.kinds.as_ref().unwrap_or(&loads(default)) {
        let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); proxies.len()];
        for round in 0..settings.rounds {
            for (proxy, samples) in proxies.iter().zip(&mut samples) {
                // Once shows what generator and engine can do.
                if proxy.is_direct() && 0 < round {
                    continue;
                }
                samples.push(sample(engine, settings, load, proxy));
            }
        }
        table::print(load, settings.rounds, proxies, &samples);
    }
}

fn sample(engine: &Engine, settings: &Settings, load: Load, proxy: &Proxy) -> Sample {
    let load_side = || engine.cpu() + process::cpu_of_children();
    let (before, load_before, begin) = (proxy.cpu(), load_side(), Instant::now());
    let seen = wrk::run(proxy.address, load, load.seconds(settings.seconds));
    let (spent, load_spent) = (proxy.cpu() - before, load_side() - load_before);
    let time = begin.elapsed();
    assert_eq!(seen.bad, 0, "{} failed {} requests", proxy.name, seen.bad);
    Sample {
        cpu_us: spent.as_secs_f64() * 1e6 / seen.requests as f64,
        per_second: seen.per_second,
        p50_us: seen.p50_us,
        load_side: 100.0 * load_spent.as_secs_f64() / time.as_secs_f64(),
        resident_mib: proxy.resident_mib(),
    }
}
