//! Notices that a client hung up without reading what it has sent: the system says so of the socket.
//!
//! For the time in which nobody may read, because what comes is for somebody else. Over TLS it is the
//! connection below that ends.

use crate::config::HalfClose;
use pingora::protocols::UniqueID;
use pingora_proxy::Session;
use std::future::pending;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// See the module.
#[derive(Debug)]
pub(super) struct HangUp {
    /// `None`: it cannot be watched.
    socket: Option<AsyncFd<OwnedFd>>,
    half_close: HalfClose,
}

impl HangUp {
    /// Watches the client of an HTTP/1 request.
    pub(super) fn of(session: &Session, half_close: HalfClose) -> Self {
        let socket = socket(session, interest(half_close)).map_err(|error| {
            log::warn!("no descriptor to watch a client's connection with: {error}");
        });
        Self { socket: socket.ok().flatten(), half_close }
    }

    /// Returns when the client is gone: it has closed its sending side, or the whole connection is over
    /// where it may do the former.
    pub(super) async fn heard(&self) {
        let Some(socket) = &self.socket else { return pending().await };
        // An error says that the runtime is about to end.
        while let Ok(mut seen) = socket.ready(interest(self.half_close)).await {
            let is_over = match self.half_close {
                HalfClose::Abort => seen.ready().is_read_closed(),
                HalfClose::Tolerate => seen.ready().is_write_closed(),
            };
            if is_over {
                return;
            }
            seen.clear_ready();
        }
        pending().await
    }
}

fn interest(half_close: HalfClose) -> Interest {
    match half_close {
        HalfClose::Abort => Interest::READABLE,
        HalfClose::Tolerate => Interest::WRITABLE,
    }
}

fn socket(session: &Session, interest: Interest) -> io::Result<Option<AsyncFd<OwnedFd>>> {
    let Some(stream) = session.downstream_session.stream() else { return Ok(None) };
    // SAFETY: the session has the connection open for as long as it is borrowed here.
    #[allow(unsafe_code)]
    let connection = unsafe { BorrowedFd::borrow_raw(stream.id()) };
    // A duplicate names this socket for good, and has readiness of its own.
    AsyncFd::with_interest(connection.try_clone_to_owned()?, interest).map(Some)
}
