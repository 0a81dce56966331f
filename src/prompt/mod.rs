//! From a request body to model and prefix keys, and answers read on the side.
//!
//! A body is read in two steps. [`read`] finds the members of the envelope that matter: model,
//! whether the answer is streamed, and where the prompt lies. [`Envelope::keys`] then
//! turns the prompt's bytes into keys, in an order and a spelling that do not depend on how the JSON was
//! written. In between the caller resolves the model, whose name goes in front of the keys.
//!
//! Invariants: the prompt is never copied to the heap; memory does not depend on the body, work
//! grows linearly with it; no input panics; nesting is read without recursion. What is no JSON object
//! is said to be none, and what is broken further in gives the bytes that could be read: the edge
//! routes with what it has, and the engine is the one that refuses.
//!
//! Deliberately absent: checks of the schema, and any rewriting.

mod canonical;
mod chat;
mod completions;
mod dialect;
pub mod encoding;
mod envelope;
mod generate;
mod json;
mod media;
mod messages;
mod near;
mod responses;
mod sink;
mod text;
mod turns;
pub mod usage;

pub use dialect::Dialect;
pub use envelope::{BodyKind, Envelope, PromptKeys, PromptSize, read};
pub use sink::PromptSink;

#[cfg(test)]
mod tests;
