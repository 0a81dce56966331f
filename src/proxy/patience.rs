//! How long a worker may keep a request waiting: `first_byte` until its answer begins,
//! `stream_idle` between the bytes of it.
//!
//! Pingora has one read timeout for both. So it gets none, and one thread of the process looks at all
//! connections in use, every [`LOOK`], and shuts down the sockets of those whose patience has ended;
//! Pingora then sees the worker close and takes its usual way, with [`Patience::has_ended`] telling
//! why. A request costs an entry in a list that way, not a task and a timer of its own.

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

/// Watches one use of one connection; dropping it ends the watch.
#[derive(Debug)]
pub(super) struct Patience(Arc<Watch>);

#[derive(Debug)]
struct Watch {
    socket: TcpStream,
    deadline: AtomicU64,
    end: Mutex<End>,
}

/// How a watch ends: the one or the other, and nothing behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    NotYet,
    /// Patience did.
    OfPatience,
    /// The connection was given back, and is somebody else's.
    OfUse,
}

/// What is watched in this process, and what was until the last look.
static WATCHED: Mutex<Watched> = Mutex::new(Watched { has_watcher: false, all: Vec::new() });

struct Watched {
    has_watcher: bool,
    all: Vec<Weak<Watch>>,
}

impl Patience {
    /// Starts to watch the connection Pingora just took for a request.
    ///
    /// # Errors
    /// The process is out of descriptors or threads.
    pub(super) fn start(connection: RawFd, first_byte: Duration) -> io::Result<Self> {
        let watch = Arc::new(Watch {
            socket: duplicate(connection)?,
            deadline: AtomicU64::new(deadline(first_byte)),
            end: Mutex::new(End::NotYet),
        });
        let mut watched = WATCHED.lock();
        if !watched.has_watcher {
            thread::Builder::new().name("patience".to_owned()).spawn(watch_over_all)?;
            watched.has_watcher = true;
        }
        watched.all.push(Arc::downgrade(&watch));
        Ok(Self(watch))
    }

    /// A byte came: from here on the stream may idle this long.
    pub(super) fn renew(&self, stream_idle: Duration) {
        self.0.deadline.store(deadline(stream_idle), Ordering::Relaxed);
    }

    /// Was the connection shut down here?
    pub(super) fn has_ended(&self) -> bool {
        *self.0.end.lock() == End::OfPatience
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        *self.0.end.lock() = End::OfUse;
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
    now.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
}

fn watch_over_all() {
    let mut watched = Vec::new();
    loop {
        thread::sleep(LOOK);
        // Out of the lock meanwhile: requests that begin need not wait for the look.
        watched.append(&mut WATCHED.lock().all);
        let Millis(now) = clock::now();
        watched.retain(|watch| watch.upgrade().is_some_and(|watch| watch.is_going_on(now)));
    }
}

impl Watch {
    fn is_going_on(&self, now: u64) -> bool {
        if now < self.deadline.load(Ordering::Relaxed) {
            return true;
        }
        let mut end = self.end.lock();
        if *end != End::NotYet {
            return false;
        }
        *end = End::OfPatience;
        if let Err(error) = self.socket.shutdown(Shutdown::Both) {
            log::debug!("the worker closed as patience with it ended: {error}");
        }
        false
    }
}
