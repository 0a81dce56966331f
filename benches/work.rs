//! What ten times the input costs of everything that reads foreign bytes: the ratio of the times, the
//! least of several runs each. Linear work stays about ten, with a small input's fixed costs below.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

#[path = "../tests/fuzz/src/shapes.rs"]
mod shapes;
#[path = "../tests/fuzz/src/targets.rs"]
mod targets;

use std::time::{Duration, Instant};

const SMALL: usize = 1000;
const RUNS: usize = 15;

fn least(run: fn(&[u8]), input: &[u8]) -> Duration {
    let times = (0..RUNS).map(|_| {
        let start = Instant::now();
        run(input);
        start.elapsed()
    });
    times.min().unwrap_or_default()
}

fn main() {
    println!(
        "{:10} {:26} {:>12} {:>12} {:>6}",
        "target", "input", "of 1,000", "of 10,000", "ratio"
    );
    for (target, name, shape) in shapes::ALL {
        let run = targets::ALL.iter().find(|(known, _)| *known == target).expect("a target").1;
        let (small, large) = (least(run, &shape(SMALL)), least(run, &shape(10 * SMALL)));
        let ratio = large.as_secs_f64() / small.as_secs_f64();
        println!("{target:10} {name:26} {small:>12.1?} {large:>12.1?} {ratio:>6.1}");
    }
}
