//! The workers: who is there, how they are, what they report.
//!
//! Requests read two things: [`ModelFleet::snapshot`], an immutable table swapped as a whole, and
//! [`Worker::try_dispatch`], which has the last word on one worker. Everything else is written by
//! the tasks of [`run`], one per worker and kind, so that a worker that hangs delays nobody else.

mod authorities;
mod breaker;
pub mod clock;
pub mod discovery;
mod fleets;
mod health;
mod hysteresis;
mod inflight;
mod kept;
mod lasting;
mod load;
mod model;
mod poll;
mod queue;
mod reading;
mod room;
mod routes;
mod run;
pub mod scrape;
pub mod shortage;
mod table;
mod tokens;
mod view;
mod warmth;
mod worker;

pub use authorities::CaType;
pub use breaker::{Breaker, BreakerState, Ticket, Verdict};
pub use fleets::{ANY, Fleets};
pub use inflight::InflightGuard;
pub use load::FleetLoad;
pub use model::ModelFleet;
pub use queue::{Client, Place, Queue};
pub use reading::Sent;
pub use run::run;
pub use table::REFRESH;
pub use tokens::{BytesPerToken, MeanUncached};
pub use view::{ReportView, WorkerRow};
pub use worker::{Standing, Whose, Worker, WorkerAddress};

#[cfg(test)]
mod tests;
