//! What is wrong with a configuration: a list, because an operator wants to fix all of it at once.

use std::fmt;

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ConfigError {
    /// Where: a YAML path, a flag, a variable, a line or the file.
    pub path: String,
    /// What stands there, shortened; empty if that says nothing or must stay secret.
    pub value: String,
    /// What would be valid.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value.as_str() {
            "" => write!(f, "{}: {}", self.path, self.message),
            value => write!(f, "{}: {value}: {}", self.path, self.message),
        }
    }
}

/// All problems of a configuration, at most [`ConfigErrors::MOST`] of them in full.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error, serde::Serialize)]
#[serde(transparent)]
pub struct ConfigErrors {
    list: Vec<ConfigError>,
}

impl ConfigErrors {
    /// Problems kept; the rest is counted in a last line.
    pub const MOST: usize = 100;

    /// `more` problems were found and not kept.
    pub(super) fn new(mut list: Vec<ConfigError>, more: usize) -> Self {
        if 0 < more {
            let message = format!("{more} more problems");
            list.push(ConfigError { path: "file".into(), value: String::new(), message });
        }
        Self { list }
    }

    pub(super) fn one(path: impl Into<String>, message: impl Into<String>) -> Self {
        let (path, message) = (path.into(), message.into());
        Self { list: vec![ConfigError { path, value: String::new(), message }] }
    }

    /// Those of a list; beyond [`ConfigErrors::MOST`] they are counted.
    pub(super) fn of(mut list: Vec<ConfigError>) -> Self {
        let more = list.len().saturating_sub(Self::MOST);
        list.truncate(Self::MOST);
        Self::new(list, more)
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The problems for a log.
    pub fn on_one_line(&self) -> String {
        let all: Vec<String> = self.list.iter().map(ConfigError::to_string).collect();
        all.join("; ")
    }

    /// The problems, in the order of the file's groups.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigError> {
        self.list.iter()
    }

    /// Paths that begin with the first of a pair get the second instead of their whole path.
    pub(super) fn renamed(mut self, names: &[(&str, &str)]) -> Self {
        for error in &mut self.list {
            if let Some((_, name)) = names.iter().find(|(path, _)| error.path.starts_with(path)) {
                error.path = (*name).into();
            }
        }
        self
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self { list: vec![error] }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.list.iter().enumerate() {
            if 0 < at {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl IntoIterator for ConfigErrors {
    type Item = ConfigError;
    type IntoIter = std::vec::IntoIter<ConfigError>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

impl<'a> IntoIterator for &'a ConfigErrors {
    type Item = &'a ConfigError;
    type IntoIter = std::slice::Iter<'a, ConfigError>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}
