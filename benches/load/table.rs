//! Medians over the rounds, and each beside the bare proxies of the same round.

use crate::proxies::Proxy;
use crate::wrk::Load;

/// One round of one proxy.
#[derive(Clone, Copy)]
pub struct Sample {
    pub cpu_us: f64,
    pub per_second: f64,
    pub p50_us: f64,
    /// Of the core that generator and engine share, per cent.
    pub load_side: f64,
    pub resident_mib: f64,
}

/// What the others are measured against, where they run; else the first of all.
const BASES: [&str; 2] = ["bare", "reading"];

pub fn print(load: Load, rounds: usize, proxies: &[Proxy], samples: &[Vec<Sample>]) {
    let mut bases: Vec<usize> = (0..proxies.len())
        .filter(|&at| BASES.contains(&proxies[at].name) && !samples[at].is_empty())
        .collect();
    if bases.is_empty() {
        bases.push(0);
    }
    let columns = |word: &str| -> String {
        bases.iter().map(|&base| format!(" {word} {} |", proxies[base].name)).collect()
    };
    println!("\n{}, {} connections, medians of {rounds}\n", load.kind.title(), load.connections);
    let (unit, units) = load.kind.unit();
    println!(
        "| | CPU/{unit} |{} {unit}s/s |{} p50 |{} generator and engine | MiB |",
        columns("of"),
        columns("of"),
        columns("over")
    );
    println!("|---|---|---|---|---|---{}|", "|---".repeat(3 * bases.len()));
    for (proxy, own) in proxies.iter().zip(samples) {
        let against = |figure: &dyn Fn(&Sample, &Sample) -> f64, digits: usize, unit: &str| {
            let against = |&base: &usize| {
                let ratios = own.iter().zip(&samples[base]).map(|(one, base)| figure(one, base));
                format!(" {:.digits$}{unit} |", median(ratios))
            };
            bases.iter().map(against).collect::<String>()
        };
        println!(
            "| {} | {:.1} µs |{} {:.0} |{} {:.0} µs |{} {:.0} % | {:.0} |",
            proxy.name,
            median(own.iter().map(|one| one.cpu_us / units)),
            against(&|one, base| one.cpu_us / base.cpu_us, 2, ""),
            median(own.iter().map(|one| one.per_second * units)),
            against(&|one, base| one.per_second / base.per_second, 2, ""),
            median(own.iter().map(|one| one.p50_us)),
            against(&|one, base| one.p50_us - base.p50_us, 0, " µs"),
            median(own.iter().map(|one| one.load_side)),
            median(own.iter().map(|one| one.resident_mib)),
        );
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
