//! Resident memory of an edge that a million different prompts go through.

use crate::admin;
use crate::engine::Engine;
use crate::proxies::{self, Proxy};
use crate::wrk::{self, Kind, Load};

const PROMPTS: u64 = 1_000_000;
const LOAD: Load = Load { kind: Kind::Distinct(2048), connections: 32 };
/// Of 1 million: prompts of 2 KB have four blocks, so they go through it four times. And the default.
const BOUNDS: [u64; 2] = [1_000_000, 4_000_000];

pub fn run(engine: &Engine, prompts: Option<u64>) {
    let prompts = prompts.unwrap_or(PROMPTS);
    println!(
        "\nmax_entries | prompts | entries | evicted | resident | over the empty edge, by entry"
    );
    for bound in BOUNDS {
        let edge = proxies::bounded(bound, engine.address).run().unwrap();
        // What the first requests allocate is not the index's: prompts that come again.
        wrk::run(edge.address, Load::named("2k"), 2);
        let empty = edge.resident_mib();
        let mut sent = 0;
        for fifth in 1..=5 {
            while sent < prompts * fifth / 5 {
                let seen = wrk::run(edge.address, LOAD, 5);
                assert_eq!(seen.bad, 0, "requests failed");
                sent += seen.requests;
            }
            row(bound, sent, &edge, empty);
        }
    }
}

fn row(bound: u64, sent: u64, edge: &Proxy, empty: f64) {
    let page = admin::call(proxies::admin(edge.address), "GET /metrics");
    let sum = |name: &str| -> f64 {
        let values = page.lines().filter(|line| line.starts_with(name));
        values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    let (entries, evicted) = (sum("tidegate_index_entries"), sum("tidegate_index_evictions_total"));
    let resident = edge.resident_mib();
    let each = (resident - empty) * f64::from(1 << 20) / entries.max(1.0);
    println!("| {bound} | {sent} | {entries} | {evicted} | {resident:.0} MiB | {each:.0} bytes |");
}
