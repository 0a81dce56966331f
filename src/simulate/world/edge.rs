//! One edge: the fleet it knows, and when it publishes what it knows.

use super::super::prompt_keys::prefix_keys;
use super::super::trace::TraceRequest;
use super::agenda::{Agenda, Event};
use crate::config::Config;
use crate::fleet::clock::Clock;
use crate::fleet::{Fleets, ModelFleet, REFRESH};
use crate::metrics::Metrics;
use crate::routing::{Placed, Query};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tidegate_policy::prefix::Root;

/// See the module.
pub(super) struct Edge {
    pub(super) fleet: Arc<ModelFleet>,
    root: Root,
    block_bytes: NonZeroU32,
    /// By slot.
    engines: Vec<u32>,
    published: Duration,
    is_publishing: bool,
    refreshes: u32,
}

impl Edge {
    pub(super) fn new(config: &Config, clock: &Arc<AtomicU64>) -> prometheus::Result<Self> {
        let metrics = Metrics::new()?;
        let fleets = Fleets::with_clock(config, &metrics, Clock::Set(Arc::clone(clock)));
        let fleet = Arc::clone(&fleets.models()[0]);
        let slots = fleet.workers().iter().map(|worker| usize::from(worker.slot.0) + 1);
        let mut engines = vec![0; slots.max().unwrap_or(0)];
        for (engine, worker) in (0..).zip(fleet.workers()) {
            engines[usize::from(worker.slot.0)] = engine;
        }
        Ok(Self {
            root: Root::new(&fleet.config.name),
            block_bytes: NonZeroU32::new(fleet.block_bytes()).unwrap_or(NonZeroU32::MIN),
            engines,
            fleet,
            published: Duration::ZERO,
            is_publishing: false,
            refreshes: 0,
        })
    }

    pub(super) fn start(edge: u32, agenda: &mut Agenda) {
        agenda.put(REFRESH, Event::Refresh { edge });
    }

    pub(super) fn workers(&self) -> usize {
        self.fleet.workers().len()
    }

    /// Does it turn requests away?
    pub(super) fn is_shedding(&self) -> bool {
        self.fleet.is_saturated()
    }

    /// What it makes of a request's prompt.
    pub(super) fn query(&self, request: &TraceRequest, bytes_per_token: u32) -> Option<Query> {
        if request.input_tokens == 0 {
            return None;
        }
        let keys = prefix_keys(request, bytes_per_token, self.block_bytes, self.root);
        Some(Query::of_keys(&self.fleet, keys, None))
    }

    /// Which engine a request was placed at.
    pub(super) fn engine_of(&self, placed: &Placed) -> u32 {
        self.engines[usize::from(placed.booking.worker().slot.0)]
    }

    /// Something its snapshot holds is not true any more.
    pub(super) fn changed(&mut self, edge: u32, now: Duration, agenda: &mut Agenda) {
        if !self.is_publishing {
            self.is_publishing = true;
            agenda.put(now.max(self.published + self.fleet.coalesce()), Event::Publish { edge });
        }
    }

    pub(super) fn publish(&mut self, now: Duration) {
        self.is_publishing = false;
        self.published = now;
        self.fleet.publish();
    }

    pub(super) fn refresh(&mut self, edge: u32, now: Duration, agenda: &mut Agenda) {
        self.refreshes = self.refreshes.wrapping_add(1);
        self.fleet.refresh(self.refreshes);
        agenda.put(now + REFRESH, Event::Refresh { edge });
    }
}
