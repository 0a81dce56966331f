//! Medians over the rounds, and each beside the bare proxy of the same round.

use crate::Settings;
use crate::proxies::Proxy;
use crate::wrk::Kind;

/// One round of one proxy.
#[derive(Clone, Copy)]
pub struct Sample {
    pub cpu_us: f64,
    pub per_second: f64,
    pub p50_alone_us: f64,
    pub resident_mib: f64,
}

pub fn print(kind: Kind, settings: &Settings, proxies: &[Proxy], samples: &[Vec<Sample>]) {
    let base = proxies.iter().position(|proxy| proxy.name == "bare").unwrap_or(0);
    let name = proxies[base].name;
    println!(
        "\n{}, {} connections, medians of {}\n",
        kind.title(),
        settings.connections,
        settings.rounds
    );
    println!(
        "| | CPU/request | of {name} | requests/s | of {name} | p50 alone | over {name} | MiB |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (proxy, own) in proxies.iter().zip(samples) {
        let with_base = || own.iter().zip(&samples[base]);
        println!(
            "| {} | {:.1} µs | {:.2} | {:.0} | {:.2} | {:.0} µs | {:+.0} µs | {:.0} |",
            proxy.name,
            median(own.iter().map(|one| one.cpu_us)),
            median(with_base().map(|(one, base)| one.cpu_us / base.cpu_us)),
            median(own.iter().map(|one| one.per_second)),
            median(with_base().map(|(one, base)| one.per_second / base.per_second)),
            median(own.iter().map(|one| one.p50_alone_us)),
            median(with_base().map(|(one, base)| one.p50_alone_us - base.p50_alone_us)),
            median(own.iter().map(|one| one.resident_mib)),
        );
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
