//! Nodes, fleets and routes for the tests, written as short as one would say them.

use super::{Ended, Layers, Node, Routes, Sample, SampleResult, Settings, Topology};
use crate::fleet::{Fleet, Live, Millis, Report, Role, Slot, Worker};
use crate::request::Request;
use std::sync::Arc;

/// `name`, first and last layer, tokens per second, queue.
pub(super) type Said<'a> = (&'a str, u32, u32, f64, u64);

/// The two nodes of every story: a fast one with the first layers, a slow one with all.
pub(super) const MIXED: [Said<'_>; 2] = [("gpu-a", 0, 21, 120.0, 0), ("cpu-b", 0, 39, 6.0, 0)];
pub(super) const SLOW: &str = "m | cpu-b[0-39]";
pub(super) const HYBRID: &str = "m | gpu-a[0-21] -> cpu-b[0-39]";

pub(super) fn layers(first: u32, last: u32) -> Layers {
    Layers::new(first, last).unwrap()
}

pub(super) fn nodes(said: &[Said<'_>]) -> Vec<Node> {
    (0..)
        .zip(said)
        .map(|(slot, &(id, first, last, tps, _))| Node {
            id: id.into(),
            slot: Slot(slot),
            layers: layers(first, last),
            tps,
            reputation: 1.0,
        })
        .collect()
}

pub(super) fn topology(said: &[Said<'_>]) -> Topology {
    Topology::new("m", layers(0, 39), nodes(said)).unwrap()
}

pub(super) fn routes(said: &[Said<'_>]) -> Routes {
    Routes::new(topology(said))
}

/// Routable workers that report these queues.
pub(super) fn fleet(said: &[Said<'_>]) -> Fleet {
    let worker = |(slot, &(id, _, _, _, queue)): (u16, &Said<'_>)| {
        let live = Live::default();
        live.set_routable(true);
        let report = Report {
            fresh_until: Millis(u64::MAX),
            waiting: Some(queue),
            running: Some(0),
            ..Report::default()
        };
        Worker {
            id: id.into(),
            slot: Slot(slot),
            role: Role::Plain,
            weight: 1,
            ranks: 1,
            report: Some(report),
            speed: None,
            live: Arc::new(live),
        }
    };
    Fleet::new(1, (0..).zip(said).map(worker).collect())
}

pub(super) fn request(now: Millis) -> Request<'static> {
    Request {
        now,
        prompt: None,
        excluded: &[],
        dice: 0,
        turn: 0,
        mean_uncached_tokens: 0,
        foreign_share: crate::fleet::ForeignShare::default(),
    }
}

/// A sample of this speed, of the present epoch.
pub(super) fn learn(routes: &Routes, signature: &str, tps: f64, now: Millis) -> SampleResult {
    let ended = Ended::Normally { completion_tokens: 100, seconds: 100.0 / tps };
    let epoch = routes.topology().epoch();
    routes.record(&Sample { signature, epoch, ended }, now, &Settings::default())
}
