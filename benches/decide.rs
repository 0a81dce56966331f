//! What a decision costs, by size of the fleet: eight owners of 12,000 tokens, reports of all fields.
//!
//! `tournament`: owners are free; `pin`: everybody queues, the whole fleet is evidence; `cold`: nobody
//! owns the prompt, every line is looked at; `shared`: everybody owns it; `least_load`: the policy of
//! two choices. Under cost selection every line is looked at always: `cost_owned`; `cost_shared`;
//! `cost_cold`: the home is looked for, too; `cost_idle`: everybody ties; `cost_speeds`: no two
//! workers report the same speed.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use tidegate_policy::fleet::{
    Fleet, ForeignShare, Live, Millis, Report, Role, Slot, Speed, SpeedSource, Worker,
};
use tidegate_policy::ledger::Streaming;
use tidegate_policy::request::{Holder, Holding, Holdings, Prompt, Request, holdings};
use tidegate_policy::rules::{CostRules, Rules, Selection};
use tidegate_policy::{decide, least_load};

const NOW: Millis = Millis(1_000);
const SIZES: [u16; 4] = [8, 64, 256, 1_024];
const OWNERS: u16 = 8;
const TOKENS: u64 = 12_000;
const BLOCKS: u32 = 96;

fn routable() -> Arc<Live> {
    let live = Live::default();
    live.set_routable(true);
    Arc::new(live)
}

fn worker(slot: u16, waiting: u64) -> Worker {
    let live = routable();
    let mark = live.ledger.mark();
    live.ledger.report_published(&mark);
    for tokens in 0..u64::from(slot % 3) {
        let _outstanding = live.ledger.dispatch(1_000 + tokens, Streaming::Streamed, NOW);
    }
    let report = Report {
        captured_at: NOW,
        fresh_until: Millis(NOW.0 + 1),
        waiting: Some(waiting),
        running: Some(16),
        max_running: Some(64),
        total_tokens: Some(100_000),
        max_total_tokens: Some(1_000_000),
        waiting_uncached_tokens: Some(waiting * 4_000 + u64::from(slot % 7)),
        estimated_prefill_queue_ms: None,
        own_then: mark.outstanding,
        own_in_flight: 0,
    };
    Worker {
        id: format!("worker-{slot:04}").as_str().into(),
        slot: Slot(slot),
        role: Role::Plain,
        weight: 1,
        ranks: 1,
        report: Some(report),
        speed: None,
        live,
    }
}

fn fleet(size: u16, waiting: u64) -> Fleet {
    Fleet::new(1, (0..size).map(|slot| worker(slot, waiting)).collect())
}

/// Owners spread over the fleet, with a few blocks more or less.
fn owned(fleet: &Fleet, size: u16, owners: u16) -> Holdings {
    let holders: Vec<Holder> = (0..owners)
        .map(|at| Holder {
            slot: Slot(at * (size / owners.max(1))),
            blocks: 60 + u32::from(at % 5),
        })
        .collect();
    holdings(fleet, &holders, TOKENS, BLOCKS)
}

fn request(holdings: &[Holding]) -> Request<'_> {
    let prompt = Prompt { input_tokens: TOKENS, holdings, home: 0x5eed, home_blocks: Some(8) };
    Request {
        now: NOW,
        prompt: Some(prompt),
        excluded: &[],
        dice: 7,
        turn: 7,
        mean_uncached_tokens: 4_000,
        foreign_share: ForeignShare::default(),
    }
}

fn rules() -> Rules {
    Rules {
        worker_queue_limit: NonZeroU64::new(8),
        saturation_queue_floor: NonZeroU64::new(1),
        ..Rules::default()
    }
}

fn ladder(criterion: &mut Criterion) {
    for (name, waiting, owners) in [
        ("tournament", 2, Some(OWNERS)),
        ("pin", 9, Some(OWNERS)),
        ("cold", 2, Some(0)),
        ("shared", 2, None),
    ] {
        let mut group = criterion.benchmark_group(name);
        for size in SIZES {
            let fleet = fleet(size, waiting);
            let held = owned(&fleet, size, owners.unwrap_or(size));
            let rules = rules();
            group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
                bencher.iter(|| decide(&fleet, black_box(&request(&held)), &rules));
            });
        }
        group.finish();
    }
}

/// The same workers with lines of all lengths, as by so many requests of this edge.
fn busy(size: u16, speed: impl Fn(u16) -> u64) -> Fleet {
    let worker = |slot: u16| {
        let worker = worker(slot, 2);
        let tokens = u64::from(slot) * 7_919 % 40_000;
        let _outstanding = worker.live.ledger.dispatch(tokens, Streaming::Streamed, NOW);
        let tokens_per_second = speed(slot);
        let speed = Speed { tokens_per_second, source: SpeedSource::Reported };
        Worker { speed: Some(speed), ..worker }
    };
    Fleet::new(1, (0..size).map(worker).collect())
}

fn idle(size: u16) -> Fleet {
    let worker = |slot| Worker { live: routable(), ..worker(slot, 0) };
    Fleet::new(1, (0..size).map(worker).collect())
}

fn cost(criterion: &mut Criterion) {
    let rules = Rules { selection: Selection::Cost(CostRules::default()), ..Rules::default() };
    let alike: fn(u16) -> Fleet = |size| busy(size, |_| 8_000);
    let unlike: fn(u16) -> Fleet = |size| busy(size, |slot| 8_000 + u64::from(slot));
    for (name, fleet, owners) in [
        ("cost_owned", alike, Some(OWNERS)),
        ("cost_shared", alike, None),
        ("cost_cold", alike, Some(0)),
        ("cost_idle", idle as fn(u16) -> Fleet, Some(0)),
        ("cost_speeds", unlike, Some(OWNERS)),
    ] {
        let mut group = criterion.benchmark_group(name);
        for size in SIZES {
            let fleet = fleet(size);
            let held = owned(&fleet, size, owners.unwrap_or(size));
            group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
                bencher.iter(|| decide(&fleet, black_box(&request(&held)), &rules));
            });
        }
        group.finish();
    }
}

fn policies(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("least_load");
    for size in SIZES {
        let fleet = fleet(size, 2);
        group.bench_function(BenchmarkId::from_parameter(size), |bencher| {
            bencher.iter(|| least_load(&fleet, black_box(&request(&[])), NonZeroU32::new(2)));
        });
    }
    group.finish();
}

criterion_group!(benches, ladder, cost, policies);
criterion_main!(benches);
