//! What the edge costs beside bare Pingora, nginx and HAProxy: `cargo bench --bench load -- PART [KEY=VALUE ...]`.
//!
//! | part | tells |
//! |---|---|
//! | `overhead` | CPU per request, throughput and p50 of every proxy, by kind of request |
//! | `fleet` | the same for the edge alone, by number of workers, each scraped |
//!
//! `rounds=5 seconds=3 connections=32 kinds=2k,16k only=bare,tidegate` are the settings. All proxies serve the same
//! engine, which answers at once, one after the other in each round, so a noisy machine is noisy for all; the
//! tables have medians. With two cores the proxy has one of them, generator (wrk) and engine the other. CPU is
//! what the kernel booked for the proxy's processes, divided by the requests wrk has counted.
//!
//! The bare proxy and the edge are built by the same profile: `--profile dist` measures what is shipped.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

mod bare;
mod engine;
mod process;
mod proxies;
mod table;
mod wrk;

use proxies::Proxy;
use table::Sample;
use wrk::Kind;

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
        "overhead" => overhead(&Settings::read(&arguments)),
        "fleet" => fleet(&Settings::read(&arguments)),
        other => panic!("no part `{other}`: overhead or fleet"),
    }
}

struct Settings {
    rounds: usize,
    seconds: u64,
    connections: usize,
    kinds: Vec<Kind>,
    only: Option<Vec<String>>,
}

impl Settings {
    fn read(arguments: &[String]) -> Self {
        let find = |key: &str| {
            let value = |one: &String| one.strip_prefix(key)?.strip_prefix('=').map(str::to_owned);
            arguments.iter().find_map(value)
        };
        let number = |key: &str, default: u64| {
            find(key)
                .map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{key}={value}")))
        };
        let list = |value: String| value.split(',').map(str::to_owned).collect::<Vec<_>>();
        let kinds = find("kinds").unwrap_or_else(|| "2k,16k,220k,sse".to_owned());
        Self {
            rounds: number("rounds", 5) as usize,
            seconds: number("seconds", 3),
            connections: number("connections", 32) as usize,
            kinds: list(kinds).iter().map(|name| Kind::named(name)).collect(),
            only: find("only").map(list),
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|names| names.iter().any(|one| one == name))
    }
}

fn overhead(settings: &Settings) {
    let engine = engine::start();
    let proxies: Vec<Proxy> = proxies::all(engine.address)
        .into_iter()
        .filter(|start| settings.wants(start.name))
        .filter_map(proxies::Start::run)
        .collect();
    measure(settings, &proxies);
}

fn fleet(settings: &Settings) {
    let engine = engine::start();
    let proxies: Vec<Proxy> =
        [("8 workers", 8), ("64 workers", 64), ("256 workers", 256), ("1000 workers", 1000)]
            .into_iter()
            .filter_map(|(name, workers)| proxies::fleet(name, workers, engine.address).run())
            .collect();
    measure(settings, &proxies);
}

fn measure(settings: &Settings, proxies: &[Proxy]) {
    for &kind in &settings.kinds {
        let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); proxies.len()];
        for _ in 0..settings.rounds {
            for (proxy, samples) in proxies.iter().zip(&mut samples) {
                samples.push(sample(settings, kind, proxy));
            }
        }
        table::print(kind, settings, proxies, &samples);
    }
}

fn sample(settings: &Settings, kind: Kind, proxy: &Proxy) -> Sample {
    // Alone for the latency that is added to a request, then many for the throughput.
    let alone = wrk::run(proxy.address, kind, 1, 1);
    let before = proxy.cpu();
    let many = wrk::run(proxy.address, kind, settings.connections, settings.seconds);
    let spent = proxy.cpu() - before;
    assert_eq!(many.bad, 0, "{} failed {} requests", proxy.name, many.bad);
    Sample {
        cpu_us: spent.as_secs_f64() * 1e6 / many.requests as f64,
        per_second: many.per_second,
        p50_alone_us: alone.p50_us,
        resident_mib: proxy.resident_mib(),
    }
}
