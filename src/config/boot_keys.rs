//! Keys that are read at boot only: sockets are opened and threads started once.

use super::{Config, Listener, ListenerTls};
use serde_yaml::{Mapping, Value};

impl Config {
    /// The same with the boot-time keys of the configuration in force, and the paths of those that
    /// have other values here.
    ///
    /// The admin token belongs to its address: a new address may need none where the old one does.
    pub fn with_boot_keys_of(mut self, running: &Self) -> (Self, Vec<String>) {
        let mut waiting = changed_keys(&self.pingora, &running.pingora);
        let places = self.listeners.iter().map(Listener::place);
        if !places.eq(running.listeners.iter().map(Listener::place)) {
            waiting.push("tidegate.listeners".to_owned());
        }
        if self.admin.address != running.admin.address {
            waiting.push("tidegate.admin.address".to_owned());
            self.admin = running.admin.clone();
        }
        self.pingora.clone_from(&running.pingora);
        self.grace_period = running.grace_period;
        self.upgrade_sock.clone_from(&running.upgrade_sock);
        self.listeners = running.listeners.iter().map(|of| self.with_new_pair(of)).collect();
        (self, waiting)
    }
}

impl Config {
    /// An open listener with what its files hold now; a listener that will be gone keeps what it has.
    fn with_new_pair(&self, open: &Listener) -> Listener {
        let mut listener = open.clone();
        if let Some(tls) = &mut listener.tls {
            let known = self.listeners.iter().filter_map(|other| other.tls.as_ref());
            let same = |other: &&ListenerTls| (&other.cert, &other.key) == (&tls.cert, &tls.key);
            if let Some(pair) = known.filter(same).map(|other| other.pair.clone()).next() {
                tls.pair = pair;
            }
        }
        listener
    }
}

/// Pingora's keys whose values differ between two documents of them.
fn changed_keys(a: &str, b: &str) -> Vec<String> {
    // Both were written by the check; what cannot be read has no keys.
    let [a, b] = [a, b].map(|text| serde_yaml::from_str::<Mapping>(text).unwrap_or_default());
    let only_b = b.keys().filter(|key| !a.contains_key(*key));
    let differs = |key: &&Value| a.get(*key) != b.get(*key);
    let changed = a.keys().chain(only_b).filter(differs);
    changed.filter_map(|key| key.as_str().map(str::to_owned)).collect()
}
