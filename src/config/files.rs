//! Files the configuration names. Those of workers (`discovery.file`): what they say now, and what
//! they said when they were last good. One that is written by a program may be wrong for a while; the
//! fleet must outlive that. Those of certificates and keys: whether they are what they were; what was
//! read of them is in the configuration.

use super::node;
use super::{Authorities, ConfigError, ConfigErrors};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_128;

/// No certificate chain is larger, bytes.
const MOST_PEM: u64 = 1 << 20;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// The last good texts.
    good: BTreeMap<PathBuf, String>,
    /// The reading that runs, or the last one.
    reading: RefCell<Reading>,
}

#[derive(Debug, Default)]
struct Reading {
    /// `None`: it could not be read.
    texts: BTreeMap<PathBuf, Option<String>>,
    /// Hashes, as a key is not to be kept twice; `None`: it could not be read.
    pems: BTreeMap<PathBuf, Option<u128>>,
    /// A file that a whole fleet names is read and checked once.
    authorities: BTreeMap<PathBuf, Result<Authorities, String>>,
    /// Those whose present text is not used.
    bad: Vec<PathBuf>,
    problems: Vec<ConfigError>,
}

impl Files {
    /// A new reading begins.
    pub(super) fn begin(&mut self) {
        self.reading = RefCell::default();
    }

    /// What a file says now.
    pub(super) fn text(&self, path: &Path) -> Result<String, ConfigErrors> {
        let text = node::read_file(path);
        let known = text.as_ref().ok().cloned();
        self.reading.borrow_mut().texts.insert(path.to_owned(), known);
        text
    }

    /// What a file of certificates or of a key holds now.
    pub(super) fn pem(&self, path: &Path) -> io::Result<Vec<u8>> {
        let pem = read_pem(path);
        let known = pem.as_ref().ok().map(|pem| xxh3_128(pem));
        self.reading.borrow_mut().pems.insert(path.to_owned(), known);
        pem
    }

    /// The authorities a file holds now.
    pub(super) fn authorities(&self, path: &Path) -> Result<Authorities, String> {
        if let Some(known) = self.reading.borrow().authorities.get(path) {
            return known.clone();
        }
        let found = match self.pem(path) {
            Ok(pem) => Authorities::from_pem(path, &pem)
                .ok_or_else(|| "must hold a certificate of an authority, as PEM".to_owned()),
            Err(error) => Err(format!("must be a readable file: {error}")),
        };
        self.reading.borrow_mut().authorities.insert(path.to_owned(), found.clone());
        found
    }

    /// What it said when it was last good.
    pub(super) fn good(&self, path: &Path) -> Option<&str> {
        self.good.get(path).map(String::as_str)
    }

    /// The last good text stands in for the present one, for these reasons.
    pub(super) fn kept(&self, path: &Path, problems: Vec<ConfigError>) {
        let mut reading = self.reading.borrow_mut();
        reading.bad.push(path.to_owned());
        reading.problems.extend(problems);
    }

    /// All else is valid too, so what was read is good from now on. The problems of files that were
    /// kept as they were.
    pub(super) fn accepted(&mut self) -> Option<ConfigErrors> {
        let reading = self.reading.get_mut();
        // They are the configuration's from now on.
        reading.authorities.clear();
        let texts = reading.texts.iter().filter(|(path, _)| !reading.bad.contains(path));
        for (path, text) in texts {
            if let Some(text) = text {
                self.good.insert(path.clone(), text.clone());
            }
        }
        self.good.retain(|path, _| reading.texts.contains_key(path));
        let problems = std::mem::take(&mut reading.problems);
        (!problems.is_empty()).then(|| ConfigErrors::new(problems, 0))
    }

    /// Says a file something else than it did when it was read last?
    pub(super) fn changed(&self) -> bool {
        let reading = self.reading.borrow();
        let hash = |path: &Path| read_pem(path).ok().map(|pem| xxh3_128(&pem));
        reading.texts.iter().any(|(path, text)| node::read_file(path).ok() != *text)
            || reading.pems.iter().any(|(path, known)| hash(path) != *known)
    }

    /// The files of the last reading.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let reading = self.reading.borrow();
        reading.texts.keys().chain(reading.pems.keys()).cloned().collect()
    }
}

fn read_pem(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut pem = Vec::new();
    file.take(MOST_PEM + 1).read_to_end(&mut pem)?;
    if MOST_PEM < pem.len() as u64 {
        return Err(io::Error::other("it is over 1 MiB"));
    }
    Ok(pem)
}
