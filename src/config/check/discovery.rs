//! `discovery:` of a model: a file of workers, or a name that stands for all of them.

use super::url;
use super::workers::{self, Taken, Terms};
use crate::config::files::Files;
use crate::config::kinds::text;
use crate::config::node;
use crate::config::scope::Scope;
use crate::config::section::Section;
use crate::config::source::base;
use crate::config::{ConfigError, ConfigErrors, Discovery, Worker, WorkerSource};
use std::path::Path;

/// What is found where the section points to.
#[derive(Default)]
pub(super) struct Discovered {
    pub(super) discovery: Option<Discovery>,
    /// Those of the file.
    pub(super) workers: Vec<Worker>,
}

pub(super) fn discovery(
    model: &mut Section<'_>,
    terms: &Terms<'_>,
    taken: &mut Taken,
) -> Discovered {
    let given = model.has("discovery");
    let mut from = model.section("discovery");
    let file = from.optional("file", None, text(4096));
    let name = from.optional("dns", None, url::dns_name);
    let failed = from.failed("file") || from.failed("dns");
    match (file, name) {
        _ if failed => Discovered::default(),
        (Some(_), Some(_)) => {
            from.scope.problem(&from.path, "", "must have `file` or `dns`, not both");
            Discovered::default()
        }
        (None, None) => {
            if given {
                from.scope.problem(&from.path, "", "needs `file` or `dns`");
            }
            Discovered::default()
        }
        (None, Some(name)) => {
            let upstream_auth = terms.auth.cloned();
            let discovery = Some(Discovery::Dns { name, upstream_auth });
            Discovered { discovery, workers: Vec::new() }
        }
        (Some(written), None) => {
            let path = terms.base.join(&written);
            let workers = WorkerFile { written: &written, path: &path, terms, taken }.read(&from);
            Discovered { discovery: Some(Discovery::File(path.clone())), workers }
        }
    }
}

/// A file of workers and what it is read by.
struct WorkerFile<'a> {
    written: &'a str,
    path: &'a Path,
    terms: &'a Terms<'a>,
    taken: &'a mut Taken,
}

impl WorkerFile<'_> {
    /// Its workers, or those of its last good content. Problems are the section's if there is none.
    fn read(mut self, section: &Section<'_>) -> Vec<Worker> {
        let files: &Files = self.terms.files;
        let problems = match files.text(self.path).and_then(|text| self.check(&text)) {
            Ok(workers) => return workers,
            Err(errors) => self.named(errors),
        };
        if let Some(Ok(workers)) = files.good(self.path).map(|text| self.check(text)) {
            files.kept(self.path, problems);
            return workers;
        }
        for problem in problems {
            section.scope.problem(&problem.path, &problem.value, &problem.message);
        }
        Vec::new()
    }

    fn check(&mut self, text: &str) -> Result<Vec<Worker>, ConfigErrors> {
        let root = node::parse(text)?;
        let scope = Scope::new(self.terms.overrides);
        let mut taken = self.taken.clone();
        let mut top = Section::root(&root, &scope);
        if !top.has("workers") && !top.failed("workers") {
            top.problem("workers", "is missing; `[]` stands for none");
        }
        let terms = Terms { base: base(self.path), ..*self.terms };
        let workers = workers::list(&mut top, &terms, &mut taken, WorkerSource::Found);
        drop(top);
        scope.finish().0?;
        *self.taken = taken;
        Ok(workers)
    }

    /// Problems with the file's name before their paths.
    fn named(&self, errors: ConfigErrors) -> Vec<ConfigError> {
        let whole = self.path.display().to_string();
        let named = |error: ConfigError| {
            let path = match error.path == whole {
                true => self.written.to_owned(),
                false => format!("{}: {}", self.written, error.path),
            };
            ConfigError { path, ..error }
        };
        errors.into_iter().map(named).collect()
    }
}
