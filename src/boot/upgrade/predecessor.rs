//! The side that leaves.

use super::{HandoverError, LEAVING, OVERLAP, READY, Sockets, check_own, step, warm_socket};
use crate::handover;
use crate::state::{State, unix_seconds};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::spawn_blocking;

/// Hands everything over, if somebody takes it.
pub(in crate::boot) struct Predecessor {
    state: Arc<State>,
    sockets: Sockets,
    upgrade_sock: PathBuf,
}

/// A process that accepts on the same sockets now.
pub(in crate::boot) struct Successor {
    stream: UnixStream,
    pub(in crate::boot) pid: Option<i32>,
}

impl Predecessor {
    pub(in crate::boot) fn new(state: Arc<State>, sockets: Sockets, upgrade_sock: PathBuf) -> Self {
        Self { state, sockets, upgrade_sock }
    }

    /// Sends the sockets to who waits for them.
    ///
    /// # Errors
    /// Nobody does, or they could not be sent; this process serves on.
    pub(in crate::boot) async fn invite(&self) -> Result<Meeting, HandoverError> {
        let Some(invited) = Waiting::at(&self.upgrade_sock) else {
            return Err(HandoverError::NoSuccessor(self.upgrade_sock.clone()));
        };
        let meeting = Meeting::open(&self.upgrade_sock, invited)
            .map_err(|error| HandoverError::Io { what: "the meeting point", error })?;
        self.send_sockets().await?;
        Ok(meeting)
    }

    /// Ends when the successor accepts and knows that this process will not for much longer. May be
    /// dropped at any point: nothing has changed then.
    ///
    /// # Errors
    /// It was lost on the way; this process serves on.
    pub(in crate::boot) async fn meet(
        &self,
        meeting: &Meeting,
    ) -> Result<Successor, HandoverError> {
        let (mut stream, _) = step("the successor's call", meeting.listener.accept()).await?;
        check_own(&stream)?;
        let warm = self.warm_state().await;
        // One that knows another form hangs up and starts cold.
        if let Err(error) = step("the warm state", stream.write_all(&warm)).await {
            log::warn!("not all of the warm state was taken: {error}");
        }
        drop(stream);
        let (stream, _) = step("the successor's second call", meeting.listener.accept()).await?;
        check_own(&stream)?;
        let pid = stream.peer_cred().ok().and_then(|cred| cred.pid());
        let mut successor = Successor { stream, pid };
        successor.hear_ready().await?;
        step("the farewell", successor.stream.write_all(LEAVING)).await?;
        Ok(successor)
    }

    /// Pingora's own form, which may have to try for some seconds.
    async fn send_sockets(&self) -> Result<(), HandoverError> {
        let Some(sockets) = self.sockets.get().cloned() else {
            return Err(HandoverError::Sockets("they are not open yet".to_owned()));
        };
        let path = self.upgrade_sock.to_string_lossy().into_owned();
        let sent = spawn_blocking(move || sockets.lock().send_to_sock(path.as_str())).await;
        match sent {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(HandoverError::Sockets(error.to_string())),
            Err(error) => Err(HandoverError::Sockets(error.to_string())),
        }
    }

    /// As it goes over the wire; nothing, if it cannot be written: the successor starts cold.
    async fn warm_state(&self) -> Vec<u8> {
        let running = self.state.pin();
        let written = spawn_blocking(move || {
            let mut bytes = Vec::new();
            handover::take(&running.fleets, unix_seconds() as u64).write(&mut bytes).map(|()| bytes)
        });
        match written.await {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(error)) => {
                log::warn!("warm state cannot be handed over: {error}");
                Vec::new()
            }
            Err(error) => {
                log::error!("warm state cannot be handed over: {error}");
                Vec::new()
            }
        }
    }
}

impl Successor {
    async fn hear_ready(&mut self) -> Result<(), HandoverError> {
        let mut word = [0; READY.len()];
        step("the successor's word", self.stream.read_exact(&mut word)).await?;
        if word == READY {
            return Ok(());
        }
        let error = io::Error::other("it said something else");
        Err(HandoverError::Io { what: "the successor's word", error })
    }

    /// Both accept for a while. False: it is gone before that.
    pub(in crate::boot) async fn overlap(&mut self) -> bool {
        let mut nothing = [0; 1];
        tokio::select! {
            () = tokio::time::sleep(OVERLAP) => true,
            // It has nothing more to say: whatever this is, it is the end of the connection.
            _ = self.stream.read(&mut nothing) => false,
        }
    }
}

/// Where the successor calls; gone when dropped.
pub(in crate::boot) struct Meeting {
    listener: UnixListener,
    path: PathBuf,
    upgrade_sock: PathBuf,
    invited: Waiting,
}

/// A socket at which a successor waits: its inode, and when it was made, since inodes are used again.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Waiting(u64, i64, i64);

impl Waiting {
    fn at(upgrade_sock: &Path) -> Option<Self> {
        let file = fs::metadata(upgrade_sock).ok()?;
        Some(Self(file.ino(), file.mtime(), file.mtime_nsec()))
    }
}

impl Meeting {
    /// Does somebody else wait for the sockets now? The one before may take a second to see that
    /// they came.
    pub(in crate::boot) fn is_outdated(&self) -> bool {
        Waiting::at(&self.upgrade_sock).is_some_and(|waiting| waiting != self.invited)
    }

    fn open(upgrade_sock: &Path, invited: Waiting) -> io::Result<Self> {
        let path = warm_socket(upgrade_sock);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(&path)?;
        Ok(Self { listener, path, upgrade_sock: upgrade_sock.to_owned(), invited })
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        // Somebody else may have tidied up.
        let _ = fs::remove_file(&self.path);
    }
}
