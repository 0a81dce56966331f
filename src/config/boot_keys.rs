//! Keys that are read at boot only: sockets are opened and threads started once.

use super::Config;
use serde_yaml::{Mapping, Value};

impl Config {
    /// The same with the boot-time keys of the configuration in force, and the paths of those that
    /// have other values here.
    ///
    /// The admin token belongs to its address: a new address may need none where the old one does.
    pub fn with_boot_keys_of(mut self, running: &Self) -> (Self, Vec<String>) {
        let mut waiting = changed_keys(&self.pingora, &running.pingora);
        if self.listeners != running.listeners {
            waiting.push("tidegate.listeners".to_owned());
        }
        if self.admin.address != running.admin.address {
            waiting.push("tidegate.admin.address".to_owned());
            self.admin = running.admin.clone();
        }
        self.pingora.clone_from(&running.pingora);
        self.grace_period = running.grace_period;
        self.upgrade_sock.clone_from(&running.upgrade_sock);
        self.listeners.clone_from(&running.listeners);
        (self, waiting)
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
