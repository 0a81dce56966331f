//! The route a client asks for: `"route": ["node", …]` in the request's body.

use super::enumerate::{MOST_HOPS, Nodes};
use super::topology::{Layers, Topology};
use crate::fleet::WorkerId;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use thiserror::Error;

/// Characters of a client's text that a message repeats.
const SHOWN: usize = 80;

/// Why a pinned route cannot be taken.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PinError {
    /// Not a list.
    #[error("route must be a list of nodes, each `id` or `id[first-last]`")]
    NotAList,
    /// An element that is no text.
    #[error("route[{at}] must be a text, `id` or `id[first-last]`")]
    NotText {
        /// Its position, from 0.
        at: usize,
    },
    /// A list without a node.
    #[error("route names no node")]
    Empty,
    /// A longer list than is followed.
    #[error("route has {hops} nodes; at most {MOST_HOPS} are followed")]
    TooLong {
        /// How many.
        hops: usize,
    },
    /// A node the model does not have.
    #[error("route: the model has no node `{node}`")]
    UnknownNode {
        /// As the client wrote it, shortened.
        node: String,
    },
    /// Other layers than the node's.
    #[error("route: node `{node}` has layers {declared}: write `{node}` or `{node}[{declared}]`")]
    OtherLayers {
        /// Which.
        node: WorkerId,
        /// What it declares.
        declared: Layers,
    },
    /// A first node that cannot tokenize.
    #[error(
        "route: node `{node}` starts at layer {first} and cannot be the first; \
         that one must start at layer {model_first}"
    )]
    WrongHead {
        /// Which.
        node: WorkerId,
        /// Its first layer.
        first: u32,
        /// The model's.
        model_first: u32,
    },
    /// Layers nobody computes.
    #[error("route: node `{node}` starts at layer {first}; layer {needed} comes next")]
    Gap {
        /// Who comes after it.
        node: WorkerId,
        /// Its first layer.
        first: u32,
        /// The layer after the previous hop.
        needed: u32,
    },
    /// A node that computes nothing the ones before it have not.
    #[error("route: node `{node}` ends at layer {last}; layer {needed} comes next")]
    NoAdvance {
        /// Which.
        node: WorkerId,
        /// Its last layer.
        last: u32,
        /// The layer after the previous hop.
        needed: u32,
    },
    /// It ends too early.
    #[error("route ends at layer {last}; the model's last layer is {model_last}")]
    Incomplete {
        /// The last hop's last layer.
        last: u32,
        /// The model's.
        model_last: u32,
    },
    /// A route, but not now: the node is unhealthy, draining, full or has just failed.
    #[error("route: node `{node}` cannot be used now")]
    Unavailable {
        /// Which.
        node: WorkerId,
    },
}

impl PinError {
    /// Is the request wrong (400 `invalid_route`), or is only the moment (503 `no_route`)?
    pub fn is_invalid(&self) -> bool {
        !matches!(self, Self::Unavailable { .. })
    }
}

/// A client's route as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    nodes: Vec<String>,
}

impl Pin {
    /// Reads the JSON value of `route`; `null` is no pin. Takes time by its length and space by the
    /// most hops a route may have.
    ///
    /// # Errors
    /// Anything but a list of texts of a length that can be followed.
    pub fn read(json: &str) -> Result<Option<Self>, PinError> {
        let Ok(list) = serde_json::from_str::<Option<List<'_>>>(json) else {
            return Err(PinError::NotAList);
        };
        let Some(list) = list else { return Ok(None) };
        if MOST_HOPS < list.length {
            return Err(PinError::TooLong { hops: list.length });
        }
        let mut nodes = Vec::with_capacity(list.first.len());
        for (at, element) in list.first.iter().enumerate() {
            let text: Text<'_> =
                serde_json::from_str(element.get()).map_err(|_| PinError::NotText { at })?;
            nodes.push(text.0.into_owned());
        }
        if nodes.is_empty() {
            return Err(PinError::Empty);
        }
        Ok(Some(Self { nodes }))
    }

    /// Its nodes in the topology, if they are a route from the first layer to the last.
    pub(super) fn nodes(&self, topology: &Topology) -> Result<Nodes, PinError> {
        let model = topology.layers();
        let mut nodes = Nodes::new();
        let mut needed = model.first();
        for text in &self.nodes {
            let node = find(topology, text)?;
            follows(topology, node, needed)?;
            // Layers are at most the model's last one; after that nothing advances any more.
            needed = topology.node(node).layers.last().saturating_add(1);
            nodes.push(node);
        }
        let last = nodes.last().map_or(0, |&node| topology.node(node).layers.last());
        if last < model.last() {
            return Err(PinError::Incomplete { last, model_last: model.last() });
        }
        Ok(nodes)
    }
}

/// The node that a client's text means.
fn find(topology: &Topology, text: &str) -> Result<u16, PinError> {
    let (id, layers) = match text.split_once('[') {
        Some((id, _)) => (id, true),
        None => (text, false),
    };
    let at = topology.nodes().iter().position(|node| node.id.as_str() == id);
    let Some(at) = at.and_then(|at| u16::try_from(at).ok()) else {
        return Err(PinError::UnknownNode { node: shown(text) });
    };
    let node = topology.node(at);
    if layers && *topology.labels()[usize::from(at)] != *text {
        return Err(PinError::OtherLayers { node: node.id.clone(), declared: node.layers });
    }
    Ok(at)
}

/// Can the node compute from layer `needed` on?
fn follows(topology: &Topology, at: u16, needed: u32) -> Result<(), PinError> {
    let node = topology.node(at);
    let (first, last) = (node.layers.first(), node.layers.last());
    let model_first = topology.layers().first();
    let id = || node.id.clone();
    if needed == model_first && first != model_first {
        return Err(PinError::WrongHead { node: id(), first, model_first });
    }
    if needed < first {
        return Err(PinError::Gap { node: id(), first, needed });
    }
    if last < needed {
        return Err(PinError::NoAdvance { node: id(), last, needed });
    }
    Ok(())
}

/// At most 80 characters, none of them a control character.
fn shown(text: &str) -> String {
    let visible = |char: char| if char.is_control() { '\u{fffd}' } else { char };
    let mut shown: String = text.chars().take(SHOWN).map(visible).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push_str("...");
    }
    shown
}

/// A text, borrowed where it can be.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// A list, of which only as much is kept as may be used.
struct List<'a> {
    first: Vec<&'a RawValue>,
    length: usize,
}

impl<'de> Deserialize<'de> for List<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Elements;
        impl<'de> Visitor<'de> for Elements {
            type Value = List<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of nodes")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<List<'de>, A::Error> {
                let mut first = Vec::new();
                while first.len() < MOST_HOPS {
                    let Some(element) = from.next_element()? else {
                        let length = first.len();
                        return Ok(List { first, length });
                    };
                    first.push(element);
                }
                let mut length = first.len();
                while from.next_element::<IgnoredAny>()?.is_some() {
                    length += 1;
                }
                Ok(List { first, length })
            }
        }
        from.deserialize_seq(Elements)
    }
}

#[cfg(test)]
mod tests;
