//! YAML text to a bounded tree.
//!
//! Duplicate keys are kept, so that they can be reported with their paths. Size, depth and what
//! aliases expand to are bounded before anything is built, so that no file can hold the process up.

use super::{Config, ConfigErrors};
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;
use std::io::Read;
use std::path::Path;

/// What all nodes together may cost; a node costs [`NODE_COST`] and its text.
const MOST_COST: usize = 32 << 20;
const NODE_COST: usize = 64;
/// Most brackets open at once; the deepest valid file needs 7.
const MOST_OPEN: usize = 128;

/// A YAML value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Map),
}

/// A mapping in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Map {
    pub(super) entries: Vec<(String, Node)>,
    /// Keys that came again; the first one's value is in `entries`.
    pub(super) duplicates: Vec<String>,
}

impl Node {
    /// What stands at a path such as `a.b[0].c`.
    pub(super) fn at(&self, path: &str) -> Option<&Self> {
        let steps = path.split(['.', '[', ']']).filter(|step| !step.is_empty());
        steps.into_iter().try_fold(self, |node, step| match node {
            Self::Map(map) => map.entries.iter().find(|(key, _)| key == step).map(|(_, node)| node),
            Self::List(list) => list.get(step.parse::<usize>().ok()?),
            Self::Null | Self::Bool(_) | Self::Int(_) | Self::Float(_) | Self::Text(_) => None,
        })
    }

    /// A mapping of these entries.
    pub(super) fn map<const N: usize>(entries: [(&str, Node); N]) -> Self {
        let entries = entries.into_iter().map(|(key, node)| (key.to_owned(), node)).collect();
        Self::Map(Map { entries, duplicates: Vec::new() })
    }

    /// What it is, for messages.
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Null => "null".into(),
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Float(value) => value.to_string(),
            Self::Text(text) => shorten(text),
            Self::List(_) => "a list".into(),
            Self::Map(_) => "a mapping".into(),
        }
    }
}

/// At most 60 characters, control characters escaped, in quotes, a URL's user and password left out.
pub(super) fn shorten(text: &str) -> String {
    const MOST: usize = 60;
    let user = text.split_once("://").and_then(|(scheme, rest)| {
        let (_, host) = rest.rsplit_once('@')?;
        Some(format!("{scheme}://***@{host}"))
    });
    let text = user.as_deref().unwrap_or(text);
    match text.char_indices().nth(MOST) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", &text[..end]),
    }
}

/// A file's text, if it is small enough.
pub(super) fn read_file(path: &Path) -> Result<String, ConfigErrors> {
    let failed = |cause: &dyn fmt::Display| {
        ConfigErrors::one(path.display().to_string(), format!("cannot be read: {cause}"))
    };
    let file = std::fs::File::open(path).map_err(|e| failed(&e))?;
    let mut bytes = Vec::new();
    // One byte more than is allowed shows that there is more.
    let _ =
        file.take(Config::MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|e| failed(&e))?;
    if Config::MAX_FILE_BYTES < bytes.len() as u64 {
        return Err(ConfigErrors::one(path.display().to_string(), TOO_LARGE));
    }
    String::from_utf8(bytes).map_err(|e| failed(&e.utf8_error()))
}

const TOO_LARGE: &str = "is larger than 4 MiB, the most that is read";

/// A document's tree.
pub(super) fn parse(text: &str) -> Result<Node, ConfigErrors> {
    if Config::MAX_FILE_BYTES < text.len() as u64 {
        return Err(ConfigErrors::one("file", TOO_LARGE));
    }
    if let Some(line) = too_deep(text) {
        let message = format!("more than {MOST_OPEN} brackets are open at once");
        return Err(ConfigErrors::one(format!("line {line}"), message));
    }
    if is_blank(text) {
        return Err(ConfigErrors::one("file", EMPTY));
    }
    let left = Cell::new(MOST_COST);
    match (Seed { left: &left }).deserialize(serde_yaml::Deserializer::from_str(text)) {
        Ok(Node::Null) => Err(ConfigErrors::one("file", EMPTY)),
        Ok(node) => Ok(node),
        Err(error) => Err(syntax(&error)),
    }
}

const EMPTY: &str = "is empty: needs at least `tidegate:` with `models:`";

/// One scalar as it would be read in a file; text if it is none.
pub(super) fn parse_scalar(text: &str) -> Node {
    match parse(text) {
        Ok(node @ (Node::Null | Node::Bool(_) | Node::Int(_) | Node::Float(_))) => node,
        Ok(Node::Text(_) | Node::List(_) | Node::Map(_)) => Node::Text(text.to_owned()),
        Err(_) if ["null", "~"].contains(&text.trim()) => Node::Null,
        Err(_) => Node::Text(text.to_owned()),
    }
}

fn is_blank(text: &str) -> bool {
    text.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with('#'))
}

fn syntax(error: &serde_yaml::Error) -> ConfigErrors {
    let path = match error.location() {
        Some(at) => format!("line {}, column {}", at.line(), at.column()),
        None => "file".into(),
    };
    ConfigErrors::one(path, format!("is not readable YAML: {error}"))
}

/// The first line at which too many brackets are open: the YAML scanner takes time quadratic in the
/// depth, so this is asked before it runs. Brackets in quotes count as well, which is only stricter.
fn too_deep(text: &str) -> Option<usize> {
    let mut open = 0usize;
    let mut line = 1;
    // What YAML takes for the end of a line, or a comment could hide the rest.
    for content in text.split_inclusive(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']) {
        if !content.trim_start().starts_with('#') {
            open = content.bytes().fold(open, |open, byte| match byte {
                b'[' | b'{' => open + 1,
                b']' | b'}' => open.saturating_sub(1),
                _ => open,
            });
        }
        if MOST_OPEN < open {
            return Some(line);
        }
        line += usize::from(content.ends_with('\n'));
    }
    None
}

/// Builds a [`Node`] while the budget lasts.
#[derive(Clone, Copy)]
struct Seed<'a> {
    left: &'a Cell<usize>,
}

impl Seed<'_> {
    fn pay<E: Error>(self, text: usize) -> Result<(), E> {
        match self.left.get().checked_sub(text + NODE_COST) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(E::custom("aliases or entries make it too large")),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Node;

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<Node, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value without a `!tag`")
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        self.pay(0).map(|()| Node::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Node, E> {
        self.visit_unit()
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Node, E> {
        self.pay(0).map(|()| Node::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Node, E> {
        self.pay(0).map(|()| Node::Int(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Node, E> {
        self.pay(0).map(|()| Node::Int(value.into()))
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<Node, E> {
        self.pay(0).map(|()| Node::Int(value))
    }

    fn visit_u128<E: Error>(self, value: u128) -> Result<Node, E> {
        self.pay(0).map(|()| Node::Int(i128::try_from(value).unwrap_or(i128::MAX)))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Node, E> {
        self.pay(0).map(|()| Node::Float(value))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Node, E> {
        self.pay(text.len()).map(|()| Node::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Node, A::Error> {
        self.pay(0)?;
        let mut list = Vec::new();
        while let Some(node) = from.next_element_seed(self)? {
            list.push(node);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Node, A::Error> {
        self.pay(0)?;
        let mut map = Map::default();
        let mut seen = HashSet::new();
        while let Some(key) = from.next_key_seed(self)? {
            let value = from.next_value_seed(self)?;
            let key = match key {
                Node::Text(text) => text,
                Node::Null | Node::Bool(_) | Node::Int(_) | Node::Float(_) => key.describe(),
                Node::List(_) | Node::Map(_) => {
                    return Err(A::Error::custom("a key must be a word"));
                }
            };
            if seen.insert(key.clone()) {
                map.entries.push((key, value));
            } else {
                map.duplicates.push(key);
            }
        }
        Ok(Node::Map(map))
    }
}
