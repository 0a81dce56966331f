//! Notices that a client hung up without reading what it has sent: the system says so of the socket.
//!
//! For the time in which nobody may read, because what comes is for somebody else. Over TLS it is the
//! connection below that ends.

use super::patience;
use crate::config::HalfClose;
use pingora_proxy::Session;
use std::future::pending;
use std::io;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// See the module.
#[derive(Debug)]
pub(super) struct HangUp {
    /// `None`: it cannot be watched.
    socket: Option<TcpStream>,
    half_close: HalfClose,
}

impl HangUp {
    /// Watches the client of an HTTP/1 request.
    pub(super) fn of(session: &Session, half_close: HalfClose) -> Self {
        let socket = socket(session).unwrap_or_else(|error| {
            log::warn!("no descriptor to watch a client's connection with: {error}");
            None
        });
        Self { socket, half_close }
    }

    /// Returns when the client is gone: it has closed its sending side, or the whole connection is over
    /// where it may do the former.
    pub(super) async fn heard(&self) {
        let Some(socket) = &self.socket else { return pending().await };
        let interest = match self.half_close {
            HalfClose::Abort => Interest::READABLE,
            HalfClose::Tolerate => Interest::WRITABLE,
        };
        // An error says that the runtime is about to end.
        while let Ok(seen) = socket.ready(interest).await {
            let is_over = match self.half_close {
                HalfClose::Abort => seen.is_read_closed(),
                HalfClose::Tolerate => seen.is_write_closed(),
            };
            if is_over {
                return;
            }
            // What is there stays there; the next thing that happens is waited for.
            let _ =
                socket.try_io(interest, || io::Result::<()>::Err(io::ErrorKind::WouldBlock.into()));
        }
        pending().await
    }
}

fn socket(session: &Session) -> io::Result<Option<TcpStream>> {
    let Some(stream) = session.downstream_session.stream() else { return Ok(None) };
    // A duplicate has readiness of its own. Of a unix socket nothing is asked that is of TCP alone.
    TcpStream::from_std(patience::duplicate(stream.id())?).map(Some)
}
