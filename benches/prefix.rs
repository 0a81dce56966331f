//! Prompt bytes to keys.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::num::NonZeroU32;
use tidegate_policy::prefix::{PrefixHasher, PrefixKeys, Root};

const BLOCK_BYTES: NonZeroU32 = NonZeroU32::new(512).unwrap();

fn keys(prompt: &[u8], push_bytes: usize) -> PrefixKeys {
    let mut hasher = PrefixHasher::new(BLOCK_BYTES, Root::new("qwen3-32b"));
    for part in prompt.chunks(push_bytes) {
        hasher.push(part);
    }
    hasher.finish()
}

fn prompt_to_keys(c: &mut Criterion) {
    let mut group = c.benchmark_group("prefix");
    for kilobytes in [2, 48, 400] {
        let prompt: Vec<u8> = (0..kilobytes * 1024).map(|at| (at * 31 % 251) as u8).collect();
        group.throughput(Throughput::Bytes(prompt.len() as u64));
        group.bench_with_input(BenchmarkId::new("one_push", kilobytes), &prompt, |b, prompt| {
            b.iter(|| keys(black_box(prompt), usize::MAX));
        });
        // Message by message: what is cut goes through the staging buffer.
        group.bench_with_input(
            BenchmarkId::new("pushes_of_300", kilobytes),
            &prompt,
            |b, prompt| {
                b.iter(|| keys(black_box(prompt), 300));
            },
        );
    }
    group.finish();
}

criterion_group!(benches, prompt_to_keys);
criterion_main!(benches);
