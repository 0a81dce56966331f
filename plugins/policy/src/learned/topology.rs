//! What is configured of a model's nodes: who holds which layers.

use crate::fleet::{Fleet, Millis, Slot, Worker, WorkerId};
use crate::request::Request;
use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU32;
use thiserror::Error;

/// Layers of a model, both ends inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Layers {
    first: u32,
    last: u32,
}

impl Layers {
    /// `None` if `last` comes before `first`.
    pub fn new(first: u32, last: u32) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    /// All layers of a model that has so many.
    pub fn up_to(count: NonZeroU32) -> Self {
        Self { first: 0, last: count.get() - 1 }
    }

    /// The first one.
    pub fn first(self) -> u32 {
        self.first
    }

    /// The last one.
    pub fn last(self) -> u32 {
        self.last
    }
}

impl fmt::Display for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// A worker as the routes see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Configured name of the worker.
    pub id: WorkerId,
    /// Its number in the fleet.
    pub slot: Slot,
    /// What it declares to hold.
    pub layers: Layers,
    /// Its own benchmark, tokens per second.
    pub tps: f64,
    /// Scales `tps`; 1 = believed.
    pub reputation: f64,
}

impl Node {
    /// What it is worth with so many requests there: `tps / (1 + queue) * reputation`.
    fn speed_behind(&self, queue: u64) -> f64 {
        self.tps / (1.0 + queue as f64) * self.reputation
    }

    /// What it is worth with no other request there.
    pub(super) fn idle_speed(&self) -> f64 {
        self.speed_behind(0)
    }
}

/// Why nodes are no topology.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum TopologyError {
    /// A name that is there twice.
    #[error("node `{0}` is there twice")]
    Twice(WorkerId),
    /// A name that could not be told from its layers in a signature.
    #[error("node name `{0}` must not be empty and must not contain `[` or `]`")]
    Name(WorkerId),
    /// Layers the model does not have.
    #[error("node `{node}` declares layers {layers}; the model has {model}")]
    Outside {
        /// Which.
        node: WorkerId,
        /// What it declares.
        layers: Layers,
        /// What there is.
        model: Layers,
    },
    /// A benchmark that measures nothing.
    #[error("tps of node `{0}` must be above 0 and at most 1e12")]
    Speed(WorkerId),
    /// A factor that is none.
    #[error("reputation of node `{0}` must be within 0 and 1e12")]
    Reputation(WorkerId),
    /// More nodes than a fleet can have.
    #[error("more than {0} nodes")]
    TooMany(u16),
}

/// One model's nodes; see the module above for what an epoch is.
#[derive(Clone, Debug)]
pub struct Topology {
    epoch: u64,
    model: Box<str>,
    layers: Layers,
    /// By last layer, the largest first, then by id: the order in which the next hop is looked for.
    nodes: Box<[Node]>,
    /// `node[first-last]`, in the same order.
    labels: Box<[Box<str>]>,
    /// Distinct last layers, the largest first.
    ends: Box<[u32]>,
    /// Position of each node's last layer in `ends`.
    end_of: Box<[u16]>,
}

impl Topology {
    const MOST: u16 = u16::MAX - 1;
    const MOST_SPEED: f64 = 1e12;

    /// Checks the nodes. Epoch 0.
    ///
    /// # Errors
    /// Nodes that are there twice, hold layers the model does not have, or have no speed.
    pub fn new(model: &str, layers: Layers, mut nodes: Vec<Node>) -> Result<Self, TopologyError> {
        if usize::from(Self::MOST) < nodes.len() {
            return Err(TopologyError::TooMany(Self::MOST));
        }
        nodes.sort_by(|a, b| b.layers.last.cmp(&a.layers.last).then_with(|| a.id.cmp(&b.id)));
        let mut ids = BTreeSet::new();
        for node in &nodes {
            check(node, layers)?;
            if !ids.insert(&node.id) {
                return Err(TopologyError::Twice(node.id.clone()));
            }
        }
        let mut ends: Vec<u32> = nodes.iter().map(|node| node.layers.last).collect();
        ends.dedup();
        let end_of = nodes.iter().map(|node| {
            let at = ends.partition_point(|&end| node.layers.last < end);
            u16::try_from(at).unwrap_or(u16::MAX)
        });
        let label = |node: &Node| format!("{}[{}]", node.id, node.layers).into_boxed_str();
        Ok(Self {
            epoch: 0,
            model: model.into(),
            layers,
            labels: nodes.iter().map(label).collect(),
            end_of: end_of.collect(),
            ends: ends.into(),
            nodes: nodes.into(),
        })
    }

    /// A model that nobody computes. Epoch 0.
    pub fn without_nodes(model: &str, layers: Layers) -> Self {
        let (nodes, labels) = (Box::default(), Box::default());
        let (ends, end_of) = (Box::default(), Box::default());
        Self { epoch: 0, model: model.into(), layers, nodes, labels, ends, end_of }
    }

    pub(super) fn at_epoch(self, epoch: u64) -> Self {
        Self { epoch, ..self }
    }

    /// Counts joins, leaves and shard changes of the model's nodes.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The model's name.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The model's layers.
    pub fn layers(&self) -> Layers {
        self.layers
    }

    /// The nodes; positions in a route are positions in it.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Have both the same nodes with the same layers of the same model? Neither benchmark nor
    /// reputation makes another topology.
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.model == other.model && self.layers == other.layers && self.labels == other.labels
    }

    pub(super) fn labels(&self) -> &[Box<str>] {
        &self.labels
    }

    pub(super) fn ends(&self) -> &[u32] {
        &self.ends
    }

    pub(super) fn end_of(&self, node: u16) -> usize {
        usize::from(self.end_of[usize::from(node)])
    }

    pub(super) fn node(&self, node: u16) -> &Node {
        &self.nodes[usize::from(node)]
    }

    /// `model | node[first-last] -> node[first-last]`.
    pub(super) fn signature(&self, hops: &[u16]) -> String {
        let length: usize = hops.iter().map(|&hop| self.label(hop).len() + ARROW.len()).sum();
        let mut text = String::with_capacity(self.model.len() + BAR.len() + length);
        text.push_str(&self.model);
        text.push_str(BAR);
        for (number, &hop) in hops.iter().enumerate() {
            if 0 < number {
                text.push_str(ARROW);
            }
            text.push_str(self.label(hop));
        }
        text
    }

    /// Orders routes with different heads as their signatures are. A label ends where its only `]`
    /// is, so none begins another one, and the heads' labels decide.
    pub(super) fn by_signature(&self, head: u16, other: u16) -> std::cmp::Ordering {
        self.label(head).cmp(self.label(other))
    }

    fn label(&self, node: u16) -> &str {
        &self.labels[usize::from(node)]
    }

    /// What the node is worth to this request, tokens per second; `None`: it may not be used. A
    /// snapshot in which the node's number means another worker is older or newer than the topology.
    pub(super) fn speed(&self, node: &Node, fleet: &Fleet, request: &Request<'_>) -> Option<f64> {
        let worker = &fleet.workers()[fleet.at(node.slot)?];
        let usable = worker.id == node.id && request.may_use(worker);
        usable.then(|| node.speed_behind(queue(worker, request.now)))
    }
}

const BAR: &str = " | ";
const ARROW: &str = " -> ";

fn check(node: &Node, model: Layers) -> Result<(), TopologyError> {
    if node.id.as_str().is_empty() || node.id.as_str().contains(['[', ']']) {
        return Err(TopologyError::Name(node.id.clone()));
    }
    let layers = node.layers;
    if layers.first < model.first || model.last < layers.last {
        return Err(TopologyError::Outside { node: node.id.clone(), layers, model });
    }
    let most = Topology::MOST_SPEED;
    if !(0.0 < node.tps && node.tps <= most) {
        return Err(TopologyError::Speed(node.id.clone()));
    }
    if !(0.0..=most).contains(&node.reputation) {
        return Err(TopologyError::Reputation(node.id.clone()));
    }
    Ok(())
}

/// Waiting and running as reported, if both are known and fresh; else what this edge has in flight.
fn queue(worker: &Worker, now: Millis) -> u64 {
    let reported =
        worker.fresh(now).and_then(|report| Some(report.waiting?.saturating_add(report.running?)));
    reported.unwrap_or_else(|| worker.live.ledger.in_flight())
}

#[cfg(test)]
mod tests;
