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
//! [`boot::serve`] is the whole edge in the caller's process. For a server of one's own,
//! [`proxy::Edge`] implements Pingora's `ProxyHttp`; [`fleet::run`] has to run beside it, or no worker
//! is ever known to be healthy; [`reload::run`] and [`history::run`] may. What was counted is in
//! [`State::metrics`](state::State::metrics). A policy is chosen in the configuration; what makes a new
//! one is in `plugins/README.md`.
//!
//! ```no_run
//! use async_trait::async_trait;
//! use pingora::server::{Server, ShutdownWatch};
//! use pingora::services::background::{BackgroundService, background_service};
//! use std::{path::Path, sync::Arc};
//! use tidegate::config::{Config, Overrides};
//! use tidegate::{fleet, proxy::Edge, state::State};
//!
//! const CONFIG: &str = r#"
//! version: 1
//! tidegate:
//!   models:
//!     - name: qwen3-32b
//!       policy: cache_aware
//!       cache_aware: {selection: ladder, worker_queue_limit: 8, saturation_queue_floor: 1}
//!       workers:
//!         - {id: w0, url: "http://10.0.0.10:30000"}
//!         - {id: w1, url: "http://10.0.0.11:30000"}
//! "#;
//!
//! /// Asks workers for their load and health while the server runs.
//! struct Workers(Arc<State>);
//!
//! #[async_trait]
//! impl BackgroundService for Workers {
//!     async fn start(&self, mut shutdown: ShutdownWatch) {
//!         let end = async move {
//!             let _ = shutdown.changed().await;
//!         };
//!         fleet::run(self.0.fleets(), end).await;
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Names of files in it would be relative to this directory.
//! let config = Config::from_yaml(CONFIG, Path::new("."), &Overrides::default())?;
//! let state = State::new(Arc::new(config))?;
//! let mut server = Server::new(None)?;
//! server.bootstrap();
//! let edge = Edge::new(Arc::clone(&state));
//! let mut traffic = pingora_proxy::http_proxy_service(&server.configuration, edge);
//! traffic.add_tcp("127.0.0.1:8080");
//! server.add_service(traffic);
//! server.add_service(background_service("workers", Workers(state)));
//! server.run_forever();
//! # }
//! ```
//!
//! Modules that the binary and the tests need, and nobody else, are left out of this documentation.

pub mod admin;
pub mod boot;
#[doc(hidden)]
pub mod cli;
pub mod config;
#[doc(hidden)]
pub mod explain;
pub mod fleet;
#[doc(hidden)]
pub mod handover;
pub mod history;
#[doc(hidden)]
pub mod journal;
#[doc(hidden)]
pub mod limited;
pub mod metrics;
mod percent;
#[doc(hidden)]
pub mod prompt;
pub mod proxy;
pub mod reload;
#[doc(hidden)]
pub mod routing;
#[doc(hidden)]
pub mod simulate;
pub mod state;

/// This crate's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
