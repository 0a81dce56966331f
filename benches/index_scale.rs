//! The prefix index at 1, 4 and 16 million entries: `cargo bench --bench index_scale -- [MILLIONS ...]`.
//!
//! Bytes per (block, worker) pair, look-up and insertion, two threads against one, and the most that one call may
//! cost: blocks it evicted and time. Prompts have 40 blocks (20 KB) and share their first eight with 63 others; 8
//! workers hold the index. Each size is a process of its own, as what is freed is not given back. Medians of five;
//! the longest calls are single ones, so a busy machine is in them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use tidegate_policy::fleet::Slot;
use tidegate_policy::index::{Cause, Limits, PrefixIndex};
use tidegate_policy::prefix::PrefixKey;

// As the edge has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BLOCKS: u64 = 40;
/// What the prompts of one tenant have in common.
const COMMON: u64 = 8;
const PROMPTS_OF_A_TENANT: u64 = 64;
const WORKERS: usize = 8;
const MILLION: u64 = 1_000_000;
/// Calls of one measurement.
const CALLS: u64 = 20_000;
const ROUNDS: usize = 5;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|one| one != "--bench").collect();
    match arguments.first().map(String::as_str) {
        Some("size") => size(arguments[1].parse().unwrap()),
        Some("threads") => threads(),
        Some("calls") => longest_calls(),
        _ => {
            let sizes = arguments.iter().map(|size| size.parse::<u64>().unwrap());
            let mut sizes: Vec<u64> = sizes.collect();
            if sizes.is_empty() {
                sizes = vec![1, 4, 16];
            }
            println!(
                "| million entries | bytes each | look-up, held | look-up, unknown | credit and completion, held | new, \
                 index full | longest while it fills | longest when full | evicted by one call |"
            );
            println!("|---|---|---|---|---|---|---|---|---|");
            sizes.iter().for_each(|size| itself(&["size", &size.to_string()]));
            itself(&["threads"]);
            itself(&["calls"]);
        }
    }
}

fn itself(arguments: &[&str]) {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    assert!(command.args(arguments).status().unwrap().success());
}

fn size(millions: u64) {
    let before = resident_bytes();
    let (index, slots) = empty(millions * MILLION);
    let longest = fill(&index, &slots);
    let (name, entries) = (longest.next_name, index.stats().entries);
    let each = (resident_bytes() - before) as f64 / entries as f64;

    let held = |turn: u64| prompt(name - 1 - turn * 31 % (name / 2));
    let mut out = Vec::new();
    let look_up = median_of(|turn| {
        let keys = held(turn);
        time(|| index.holders(black_box(&keys), &mut out))
    });
    let unknown = median_of(|turn| {
        let keys = prompt(name + MILLION * 100 + turn * PROMPTS_OF_A_TENANT);
        time(|| index.holders(black_box(&keys), &mut out))
    });
    let credit_held = median_of(|turn| {
        let (keys, slot) = (held(turn), holder(&slots, name - 1 - turn * 31 % (name / 2)));
        time(|| index.credit(slot, black_box(&keys)).completed())
    });
    let (mut next, mut most_evicted, mut slowest) = (name, 0, Duration::ZERO);
    let credit_new = median_of(|_| {
        let (keys, slot) = (prompt(next), holder(&slots, next));
        next += 1;
        let before = evicted(&index);
        let took = time(|| index.credit(slot, black_box(&keys)).completed());
        most_evicted = most_evicted.max(evicted(&index) - before);
        slowest = slowest.max(took);
        took
    });
    assert!(most_evicted <= BLOCKS, "one call evicted {most_evicted} for {BLOCKS} blocks");
    println!(
        "| {millions} | {each:.1} | {} | {} | {} | {} | {} | {} | {most_evicted} for {BLOCKS} |",
        us(look_up),
        us(unknown),
        us(credit_held),
        us(credit_new),
        ms(longest.took),
        ms(slowest),
    );
}

/// Two threads beside one, each of them with look-ups, held prompts and, one in four, new ones.
fn threads() {
    println!(
        "\n| two threads over one, 4 million entries | requests/s | CPU per request |\n|---|---|---|"
    );
    let (one, other) = (Full::new(WORKERS), Full::new(WORKERS));
    let mut runs = 0;
    let mut row = |what: &str, indexes: [&Full; 2], lanes: [usize; 2]| {
        let (mut rates, mut costs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            // Each run has new prompts that no other had.
            runs += 2;
            let alone = mixed(indexes[0], runs, lanes[0]);
            let barrier = Barrier::new(2);
            let both = std::thread::scope(|scope| {
                let run = |thread: usize| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        barrier.wait();
                        mixed(indexes[thread], runs + 1 + lanes[thread] as u64, lanes[thread])
                    })
                };
                [run(0), run(1)].map(|thread| thread.join().unwrap())
            });
            runs += 1;
            let seconds = |time: Duration| time.as_secs_f64();
            rates.push(2.0 * seconds(alone.0) / seconds(both[0].0.max(both[1].0)));
            costs.push(seconds(both[0].1 + both[1].1) / (2.0 * seconds(alone.1)));
        }
        println!("| {what} | {:.2} | {:.2} |", median(rates), median(costs));
    };
    row("an index for each: what the machine gives", [&one, &other], [0, 1]);
    row("one index, prompts and workers of their own", [&one, &one], [0, 1]);
    row("one index, the same prompts and workers", [&one, &one], [0, 0]);
}

/// Wall and CPU time of one thread's [`CALLS`] on half of the workers and of the prompts.
fn mixed(full: &Full, run: u64, lane: usize) -> (Duration, Duration) {
    let (begin, cpu) = (Instant::now(), cpu_of_thread());
    let mut out = Vec::new();
    for turn in 0..CALLS {
        // Even and odd prompts have different workers.
        let own = |name: u64| name / 2 * 2 + lane as u64;
        let held = own(full.next - 2 - turn * 31 % (full.next / 4));
        let new = own(full.next + run * MILLION + turn);
        let name = if turn % 4 == 0 { new } else { held };
        let keys = prompt(name);
        full.index.holders(&keys, &mut out);
        let mut credit = full.index.credit(holder(&full.slots, name), &keys);
        credit.first_byte();
        credit.completed();
    }
    (begin.elapsed(), cpu_of_thread() - cpu)
}

/// An index at its bound of 4 million.
struct Full {
    index: PrefixIndex,
    slots: Vec<Slot>,
    /// The first prompt that it has never seen.
    next: u64,
}

impl Full {
    fn new(workers: usize) -> Self {
        let (index, mut slots) = empty(4 * MILLION);
        slots.extend(std::iter::from_fn(|| index.add()).take(workers - WORKERS));
        let next = fill(&index, &slots).next_name;
        Self { index, slots, next }
    }
}

/// The most that one call may cost where more than its own blocks has to go.
fn longest_calls() {
    println!("\n| one call, 4 million entries | blocks evicted | time |");
    println!("|---|---|---|");
    let row = |what: &str, index: &PrefixIndex, call: &mut dyn FnMut()| {
        let before = evicted(index);
        let took = time(call);
        println!("| {what} | {} | {} |", evicted(index) - before, ms(took));
    };
    let long =
        |name: u64| -> Vec<PrefixKey> { (0..32_768).map(|at| key(name << 20 | at)).collect() };

    let Full { index, slots, .. } = Full::new(WORKERS);
    row("a prompt of 16 MB that is new", &index, &mut || {
        index.credit(slots[0], &long(1)).completed();
    });
    row("a worker says it holds a tenth", &index, &mut || index.set_capacity(slots[1], 50_000));
    row("its next request, of 40 blocks", &index, &mut || {
        index.credit(slots[1], &prompt(u64::from(u32::MAX))).completed();
    });
    row("a worker has restarted", &index, &mut || index.forget(slots[2]));
    let slowest = std::thread::scope(|scope| {
        let forgetting = scope.spawn(|| index.forget(slots[4]));
        let keys = prompt(1);
        let mut slowest = Duration::ZERO;
        while !forgetting.is_finished() {
            slowest = slowest.max(time(|| index.credit(slots[4], &keys).refused()));
        }
        slowest
    });
    println!("| another has, the longest request to it meanwhile | 0 | {} |", ms(slowest));
    row("a worker leaves", &index, &mut || index.remove(slots[3]));
    row("a reload halves max_entries", &index, &mut || index.set_max_entries(2 * MILLION));
    let Full { index, slots, mut next } = Full::new(1000);
    let mut slowest = Duration::ZERO;
    for _ in 0..CALLS {
        let (keys, slot) = (prompt(next), holder(&slots, next));
        next += 1;
        slowest = slowest.max(time(|| index.credit(slot, &keys).completed()));
    }
    println!(
        "| 1,000 workers, a prompt of 40 blocks, the longest of {CALLS} | at most {BLOCKS} | {} |",
        ms(slowest)
    );
}

fn empty(max_entries: u64) -> (PrefixIndex, Vec<Slot>) {
    let limits = Limits { max_entries, unknown_capacity: u64::from(u32::MAX), seed: 5 };
    let index = PrefixIndex::new(limits);
    let slots = std::iter::from_fn(|| index.add()).take(WORKERS).collect();
    (index, slots)
}

struct Filled {
    next_name: u64,
    /// The longest call.
    took: Duration,
}

/// Until the bound evicts.
fn fill(index: &PrefixIndex, slots: &[Slot]) -> Filled {
    let mut filled = Filled { next_name: 0, took: Duration::ZERO };
    while evicted(index) == 0 {
        let (keys, slot) = (prompt(filled.next_name), holder(slots, filled.next_name));
        filled.next_name += 1;
        filled.took = filled.took.max(time(|| index.credit(slot, &keys).completed()));
    }
    filled
}

/// Its worker: a tenant's prompts have two, as where affinity meets load.
fn holder(slots: &[Slot], name: u64) -> Slot {
    let tenant = name / PROMPTS_OF_A_TENANT;
    slots[(tenant as usize * 2 + name as usize % 2) % slots.len()]
}

fn prompt(name: u64) -> Vec<PrefixKey> {
    let tenant = name / PROMPTS_OF_A_TENANT;
    let common = (0..COMMON).map(|block| key(1 << 63 | tenant << 8 | block));
    common.chain((COMMON..BLOCKS).map(|block| key(name << 8 | block))).collect()
}

/// Well mixed, as hashes are.
fn key(number: u64) -> PrefixKey {
    let mixed = (number ^ number >> 31).wrapping_mul(0xd134_2543_de82_ef95);
    PrefixKey((mixed ^ mixed >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn evicted(index: &PrefixIndex) -> u64 {
    let stats = index.stats();
    Cause::ALL.iter().map(|&cause| stats.evicted(cause)).sum()
}

fn time(call: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    call();
    begin.elapsed()
}

/// The median round's mean over [`CALLS`], each with a number of its own.
fn median_of(mut call: impl FnMut(u64) -> Duration) -> Duration {
    let mut means: Vec<Duration> = (0..ROUNDS as u64)
        .map(|round| {
            let calls = (0..CALLS).map(|turn| call(round * CALLS + turn));
            calls.sum::<Duration>() / CALLS as u32
        })
        .collect();
    means.sort();
    means[ROUNDS / 2]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn cpu_of_thread() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

fn us(time: Duration) -> String {
    format!("{:.2} µs", time.as_secs_f64() * 1e6)
}

fn ms(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    1024 * line.split_whitespace().next().unwrap().parse::<u64>().unwrap()
}
