//! How one configuration follows another: read, checked, swapped as a whole, and only if all of it
//! is valid.
//!
//! One thread at a time gets here. What has to outlive a configuration is handed on by
//! [`crate::fleet::Fleets::next`]; requests keep the one they began with, unless they have to wait.

use super::{State, unix_seconds};
use crate::config::{Config, ConfigError, ConfigErrors, DnsName, Found, Source};
use parking_lot::Mutex;
use serde::Serialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Configurations read, accepted and rejected.
#[derive(Debug)]
pub(super) struct Succession(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    /// `None`: it cannot be read again.
    source: Option<Source>,
    /// The last accepted one, without what names stand for.
    config: Arc<Config>,
    found: Found,
    rejected: Option<Rejected>,
    needs_upgrade: Vec<String>,
}

/// A change that was not accepted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rejected {
    /// When, seconds since 1970.
    pub time: f64,
    /// All its problems.
    pub errors: ConfigErrors,
}

/// What operators are told besides the configuration itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// The last change, if it was rejected.
    pub rejected: Option<Rejected>,
    /// Paths of keys that have other values in the file; they are read at boot only.
    pub needs_upgrade: Vec<String>,
}

impl Succession {
    pub(super) fn new(config: Arc<Config>, source: Option<Source>) -> Self {
        let found = Found::default();
        let inner = Inner { source, config, found, rejected: None, needs_upgrade: Vec::new() };
        Self(Mutex::new(inner))
    }
}

impl State {
    /// Reads the configuration again; requests from now on go by it. The new generation.
    ///
    /// # Errors
    /// What is wrong with it; the one in force stays. If that are files of workers alone, their last
    /// good content stays and the rest is in force.
    pub fn reload(&self) -> Result<u64, ConfigErrors> {
        self.reload_from(&mut self.succession.0.lock())
    }

    /// The same if a file of the configuration is not what was read last.
    pub fn reload_if_changed(&self) {
        let mut inner = self.succession.0.lock();
        if inner.source.as_ref().is_some_and(Source::is_changed) {
            // Told in the log and to whoever asks.
            let _ = self.reload_from(&mut inner);
        }
    }

    /// Files the configuration is read from.
    pub fn files(&self) -> Vec<PathBuf> {
        self.succession.0.lock().source.as_ref().map_or_else(Vec::new, Source::files)
    }

    /// What became of the last change.
    pub fn standing(&self) -> Standing {
        let inner = self.succession.0.lock();
        Standing { rejected: inner.rejected.clone(), needs_upgrade: inner.needs_upgrade.clone() }
    }

    /// A name of the configuration stands for these addresses now.
    pub fn found(&self, name: &DnsName, addresses: Vec<SocketAddr>) {
        let mut inner = self.succession.0.lock();
        if !inner.found.is_news(name, &addresses) {
            return;
        }
        log::info!("{name}: {} worker(s)", addresses.len());
        inner.found.insert(name.clone(), addresses);
        self.put_in_force(&inner, self.running().generation);
    }

    fn reload_from(&self, inner: &mut Inner) -> Result<u64, ConfigErrors> {
        let read = match &mut inner.source {
            Some(source) => source.load(),
            None => Err(ConfigErrors::from(ConfigError {
                path: "file".to_owned(),
                value: String::new(),
                message: "there is none: this edge was given its configuration once".to_owned(),
            })),
        };
        let (config, kept) = match read {
            Ok(loaded) => (loaded.config, loaded.kept),
            Err(errors) => return Err(self.rejected(inner, errors)),
        };
        let (config, needs_upgrade) = config.with_boot_keys_of(&self.running().config);
        if !needs_upgrade.is_empty() && needs_upgrade != inner.needs_upgrade {
            log::warn!("configuration: needs an upgrade: {}", needs_upgrade.join(", "));
        }
        inner.needs_upgrade = needs_upgrade;
        inner.config = Arc::new(config);
        inner.found.keep_only(&inner.config);
        inner.rejected = None;
        let generation = self.running().generation + 1;
        self.put_in_force(inner, generation);
        self.metrics.process.config_applied(generation, unix_seconds());
        log::info!("configuration {generation} is in force: {}", inner.config.summary());
        inner.config.warn();
        match kept {
            Some(errors) => Err(self.rejected(inner, errors)),
            None => Ok(generation),
        }
    }

    fn rejected(&self, inner: &mut Inner, errors: ConfigErrors) -> ConfigErrors {
        let generation = self.running().generation;
        log::warn!("configuration rejected, {generation} stays in force: {}", errors.on_one_line());
        self.metrics.process.config_rejected();
        inner.rejected = Some(Rejected { time: unix_seconds(), errors: errors.clone() });
        errors
    }

    fn put_in_force(&self, inner: &Inner, generation: u64) {
        let before = self.pin();
        let config = Arc::new(inner.config.with_found(&inner.found));
        let running = Arc::new(before.next(config, &self.metrics, generation));
        let fleets = Arc::clone(&running.fleets);
        self.running.store(running);
        before.fleets.supersede(&fleets);
        for gone in before.fleets.not_in(&fleets) {
            self.metrics.process.index_left(&gone.index.stats());
            self.metrics.workers.model_left(&gone.config.name);
        }
        self.fleets.send_replace(fleets);
    }
}
