//! Policy `learned`: which route through layer shards is really fast, found by measuring.
//!
//! A model served in layer shards has no fastest route that anyone knows in advance. So every
//! request's own speed is a sample of the route it took, and traffic follows the decayed means; a
//! share of it scouts the routes that are not, or no longer, known. A whole-model worker is a route
//! of one hop.
//!
//! - [`Topology`] is what is configured: nodes and their layers. It changes on a join, a leave or
//!   another shard, and each change has a new epoch. What changes with every request — who is
//!   routable, who queues — is read from the [`Fleet`](crate::fleet::Fleet) snapshot instead, so a
//!   node that merely flaps leaves the epoch alone.
//! - [`Routes`] is one model's topology together with its statistics, shared between requests: one
//!   short lock, never held while anything is waited for.
//! - [`Routes::choose`] and [`Routes::pinned`] answer with a [`Selection`] and book nothing;
//!   [`Routes::dispatched`] books it, [`Routes::ended`] takes it back and learns from it.
//!
//! Deliberately absent: clock and dice, which come in as [`Millis`](crate::fleet::Millis) and
//! [`Draws`]; and any judgement of failures, which is the breaker's.

mod choose;
mod enumerate;
mod pinned;
mod routes;
mod saved;
mod settings;
mod stats;
mod table;
#[cfg(test)]
mod testing;
mod thompson;
mod topology;

pub use choose::{Draws, Mode};
pub use pinned::{Pin, PinError};
pub use routes::{Hop, Routes, Selection, Ticket};
pub use saved::{Saved, SavedArm};
pub use settings::{Choice, Exponent, Settings};
pub use stats::{Ended, Sample, SampleResult, Status};
pub use table::{HopRow, ModelTable, Row, SettingsShown};
pub use topology::{Layers, Node, Topology, TopologyError};
