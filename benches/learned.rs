//! What a learned route costs: eight candidates of four hops, all measured; and fleets of whole-model
//! workers, each a route of one hop.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::sync::Arc;
use tidegate_policy::fleet::{Fleet, Live, Millis, Report, Role, Slot, Worker};
use tidegate_policy::learned::{
    Choice, Draws, Ended, Layers, Node, Pin, Routes, Sample, Settings, Topology,
};
use tidegate_policy::request::Request;

const NOW: Millis = Millis(1_000);
const LAST: u32 = 39;

fn worker(node: &Node) -> Worker {
    let live = Live::default();
    live.set_routable(true);
    let report = Report {
        fresh_until: Millis(u64::MAX),
        waiting: Some(u64::from(node.slot.0 % 3)),
        running: Some(1),
        ..Report::default()
    };
    Worker {
        id: node.id.clone(),
        slot: node.slot,
        role: Role::Plain,
        weight: 1,
        ranks: 1,
        report: Some(report),
        speed: None,
        live: Arc::new(live),
    }
}

fn node(slot: u16, first: u32, last: u32) -> Option<Node> {
    Some(Node {
        id: format!("gpu-node-{slot:04}").as_str().into(),
        slot: Slot(slot),
        layers: Layers::new(first, last)?,
        tps: 50.0 + f64::from(slot % 5),
        reputation: 1.0,
    })
}

/// Eight nodes for each quarter of the layers: eight heads, whose routes have four hops.
fn quarters() -> Vec<Node> {
    let quarter = |slot: u16| node(slot, u32::from(slot / 8) * 10, u32::from(slot / 8) * 10 + 9);
    (0..32).filter_map(quarter).collect()
}

fn whole(count: u16) -> Vec<Node> {
    (0..count).filter_map(|slot| node(slot, 0, LAST)).collect()
}

fn request() -> Request<'static> {
    Request {
        now: NOW,
        prompt: None,
        excluded: &[],
        dice: 7,
        turn: 7,
        mean_uncached_tokens: 0,
        foreign_share: tidegate_policy::fleet::ForeignShare::default(),
    }
}

/// Routes of which every candidate is measured, but for those in `unproven`.
fn routes(nodes: Vec<Node>, unproven: usize) -> Option<(Fleet, Routes)> {
    let fleet = Fleet::new(1, nodes.iter().map(worker).collect());
    let topology = Topology::new("qwen3.6-35b-a3b", Layers::new(0, LAST)?, nodes).ok()?;
    let routes = Routes::new(topology);
    let settings = Settings::default();
    for (at, row) in
        routes.table(&fleet, NOW, &settings).candidates.iter().enumerate().skip(unproven)
    {
        let ended = Ended::Normally { completion_tokens: 100 + at as u64, seconds: 2.0 };
        routes.record(&Sample { signature: &row.signature, epoch: 0, ended }, NOW, &settings);
    }
    Some((fleet, routes))
}

fn choice(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("choose");
    for (name, nodes, unproven, choice) in [
        ("exploit, 8 routes of 4 hops", quarters(), 0, Choice::Proportional),
        ("scout, 8 routes of 4 hops", quarters(), 4, Choice::Proportional),
        ("thompson, 8 routes of 4 hops", quarters(), 4, Choice::Thompson),
        ("8 whole", whole(8), 0, Choice::Proportional),
        ("64 whole", whole(64), 0, Choice::Proportional),
        ("1024 whole", whole(1_024), 0, Choice::Proportional),
    ] {
        let Some((fleet, routes)) = routes(nodes, unproven) else { continue };
        let settings = Settings { choice, ..Settings::default() };
        let draws = Draws { explore: 0.1, pick: 0.6 };
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter(|| routes.choose(&fleet, black_box(&request()), &settings, draws));
        });
    }
    group.finish();
}

fn rest(criterion: &mut Criterion) {
    let settings = Settings::default();
    let Some((fleet, routes)) = routes(quarters(), 4) else { return };
    let draws = Draws { explore: 0.1, pick: 0.6 };
    let Some(selection) = routes.choose(&fleet, &request(), &settings, draws) else { return };
    let ended = Ended::Normally { completion_tokens: 100, seconds: 2.0 };
    criterion.bench_function("dispatched and ended", |bencher| {
        bencher.iter(|| routes.ended(routes.dispatched(&selection), ended, NOW, &settings));
    });
    let names: Vec<&str> = selection.hops.iter().map(|hop| hop.node.as_str()).collect();
    let json = serde_json::json!(names).to_string();
    criterion.bench_function("pinned, 4 hops", |bencher| {
        bencher.iter(|| {
            let pin = Pin::read(black_box(&json)).ok().flatten()?;
            routes.pinned(&fleet, &request(), &pin).ok()
        });
    });
    criterion.bench_function("table, 8 routes of 4 hops", |bencher| {
        bencher.iter(|| routes.table(&fleet, NOW, &settings));
    });
}

criterion_group!(benches, choice, rest);
criterion_main!(benches);
