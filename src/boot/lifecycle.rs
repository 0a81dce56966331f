//! Signals and leaving: readiness turns red first, the listener closes later, the process goes as
//! soon as nothing is in progress.

use super::upgrade::{HandoverError, Predecessor, Successor};
use crate::handover;
use crate::state::{State, unix_seconds};
use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::apps::ServerApp;
use pingora::server::{ListenFds, ShutdownSignal, ShutdownSignalWatch, ShutdownWatch};
use pingora::services::Service as PingoraService;
use pingora::services::background::BackgroundService;
use pingora::services::listening::Service;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// A service with listeners whose end [`EarlyExit`] waits for; Pingora tells nobody.
pub(super) struct Listening<A> {
    pub(super) service: Service<A>,
    /// Dropped when its listeners are closed, and connections accepted just before are answered.
    pub(super) open: Option<Open>,
}

/// Held by every service with listeners.
pub(super) type Open = mpsc::Sender<Infallible>;

#[async_trait]
impl<A: ServerApp + Send + Sync + 'static> PingoraService for Listening<A> {
    async fn start_service(
        &mut self,
        fds: Option<ListenFds>,
        shutdown: ShutdownWatch,
        listeners_per_fd: usize,
    ) {
        self.service.start_service(fds, shutdown, listeners_per_fd).await;
        self.open = None;
    }

    fn name(&self) -> &str {
        self.service.name()
    }

    fn threads(&self) -> Option<usize> {
        self.service.threads
    }

    fn listen_addresses(&self) -> Option<Vec<String>> {
        self.service.listen_addresses()
    }
}

/// Who serves after this process; told by the end of its connection that nothing is accepted here
/// any more.
type Heir = Arc<Mutex<Option<Successor>>>;

/// What the process does on signals.
pub(super) struct Signals {
    state: Arc<State>,
    predecessor: Predecessor,
    heir: Heir,
}

impl Signals {
    /// A successor may want to take over. True: it has.
    async fn step_aside(&self, quit: &mut Signal) -> bool {
        let mut successor = match self.hand_over(quit).await {
            Ok(successor) => successor,
            Err(error) => {
                log::warn!("SIGQUIT without effect, this process serves on: {error}");
                return false;
            }
        };
        let name =
            successor.pid.map_or_else(|| "a successor".to_owned(), |pid| format!("process {pid}"));
        log::info!("{name} serves; the listeners close here in a moment");
        self.state.set_superseded(true);
        if successor.overlap().await {
            *self.heir.lock() = Some(successor);
            return true;
        }
        log::error!("{name} is gone; this process serves on");
        self.state.set_superseded(false);
        false
    }

    /// To the latest successor: another one can wait for the sockets only if the one before is gone.
    async fn hand_over(&self, quit: &mut Signal) -> Result<Successor, HandoverError> {
        loop {
            let meeting = self.predecessor.invite().await?;
            let another = async {
                while !meeting.is_outdated() {
                    quit.recv().await;
                }
            };
            tokio::select! {
                met = self.predecessor.meet(&meeting) => return met,
                () = another => log::warn!("another successor waits; the one before is given up"),
            }
        }
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
                _ = quit.recv() => {}
            }
            tokio::select! {
                biased;
                _ = int.recv() => return ShutdownSignal::FastShutdown,
                _ = term.recv() => break,
                is_superseded = self.step_aside(&mut quit) => if is_superseded {
                    return ShutdownSignal::GracefulTerminate;
                },
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

/// A SIGHUP before anybody listens for it, which would end the process: noted from the start.
pub(super) struct HangUp(Arc<AtomicBool>);

impl HangUp {
    pub(super) fn watch() -> Self {
        let came = Arc::new(AtomicBool::new(false));
        if let Err(error) =
            signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::clone(&came))
        {
            log::warn!("SIGHUP ends this process until it serves: {error}");
        }
        Self(came)
    }

    pub(super) fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Ends the process when nothing is in progress any more, or at another signal. Pingora itself
/// sleeps through the whole grace period, deaf to signals.
pub(super) struct EarlyExit {
    state: Arc<State>,
    heir: Heir,
    closed: tokio::sync::Mutex<mpsc::Receiver<Infallible>>,
}

/// The two ends of the process, and what every service with listeners has to hold.
pub(super) fn ends(state: &Arc<State>, predecessor: Predecessor) -> (Signals, EarlyExit, Open) {
    let (open, closed) = mpsc::channel(1);
    let heir = Heir::default();
    let signals = Signals { state: Arc::clone(state), predecessor, heir: Arc::clone(&heir) };
    let exit = EarlyExit { state: Arc::clone(state), heir, closed: closed.into() };
    (signals, exit, open)
}

/// An upgrade cuts no stream that ends within this, however short the grace period of a stop is.
const LEAST_UPGRADE_GRACE: Duration = Duration::from_secs(900);
/// Pingora's own grace period, which knows no reason to wait, is never the one that ends.
const SPARE: Duration = Duration::from_secs(10);

/// What Pingora is told, seconds.
pub(super) fn longest_grace(grace: Duration) -> u64 {
    (grace.max(LEAST_UPGRADE_GRACE) + SPARE).as_secs()
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
            () = tokio::time::sleep(self.grace()) => {
                log::warn!("time is up: leaving with {} requests", self.state.in_progress());
            }
            _ = term.recv() => log::warn!("second SIGTERM: leaving with {} requests", self.state.in_progress()),
            _ = int.recv() => log::warn!("SIGINT: leaving with {} requests", self.state.in_progress()),
        }
        self.keep_warm_state();
        log::logger().flush();
        std::process::exit(0);
    }
}

impl EarlyExit {
    /// For the next start; after an upgrade the state is the successor's.
    fn keep_warm_state(&self) {
        let running = self.state.running();
        let Some(path) = &running.config.state_file else { return };
        if self.state.is_superseded() {
            return;
        }
        match handover::store(&handover::take(&running.fleets, unix_seconds() as u64), path) {
            Ok(()) => log::info!("warm state is in {}", path.display()),
            Err(error) => log::warn!("warm state cannot be kept in {}: {error}", path.display()),
        }
    }

    /// How long requests may take to finish. With a successor there is no hurry.
    fn grace(&self) -> Duration {
        let grace = self.state.running().config.grace_period;
        if self.state.is_superseded() { grace.max(LEAST_UPGRADE_GRACE) } else { grace }
    }

    async fn quiet(&self) {
        // Nothing is ever sent: what comes is the end of the last sender.
        self.closed.lock().await.recv().await;
        log::info!("the listeners are closed");
        drop(self.heir.lock().take());
        let mut looks = 0;
        while looks < QUIET_LOOKS {
            tokio::time::sleep(LOOK).await;
            looks = if self.state.in_progress() == 0 { looks + 1 } else { 0 };
        }
    }
}
