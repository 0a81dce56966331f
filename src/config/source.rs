//! Where a configuration comes from, so that it can be read again.

use super::files::Files;
use super::{Config, ConfigErrors, Overrides, QuickStart, check, node};
use std::path::{Path, PathBuf};

/// A file or the arguments of a run without one, and what goes over them.
#[derive(Debug)]
pub struct Source {
    origin: Origin,
    overrides: Overrides,
    /// What was read last; `None`: it could not be read.
    text: Option<String>,
    workers: Files,
}

#[derive(Debug)]
enum Origin {
    File(PathBuf),
    QuickStart(QuickStart),
}

/// A configuration that was read.
#[derive(Debug)]
pub struct Loaded {
    /// It is valid.
    pub config: Config,
    /// Problems of files of workers whose last good content was used.
    pub kept: Option<ConfigErrors>,
}

impl Source {
    /// A file; relative paths in it start at its directory.
    pub fn file(path: PathBuf, overrides: Overrides) -> Self {
        Self { origin: Origin::File(path), overrides, text: None, workers: Files::default() }
    }

    /// A run without a file.
    pub fn quick_start(quick: QuickStart, overrides: Overrides) -> Self {
        let origin = Origin::QuickStart(quick);
        Self { origin, overrides, text: None, workers: Files::default() }
    }

    /// Reads and checks it. A file of workers that is not valid any more counts as what it last was.
    ///
    /// # Errors
    /// All problems at once; one if the file cannot be read or is not YAML.
    pub fn load(&mut self) -> Result<Loaded, ConfigErrors> {
        self.workers.begin();
        let config = match &self.origin {
            Origin::QuickStart(quick) => Config::from_quick_start(quick, &self.overrides)?,
            Origin::File(path) => {
                let text = node::read_file(path);
                self.text = text.as_ref().ok().cloned();
                let root = node::parse(&text?)?;
                check::config(&root, base(path), &self.overrides, &self.workers).0?
            }
        };
        Ok(Loaded { config, kept: self.workers.accepted() })
    }

    /// Would another reading find another text than the last one did?
    pub fn is_changed(&self) -> bool {
        match &self.origin {
            Origin::QuickStart(_) => false,
            Origin::File(path) => node::read_file(path).ok() != self.text || self.workers.changed(),
        }
    }

    /// The files that were read, or could not be.
    pub fn files(&self) -> Vec<PathBuf> {
        match &self.origin {
            Origin::QuickStart(_) => Vec::new(),
            Origin::File(path) => {
                std::iter::once(path.clone()).chain(self.workers.paths()).collect()
            }
        }
    }
}

/// Where relative paths in a file start.
pub(super) fn base(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new(""))
}
