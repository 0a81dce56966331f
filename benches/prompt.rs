//! Body to prompt keys, and answers read on the side.

#![allow(missing_docs)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::num::NonZeroU32;
use tidegate::prompt::usage::UsageReader;
use tidegate::prompt::{Dialect, read};

const BLOCK_BYTES: NonZeroU32 = NonZeroU32::new(512).unwrap();

/// Prose with a line end or a quotation every few words.
const PROSE: &[&str] = &[
    "harbour ",
    "ledger ",
    "lists ",
    "every ",
    "crate ",
    "by ",
    "number ",
    "and ",
    "owner, ",
    "kept ",
    "signed ",
    "at ",
    "the ",
    "foot.\\n",
    "page ",
    "a ",
    "of ",
    "it is \\\"quoted\\\" ",
    "day ",
    "nobody ",
];
/// Code and JSON inside JSON: an escape every few bytes.
const CODE: &[&str] = &[
    "\\\"name\\\":",
    "\\n",
    "\\t",
    "let x = ",
    "foo(",
    "bar) ",
    "{\\n\\t",
    "}\\n",
    "\\\\n",
    "if a < b ",
    "\\\"path\\\"",
    "return ",
    "// note\\n",
    "value",
    ".into()",
    ";\\n",
];
/// Text whose client escapes all that is not ASCII.
const ESCAPED: &[&str] = &["\\u6e2f\\u53e3", "\\u7684", "\\u8d26\\u672c\\u8bb0", "\\u6bcf\\u4e2a"];
/// Nothing to decode.
const PLAIN: &[&str] = &["harbour ", "ledger ", "lists ", "every crate by number. "];

/// At least `size` bytes of words drawn at random: text that repeats would be learned by the
/// processor's branch predictor.
fn text(size: usize, words: &[&str], rng: &mut fastrand::Rng) -> String {
    let mut text = String::with_capacity(size + 32);
    while text.len() < size {
        text.push_str(words[rng.usize(..words.len())]);
    }
    text
}

/// A conversation of about `size` bytes in turns of about 2 KB.
fn chat(size: usize, words: &[&str]) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(7);
    let mut body =
        String::from(r#"{"model":"m1","messages":[{"role":"system","content":"Be brief."}"#);
    for role in ["user", "assistant"].into_iter().cycle() {
        let said = text(2000.min(size / 2), words, &mut rng);
        body.push_str(&format!(r#",{{"role":"{role}","content":"{said}"}}"#));
        if size <= body.len() {
            break;
        }
    }
    body.push_str(r#"],"tools":[{"type":"function","function":{"name":"kran","parameters":{"type":"object"}}}],"stream":true}"#);
    body.into_bytes()
}

fn ids(count: u32) -> Vec<u8> {
    let ids: Vec<String> = (0..count).map(|id| (id * 37 % 128_000).to_string()).collect();
    format!(r#"{{"model":"m1","input_ids":[{}]}}"#, ids.join(",")).into_bytes()
}

fn prompts(c: &mut Criterion) {
    let mut group = c.benchmark_group("body_to_keys");
    let mut measure = |name: &str, size: usize, dialect: Dialect, body: Vec<u8>| {
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_with_input(BenchmarkId::new(name, size), &body, |b, body| {
            b.iter(|| read(dialect, black_box(body)).keys(BLOCK_BYTES, "m1"));
        });
    };
    for (name, words) in
        [("plain_kb", PLAIN), ("prose_kb", PROSE), ("code_kb", CODE), ("escaped_kb", ESCAPED)]
    {
        for kb in [2, 48, 220, 400] {
            measure(name, kb, Dialect::Chat, chat(kb << 10, words));
        }
    }
    measure("token_ids", 100_000, Dialect::Generate, ids(100_000));
    group.finish();

    let body = chat(220 << 10, PROSE);
    let mut group = c.benchmark_group("parts");
    group.bench_function("read_220_kb", |b| b.iter(|| read(Dialect::Chat, black_box(&body))));
    group.bench_function("write_220_kb", |b| {
        let envelope = read(Dialect::Chat, &body);
        let mut sink = Vec::with_capacity(body.len());
        b.iter(|| {
            sink.clear();
            envelope.write_prompt(&mut sink)
        });
    });
    group.finish();
}

fn answers(c: &mut Criterion) {
    let event = b"data: {\"id\":\"chatcmpl-7f3a\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m1\",\
        \"choices\":[{\"index\":0,\"delta\":{\"content\":\" crate\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n";
    let mut group = c.benchmark_group("answer");
    group.throughput(Throughput::Bytes(event.len() as u64));
    group.bench_function("one_event", |b| {
        let mut reader = UsageReader::new(Some("text/event-stream"), None, Dialect::Chat);
        b.iter(|| reader.push(black_box(event)));
    });
    group.finish();
}

criterion_group!(benches, prompts, answers);
criterion_main!(benches);
