//! One model's topology and statistics, shared between requests.

use super::choose::{self, Contender, Draws, Mode};
use super::enumerate::{Candidate, candidates};
use super::pinned::{Pin, PinError};
use super::settings::Settings;
use super::stats::{Arms, Ended, Sample, SampleResult};
use super::topology::Topology;
use crate::fleet::{Fleet, Millis, Slot, WorkerId};
use crate::request::Request;
use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::Arc;

/// One node of a route and what it computes there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Its name.
    pub node: WorkerId,
    /// Its number in the fleet.
    pub slot: Slot,
    /// Right after the previous hop's last layer, whatever the node's own first layer is.
    pub start_layer: u32,
    /// The node's last layer.
    pub end_layer: u32,
}

pub(super) fn hops(topology: &Topology, nodes: &[u16]) -> SmallVec<[Hop; 4]> {
    let mut start_layer = topology.layers().first();
    let mut hops = SmallVec::new();
    for &node in nodes {
        let node = topology.node(node);
        let end_layer = node.layers.last();
        hops.push(Hop { node: node.id.clone(), slot: node.slot, start_layer, end_layer });
        start_layer = end_layer.saturating_add(1);
    }
    hops
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Selection {
    /// How it came to that.
    pub mode: Mode,
    /// The arm.
    pub signature: Arc<str>,
    /// The nodes in order, never none; the request is sent to the first.
    pub hops: SmallVec<[Hop; 4]>,
    /// Of the topology it was chosen in.
    pub epoch: u64,
}

impl Selection {
    /// The node the request is sent to.
    pub fn head(&self) -> &Hop {
        // Neither a candidate nor a pin is without a node.
        &self.hops[0]
    }
}

/// One dispatched request; given back by [`Routes::ended`] of the routes it came from.
#[derive(Debug)]
#[must_use = "a scout stays under way until its ticket is given back"]
pub struct Ticket {
    signature: Arc<str>,
    epoch: u64,
    mode: Mode,
}

/// See the module.
#[derive(Debug)]
pub struct Routes {
    topology: ArcSwap<Topology>,
    pub(super) arms: Mutex<Arms>,
}

impl Routes {
    /// Nothing is known of any route yet.
    pub fn new(topology: Topology) -> Self {
        Self { topology: ArcSwap::from_pointee(topology), arms: Mutex::default() }
    }

    /// The present topology.
    pub fn topology(&self) -> Guard<Arc<Topology>> {
        self.topology.load()
    }

    /// Puts another topology in, with its own epoch unless it is the same but for benchmarks and
    /// reputations. Returns the epoch.
    pub fn set_topology(&self, topology: Topology) -> u64 {
        self.swap(|present| {
            let change = u64::from(!topology.is_same_as(present));
            topology.at_epoch(present.epoch().saturating_add(change))
        })
    }

    /// Puts another topology in as a change, whatever it is. Returns its epoch.
    pub fn change_topology(&self, topology: Topology) -> u64 {
        self.swap(|present| topology.at_epoch(present.epoch().saturating_add(1)))
    }

    fn swap(&self, next: impl FnOnce(&Topology) -> Topology) -> u64 {
        // Whoever changes the topology holds the lock, so that no change is lost.
        let _writing = self.arms.lock();
        self.replace(next)
    }

    /// Only with the lock of the arms held.
    pub(super) fn replace(&self, next: impl FnOnce(&Topology) -> Topology) -> u64 {
        let topology = next(&self.topology.load());
        let epoch = topology.epoch();
        self.topology.store(Arc::new(topology));
        epoch
    }

    /// Is there a route whose nodes may all be used at `now`?
    pub fn has_route(&self, fleet: &Fleet, now: Millis) -> bool {
        let topology = self.topology.load();
        let speed = |node: &_| topology.speed(node, fleet, &Request::of_nobody(now));
        !candidates(&topology, speed, 1).is_empty()
    }

    /// Chooses among the routes whose nodes this request may use, and books nothing. `None`: there
    /// is no such route.
    pub fn choose(
        &self,
        fleet: &Fleet,
        request: &Request<'_>,
        settings: &Settings,
        draws: Draws,
    ) -> Option<Selection> {
        let topology = self.topology.load();
        let candidates = live(&topology, fleet, request, settings);
        let contenders = self.contenders(&topology, &candidates, request.now, settings);
        let (at, mode) = choose::choose(&contenders, settings, draws)?;
        let candidate = contenders[at].candidate;
        Some(Selection {
            mode,
            signature: candidate.signature.as_str().into(),
            hops: hops(&topology, &candidate.nodes),
            epoch: topology.epoch(),
        })
    }

    /// The client's own route, if it is one; books nothing.
    ///
    /// # Errors
    /// It is no route through this model, or one of its nodes may not be used now.
    pub fn pinned(
        &self,
        fleet: &Fleet,
        request: &Request<'_>,
        pin: &Pin,
    ) -> Result<Selection, PinError> {
        let topology = self.topology.load();
        let nodes = pin.nodes(&topology)?;
        for &node in &nodes {
            let node = topology.node(node);
            if topology.speed(node, fleet, request).is_none() {
                return Err(PinError::Unavailable { node: node.id.clone() });
            }
        }
        Ok(Selection {
            mode: Mode::Pinned,
            signature: topology.signature(&nodes).into(),
            hops: hops(&topology, &nodes),
            epoch: topology.epoch(),
        })
    }

    /// Books a request that is being sent along this route.
    pub fn dispatched(&self, selection: &Selection) -> Ticket {
        if selection.mode == Mode::Scout {
            self.arms.lock().scout_starts(&selection.signature);
        }
        Ticket {
            signature: Arc::clone(&selection.signature),
            epoch: selection.epoch,
            mode: selection.mode,
        }
    }

    /// The request is over: takes it back and learns from it.
    pub fn ended(
        &self,
        ticket: Ticket,
        ended: Ended,
        now: Millis,
        settings: &Settings,
    ) -> SampleResult {
        let mut arms = self.arms.lock();
        if ticket.mode == Mode::Scout {
            arms.scout_ends(&ticket.signature);
        }
        let sample = Sample { signature: &ticket.signature, epoch: ticket.epoch, ended };
        arms.record(&sample, now, settings)
    }

    /// Learns from a request that was not booked here.
    pub fn record(&self, sample: &Sample<'_>, now: Millis, settings: &Settings) -> SampleResult {
        self.arms.lock().record(sample, now, settings)
    }

    /// Forgets what has had no sample for longer than `prune_after`, and says how many arms.
    pub fn prune(&self, now: Millis, settings: &Settings) -> usize {
        self.arms.lock().prune(now, settings)
    }

    /// Arms that had to make room for others so far; there is room for 256.
    pub fn evicted(&self) -> u64 {
        self.arms.lock().evicted
    }

    pub(super) fn contenders<'c>(
        &self,
        topology: &Topology,
        candidates: &'c [Candidate],
        now: Millis,
        settings: &Settings,
    ) -> SmallVec<[Contender<'c>; 8]> {
        let arms = self.arms.lock();
        let epoch = topology.epoch();
        let contender = |candidate: &'c Candidate| Contender {
            candidate,
            standing: arms.standing(&candidate.signature, epoch, now, settings),
        };
        candidates.iter().map(contender).collect()
    }
}

/// The routes whose nodes this request may use.
pub(super) fn live(
    topology: &Topology,
    fleet: &Fleet,
    request: &Request<'_>,
    settings: &Settings,
) -> Vec<Candidate> {
    let speed = |node: &_| topology.speed(node, fleet, request);
    candidates(topology, speed, settings.most_candidates())
}

#[cfg(test)]
mod tests;
