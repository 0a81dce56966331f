//! What ten times the input costs of everything that reads foreign bytes: linear work stays about ten,
//! with a small input's fixed costs below.
//!
//! Instructions are counted, by `valgrind --tool=callgrind`, of one run each in a process of its own: the
//! same on a machine that others keep busy. It ends with an error where they are more than twelve times
//! as many. Without valgrind it prints times, the least of several runs, which prove nothing: caches and
//! neighbours are in them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

#[path = "../tests/fuzz/src/shapes.rs"]
mod shapes;
#[path = "../tests/fuzz/src/targets.rs"]
mod targets;

use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

const SMALL: usize = 1000;
const MOST: f64 = 12.0;
const RUNS: usize = 15;
/// Tells a process of its own which shape to read, and of what size.
const TASK: &str = "TIDEGATE_BENCH_WORK";

fn main() -> ExitCode {
    if let Ok(task) = std::env::var(TASK) {
        let (at, size) = task.split_once(' ').expect("a shape and a size");
        one(at.parse().expect("a number"), size.parse().expect("a number"));
        return ExitCode::SUCCESS;
    }
    let valgrind = Command::new("valgrind").arg("--version").output();
    let is_counted = valgrind.is_ok_and(|output| output.status.success());
    let unit = if is_counted { "instructions" } else { "ns" };
    println!(
        "{:10} {:26} {:>14} {:>14} {:>6}  ({unit})",
        "target", "input", "of 1,000", "of 10,000", "ratio"
    );
    let mut is_linear = true;
    for (at, (target, name, _)) in shapes::ALL.iter().enumerate() {
        let cost = |size| if is_counted { instructions(at, size) } else { nanoseconds(at, size) };
        let (small, large) = (cost(SMALL), cost(10 * SMALL));
        let ratio = large / small;
        is_linear &= ratio <= MOST;
        println!("{target:10} {name:26} {small:>14.0} {large:>14.0} {ratio:>6.1}");
    }
    match is_linear || !is_counted {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn target(at: usize) -> targets::Target {
    let (name, ..) = shapes::ALL[at];
    targets::ALL.iter().find(|(known, _)| *known == name).expect("a target").1
}

fn one(at: usize, size: usize) {
    let (run, (_, _, shape)) = (target(at), shapes::ALL[at]);
    // What is made once is not counted.
    run(&shape(1));
    measured(run, &shape(size));
}

/// Callgrind counts in here.
#[inline(never)]
fn measured(run: targets::Target, input: &[u8]) {
    run(black_box(input));
    black_box(input);
}

fn instructions(at: usize, size: usize) -> f64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(["--collect-atstart=no", "--toggle-collect=*measured*"])
        .arg(std::env::current_exe().expect("a path"))
        .env(TASK, format!("{at} {size}"))
        .output()
        .expect("valgrind");
    let said = String::from_utf8_lossy(&output.stderr);
    let counted = said.lines().find_map(|line| line.split_once("Collected : "));
    let (_, count) = counted.unwrap_or_else(|| panic!("{said}"));
    count.trim().parse().expect("a number")
}

fn nanoseconds(at: usize, size: usize) -> f64 {
    let (run, input) = (target(at), (shapes::ALL[at].2)(size));
    let times = (0..RUNS).map(|_| {
        let start = Instant::now();
        measured(run, &input);
        start.elapsed()
    });
    times.min().unwrap_or(Duration::MAX).as_secs_f64() * 1e9
}
