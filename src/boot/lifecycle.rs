//! Signals and leaving: readiness turns red first, the listener closes later, the process goes as
//! soon as nothing is in progress.

use crate::state::State;
use async_trait::async_trait;
use pingora::server::{ShutdownSignal, ShutdownSignalWatch, ShutdownWatch};
use pingora::services::background::BackgroundService;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// What the process does on signals.
pub(super) struct Signals {
    state: Arc<State>,
    upgrade_sock: PathBuf,
}

impl Signals {
    pub(super) fn new(state: Arc<State>, upgrade_sock: PathBuf) -> Self {
        Self { state, upgrade_sock }
    }
}

#[async_trait]
impl ShutdownSignalWatch for Signals {
    async fn recv(&self) -> ShutdownSignal {
        let signals = (
            signal(SignalKind::terminate()),
            signal(SignalKind::interrupt()),
            signal(SignalKind::quit()),
        );
        let (Ok(mut term), Ok(mut int), Ok(mut quit)) = signals else {
            log::error!("signals cannot be watched; leaving");
            return ShutdownSignal::FastShutdown;
        };
        loop {
            tokio::select! {
                _ = int.recv() => return ShutdownSignal::FastShutdown,
                _ = term.recv() => break,
                _ = quit.recv() => {
                    // A successor waits at the socket; without one Pingora would just stop serving.
                    if self.upgrade_sock.exists() {
                        self.state.start_draining();
                        return ShutdownSignal::GracefulUpgrade;
                    }
                    log::warn!("SIGQUIT ignored: no successor waits at {}", self.upgrade_sock.display());
                }
            }
        }
        let drain_delay = self.state.running().config.shutdown.drain_delay;
        log::info!("SIGTERM: not ready from now on, the listeners close in {drain_delay:?}");
        self.state.start_draining();
        tokio::select! {
            _ = int.recv() => ShutdownSignal::FastShutdown,
            _ = term.recv() => ShutdownSignal::FastShutdown,
            () = tokio::time::sleep(drain_delay) => ShutdownSignal::GracefulTerminate,
        }
    }
}

/// Ends the process when nothing is in progress any more, or at another signal. Pingora itself
/// sleeps through the whole grace period, deaf to signals.
pub(super) struct EarlyExit {
    state: Arc<State>,
}

impl EarlyExit {
    pub(super) fn new(state: Arc<State>) -> Self {
        Self { state }
    }
}

/// How often to look whether requests are still in progress.
const LOOK: Duration = Duration::from_millis(50);
/// Nothing in progress for this many looks in a row: no request is between two counters.
const QUIET_LOOKS: u32 = 10;

#[async_trait]
impl BackgroundService for EarlyExit {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        // Watched from the start: between the first signal and the next, none may be lost.
        let (Ok(mut term), Ok(mut int)) =
            (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
        else {
            return;
        };
        loop {
            tokio::select! {
                biased;
                // The first one, which is the reason for the shutdown.
                _ = term.recv() => {}
                // An error means that the server is gone.
                _ = shutdown.changed() => break,
            }
        }
        tokio::select! {
            () = self.quiet() => log::info!("nothing in progress; leaving"),
            _ = term.recv() => log::warn!("second SIGTERM: leaving with {} requests", self.state.in_progress()),
            _ = int.recv() => log::warn!("SIGINT: leaving with {} requests", self.state.in_progress()),
        }
        std::process::exit(0);
    }
}

impl EarlyExit {
    async fn quiet(&self) {
        let mut looks = 0;
        while looks < QUIET_LOOKS {
            tokio::time::sleep(LOOK).await;
            looks = if self.state.in_progress() == 0 { looks + 1 } else { 0 };
        }
    }
}
