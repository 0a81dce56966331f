//! The side that arrives.

use super::{HandoverError, LEAVING, READY, STEP, Sockets, check_own, step, warm_socket};
use crate::config::{Address, Config};
use crate::handover::{self, Snapshot, SnapshotError, Trust};
use crate::state::State;
use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::server::{ListenFds, ShutdownWatch};
use pingora::services::background::BackgroundService;
use pingora::services::{ServiceReadyNotifier, ServiceWithDependents};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::spawn_blocking;

/// One successor at a time: two would take the same socket from each other.
#[derive(Debug)]
pub(in crate::boot) struct Turn {
    _file: File,
}

impl Turn {
    /// Held as long as it lives; the kernel gives it up with the process.
    pub(in crate::boot) fn take(upgrade_sock: &Path) -> io::Result<Self> {
        let path = Self::path(upgrade_sock);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => {
                Err(io::Error::other("another successor waits there already"))
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Has a successor taken it?
    pub(in crate::boot) fn is_taken(upgrade_sock: &Path) -> bool {
        // Not made here: it has to be the successor's own.
        let file = File::open(Self::path(upgrade_sock));
        file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    fn path(upgrade_sock: &Path) -> PathBuf {
        upgrade_sock.with_added_extension("lock")
    }
}

/// The connection to the predecessor, from the arrival to the announcement.
type Line = Arc<Mutex<Option<UnixStream>>>;

/// Runs between the sockets' arrival and the listeners' start, on every start; with a predecessor it
/// takes the warm state in.
pub(in crate::boot) struct Arrival {
    state: Arc<State>,
    sockets: Sockets,
    /// Where the predecessor is; `None`: there is none.
    upgrade_sock: Option<PathBuf>,
    line: Line,
}

/// Runs once the listeners are started: tells the predecessor, and whoever started this process.
pub(in crate::boot) struct Announcement {
    state: Arc<State>,
    line: Line,
    turn: Mutex<Option<Turn>>,
}

impl Arrival {
    pub(in crate::boot) fn new(
        state: Arc<State>,
        sockets: Sockets,
        turn: Option<(PathBuf, Turn)>,
    ) -> (Self, Announcement) {
        let line = Line::default();
        let (upgrade_sock, turn) = turn.unzip();
        let announcement = Announcement {
            state: Arc::clone(&state),
            line: Arc::clone(&line),
            turn: Mutex::new(turn),
        };
        (Self { state, sockets, upgrade_sock, line }, announcement)
    }

    async fn arrive(&self, upgrade_sock: &Path, inherited: Option<&ListenFds>) {
        if let Some(inherited) = inherited
            && let Err((address, error)) = are_free(&self.state.running().config, inherited)
        {
            log::error!("cannot listen on {address}: {error}; leaving");
            std::process::exit(1);
        }
        match self.fetch(upgrade_sock).await {
            Ok(stream) => *self.line.lock() = Some(stream),
            // A predecessor that cannot be reached hears nothing and serves on.
            Err(error) => {
                log::error!("no predecessor: {error}; leaving");
                std::process::exit(1);
            }
        }
    }

    async fn fetch(&self, upgrade_sock: &Path) -> Result<UnixStream, HandoverError> {
        let path = warm_socket(upgrade_sock);
        let stream = step("the predecessor's warm state", UnixStream::connect(&path)).await?;
        check_own(&stream)?;
        match read(stream).await {
            Ok(snapshot) => self.take_in(snapshot).await,
            Err(error) => log::warn!("the predecessor's warm state is left out: {error}"),
        }
        let stream = step("the predecessor's attention", UnixStream::connect(&path)).await?;
        check_own(&stream)?;
        Ok(stream)
    }

    async fn take_in(&self, snapshot: Snapshot) {
        let running = self.state.pin();
        let restored =
            spawn_blocking(move || handover::restore(&snapshot, &running.fleets, Trust::Now)).await;
        match restored {
            Ok(warm) => log::info!(
                "taken over: {} workers with {} prefix blocks, {} routes",
                warm.workers,
                warm.blocks,
                warm.routes
            ),
            Err(error) => log::error!("the predecessor's warm state is left out: {error}"),
        }
    }
}

#[async_trait]
impl ServiceWithDependents for Arrival {
    async fn start_service(
        &mut self,
        fds: Option<ListenFds>,
        mut shutdown: ShutdownWatch,
        _listeners_per_fd: usize,
        ready_notifier: ServiceReadyNotifier,
    ) {
        if let Some(fds) = &fds {
            let _ = self.sockets.set(Arc::clone(fds));
        }
        if let Some(upgrade_sock) = &self.upgrade_sock {
            tokio::select! {
                () = self.arrive(upgrade_sock, fds.as_ref()) => {}
                // An error means that the server is gone.
                _ = shutdown.wait_for(|is_over| *is_over) => {
                    log::info!("told to stop before it served; leaving");
                    log::logger().flush();
                    std::process::exit(0);
                }
            }
        }
        ready_notifier.notify_ready();
    }

    fn name(&self) -> &str {
        "arrival"
    }

    fn threads(&self) -> Option<usize> {
        Some(1)
    }

    /// None of its own. Pingora closes inherited sockets that nobody accepts from, if every service
    /// says which it needs; their clients would wait for ever.
    fn listen_addresses(&self) -> Option<Vec<String>> {
        Some(Vec::new())
    }
}

#[async_trait]
impl BackgroundService for Announcement {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let line = self.line.lock().take();
        if let Some(mut stream) = line {
            match announce(&mut stream).await {
                Ok(pid) => self.state.took_over_from(pid),
                Err(error) => {
                    log::error!("the predecessor serves on: {error}; leaving");
                    std::process::exit(1);
                }
            }
            self.tell_supervisor();
            // Open until the predecessor has closed its listeners: an end before is a death.
            let mut nothing = [0; 1];
            tokio::select! {
                _ = stream.read(&mut nothing) => {}
                _ = shutdown.changed() => {}
            }
        } else {
            self.tell_supervisor();
        }
        drop(self.turn.lock().take());
    }
}

impl Announcement {
    /// Says to a service manager, if one started us, which process to watch from now on.
    fn tell_supervisor(&self) {
        let states =
            [sd_notify::NotifyState::Ready, sd_notify::NotifyState::MainPid(std::process::id())];
        if let Err(error) = sd_notify::notify(&states) {
            log::warn!("the service manager was not told: {error}");
        }
    }
}

/// What the predecessor sends, whatever it is.
async fn read(stream: UnixStream) -> Result<Snapshot, SnapshotError> {
    let mut stream = stream.into_std()?;
    let read = spawn_blocking(move || {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(STEP))?;
        Snapshot::read(&mut stream)
    });
    read.await.map_err(io::Error::other)?
}

/// The predecessor's process id.
async fn announce(stream: &mut UnixStream) -> Result<Option<i32>, HandoverError> {
    step("the announcement", stream.write_all(READY)).await?;
    let mut word = [0; LEAVING.len()];
    step("the predecessor's farewell", stream.read_exact(&mut word)).await?;
    if word != LEAVING {
        let error = io::Error::other("it said something else");
        return Err(HandoverError::Io { what: "the predecessor's farewell", error });
    }
    Ok(stream.peer_cred().ok().and_then(|cred| cred.pid()))
}

/// Addresses the predecessor did not have must be free; Pingora would try them for half a minute.
fn are_free(config: &Config, inherited: &ListenFds) -> Result<(), (String, io::Error)> {
    let inherited = inherited.lock();
    let listeners = config.listeners.iter().map(|listener| &listener.address);
    for address in listeners.chain([&config.admin.address]) {
        if let Address::Tcp(address) = address
            && inherited.get(&address.to_string()).is_none()
        {
            TcpListener::bind(address).map_err(|error| (address.to_string(), error))?;
        }
    }
    Ok(())
}
