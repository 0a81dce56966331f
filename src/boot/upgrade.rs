//! An upgrade: sockets and warm state go from one process to the next, and only one of them serves
//! whatever happens in between.
//!
//! ```text
//! predecessor                               successor, started with -u
//!   SIGQUIT                                   waits at UPGRADE_SOCK
//!   listens at UPGRADE_SOCK.warm
//!   listening sockets ---- UPGRADE_SOCK ---->   (Pingora's own form)
//!   warm state -------- UPGRADE_SOCK.warm --->   takes it in, or starts cold
//!                        first connection
//!                        <---- "ready" ------   accepts
//!   closes after OVERLAP ---- "leaving" ---->   stays
//!   accepts no more ------ the end ---------->   the next successor may come
//!                        second connection
//! ```
//!
//! The state ends with its connection, so that one in a form of another version can be left where it
//! is. Until "leaving" the predecessor has changed nothing and serves on if the successor is not heard
//! of; until the end of the overlap it comes back if the connection breaks, which is what a killed
//! successor looks like. Stock Pingora would leave as soon as the sockets are sent.

mod predecessor;
mod successor;

pub(super) use predecessor::{Predecessor, Successor};
pub(super) use successor::{Arrival, Turn};

use pingora::server::ListenFds;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use thiserror::Error;
use tokio::net::UnixStream;

/// The successor to the predecessor: it accepts.
const READY: &[u8] = b"ready\n";
/// The predecessor to the successor: it will not.
const LEAVING: &[u8] = b"leaving\n";

/// For a successor to fetch the warm state, and for either side to take the next step; a state of
/// the largest size takes seconds.
const STEP: Duration = Duration::from_secs(60);
/// Both accept for so long, so that busy connections move by `Connection: close` and not by a close
/// that crosses a request.
const OVERLAP: Duration = Duration::from_secs(5);

/// The server's listening sockets, known once its services start.
pub(super) type Sockets = Arc<OnceLock<ListenFds>>;

/// Why sockets or state did not change hands.
#[derive(Debug, Error)]
pub(super) enum HandoverError {
    #[error("no successor waits at {}", .0.display())]
    NoSuccessor(PathBuf),
    #[error("the sockets could not be sent: {0}")]
    Sockets(String),
    #[error("{what}: {error}")]
    Io { what: &'static str, error: io::Error },
    #[error("{0} took too long")]
    Late(&'static str),
    #[error("the other side is not of this user")]
    Stranger,
}

/// Where the warm state changes hands.
fn warm_socket(upgrade_sock: &Path) -> PathBuf {
    upgrade_sock.with_added_extension("warm")
}

/// Lets nobody but this user and root pass.
fn check_own(stream: &UnixStream) -> Result<(), HandoverError> {
    let uids = || Ok((stream.peer_cred()?.uid(), fs::metadata("/proc/self")?.uid()));
    match uids().map_err(|error| HandoverError::Io { what: "who is there", error })? {
        (0, _) => Ok(()),
        (other, own) if other == own => Ok(()),
        (_, _) => Err(HandoverError::Stranger),
    }
}

/// A step with a name and its time.
async fn step<T>(
    what: &'static str,
    action: impl Future<Output = io::Result<T>>,
) -> Result<T, HandoverError> {
    match tokio::time::timeout(STEP, action).await {
        Ok(done) => done.map_err(|error| HandoverError::Io { what, error }),
        Err(_) => Err(HandoverError::Late(what)),
    }
}
