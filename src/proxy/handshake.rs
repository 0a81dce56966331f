//! How long a client may take for a TLS handshake: `client_header`, from the connection to the last byte.
//!
//! Pingora gives every handshake 60 s and nobody a say in that. So a task of its own holds the socket
//! while the handshake lasts and shuts it down when the time is over; Pingora then sees the client
//! leave.

use super::patience;
use crate::metrics::Slow;
use crate::state::State;
use std::io;
use std::net::Shutdown;
use std::os::fd::RawFd;
use std::sync::Arc;
use tokio::task::AbortHandle;

/// A handshake under way; dropping it is its end.
#[derive(Debug)]
pub(super) struct Handshake(AbortHandle);

impl Handshake {
    /// Begins with an accepted connection.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub(super) fn start(socket: RawFd, state: &Arc<State>) -> io::Result<Self> {
        let socket = patience::duplicate(socket)?;
        let limit = state.running().config.timeouts.client_header;
        let state = Arc::clone(state);
        let task = tokio::spawn(async move {
            tokio::time::sleep(limit).await;
            state.metrics.process.connection_slow(Slow::Handshake);
            if let Err(error) = socket.shutdown(Shutdown::Both) {
                log::debug!("a client left as its handshake had lasted too long: {error}");
            }
        });
        Ok(Self(task.abort_handle()))
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.0.abort();
    }
}
