//! How long a worker may keep a request waiting: `first_byte` until its answer begins,
//! `stream_idle` between the bytes of it.
//!
//! Pingora has one read timeout for both. So it gets none, and one thread of the process looks at all
//! connections to workers, every [`LOOK`], and shuts down the sockets of those with whom patience has
//! ended; Pingora then sees the worker close and takes its usual way, with [`Patience::has_ended`]
//! telling why. A request costs a deadline that is written down, not a task and a timer of its own.

use crate::fleet::clock;
use parking_lot::Mutex;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;
use tidegate_policy::fleet::Millis;

/// Patience may end so much later than it says.
const LOOK: Duration = Duration::from_millis(50);

/// The deadline of a connection nobody waits for.
const NONE: u64 = u64::MAX;

/// With one use of a connection; dropping it ends the use.
#[derive(Debug)]
pub(super) struct Patience(Arc<Watch>);

/// A connection that is looked at.
#[derive(Debug)]
pub(super) struct Watch {
    deadline: AtomicU64,
    watched: Mutex<Watched>,
}

#[derive(Debug)]
struct Watched {
    /// `None`: it is closed, as far as this matters here.
    socket: Option<TcpStream>,
    has_ended: bool,
}

/// All of this process, and those that were until the last look.
static WATCHES: Mutex<Watches> = Mutex::new(Watches { has_watcher: false, all: Vec::new() });

struct Watches {
    has_watcher: bool,
    all: Vec<Weak<Watch>>,
}

impl Watch {
    /// Over a connection that Pingora holds open meanwhile.
    ///
    /// # Errors
    /// The process is out of descriptors or threads.
    pub(super) fn over(connection: RawFd) -> io::Result<Arc<Self>> {
        let socket = Some(duplicate(connection)?);
        let watch = Arc::new(Self {
            deadline: AtomicU64::new(NONE),
            watched: Mutex::new(Watched { socket, has_ended: false }),
        });
        let mut watches = WATCHES.lock();
        if !watches.has_watcher {
            thread::Builder::new().name("patience".to_owned()).spawn(watch_over_all)?;
            watches.has_watcher = true;
        }
        watches.all.push(Arc::downgrade(&watch));
        Ok(watch)
    }

    /// The connection is about to be closed: no descriptor of it may stay open.
    pub(super) fn leave(&self) {
        self.watched.lock().socket = None;
    }

    fn look(&self, now: u64) {
        if now < self.deadline.load(Ordering::Relaxed) {
            return;
        }
        let mut watched = self.watched.lock();
        // Nobody ends a use meanwhile, nor begins one: that is not somebody else's connection.
        if now < self.deadline.load(Ordering::Relaxed) {
            return;
        }
        let Some(socket) = watched.socket.take() else { return };
        watched.has_ended = true;
        if let Err(error) = socket.shutdown(Shutdown::Both) {
            log::debug!("the worker closed as patience with it ended: {error}");
        }
    }
}

impl Patience {
    /// A request begins to wait for its answer.
    pub(super) fn start(watch: Arc<Watch>, first_byte: Duration) -> Self {
        watch.deadline.store(deadline(first_byte), Ordering::Relaxed);
        Self(watch)
    }

    /// A byte came: from here on the stream may idle this long.
    pub(super) fn renew(&self, stream_idle: Duration) {
        self.0.deadline.store(deadline(stream_idle), Ordering::Relaxed);
    }

    /// Was the connection shut down here?
    pub(super) fn has_ended(&self) -> bool {
        self.0.watched.lock().has_ended
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        let _whole = self.0.watched.lock();
        self.0.deadline.store(NONE, Ordering::Relaxed);
    }
}

/// Names the socket behind a number for good; the number alone could name another one later.
///
/// To be called while Pingora runs a hook with that connection.
///
/// # Errors
/// The process is out of descriptors.
pub(super) fn duplicate(connection: RawFd) -> io::Result<TcpStream> {
    // SAFETY: Pingora holds the connection open while it runs a hook.
    #[allow(unsafe_code)]
    let connection = unsafe { BorrowedFd::borrow_raw(connection) };
    Ok(TcpStream::from(connection.try_clone_to_owned()?))
}

fn deadline(wait: Duration) -> u64 {
    let Millis(now) = clock::now();
    now.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)).min(NONE - 1)
}

fn watch_over_all() {
    let mut all = Vec::new();
    loop {
        thread::sleep(LOOK);
        // Out of the lock meanwhile: connections that begin need not wait for the look.
        all.append(&mut WATCHES.lock().all);
        let Millis(now) = clock::now();
        all.retain(|watch: &Weak<Watch>| match watch.upgrade() {
            Some(watch) => {
                watch.look(now);
                true
            }
            None => false,
        });
    }
}
