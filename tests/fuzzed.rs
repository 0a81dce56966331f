//! The inputs a fuzzer starts from, and what is close to them, break no promise of
//! `fuzz/src/targets.rs`; and what is ten times as long takes no more than twelve times the memory.
//! `benches/work.rs` counts the work.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]

#[path = "fuzz/src/shapes.rs"]
mod shapes;
#[path = "fuzz/src/targets.rs"]
mod targets;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;

/// Inputs made of each kept one.
const MUTANTS: u64 = 60;

/// The kept inputs of a target, in the order of their names.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.display().to_string(), std::fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

/// A few bytes cut, doubled, changed, or of another kept input.
fn mutated(bytes: &[u8], other: &[u8], dice: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..dice.usize(1..4) {
        let from = dice.usize(..=bytes.len());
        let to = (from + dice.usize(..16)).min(bytes.len());
        let piece = match dice.u8(..4) {
            0 => Vec::new(),
            1 => bytes[from..to].repeat(2),
            2 => vec![dice.u8(..)],
            _ if other.is_empty() => Vec::new(),
            _ => {
                let from = dice.usize(..other.len());
                other[from..(from + 32).min(other.len())].to_vec()
            }
        };
        bytes.splice(from..to, piece);
    }
    bytes
}

#[test]
fn what_was_kept_and_what_is_close_to_it_breaks_no_promise() {
    for (target, run) in targets::ALL {
        let corpus = corpus(target);
        assert!(!corpus.is_empty(), "{target} has no corpus");
        let mut dice = fastrand::Rng::with_seed(7);
        for (name, bytes) in &corpus {
            let tried = |bytes: &[u8], what: &str| {
                let result = std::panic::catch_unwind(|| run(bytes));
                assert!(result.is_ok(), "{name}, {what}: {}", bytes.escape_ascii());
            };
            tried(bytes, "as it is");
            for mutant in 0..MUTANTS {
                let other = &corpus[dice.usize(..corpus.len())].1;
                tried(&mutated(bytes, other, &mut dice), &format!("mutant {mutant}"));
            }
        }
    }
}

/// Bytes this thread has allocated in all, has now, and had at most.
#[derive(Clone, Copy, Default)]
struct Memory {
    all: usize,
    now: usize,
    most: usize,
}

thread_local! {
    static MEMORY: Cell<Memory> = const { Cell::new(Memory { all: 0, now: 0, most: 0 }) };
}

struct Counting;

impl Counting {
    fn count(given: usize, taken: usize) {
        // A thread that ends has no counter any more.
        let _ = MEMORY.try_with(|memory| {
            let Memory { all, now, most } = memory.get();
            let now = (now + given).saturating_sub(taken);
            memory.set(Memory { all: all + given, now, most: most.max(now) });
        });
    }
}

// SAFETY: everything is the system's; only numbers are kept here.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size(), 0);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        Self::count(0, layout.size());
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // What grows in place or is moved costs what it grows by; doubling makes that linear.
        Self::count(size, layout.size());
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes allocated in all and at most at a time.
fn memory(run: fn(&[u8]), input: &[u8]) -> (usize, usize) {
    // What is made once, is made now.
    run(input);
    MEMORY.with(|memory| memory.set(Memory::default()));
    run(input);
    let Memory { all, most, .. } = MEMORY.with(Cell::get);
    (all, most)
}

#[test]
fn ten_times_the_input_takes_at_most_twelve_times_the_memory() {
    /// What does not depend on the input.
    const FIXED: usize = 64 << 10;
    for (target, name, shape) in shapes::ALL {
        let run = targets::ALL.iter().find(|(known, _)| *known == target).unwrap().1;
        let (small, large) = (memory(run, &shape(300)), memory(run, &shape(3000)));
        let bytes = shape(3000).len();
        println!("{target}, {name}: {bytes} bytes, {small:?} become {large:?}");
        assert!(large.0 <= 12 * (small.0 + FIXED), "{target}, {name}: {small:?} become {large:?}");
        assert!(large.1 <= 12 * (small.1 + FIXED), "{target}, {name}: {small:?} become {large:?}");
        assert!(large.1 <= 150 * bytes + FIXED, "{target}, {name}: {large:?} for {bytes} bytes");
    }
}
