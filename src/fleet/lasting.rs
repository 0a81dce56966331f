//! What of a worker outlives a configuration: its health, breaker, load, line and address.
//!
//! Health, breaker, drain flag, in-flight count and address meet here, under one short lock; every
//! change of one of them recomputes [`Live::is_routable`], which is all the decision reads.
//!
//! A worker that a configuration leaves out is *removed*: it takes no request of a later one, and none
//! that waited, finishes what it has and is still there if it is put back meanwhile. With its last
//! request it has *left*: the index has forgotten it and it has no metrics.

mod addresses;

use super::breaker::{Breaker, BreakerState, Ticket, Verdict};
use super::clock::Clock;
use super::hysteresis::{Change, Hysteresis};
use super::queue::Queue;
use super::reading::Reading;
use super::warmth::WarmSince;
use super::worker::{Standing, Whose, WorkerAddress};
use crate::config::{self, WorkerHost};
use crate::metrics::{Outcome, ReportState, WorkerMetrics};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tidegate_policy::fleet::{Live, Millis, Slot, WorkerId};
use tidegate_policy::index::PrefixIndex;
use tokio::sync::Notify;

/// Counts all workers there ever were.
static WORKERS: AtomicU64 = AtomicU64::new(0);

/// See the module.
#[derive(Debug)]
pub(super) struct Lasting {
    /// No other worker ever has it.
    pub(super) number: u64,
    pub(super) id: WorkerId,
    /// Its number in its model's prefix index.
    pub(super) slot: Slot,
    pub(super) live: Arc<Live>,
    pub(super) reading: Mutex<Reading>,
    pub(super) passed_on: Mutex<PassedOn>,
    pub(super) metrics: WorkerMetrics,
    /// The address in use changed.
    pub(super) readdressed: Notify,
    state: Mutex<State>,
    /// Known addresses; the first is used. Empty: its name is not resolved yet.
    addresses: ArcSwap<Vec<WorkerAddress>>,
    /// Counts restarts, so that whoever keeps a memory of the engine can tell.
    restarts: AtomicU64,
    /// Counts pools of connections that were left.
    pool: AtomicU64,
    /// When it last began to warm up.
    pub(super) warm_since: WarmSince,
    /// Nobody listened when somebody last tried.
    gone: AtomicBool,
    home: Home,
}

/// The parts of its model a worker has a say in, and the time it goes by.
#[derive(Clone, Debug)]
pub(super) struct Home {
    pub(super) index: PrefixIndex,
    /// When a worker of the model last began to warm up.
    pub(super) warm_since: Arc<WarmSince>,
    /// Those who wait for one of its workers.
    pub(super) queue: Arc<Queue>,
    /// Something the model's snapshot holds is not true any more.
    pub(super) changed: Arc<Notify>,
    pub(super) clock: Clock,
}

/// What was passed on of the worker to ledger and index.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PassedOn {
    /// Of the report the ledger knows.
    pub(super) captured_at: Option<Millis>,
    /// Blocks the index was told.
    pub(super) capacity: u64,
}

#[derive(Debug)]
struct State {
    health: Hysteresis,
    breaker: Breaker,
    draining: bool,
    max_inflight: Option<NonZeroU32>,
    in_flight: u32,
    /// It warms up from when it may be routed to.
    is_cold: bool,
    presence: Presence,
}

impl State {
    fn is_full(&self) -> bool {
        self.max_inflight.is_some_and(|most| most.get() <= self.in_flight)
    }
}

/// Is the worker part of the configuration in force?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Listed,
    Removed,
    Left,
}

impl Lasting {
    /// A worker nobody knew, with an address if that needs no resolver.
    pub(super) fn new(
        config: &config::Worker,
        model: &config::Model,
        slot: Slot,
        metrics: WorkerMetrics,
        home: Home,
    ) -> Arc<Self> {
        let addresses = match &config.url.host {
            WorkerHost::Ip(address) => vec![WorkerAddress::Tcp(*address)],
            WorkerHost::Unix(path) => vec![WorkerAddress::Unix(path.as_path().into())],
            WorkerHost::Name { .. } => Vec::new(),
        };
        let state = State {
            health: Hysteresis::new(&model.health),
            breaker: Breaker::new(model.breaker.clone(), model.health.rise.get()),
            draining: config.draining,
            max_inflight: config.max_inflight,
            in_flight: 0,
            is_cold: false,
            presence: Presence::Listed,
        };
        let worker = Arc::new(Self {
            number: WORKERS.fetch_add(1, Ordering::Relaxed),
            id: config.id.clone(),
            slot,
            live: Arc::default(),
            reading: Mutex::default(),
            passed_on: Mutex::default(),
            metrics,
            readdressed: Notify::new(),
            state: Mutex::new(state),
            addresses: ArcSwap::from_pointee(addresses),
            restarts: AtomicU64::new(0),
            pool: AtomicU64::new(0),
            warm_since: WarmSince::default(),
            gone: AtomicBool::new(false),
            home,
        });
        worker.refresh(worker.now());
        worker
    }

    /// A later configuration has the worker too, and `before` is how the last one had it. False: it
    /// has left already. Whether it drains is the operator's word until the file's changes.
    pub(super) fn is_kept(
        &self,
        before: &config::Worker,
        config: &config::Worker,
        model: &config::Model,
    ) -> bool {
        let mut state = self.state.lock();
        match state.presence {
            Presence::Left => return false,
            Presence::Listed | Presence::Removed => state.presence = Presence::Listed,
        }
        state.health.set(&model.health);
        state.breaker.set(model.breaker.clone(), model.health.rise.get());
        state.max_inflight = config.max_inflight;
        if before.draining != config.draining {
            state.draining = config.draining;
        }
        self.publish(&mut state, self.now());
        true
    }

    /// It is new, and nobody else can serve its model.
    pub(super) fn trust(&self) {
        let mut state = self.state.lock();
        state.health.trust();
        self.publish(&mut state, self.now());
    }

    /// The configuration in force leaves the worker out.
    pub(super) fn remove(&self) {
        let mut state = self.state.lock();
        state.presence = match (state.presence, state.in_flight) {
            (Presence::Left, _) => return,
            (Presence::Listed | Presence::Removed, 0) => Presence::Left,
            (Presence::Listed | Presence::Removed, _) => Presence::Removed,
        };
        let has_left = state.presence == Presence::Left;
        drop(state);
        if has_left {
            self.leave();
        }
    }

    /// Is it out of the configuration, and there only to finish what it has?
    pub(super) fn is_finishing(&self) -> bool {
        let state = self.state.lock();
        match state.presence {
            Presence::Listed => false,
            Presence::Removed | Presence::Left => 0 < state.in_flight,
        }
    }

    /// The time it goes by.
    pub(super) fn now(&self) -> Millis {
        self.home.clock.now()
    }

    /// Nobody needs what is known of it. Called once.
    fn leave(&self) {
        self.home.index.remove(self.slot);
        self.metrics.retire();
    }

    /// Counts a request in, if the worker may still be routed to; half-open, this takes the probe.
    pub(super) fn take(&self, whose: Whose) -> Option<Ticket> {
        let now = self.now();
        let mut state = self.state.lock();
        let is_open_to = match whose {
            Whose::Pinned => true,
            Whose::Waiting => state.presence == Presence::Listed,
        };
        if !is_open_to || !self.may_take(&state) {
            return None;
        }
        let ticket = state.breaker.take(now)?;
        state.in_flight += 1;
        self.publish(&mut state, now);
        drop(state);
        self.metrics.dispatched();
        Some(ticket)
    }

    /// Counts a request out again.
    pub(super) fn release(&self, ticket: Ticket, verdict: Verdict, outcome: Outcome) {
        let now = self.now();
        let (before, after, has_left) = {
            let mut state = self.state.lock();
            state.in_flight = state.in_flight.saturating_sub(1);
            let before = state.breaker.state(now);
            state.breaker.book(now, ticket, verdict);
            let after = state.breaker.state(now);
            state.is_cold |= before != after && after == BreakerState::Closed;
            self.publish(&mut state, now);
            let has_left = state.presence == Presence::Removed && state.in_flight == 0;
            if has_left {
                state.presence = Presence::Left;
            }
            (before, after, has_left)
        };
        match verdict {
            Verdict::Success | Verdict::Unavailable | Verdict::Answered => self.is_there(),
            Verdict::Failure | Verdict::Nothing => {}
        }
        self.metrics.finished(outcome);
        self.tell_breaker(before, after);
        if has_left {
            log::info!("worker {}: finished what it had, gone", self.id);
            self.leave();
        }
    }

    /// What may be said of it now.
    pub(super) fn standing(&self) -> Standing {
        let now = self.now();
        let state = self.state.lock();
        Standing {
            healthy: state.health.is_well(),
            breaker: state.breaker.state(now),
            draining: state.draining,
            in_flight: state.in_flight,
        }
    }

    /// How long it may take at least until the worker can be routed to again; `None`: it can now, or
    /// nothing is known to bring it back.
    pub(super) fn back_in(&self, health: &config::Health) -> Option<Duration> {
        let now = self.now();
        let state = self.state.lock();
        if !self.is_up(&state) {
            let is_probed = !state.health.is_well() && !state.draining;
            return is_probed.then_some(health.interval);
        }
        let full = state.is_full().then_some(Duration::ZERO);
        full.or_else(|| state.breaker.admits_in(now))
    }

    /// May it be routed to, or will it once a request it has ends well? It is full then, or its
    /// breaker's probe is out.
    pub(super) fn may_make_room(&self) -> bool {
        let now = self.now();
        let state = self.state.lock();
        let is_left_alone = state.breaker.state(now) == BreakerState::Open;
        state.presence == Presence::Listed && self.is_up(&state) && !is_left_alone
    }

    /// Prompt blocks the index believes it holds.
    pub(super) fn owned_blocks(&self) -> u64 {
        self.home.index.owned(self.slot)
    }

    /// What is known of its load now, by these rules.
    pub(super) fn report_state(&self, rules: &config::LoadReports) -> ReportState {
        let now = self.now();
        let reading = self.reading.lock();
        match reading.report(rules) {
            Some(report) if now < report.fresh_until => ReportState::Fresh,
            Some(_) => ReportState::Stale,
            None => reading.missing(),
        }
    }

    pub(super) fn set_draining(&self, draining: bool) {
        let mut state = self.state.lock();
        state.draining = draining;
        self.publish(&mut state, self.now());
    }

    /// Recomputes whether it is routable: a breaker's cool-down ends without any event.
    ///
    /// Whoever waits at the edge looks again by this, too: first bytes shorten a queue and tell nobody.
    pub(super) fn refresh(&self, now: Millis) {
        self.publish(&mut self.state.lock(), now);
    }

    /// Books a health probe.
    pub(super) fn probed(&self, good: bool) -> Change {
        let now = self.now();
        let (change, before, after) = {
            let mut state = self.state.lock();
            let before = state.breaker.state(now);
            state.breaker.probed(now, good);
            let change = state.health.probed(good);
            self.publish(&mut state, now);
            (change, before, state.breaker.state(now))
        };
        self.tell_breaker(before, after);
        change
    }

    pub(super) fn pool(&self) -> u64 {
        self.pool.load(Ordering::Relaxed)
    }

    pub(super) fn leave_pool(&self) {
        self.pool.fetch_add(1, Ordering::Relaxed);
    }

    /// How often it restarted since this process knows it.
    pub(super) fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// A connection to the worker was refused: nobody listens there, so whoever will is another
    /// process, with an empty cache and a load of its own.
    pub(super) fn refused(&self) {
        let is_news = !self.gone.swap(true, Ordering::Relaxed);
        if is_news {
            self.replaced();
        }
    }

    /// Another process answers for the worker: nothing known of the old one holds.
    pub(super) fn replaced(&self) {
        self.reading.lock().restarted();
        self.came_back();
        self.changed();
    }

    /// The worker was away and may have restarted meanwhile: its cache is taken to be empty.
    pub(super) fn came_back(&self) {
        self.grow_cold();
        self.home.index.forget(self.slot);
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }

    /// It holds nothing and has no queue: it warms up, once it may be routed to.
    pub(super) fn grow_cold(&self) {
        let mut state = self.state.lock();
        state.is_cold = true;
        self.publish(&mut state, self.now());
    }

    /// Blocks have another size from now on, so nothing the index holds of it can be found, and its
    /// capacity in blocks is another number; `unknown` until it is known.
    pub(super) fn forget_blocks(&self, unknown: u64) {
        self.home.index.forget(self.slot);
        self.home.index.set_capacity(self.slot, unknown);
        self.passed_on.lock().capacity = 0;
    }

    /// Somebody answered.
    pub(super) fn is_there(&self) {
        self.gone.store(false, Ordering::Relaxed);
    }

    /// Something its model's snapshot holds of it is not true any more.
    pub(super) fn changed(&self) {
        self.home.changed.notify_one();
    }

    fn may_take(&self, state: &State) -> bool {
        !state.is_full() && self.is_up(state)
    }

    fn is_up(&self, state: &State) -> bool {
        state.health.is_well() && !state.draining && !self.addresses.load().is_empty()
    }

    fn publish(&self, state: &mut State, now: Millis) {
        let is_routable = self.may_take(state) && state.breaker.admits(now);
        self.live.set_routable(is_routable);
        if is_routable {
            if std::mem::take(&mut state.is_cold) {
                self.warm_since.begin(now);
                self.home.warm_since.begin(now);
            }
            self.home.queue.changed();
        }
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
