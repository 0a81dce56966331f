//! The routes there are right now.
//!
//! Last layers grow along a route, so a node that reaches further than where the route stands was
//! not used before, and the next hop depends only on where the route stands. All routes together
//! are therefore a forest: for each distinct last layer the best next node is looked for once, and
//! then every head has its route, its length and its slowest hop.

use super::topology::{Node, Topology};
use smallvec::SmallVec;
use std::cmp::Ordering;

/// Nodes of a route, as positions in the topology.
pub(super) type Nodes = SmallVec<[u16; 4]>;

/// Most hops of a route, enumerated or pinned.
pub(super) const MOST_HOPS: usize = 32;

/// A route that a request could take.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) nodes: Nodes,
    pub(super) signature: String,
    /// The slowest hop, tokens per second.
    pub(super) prior_tps: f64,
    /// The same if nobody queued.
    pub(super) idle_tps: f64,
}

/// At most `most` routes, by prior descending, then signature. `speed`: what a node is worth now,
/// tokens per second, not negative; `None` = not routable.
pub(super) fn candidates(
    topology: &Topology,
    speed: impl Fn(&Node) -> Option<f64>,
    most: usize,
) -> Vec<Candidate> {
    let speeds: Speeds = topology.nodes().iter().map(speed).collect();
    if most == 0 {
        return Vec::new();
    }
    let forest = Forest { topology, tails: tails(topology, &speeds) };
    let mut best: Vec<Head> =
        Vec::with_capacity(most.saturating_add(1).min(topology.nodes().len()));
    for (node, &speed) in (0u16..).zip(&speeds) {
        let Some(head) = speed.and_then(|speed| forest.head(node, speed)) else { continue };
        // In a large fleet most are behind the last one.
        let is_behind = |other: &Head| forest.order(other, &head) != Ordering::Greater;
        if best.len() < most || !best.last().is_some_and(is_behind) {
            best.truncate(most - 1);
            best.insert(best.partition_point(is_behind), head);
        }
    }
    best.iter().map(|head| forest.candidate(head)).collect()
}

/// Speed of each node; `None` = not routable.
type Speeds = SmallVec<[Option<f64>; 32]>;

/// What follows a node that ends at a certain layer.
#[derive(Clone, Copy)]
struct Tail {
    /// `None`: nothing, the model is complete.
    next: Option<u16>,
    hops: usize,
    slowest: f64,
}

#[derive(Clone, Copy)]
struct Head {
    node: u16,
    prior_tps: f64,
}

struct Forest<'a> {
    topology: &'a Topology,
    /// For each of the topology's ends; `None`: no route goes on from there.
    tails: SmallVec<[Option<Tail>; 16]>,
}

fn tails(topology: &Topology, speeds: &Speeds) -> SmallVec<[Option<Tail>; 16]> {
    let mut tails = SmallVec::<[Option<Tail>; 16]>::new();
    for &end in topology.ends() {
        tails.push(tail(topology, speeds, &tails, end));
    }
    tails
}

/// `longer`: the tails of all larger ends.
fn tail(topology: &Topology, speeds: &Speeds, longer: &[Option<Tail>], end: u32) -> Option<Tail> {
    if topology.layers().last() <= end {
        return Some(Tail { next: None, hops: 0, slowest: f64::INFINITY });
    }
    let (next, speed) = next_hop(topology, speeds, end)?;
    let rest = longer.get(topology.end_of(next)).copied().flatten()?;
    Some(Tail { next: Some(next), hops: rest.hops + 1, slowest: speed.min(rest.slowest) })
}

/// The node that reaches furthest from `end`, then the fastest, then the smallest id.
fn next_hop(topology: &Topology, speeds: &Speeds, end: u32) -> Option<(u16, f64)> {
    let mut best: Option<(u16, u32, f64)> = None;
    for (at, (node, speed)) in (0u16..).zip(topology.nodes().iter().zip(speeds)) {
        let reaches = node.layers.last();
        if reaches <= end || best.is_some_and(|(_, furthest, _)| reaches < furthest) {
            break;
        }
        let Some(speed) = *speed else { continue };
        // A first layer after `end + 1` would leave a gap.
        let joins = node.layers.first() <= end.saturating_add(1);
        if joins && best.is_none_or(|(_, _, fastest)| fastest < speed) {
            best = Some((at, reaches, speed));
        }
    }
    best.map(|(at, _, speed)| (at, speed))
}

impl Forest<'_> {
    /// The route that this node is the head of, if it can tokenize and be completed.
    fn head(&self, node: u16, speed: f64) -> Option<Head> {
        if self.topology.node(node).layers.first() != self.topology.layers().first() {
            return None;
        }
        let tail = self.tails[self.topology.end_of(node)]?;
        let prior_tps = speed.min(tail.slowest);
        (tail.hops < MOST_HOPS).then_some(Head { node, prior_tps })
    }

    fn order(&self, one: &Head, other: &Head) -> Ordering {
        let by_prior = other.prior_tps.total_cmp(&one.prior_tps);
        by_prior.then_with(|| self.topology.by_signature(one.node, other.node))
    }

    fn nodes(&self, head: u16) -> impl Iterator<Item = u16> {
        std::iter::successors(Some(head), |&node| self.tails[self.topology.end_of(node)]?.next)
    }

    fn candidate(&self, head: &Head) -> Candidate {
        let nodes: Nodes = self.nodes(head.node).collect();
        let signature = self.topology.signature(&nodes);
        let idle = nodes.iter().map(|&node| self.topology.node(node).idle_speed());
        let idle_tps = idle.fold(f64::INFINITY, f64::min);
        Candidate { nodes, signature, prior_tps: head.prior_tps, idle_tps }
    }
}

#[cfg(test)]
mod tests;
