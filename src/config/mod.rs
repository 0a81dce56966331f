//! The configuration: one YAML file, checked once, after which it cannot be wrong.
//!
//! The way from text to a [`Config`]: `node.rs` reads YAML into a bounded tree that keeps duplicate
//! keys, `check/` takes the tree apart section by section and reports all problems at once. There
//! are no serde mirror structs: serde stops at the first problem and knows no place to merge a
//! model's settings over the common ones, so a small typed reader (`section.rs`) takes key after key,
//! converts, records what is wrong with its path, and at the end names what nobody asked for. Only
//! this module names YAML.
//!
//! Deliberately absent: keys of features that are not built are refused, not ignored.

mod authorities;
mod boot_keys;
mod calibration;
mod check;
mod edge;
mod error;
mod expand;
mod files;
mod found;
mod guards;
mod key_pair;
mod kinds;
mod masked;
mod model;
mod node;
mod overrides;
mod scope;
mod section;
mod source;
mod watch;
mod words;

pub use authorities::Authorities;
pub use calibration::Calibration;
pub use edge::{
    AccessLog, Address, Admin, Forwarded, HalfClose, Http, Index, Limits, Listener, ListenerTls,
    Secret, Shutdown,
};
pub use error::{ConfigError, ConfigErrors};
pub use found::Found;
pub use guards::{Breaker, Health, LoadReports, ReportChoice, Retries, Timeouts, UpstreamAuth};
pub use key_pair::KeyPair;
pub use kinds::duration_of;
pub use model::{
    Discovery, DnsName, Learned, Model, Policy, Queue, Scheme, Shard, Worker, WorkerHost,
    WorkerSource, WorkerTls, WorkerUrl,
};
pub use overrides::{Overrides, POLICY_SETTINGS, PolicySetting, QuickStart};
pub use source::{Loaded, Source};
pub use watch::Watch;

use files::Files;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Pingora's own keys as a YAML document, defaults of ours filled in; boot hands it to
    /// Pingora's `ServerConf`.
    pub pingora: String,
    /// Pingora's `grace_period_seconds`.
    pub grace_period: Duration,
    /// Pingora's `upgrade_sock`.
    pub upgrade_sock: PathBuf,
    /// Where warm state is kept between a normal stop and the next start.
    pub state_file: Option<PathBuf>,
    /// Where traffic comes in.
    pub listeners: Vec<Listener>,
    /// The admin listener.
    pub admin: Admin,
    /// Bounds.
    pub limits: Limits,
    /// Header and connection behaviour.
    pub http: Http,
    /// What SIGTERM does.
    pub shutdown: Shutdown,
    /// The prefix index.
    pub index: Index,
    /// How often worker host names are resolved again.
    pub dns_interval: Duration,
    /// The access log.
    pub access_log: AccessLog,
    /// The common times; those that pass before a request's model is known (`client_header`,
    /// `client_body_idle`, `client_idle`) can be set here only.
    pub timeouts: Timeouts,
    /// The fleets, in the order of the file.
    pub models: Vec<Arc<Model>>,
    /// What is legal and hardly meant.
    pub warnings: ConfigErrors,
}

impl Config {
    /// Largest file that is read, bytes.
    pub const MAX_FILE_BYTES: u64 = 4 << 20;

    /// Reads and checks a file; relative paths in it start at its directory.
    ///
    /// # Errors
    /// All problems of the file at once; one if it cannot be read or is not YAML.
    pub fn from_path(path: &Path, overrides: &Overrides) -> Result<Self, ConfigErrors> {
        let text = node::read_file(path)?;
        Self::from_yaml(&text, source::base(path), overrides)
    }

    /// Checks a text; relative paths in it start at `base`.
    ///
    /// # Errors
    /// All problems of the text at once; one if it is not YAML.
    pub fn from_yaml(text: &str, base: &Path, overrides: &Overrides) -> Result<Self, ConfigErrors> {
        let root = node::parse(text)?;
        check::config(&root, base, overrides, &Files::default()).0
    }

    /// Builds the configuration of a run without a file.
    ///
    /// # Errors
    /// As [`Config::from_yaml`]; errors name the flag instead of a path.
    pub fn from_quick_start(
        quick: &QuickStart,
        overrides: &Overrides,
    ) -> Result<Self, ConfigErrors> {
        let files = Files::default();
        let (result, _) = check::config(&quick.tree(), Path::new(""), overrides, &files);
        let renamed = |errors: ConfigErrors| errors.renamed(QuickStart::FLAGS);
        let told = |config: Self| Self { warnings: renamed(config.warnings), ..config };
        result.map(told).map_err(renamed)
    }

    /// How much there is, in a few words.
    pub fn summary(&self) -> String {
        let counted = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
        let workers = self.models.iter().map(|model| model.workers.len()).sum();
        format!("{}, {}", counted(self.models.len(), "model"), counted(workers, "worker"))
    }

    /// Logs what is legal and hardly meant.
    pub(crate) fn warn(&self) {
        self.warnings.iter().for_each(|warning| log::warn!("configuration: {warning}"));
    }

    /// The effective configuration, in the form of the file, secrets as `***`.
    pub fn masked(&self) -> serde_json::Value {
        masked::config(self)
    }

    /// Every key the reader knows as a path, list positions as `[]`, in the order of reading.
    ///
    /// # Errors
    /// As [`Config::from_yaml`].
    pub fn known_keys(text: &str) -> Result<Vec<String>, ConfigErrors> {
        let root = node::parse(text)?;
        let (overrides, files) = (Overrides::default(), Files::default());
        let (result, known) = check::config(&root, Path::new(""), &overrides, &files);
        result.map(|_| known)
    }
}
