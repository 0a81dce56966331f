//! Clients' connections: how many there may be, who gives way to whom, and when a silent one ends.
//!
//! Every connection of a traffic listener has a seat, from before a TLS handshake until its socket is
//! closed. At `max_connections` a newcomer takes the seat of a connection that served a request and
//! has none now; it is closed as if it had been idle for too long. If there is none, the newcomer is
//! closed at once. So idle connections keep nobody out; those that never send a request do, until
//! `client_header` ends them, over TLS once for the handshake and once for the head.
//!
//! A request that comes while its connection is to give way is served: for that moment there is one
//! connection too many. Deliberately absent: an answer to who is closed, which would need a
//! handshake first, and a queue of connections, which is the kernel's.

use super::handshake::Handshake;
use crate::config::Timeouts;
use crate::metrics::{Limited, Slow};
use crate::state::State;
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use std::future::poll_fn;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

/// All clients' connections of one edge.
#[derive(Debug)]
pub struct Seats {
    state: Arc<State>,
    table: Mutex<Table>,
    /// Connections that were not told to give way.
    staying: AtomicUsize,
    /// Those of them that could be.
    idle: AtomicUsize,
}

#[derive(Debug, Default)]
struct Table {
    seats: Vec<Option<Arc<Seat>>>,
    free: Vec<usize>,
    is_looked_at: bool,
    /// Where to look next for somebody who gives way.
    hand: usize,
}

/// What a connection is doing.
#[derive(Debug)]
struct Seat {
    at: Mutex<Moment>,
    /// Is the connection to look whether it is over?
    called: AtomicBool,
    caller: AtomicWaker,
    /// Bytes of the HTTP/1 head that is awaited; [`NO_HEAD`]: none is.
    head: AtomicU64,
}

/// A silent connection may end so much later than its limits say.
const LOOK: Duration = Duration::from_millis(250);

const NO_HEAD: u64 = u64::MAX;

#[derive(Debug)]
struct Moment {
    /// Requests now; HTTP/2 has several.
    requests: u32,
    /// Had it any?
    served: bool,
    is_http2: bool,
    /// Idle since then, if it has no request.
    since: Instant,
    /// Used since the hand came by.
    is_recent: bool,
    leaving: bool,
}

impl Moment {
    /// Could it be told to give way?
    fn may_leave(&self) -> bool {
        self.served && self.requests == 0 && !self.leaving
    }
}

impl Seats {
    /// Without connections, limited by whatever configuration is in force.
    pub fn new(state: Arc<State>) -> Arc<Self> {
        let (staying, idle) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { state, table: Mutex::default(), staying, idle })
    }

    /// Looks for silent connections now and then, which costs less than a timer for each request.
    /// Begun with the first connection, as a thread begun before does not outlive becoming a daemon.
    fn begin_to_look(self: &Arc<Self>) -> io::Result<()> {
        let looked_at = Arc::downgrade(self);
        thread::Builder::new().name("seats".to_owned()).spawn(move || {
            while let Some(seats) = looked_at.upgrade() {
                seats.look();
                drop(seats);
                thread::sleep(LOOK);
            }
        })?;
        Ok(())
    }

    /// Calls the connections that are silent for too long.
    fn look(&self) {
        let running = self.state.running();
        let (now, timeouts) = (Instant::now(), &running.config.timeouts);
        let table = self.table.lock();
        for seat in table.seats.iter().flatten().filter(|seat| seat.is_overdue(now, timeouts)) {
            seat.call();
        }
    }

    /// A seat for a new connection; `None`: all are taken, and nobody gives way.
    pub(super) fn take(self: &Arc<Self>) -> Option<Arc<Connection>> {
        let metrics = &self.state.metrics.process;
        let most = self.state.running().config.limits.max_connections;
        let most =
            most.map_or(usize::MAX, |most| usize::try_from(most.get()).unwrap_or(usize::MAX));
        let seat = Arc::new(Seat::new());
        let mut table = self.table.lock();
        if !table.is_looked_at {
            match self.begin_to_look() {
                Ok(()) => table.is_looked_at = true,
                // The next connection tries again.
                Err(error) => log::warn!("silent connections cannot be looked for: {error}"),
            }
        }
        while most <= self.staying.load(Ordering::Relaxed) {
            if !self.make_room(&mut table) {
                metrics.connections_limited(Limited::Refused);
                return None;
            }
            metrics.connections_limited(Limited::Displaced);
        }
        let number = table.free.pop().unwrap_or_else(|| {
            table.seats.push(None);
            table.seats.len() - 1
        });
        table.seats[number] = Some(Arc::clone(&seat));
        self.staying.fetch_add(1, Ordering::Relaxed);
        metrics.connections.inc();
        Some(Arc::new(Connection {
            seat,
            number,
            seats: Arc::clone(self),
            handshake: Mutex::default(),
            client: OnceLock::new(),
        }))
    }

    /// Tells the first idle connection that was not used since the hand last came by.
    fn make_room(&self, table: &mut Table) -> bool {
        let count = table.seats.len();
        // The first round may do no more than find that all were used.
        for _ in 0..2 * count {
            if self.idle.load(Ordering::Relaxed) == 0 {
                return false;
            }
            table.hand = (table.hand + 1) % count;
            let Some(seat) = &table.seats[table.hand] else { continue };
            let mut moment = seat.at.lock();
            if !moment.may_leave() || std::mem::take(&mut moment.is_recent) {
                continue;
            }
            moment.leaving = true;
            self.idle.fetch_sub(1, Ordering::Relaxed);
            self.staying.fetch_sub(1, Ordering::Relaxed);
            seat.call();
            return true;
        }
        false
    }
}

impl Seat {
    fn new() -> Self {
        let moment = Moment {
            requests: 0,
            served: false,
            is_http2: false,
            since: Instant::now(),
            is_recent: false,
            leaving: false,
        };
        Self {
            at: Mutex::new(moment),
            called: AtomicBool::new(false),
            caller: AtomicWaker::new(),
            head: AtomicU64::new(NO_HEAD),
        }
    }

    fn call(&self) {
        self.called.store(true, Ordering::Release);
        self.caller.wake();
    }

    /// Returns when it is called.
    fn poll_call(&self, cx: &Context<'_>) -> Poll<()> {
        let was_called = || self.called.swap(false, Ordering::Acquire);
        if was_called() {
            return Poll::Ready(());
        }
        self.caller.register(cx.waker());
        // It may have been called before the waker was there.
        if was_called() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Has it been without a request for too long at `now`? One of HTTP/1 that was idle that long
    /// is ended by Pingora, so what begins then may take its time.
    fn is_overdue(&self, now: Instant, timeouts: &Timeouts) -> bool {
        let moment = self.at.lock();
        let wait = match (moment.served, moment.is_http2) {
            (false, _) => timeouts.client_header,
            (true, true) => timeouts.client_idle,
            (true, false) => timeouts.client_idle + timeouts.client_header,
        };
        moment.requests == 0 && wait <= now.saturating_duration_since(moment.since)
    }
}

/// A client's connection; its seat is free when this is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    seat: Arc<Seat>,
    number: usize,
    seats: Arc<Seats>,
    handshake: Mutex<Option<Handshake>>,
    client: OnceLock<Option<Arc<str>>>,
}

impl Connection {
    pub(super) fn state(&self) -> &Arc<State> {
        &self.seats.state
    }

    /// Its handshake begins.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub(super) fn shakes_hands(&self, socket: RawFd) -> io::Result<()> {
        *self.handshake.lock() = Some(Handshake::start(socket, &self.seats.state)?);
        Ok(())
    }

    /// Its handshake is over: a request is waited for from now on, of who is told by `client`.
    pub(super) fn opened(&self, client: impl FnOnce() -> Option<Arc<str>>) {
        self.client.get_or_init(client);
        *self.handshake.lock() = None;
        self.seat.at.lock().since = Instant::now();
    }

    /// Who is at the other end; `None`: through a unix socket.
    pub(super) fn client(&self) -> Option<Arc<str>> {
        self.client.get().cloned().flatten()
    }

    /// Pingora reads an HTTP/1 head next.
    pub(super) fn awaits_head(&self) {
        self.seat.head.store(0, Ordering::Relaxed);
    }

    /// How much of an HTTP/1 head came; `None`: Pingora is not about to read one.
    pub(super) fn head_bytes(&self) -> Option<u64> {
        let bytes = self.seat.head.load(Ordering::Relaxed);
        (bytes != NO_HEAD).then_some(bytes)
    }

    /// More of it came.
    pub(super) fn more_of_head(&self, bytes: u64) {
        self.seat.head.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The limit in force.
    pub(super) fn most_head_bytes(&self) -> u64 {
        self.seats.state.running().config.limits.max_header_bytes
    }

    /// A request's head was read.
    pub(super) fn request(self: &Arc<Self>, is_http2: bool) -> AtWork {
        self.seat.head.store(NO_HEAD, Ordering::Relaxed);
        let mut moment = self.seat.at.lock();
        if moment.may_leave() {
            self.seats.idle.fetch_sub(1, Ordering::Relaxed);
        }
        if std::mem::take(&mut moment.leaving) {
            self.seats.staying.fetch_add(1, Ordering::Relaxed);
        }
        moment.requests += 1;
        (moment.served, moment.is_http2) = (true, is_http2);
        AtWork(Arc::clone(self))
    }

    /// Returns when the connection is to be closed: no head came in time, or somebody else needs
    /// the seat.
    pub(super) async fn is_over(&self) {
        loop {
            poll_fn(|cx| self.seat.poll_call(cx)).await;
            if self.seat.at.lock().leaving {
                return;
            }
            // A request may have come since the call.
            if self.seat.is_overdue(Instant::now(), &self.seats.state.running().config.timeouts) {
                break;
            }
        }
        let moment = self.seat.at.lock();
        // One of HTTP/2 without a stream is idle, and so is one of HTTP/1 until Pingora ends it.
        if !moment.served || !moment.is_http2 {
            self.seats.state.metrics.process.connection_slow(Slow::Head);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut table = self.seats.table.lock();
        table.seats[self.number] = None;
        table.free.push(self.number);
        let moment = self.seat.at.lock();
        if moment.may_leave() {
            self.seats.idle.fetch_sub(1, Ordering::Relaxed);
        }
        if !moment.leaving {
            self.seats.staying.fetch_sub(1, Ordering::Relaxed);
        }
        self.seats.state.metrics.process.connections.dec();
    }
}

/// A request on a connection, until its answer is over.
#[derive(Debug)]
pub(super) struct AtWork(Arc<Connection>);

impl AtWork {
    /// Who sent it; `None`: through a unix socket.
    pub(super) fn client(&self) -> Option<Arc<str>> {
        self.0.client()
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let mut moment = self.0.seat.at.lock();
        moment.requests = moment.requests.saturating_sub(1);
        if 0 < moment.requests {
            return;
        }
        (moment.since, moment.is_recent) = (Instant::now(), true);
        self.0.seats.idle.fetch_add(1, Ordering::Relaxed);
    }
}
