//! A typed reader over one mapping: takes keys, converts, records problems with their paths.
//!
//! A [`Section`] that is dropped reports every key nobody took, so that no key can be ignored by
//! mistake. Every key that was asked for is remembered, present or not: that list is what
//! `conf/reference.yaml` is held against.

use super::expand::expand;
use super::node::{Map, Node, parse_scalar, shorten};
use super::scope::{Scope, child, shown_key};
use std::borrow::Cow;

/// One value and where it stands.
pub(super) struct Item<'a> {
    pub(super) path: String,
    pub(super) node: Cow<'a, Node>,
    /// As written, for messages: never what a variable was replaced by.
    pub(super) shown: String,
    /// Came as text from a flag or the environment: numbers are read out of it.
    textual: bool,
}

impl<'a> Item<'a> {
    fn new(path: String, node: &'a Node, scope: &Scope<'_>) -> Option<Self> {
        let shown = node.describe();
        let plain = Self { path, node: Cow::Borrowed(node), shown, textual: false };
        let Node::Text(text) = node else { return Some(plain) };
        match expand(text, &|name| scope.variable(name)) {
            Ok(None) => Some(plain),
            Ok(Some(text)) => {
                Some(Self { node: Cow::Owned(Node::Text(text)), textual: true, ..plain })
            }
            Err(error) => {
                scope.problem(&plain.path, "", &error.to_string());
                None
            }
        }
    }

    /// The value, with text from outside the file read as a file would be.
    pub(super) fn scalar(&self) -> Cow<'_, Node> {
        match self.node.as_ref() {
            Node::Text(text) if self.textual => Cow::Owned(parse_scalar(text)),
            node => Cow::Borrowed(node),
        }
    }

    /// The text, if it is one.
    pub(super) fn text(&self) -> Option<&str> {
        match self.node.as_ref() {
            Node::Text(text) => Some(text),
            Node::Null
            | Node::Bool(_)
            | Node::Int(_)
            | Node::Float(_)
            | Node::List(_)
            | Node::Map(_) => None,
        }
    }

    fn is_null(&self) -> bool {
        *self.scalar() == Node::Null
    }

    /// Converts; a failure is recorded here.
    pub(super) fn convert<T>(
        &self,
        scope: &Scope<'_>,
        kind: impl Fn(&Item<'_>) -> Result<T, String>,
    ) -> Option<T> {
        kind(self).map_err(|message| scope.problem(&self.path, &self.shown, &message)).ok()
    }
}

/// One mapping being read.
pub(super) struct Section<'a> {
    pub(super) path: String,
    pub(super) scope: &'a Scope<'a>,
    map: Option<&'a Map>,
    asked: Vec<&'static str>,
    failed: Vec<&'static str>,
    overridden: bool,
}

impl<'a> Section<'a> {
    /// The whole document.
    pub(super) fn root(node: &'a Node, scope: &'a Scope<'a>) -> Self {
        Self::open(String::new(), Some(node), scope)
    }

    /// A section of its own, under this path.
    pub(super) fn open(path: String, node: Option<&'a Node>, scope: &'a Scope<'a>) -> Self {
        let map = match node {
            None | Some(Node::Null) => None,
            Some(Node::Map(map)) => Some(map),
            Some(other) => {
                let at = if path.is_empty() { "file" } else { &path };
                scope.problem(at, &other.describe(), "must be a mapping of `key: value`");
                None
            }
        };
        for key in map.iter().flat_map(|map| &map.duplicates) {
            let path = child(&path, &shown_key(key));
            scope.problem(&path, "", "is there more than once; keep one of them");
        }
        Self { path, scope, map, asked: Vec::new(), failed: Vec::new(), overridden: false }
    }

    /// Flags and variables of the policy settings go over this section's keys.
    pub(super) fn with_overrides(mut self) -> Self {
        self.overridden = true;
        self
    }

    fn ask(&mut self, key: &'static str) -> Option<&'a Node> {
        if !self.asked.contains(&key) {
            self.asked.push(key);
            self.scope.know(&self.path, key);
        }
        let map = self.map?;
        map.entries.iter().find(|(name, _)| name == key).map(|(_, node)| node)
    }

    /// The value under `key`, if there is one.
    fn item(&mut self, key: &'static str) -> Option<Item<'a>> {
        let node = self.ask(key);
        if self.overridden
            && let Some((source, text)) = self.scope.outside(key)
        {
            let shown = shorten(&text);
            return Some(Item {
                path: source,
                node: Cow::Owned(Node::Text(text)),
                shown,
                textual: true,
            });
        }
        let item = Item::new(child(&self.path, key), node?, self.scope);
        if item.is_none() {
            self.failed.push(key);
        }
        item
    }

    /// A value with a default; `null` is refused.
    pub(super) fn read<T>(
        &mut self,
        key: &'static str,
        default: T,
        kind: impl Fn(&Item<'_>) -> Result<T, String>,
    ) -> T {
        let Some(item) = self.item(key) else { return default };
        let value = item.convert(self.scope, kind);
        self.noted(key, value).unwrap_or(default)
    }

    /// A value that may be unset; `null` unsets it.
    pub(super) fn optional<T>(
        &mut self,
        key: &'static str,
        default: Option<T>,
        kind: impl Fn(&Item<'_>) -> Result<T, String>,
    ) -> Option<T> {
        let Some(item) = self.item(key) else { return default };
        if item.is_null() {
            return None;
        }
        let value = item.convert(self.scope, kind);
        self.noted(key, value)
    }

    /// A value that must be there.
    pub(super) fn required<T>(
        &mut self,
        key: &'static str,
        kind: impl Fn(&Item<'_>) -> Result<T, String>,
    ) -> Option<T> {
        let Some(item) = self.item(key) else {
            if !self.failed.contains(&key) {
                self.scope.problem(&child(&self.path, key), "", "is missing");
                self.failed.push(key);
            }
            return None;
        };
        let value = item.convert(self.scope, kind);
        self.noted(key, value)
    }

    /// Like [`Section::optional`]; the value is never shown.
    pub(super) fn confidential<T>(
        &mut self,
        key: &'static str,
        kind: impl Fn(&Item<'_>) -> Result<T, String>,
    ) -> Option<T> {
        let item = self.item(key)?;
        if item.is_null() {
            return None;
        }
        let value = Item { shown: String::new(), ..item }.convert(self.scope, kind);
        self.noted(key, value)
    }

    fn noted<T>(&mut self, key: &'static str, value: Option<T>) -> Option<T> {
        if value.is_none() {
            self.failed.push(key);
        }
        value
    }

    /// The mapping under `key`; an absent one is empty.
    pub(super) fn section(&mut self, key: &'static str) -> Section<'a> {
        let node = self.ask(key);
        Self::open(child(&self.path, key), node, self.scope)
    }

    /// The mappings of the list under `key`; `None` if there is no list.
    pub(super) fn sections(&mut self, key: &'static str) -> Option<Vec<Section<'a>>> {
        let nodes = self.list(key)?;
        let path = child(&self.path, key);
        let open = |(at, node)| Self::open(format!("{path}[{at}]"), Some(node), self.scope);
        Some(nodes.iter().enumerate().map(open).collect())
    }

    /// The values of the list under `key`; empty if there is no list. A flag's text is one value
    /// for each comma.
    pub(super) fn items(&mut self, key: &'static str) -> Vec<Item<'a>> {
        if self.overridden
            && let Some((source, text)) = self.scope.outside(key)
        {
            let _ = self.ask(key);
            let item = |part: &str| Item {
                path: source.clone(),
                node: Cow::Owned(Node::Text(part.trim().to_owned())),
                shown: shorten(part),
                textual: true,
            };
            return text.split(',').map(item).collect();
        }
        let nodes = self.list(key).unwrap_or_default();
        let path = child(&self.path, key);
        let item = |(at, node)| Item::new(format!("{path}[{at}]"), node, self.scope);
        nodes.iter().enumerate().filter_map(item).collect()
    }

    fn list(&mut self, key: &'static str) -> Option<&'a [Node]> {
        match self.ask(key)? {
            Node::List(nodes) => Some(nodes),
            Node::Null => None,
            other => {
                self.failed.push(key);
                let message = "must be a list";
                self.scope.problem(&child(&self.path, key), &other.describe(), message);
                None
            }
        }
    }

    /// A key that is understood and not allowed.
    pub(super) fn refuse(&mut self, key: &'static str, message: &str) {
        let found = self.map.and_then(|map| map.entries.iter().find(|(name, _)| name == key));
        if found.is_some() {
            self.asked.push(key);
            self.scope.problem(&child(&self.path, key), "", message);
        }
    }

    /// Is what counts under `key`, from outside or in the file, something other than `null`?
    pub(super) fn has(&self, key: &str) -> bool {
        if self.overridden
            && let Some((_, text)) = self.scope.outside(key)
        {
            return parse_scalar(&text) != Node::Null;
        }
        let inside = |map: &Map| map.entries.iter().any(|(k, n)| k == key && *n != Node::Null);
        self.map.is_some_and(inside)
    }

    /// Is `key` given by a flag or variable?
    pub(super) fn is_overridden(&self, key: &str) -> bool {
        self.overridden && self.scope.is_outside(key)
    }

    /// Has the mapping any key at all?
    pub(super) fn is_given(&self) -> bool {
        self.map.is_some_and(|map| !map.entries.is_empty())
    }

    /// Was the value under `key` refused already?
    pub(super) fn failed(&self, key: &str) -> bool {
        self.failed.contains(&key)
    }

    /// Records a problem with the value under `key`.
    pub(super) fn problem(&mut self, key: &'static str, message: &str) {
        match self.item(key) {
            Some(item) => self.scope.problem(&item.path, &item.shown, message),
            None => self.scope.problem(&child(&self.path, key), "", message),
        }
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        for (key, _) in self.map.iter().flat_map(|map| &map.entries) {
            if !self.asked.contains(&key.as_str()) {
                self.scope.unknown(&self.path, key, &self.asked);
            }
        }
    }
}
