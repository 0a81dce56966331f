//! What makes the edge read its configuration again: a changed file, SIGHUP, an address that is new
//! under a name. `POST /v1/reload` is the admin listener's.

use crate::config::{DnsName, Watch};
use crate::fleet::discovery;
use crate::state::State;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;

/// Watches until `shutdown`. Needs a tokio runtime with time and I/O.
pub async fn run(state: Arc<State>, shutdown: impl Future<Output = ()>) {
    tokio::select! {
        () = watch(&state) => {}
        () = shutdown => {}
    }
}

async fn watch(state: &Arc<State>) {
    let mut files = Watch::new();
    let mut hangups = signal(SignalKind::hangup())
        .map_err(|error| log::error!("SIGHUP cannot be watched: {error}"))
        .ok();
    let mut in_force = state.fleets();
    let mut names = Names::default();
    loop {
        files.set(&state.files());
        names.serve(state);
        tokio::select! {
            () = files.changed() => state.reload_if_changed(),
            () = next(&mut hangups) => {
                log::info!("SIGHUP: reading the configuration again");
                // Told in the log and to whoever asks.
                let _ = state.reload();
            }
            // Somebody else changed it; there may be other files and names now.
            _ = in_force.changed() => {}
        }
    }
}

/// The next signal; never, if it cannot be watched.
async fn next(signals: &mut Option<Signal>) {
    let signal = match signals {
        Some(signals) => signals.recv().await,
        None => None,
    };
    if signal.is_none() {
        std::future::pending().await
    }
}

/// One task for each name that stands for workers.
#[derive(Default)]
struct Names(BTreeMap<(DnsName, Duration), Task>);

/// Ends with its handle.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Names {
    fn serve(&mut self, state: &Arc<State>) {
        let config = Arc::clone(&state.running().config);
        let mut before = std::mem::take(&mut self.0);
        for name in config.names() {
            let key = (name.clone(), config.dns_interval);
            let known = before.remove(&key);
            if !self.0.contains_key(&key) {
                let start = || Task(tokio::spawn(resolve(Arc::clone(state), key.clone())));
                self.0.insert(key.clone(), known.unwrap_or_else(start));
            }
        }
    }
}

async fn resolve(state: Arc<State>, (name, interval): (DnsName, Duration)) {
    discovery::watch_name(&name, interval, |addresses| state.found(&name, addresses)).await;
}
