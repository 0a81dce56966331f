//! What all sections of one check share: problems found, keys known, what comes from outside.

use super::error::{ConfigError, ConfigErrors};
use super::node::shorten;
use super::overrides::Overrides;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashSet};

/// What is shared by all sections of one check.
pub(super) struct Scope<'a> {
    overrides: &'a Overrides,
    problems: RefCell<Vec<Problem>>,
    more: Cell<usize>,
    known: RefCell<Known>,
    used: RefCell<BTreeSet<String>>,
}

/// Paths of all keys asked for, in order, and the same to find them.
#[derive(Default)]
struct Known {
    order: Vec<String>,
    found: HashSet<String>,
}

enum Problem {
    Said(ConfigError),
    Unknown { section: String, key: String, valid: Vec<&'static str> },
}

impl<'a> Scope<'a> {
    pub(super) fn new(overrides: &'a Overrides) -> Self {
        Self {
            overrides,
            problems: RefCell::default(),
            more: Cell::new(0),
            known: RefCell::default(),
            used: RefCell::default(),
        }
    }

    /// Records a problem.
    pub(super) fn problem(&self, path: &str, value: &str, message: &str) {
        let (path, value, message) = (path.into(), value.into(), message.into());
        self.push(Problem::Said(ConfigError { path, value, message }));
    }

    /// Records that `section` has a key nobody asked for.
    pub(super) fn unknown(&self, section: &str, key: &str, valid: &[&'static str]) {
        let (section, key, valid) = (section.into(), key.into(), valid.to_vec());
        self.push(Problem::Unknown { section, key, valid });
    }

    /// Records that `key` was asked for in `section`.
    pub(super) fn know(&self, section: &str, key: &str) {
        let path = child(&pattern(section), key);
        let mut known = self.known.borrow_mut();
        if known.found.insert(path.clone()) {
            known.order.push(path);
        }
    }

    /// A variable of the environment.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        self.overrides.variable(name)
    }

    /// Where a policy setting was given outside the file, and its text; it counts as used.
    pub(super) fn outside(&self, key: &str) -> Option<(String, String)> {
        let given = self.overrides.get(key)?;
        self.used.borrow_mut().insert(key.to_owned());
        Some(given)
    }

    /// Was a policy setting given outside the file?
    pub(super) fn is_outside(&self, key: &str) -> bool {
        self.overrides.get(key).is_some()
    }

    fn push(&self, problem: Problem) {
        let mut problems = self.problems.borrow_mut();
        // Two models may stumble over the same flag: once is enough.
        if let Problem::Said(error) = &problem
            && problems.iter().any(|other| matches!(other, Problem::Said(said) if said == error))
        {
            return;
        }
        if problems.len() < ConfigErrors::MOST {
            problems.push(problem);
        } else {
            self.more.set(self.more.get() + 1);
        }
    }

    /// Overrides that were given and used by nothing, with where they were given.
    pub(super) fn unused_overrides(&self) -> Vec<String> {
        let used = self.used.borrow();
        self.overrides.given().filter(|(key, _)| !used.contains(*key)).map(|(_, at)| at).collect()
    }

    /// All problems, or none; and every known key.
    pub(super) fn finish(self) -> (Result<(), ConfigErrors>, Vec<String>) {
        let known = self.known.into_inner().order;
        let list: Vec<_> = self.problems.into_inner().into_iter().map(|p| p.say(&known)).collect();
        if list.is_empty() {
            return (Ok(()), known);
        }
        (Err(ConfigErrors::new(list, self.more.get())), known)
    }
}

impl Problem {
    fn say(self, known: &[String]) -> ConfigError {
        match self {
            Self::Said(error) => error,
            Self::Unknown { section, key, valid } => {
                let message = format!("unknown key; {}", advice(&section, &key, &valid, known));
                ConfigError {
                    path: child(&section, &shown_key(&key)),
                    value: String::new(),
                    message,
                }
            }
        }
    }
}

/// The nearest valid key: in this section if one is close, the same word elsewhere, or all of them.
fn advice(section: &str, key: &str, valid: &[&'static str], known: &[String]) -> String {
    /// Shares of equal letters from which a key looks like a slip of the pen, and like a relative.
    const SLIP: f64 = 0.75;
    const LIKE: f64 = 0.5;
    let key = key.to_ascii_lowercase().replace('-', "_");
    let near = |other: &str| strsim::normalized_damerau_levenshtein(&key, other);
    let nearest = valid.iter().map(|v| (near(v), *v)).max_by(|a, b| a.0.total_cmp(&b.0));
    let (closeness, nearest) = nearest.unwrap_or_default();
    if SLIP <= closeness {
        return format!("did you mean `{nearest}`?");
    }
    if let Some(path) = known.iter().find(|path| path.rsplit('.').next() == Some(&key)) {
        return format!("`{path}` is where it belongs");
    }
    match section {
        _ if LIKE <= closeness => format!("did you mean `{nearest}`?"),
        "" => "our own keys go under `tidegate`".into(),
        _ => format!("valid here: {}", valid.join(", ")),
    }
}

pub(super) fn child(section: &str, key: &str) -> String {
    if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") }
}

/// A key as part of a path: bounded, on one line.
pub(super) fn shown_key(key: &str) -> String {
    let plain = key.len() <= 60 && key.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c));
    if plain && !key.is_empty() { key.to_owned() } else { shorten(key) }
}

/// A path with all list positions as `[]`.
fn pattern(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut inside = false;
    for c in path.chars() {
        inside = (inside || c == '[') && c != ']';
        if !inside || c == '[' {
            out.push(c);
        }
    }
    out
}
