//! Warm state: what an edge has learned, taken to the process that comes after it.
//!
//! A snapshot goes over a unix socket to a successor in an upgrade ([`crate::boot`]), and into
//! `state_file` at a normal stop. It is a cache: one that is missing, foreign, damaged or too large
//! is told and left out, and the edge starts cold.
//!
//! Deliberately absent: reports, breakers and requests in flight. They are seconds old at best, and
//! the engines tell them anew.

mod file;
mod snapshot;
mod warm;

pub use file::{load, store};
pub use snapshot::{Snapshot, SnapshotError, VERSION};
pub use warm::{Restored, Trust, restore, take};
