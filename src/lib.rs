//! The L7 edge of an LLM inference fleet.
//!
//! One request meets one fleet snapshot and one rule set; a pure function says where it goes and
//! why; everything else is plumbing.
//!
//! ```text
//! listener -> proxy: body -> prompt -> routing: keys -> index -> decide() -> worker -> answer -> observe
//! engine   -> fleet: report -> table, swapped as a whole                        \
//! file     -> config: text -> checked configuration                              > one of each per request
//! ```
//!
//! Pure decisions live in `tidegate-policy`, load reports in `tidegate-reports`; neither can do
//! I/O. Here [`proxy`] is Pingora's side of a request, [`fleet`] talks to workers, [`config`] names
//! YAML, [`admin`] answers operators, [`boot`] puts a process together. Deliberately absent: any
//! rewriting of requests or answers.
//!
//! # As a library
//!
//! [`proxy::Edge`] implements Pingora's `ProxyHttp`; [`fleet::run`] is what has to run beside it,
//! [`reload::run`] and [`history::run`] what may.
//!
//! ```no_run
//! use pingora::server::Server;
//! use std::{path::Path, sync::Arc};
//! use tidegate::{config::{Config, Overrides}, proxy::Edge, state::State};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Arc::new(Config::from_path(Path::new("edge.yaml"), &Overrides::default())?);
//! let state = State::new(config)?;
//! let mut server = Server::new(None)?;
//! server.bootstrap();
//! let mut traffic = pingora_proxy::http_proxy_service(&server.configuration, Edge::new(state));
//! traffic.add_tcp("127.0.0.1:8080");
//! server.add_service(traffic);
//! server.run_forever();
//! # }
//! ```

pub mod admin;
pub mod boot;
pub mod cli;
pub mod config;
pub mod explain;
pub mod fleet;
pub mod handover;
pub mod history;
pub mod journal;
pub mod limited;
pub mod metrics;
mod percent;
pub mod prompt;
pub mod proxy;
pub mod reload;
pub mod routing;
pub mod simulate;
pub mod state;

/// This crate's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
