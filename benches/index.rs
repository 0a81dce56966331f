//! Who holds a prompt, and crediting one.

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::num::NonZeroU32;
use tidegate_policy::fleet::Slot;
use tidegate_policy::index::{Limits, PrefixIndex};
use tidegate_policy::prefix::{PrefixHasher, PrefixKey, PrefixKeys, Root};

const BLOCK_BYTES: NonZeroU32 = NonZeroU32::new(512).unwrap();
const KILOBYTES: [usize; 3] = [2, 48, 400];
/// Entries of an index in full use: most look-ups miss the processor's caches, as in production.
const MAX_ENTRIES: u64 = 1_000_000;

/// Prompts of different sizes share nothing.
fn text(kilobytes: usize) -> Vec<u8> {
    (kilobytes..kilobytes * 1025).map(|at| (at * 31 % 251) as u8).collect()
}

fn keys(prompt: &[u8]) -> PrefixKeys {
    let mut hasher = PrefixHasher::new(BLOCK_BYTES, Root::new("qwen3-32b"));
    hasher.push(prompt);
    hasher.finish()
}

/// Chains nobody asks for.
fn other(name: u64, len: u64) -> Vec<PrefixKey> {
    (0..len)
        .map(|block| PrefixKey((name << 32 | block).wrapping_mul(0xd134_2543_de82_ef95)))
        .collect()
}

fn index(workers: u64) -> (PrefixIndex, Vec<Slot>) {
    let index =
        PrefixIndex::new(Limits { max_entries: MAX_ENTRIES, unknown_capacity: 1 << 20, seed: 5 });
    let slots: Vec<_> = std::iter::from_fn(|| index.add()).take(workers as usize).collect();
    for (name, &slot) in (1..).zip(&slots) {
        index.credit(slot, &other(name, MAX_ENTRIES / 2 / workers)).completed();
    }
    (index, slots)
}

/// Holders of the whole prompt, of half of it, of a quarter, and so on: many different depths are
/// the worst case of a look-up.
fn credit_halves(index: &PrefixIndex, slots: &[Slot], keys: &[PrefixKey]) {
    for (holder, &slot) in slots.iter().enumerate() {
        let depth = (keys.len() >> (holder % 8)).max(1);
        index.credit(slot, &keys[..depth]).completed();
    }
}

fn holders(c: &mut Criterion) {
    let mut group = c.benchmark_group("holders");
    for workers in [1, 8, 1000] {
        let (index, slots) = index(workers);
        for kilobytes in KILOBYTES {
            let keys = keys(&text(kilobytes));
            credit_halves(&index, &slots, keys.keys());
            let mut out = Vec::new();
            group.bench_function(BenchmarkId::new(workers.to_string(), kilobytes), |b| {
                b.iter(|| index.holders(black_box(keys.keys()), &mut out));
            });
        }
    }
    group.finish();
}

/// 1,000 workers share a system prompt of 4 KB, one holds the whole conversation.
fn shared_beginning(c: &mut Criterion) {
    let mut group = c.benchmark_group("shared_beginning");
    let (index, slots) = index(1000);
    for kilobytes in KILOBYTES {
        let keys = keys(&text(kilobytes));
        let shared = keys.keys().len().min(8);
        for &slot in &slots {
            index.credit(slot, &keys.keys()[..shared]).completed();
        }
        index.credit(slots[500], keys.keys()).completed();
        let mut out = Vec::new();
        group.bench_function(BenchmarkId::from_parameter(kilobytes), |b| {
            b.iter(|| index.holders(black_box(keys.keys()), &mut out));
        });
    }
    group.finish();
}

/// From prompt bytes to holders, 8 workers.
fn keys_and_holders(c: &mut Criterion) {
    let mut group = c.benchmark_group("keys_and_holders");
    let (index, slots) = index(8);
    for kilobytes in KILOBYTES {
        let prompt = text(kilobytes);
        credit_halves(&index, &slots, keys(&prompt).keys());
        let mut out = Vec::new();
        group.bench_function(BenchmarkId::from_parameter(kilobytes), |b| {
            b.iter(|| index.holders(keys(black_box(&prompt)).keys(), &mut out));
        });
    }
    group.finish();
}

/// Dispatch to completion of a request whose prompt is held, to refusal of one that is new, and
/// to completion of one that is new to a full index, so that each of its blocks evicts another.
fn credit(c: &mut Criterion) {
    let mut group = c.benchmark_group("credit");
    let (index, slots) = index(8);
    let mut name = 1000;
    let mut new = |blocks| {
        name += 1;
        other(name, blocks)
    };
    for kilobytes in KILOBYTES {
        let held = keys(&text(kilobytes));
        group.bench_function(BenchmarkId::new("refused", kilobytes), |b| {
            b.iter(|| index.credit(slots[1], black_box(held.keys())).refused());
        });
        group.bench_function(BenchmarkId::new("held", kilobytes), |b| {
            b.iter(|| index.credit(slots[0], black_box(held.keys())).completed());
        });
    }
    while index.stats().entries < MAX_ENTRIES {
        index.credit(slots[2], &new(100)).completed();
    }
    for kilobytes in KILOBYTES {
        let blocks = kilobytes as u64 * 2;
        group.bench_function(BenchmarkId::new("new_when_full", kilobytes), |b| {
            let credit = |keys: Vec<PrefixKey>| index.credit(slots[3], &keys).completed();
            b.iter_batched(|| new(blocks), credit, BatchSize::SmallInput);
        });
    }
    group.finish();
}

criterion_group!(benches, holders, shared_beginning, keys_and_holders, credit);
criterion_main!(benches);
