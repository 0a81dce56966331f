//! How long a worker may keep a request waiting: `first_byte` until its answer begins,
//! `stream_idle` between the bytes of it.
//!
//! Pingora has one read timeout for both. So it gets none, and a task of its own watches each
//! connection in use and shuts its socket down when patience ends; Pingora then sees the worker
//! close and takes its usual way, with [`Patience::has_ended`] telling why.

use std::net::{Shutdown, TcpStream};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tidegate_policy::fleet::Millis;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::fleet::clock;

/// Watches one use of one connection; dropping it ends the watch.
#[derive(Debug)]
pub(super) struct Patience {
    watch: Arc<Watch>,
    task: AbortHandle,
}

#[derive(Debug)]
struct Watch {
    deadline: AtomicU64,
    /// The deadline came nearer than what the task sleeps for.
    nearer: Notify,
    ended: AtomicBool,
}

impl Patience {
    /// Starts to watch the connection Pingora just took for a request.
    ///
    /// # Errors
    /// The descriptor cannot be duplicated, so the process is out of descriptors.
    pub(super) fn start(connection: RawFd, first_byte: Duration) -> std::io::Result<Self> {
        let socket = duplicate(connection)?;
        let watch = Arc::new(Watch {
            deadline: AtomicU64::new(deadline(first_byte)),
            nearer: Notify::new(),
            ended: AtomicBool::new(false),
        });
        let task = tokio::spawn(watch_over(socket, Arc::clone(&watch))).abort_handle();
        Ok(Self { watch, task })
    }

    /// A byte came: from here on the stream may idle this long.
    pub(super) fn renew(&self, stream_idle: Duration) {
        let new = deadline(stream_idle);
        let old = self.watch.deadline.swap(new, Ordering::Relaxed);
        if new < old {
            self.watch.nearer.notify_one();
        }
    }

    /// Was the connection shut down here?
    pub(super) fn has_ended(&self) -> bool {
        self.watch.ended.load(Ordering::Relaxed)
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Names the socket behind a number for good; the number alone could name another one later.
///
/// To be called while Pingora runs a hook with that connection.
///
/// # Errors
/// The process is out of descriptors.
pub(super) fn duplicate(connection: RawFd) -> std::io::Result<TcpStream> {
    // SAFETY: Pingora holds the connection open while it runs a hook.
    #[allow(unsafe_code)]
    let connection = unsafe { BorrowedFd::borrow_raw(connection) };
    Ok(TcpStream::from(connection.try_clone_to_owned()?))
}

fn deadline(wait: Duration) -> u64 {
    let Millis(now) = clock::now();
    now.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
}

async fn watch_over(socket: TcpStream, watch: Arc<Watch>) {
    loop {
        let Millis(now) = clock::now();
        let left = watch.deadline.load(Ordering::Relaxed).saturating_sub(now);
        if left == 0 {
            break;
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(left)) => {}
            () = watch.nearer.notified() => {}
        }
    }
    watch.ended.store(true, Ordering::Relaxed);
    if let Err(error) = socket.shutdown(Shutdown::Both) {
        log::debug!("the worker closed as patience with it ended: {error}");
    }
}
