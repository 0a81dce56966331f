//! One worker: may it be routed to, and where is it.
//!
//! Health, breaker, drain flag, in-flight count and address meet here, under one short lock; every
//! change of one of them recomputes [`Live::is_routable`], which is all the decision reads.

use super::authorities::{self, CaType};
use super::breaker::{Breaker, BreakerState, Ticket, Verdict};
use super::clock;
use super::hysteresis::{Change, Hysteresis};
use super::inflight::InflightGuard;
use super::reading::Reading;
use crate::config;
use crate::metrics::{Outcome, WorkerMetrics};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tidegate_policy::fleet::{Live, Millis, Slot, WorkerId};
use tokio::sync::Notify;

/// Where a worker can be connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerAddress {
    /// TCP.
    Tcp(SocketAddr),
    /// A unix socket's path.
    Unix(Arc<Path>),
}

/// What may be said of a worker in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Do its probes pass?
    pub healthy: bool,
    /// Its breaker.
    pub breaker: BreakerState,
    /// Does it take no new requests?
    pub draining: bool,
    /// Requests sent whose answer is not over.
    pub in_flight: u32,
}

/// See the module.
#[derive(Debug)]
pub struct Worker {
    /// Configured name.
    pub id: WorkerId,
    /// Its number in the prefix index.
    pub slot: Slot,
    /// As configured.
    pub config: config::Worker,
    /// What the decision reads.
    pub live: Arc<Live>,
    state: Mutex<State>,
    /// Known addresses; the first is used. Empty: its name is not resolved yet.
    addresses: ArcSwap<Vec<WorkerAddress>>,
    /// The address in use changed.
    pub(super) readdressed: Notify,
    /// Counts restarts, so that whoever keeps a memory of the engine can tell.
    restarts: AtomicU64,
    /// Counts pools of connections that were left.
    pool: AtomicU64,
    /// Nobody listened when somebody last tried.
    gone: AtomicBool,
    /// Own CAs of an https worker.
    pub authorities: Option<Arc<CaType>>,
    pub(super) reading: Mutex<Reading>,
    pub(super) metrics: WorkerMetrics,
}

#[derive(Debug)]
struct State {
    health: Hysteresis,
    breaker: Breaker,
    draining: bool,
    in_flight: u32,
}

impl Worker {
    /// A worker with an address if that needs no resolver.
    pub(super) fn new(
        config: &config::Worker,
        model: &config::Model,
        slot: Slot,
        metrics: WorkerMetrics,
    ) -> Arc<Self> {
        let addresses = match &config.url.host {
            config::WorkerHost::Ip(address) => vec![WorkerAddress::Tcp(*address)],
            config::WorkerHost::Unix(path) => vec![WorkerAddress::Unix(path.as_path().into())],
            config::WorkerHost::Name { .. } => Vec::new(),
        };
        let state = State {
            health: Hysteresis::new(&model.health),
            breaker: Breaker::new(model.breaker.clone(), model.health.rise.get()),
            draining: config.draining,
            in_flight: 0,
        };
        let worker = Arc::new(Self {
            id: config.id.clone(),
            slot,
            config: config.clone(),
            live: Arc::default(),
            state: Mutex::new(state),
            addresses: ArcSwap::from_pointee(addresses),
            readdressed: Notify::new(),
            restarts: AtomicU64::new(0),
            pool: AtomicU64::new(0),
            gone: AtomicBool::new(false),
            authorities: config.tls.ca.as_deref().map(|file| authorities::load(&config.id, file)),
            reading: Mutex::default(),
            metrics,
        });
        worker.refresh(clock::now());
        worker
    }

    /// Where to connect; `None` while its name was never resolved.
    pub fn address(&self) -> Option<WorkerAddress> {
        self.addresses.load().first().cloned()
    }

    /// The `Host` of all that this edge sends the worker.
    pub(crate) fn authority(&self) -> String {
        match &self.config.url.host {
            config::WorkerHost::Ip(address) => address.to_string(),
            config::WorkerHost::Name { host, port } => format!("{host}:{port}"),
            config::WorkerHost::Unix(_) => "localhost".to_owned(),
        }
    }

    /// The name an https worker's certificate must have.
    pub fn server_name(&self) -> String {
        let host = match &self.config.url.host {
            config::WorkerHost::Ip(address) => address.ip().to_string(),
            config::WorkerHost::Name { host, .. } => host.clone(),
            config::WorkerHost::Unix(_) => String::new(),
        };
        self.config.tls.sni.clone().unwrap_or(host)
    }

    /// Counts a request in, if the worker may still be routed to; half-open, this takes the probe.
    /// `None`: choose another worker.
    pub fn try_dispatch(self: &Arc<Self>) -> Option<InflightGuard> {
        let now = clock::now();
        let mut state = self.state.lock();
        if !self.may_take(&state) {
            return None;
        }
        let ticket = state.breaker.take(now)?;
        state.in_flight += 1;
        self.publish(&state, now);
        drop(state);
        self.metrics.dispatched();
        Some(InflightGuard::new(Arc::clone(self), ticket))
    }

    /// Counts a request out again.
    pub(super) fn release(&self, ticket: Ticket, verdict: Verdict, outcome: Outcome) {
        let now = clock::now();
        let (before, after) = {
            let mut state = self.state.lock();
            state.in_flight = state.in_flight.saturating_sub(1);
            let before = state.breaker.state(now);
            state.breaker.book(now, ticket, verdict);
            self.publish(&state, now);
            (before, state.breaker.state(now))
        };
        match verdict {
            Verdict::Success | Verdict::Unavailable | Verdict::Answered => self.is_there(),
            Verdict::Failure | Verdict::Nothing => {}
        }
        self.metrics.finished(outcome);
        self.tell_breaker(before, after);
    }

    /// What may be said of it now.
    pub fn standing(&self) -> Standing {
        let now = clock::now();
        let state = self.state.lock();
        Standing {
            healthy: state.health.is_well(),
            breaker: state.breaker.state(now),
            draining: state.draining,
            in_flight: state.in_flight,
        }
    }

    /// Stops new requests; running ones finish and everything known is kept.
    pub fn drain(&self) {
        self.set_draining(true);
    }

    /// Takes new requests again.
    pub fn activate(&self) {
        self.set_draining(false);
    }

    fn set_draining(&self, draining: bool) {
        let mut state = self.state.lock();
        state.draining = draining;
        self.publish(&state, clock::now());
    }

    /// Recomputes whether it is routable: a breaker's cool-down ends without any event.
    pub(super) fn refresh(&self, now: Millis) {
        self.publish(&self.state.lock(), now);
    }

    /// Books a health probe.
    pub(super) fn probed(&self, good: bool) -> Change {
        let now = clock::now();
        let (change, before, after) = {
            let mut state = self.state.lock();
            let before = state.breaker.state(now);
            state.breaker.probed(now, good);
            let change = state.health.probed(good);
            self.publish(&state, now);
            (change, before, state.breaker.state(now))
        };
        self.tell_breaker(before, after);
        change
    }

    /// Replaces the addresses its name stands for; true if the one in use is gone, so that another
    /// process answers from now on. The address in use stays first while it is among them.
    pub(super) fn resolved(&self, mut addresses: Vec<WorkerAddress>) -> bool {
        let used = self.address();
        if let Some(at) =
            used.as_ref().and_then(|used| addresses.iter().position(|known| known == used))
        {
            addresses[..=at].rotate_right(1);
        }
        let moved = used.is_some() && used.as_ref() != addresses.first();
        let first = used.is_none();
        self.addresses.store(Arc::new(addresses));
        self.refresh(clock::now());
        if moved || first {
            self.readdressed.notify_one();
        }
        moved
    }

    /// Tries the next address of its name from now on.
    pub(super) fn next_address(&self) {
        let addresses = self.addresses.load();
        if addresses.len() < 2 {
            return;
        }
        let mut addresses = Vec::clone(&addresses);
        addresses.rotate_left(1);
        self.addresses.store(Arc::new(addresses));
    }

    /// Which pool its connections are taken from.
    pub fn pool(&self) -> u64 {
        self.pool.load(Ordering::Relaxed)
    }

    /// The worker closed a pooled connection, so the others are suspect: new ones are made from
    /// now on, and the old ones idle until their time is up.
    pub fn leave_pool(&self) {
        self.pool.fetch_add(1, Ordering::Relaxed);
    }

    /// How often it restarted since this process knows it.
    pub(super) fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// Another engine process answers from now on, or will.
    pub(super) fn count_restart(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }

    /// Nobody listens there; true the first time since somebody did.
    pub(super) fn is_gone(&self) -> bool {
        !self.gone.swap(true, Ordering::Relaxed)
    }

    /// Somebody answered.
    pub(super) fn is_there(&self) {
        self.gone.store(false, Ordering::Relaxed);
    }

    fn may_take(&self, state: &State) -> bool {
        let room = self.config.max_inflight.is_none_or(|most| state.in_flight < most.get());
        room && state.health.is_well() && !state.draining && !self.addresses.load().is_empty()
    }

    fn publish(&self, state: &State, now: Millis) {
        self.live.set_routable(self.may_take(state) && state.breaker.admits(now));
    }

    fn tell_breaker(&self, before: BreakerState, after: BreakerState) {
        match (before, after) {
            (BreakerState::Closed, BreakerState::Closed)
            | (BreakerState::Open, BreakerState::Open)
            | (BreakerState::HalfOpen, BreakerState::HalfOpen) => {}
            (_, BreakerState::Open) => {
                log::warn!("worker {}: failing, left alone for now", self.id)
            }
            (_, BreakerState::HalfOpen) => log::info!("worker {}: one request may try it", self.id),
            (_, BreakerState::Closed) => log::info!("worker {}: serves again", self.id),
        }
    }
}
