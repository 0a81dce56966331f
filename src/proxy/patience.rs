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
pub(super) struct Patience {
    watch: Arc<Watch>,
    /// The number of the use.
    of: u64,
}

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
    /// The number of the latest use: a connection may be somebody else's before the use before is
    /// dropped.
    uses: u64,
    /// The use that patience ended with.
    ended: Option<u64>,
}

/// All of this process, and those that were until the last look.
static WATCHES: Mutex<Watches> = Mutex::new(Watches { has_watcher: false, all: Vec::new() });

struct Watches {
    has_watcher: bool,
    all: Vec<Weak<Watch>>,
}

impl Watch {
    /// Over a connection that stays open meanwhile.
    ///
    /// # Errors
    /// The process is out of descriptors or threads.
    pub(super) fn over(connection: RawFd) -> io::Result<Arc<Self>> {
        let socket = Some(duplicate(connection)?);
        let watch = Arc::new(Self {
            deadline: AtomicU64::new(NONE),
            watched: Mutex::new(Watched { socket, uses: 0, ended: None }),
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
        watched.ended = Some(watched.uses);
        if let Err(error) = socket.shutdown(Shutdown::Both) {
            log::debug!("the worker closed as patience with it ended: {error}");
        }
    }
}

impl Patience {
    /// A request begins to wait for its answer.
    pub(super) fn start(watch: Arc<Watch>, first_byte: Duration) -> Self {
        let mut watched = watch.watched.lock();
        watched.uses += 1;
        watch.deadline.store(deadline(first_byte), Ordering::Relaxed);
        let of = watched.uses;
        drop(watched);
        Self { watch, of }
    }

    /// A byte came: from here on the stream may idle this long.
    pub(super) fn renew(&self, stream_idle: Duration) {
        self.watch.deadline.store(deadline(stream_idle), Ordering::Relaxed);
    }

    /// Was the connection shut down here?
    pub(super) fn has_ended(&self) -> bool {
        self.watch.watched.lock().ended == Some(self.of)
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        let watched = self.watch.watched.lock();
        if watched.uses == self.of {
            self.watch.deadline.store(NONE, Ordering::Relaxed);
        }
    }
}

/// Names the socket behind a number for good; the number alone could name another one later.
///
/// The caller, or Pingora while it runs a hook with that connection, keeps it open meanwhile.
///
/// # Errors
/// The process is out of descriptors.
pub(super) fn duplicate(connection: RawFd) -> io::Result<TcpStream> {
    // SAFETY: the connection is open, see above.
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;

    const FOREVER: Duration = Duration::from_secs(3600);

    fn watch() -> (Arc<Watch>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Watch::over(connection.as_raw_fd()).unwrap(), connection)
    }

    fn later() -> u64 {
        let Millis(now) = clock::now();
        now + 1000
    }

    #[test]
    fn patience_ends_with_whoever_waits_too_long() {
        let (watch, _connection) = watch();
        watch.look(later());
        let patience = Patience::start(Arc::clone(&watch), FOREVER);
        watch.look(later());
        assert!(!patience.has_ended());
        patience.renew(Duration::ZERO);
        watch.look(later());
        assert!(patience.has_ended());
    }

    #[test]
    fn a_use_that_is_dropped_late_takes_nothing_from_the_next_one() {
        let (watch, _connection) = watch();
        let first = Patience::start(Arc::clone(&watch), FOREVER);
        let second = Patience::start(Arc::clone(&watch), Duration::ZERO);
        drop(first);
        watch.look(later());
        assert!(second.has_ended());
    }

    #[test]
    fn the_end_of_a_use_is_not_said_of_the_next_one() {
        let (watch, _connection) = watch();
        let first = Patience::start(Arc::clone(&watch), Duration::ZERO);
        watch.look(later());
        assert!(first.has_ended());
        let second = Patience::start(Arc::clone(&watch), FOREVER);
        assert!(!second.has_ended());
        drop(first);
        assert!(!second.has_ended());
    }

    #[test]
    fn nobody_is_waited_for_between_two_uses() {
        let (watch, _connection) = watch();
        drop(Patience::start(Arc::clone(&watch), FOREVER));
        assert_eq!(watch.deadline.load(Ordering::Relaxed), NONE);
        watch.leave();
        assert!(watch.watched.lock().socket.is_none());
    }
}
