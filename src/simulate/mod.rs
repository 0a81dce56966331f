//! Simulated inference engines, and a fleet of them with its edges in virtual time.
//!
//! `engine` and `kv` are the model, pure and in virtual time. `clock`, `live`, `api`, `answer` and
//! `server` put it behind HTTP in compressed time, with `nodes` at the pace of a learned route, and
//! `trace`, `replay`, `client` and `traffic` send requests at it or at an edge before it: that is
//! `tidegate demo` and the tests. `world` puts it behind the edge's own tables and decisions without
//! sockets or waiting. What comes is a trace, an `access_log` or made up by `generate`, and shaped by
//! `arrivals`; `rule_set` names settings, `compare` runs them, `figures`, `chart` and `suggest` tell how
//! they did, `fit` finds an engine's numbers: that is `tidegate simulate`.

pub mod access_log;
mod answer;
mod api;
pub mod arrivals;
pub mod chart;
pub mod client;
pub mod clock;
pub mod compare;
pub mod engine;
pub mod engine_config;
pub mod figures;
pub mod fit;
pub mod generate;
pub mod kv;
mod live;
mod load_page;
pub mod nodes;
pub mod prompt;
mod prompt_keys;
pub mod replay;
pub mod rule_set;
pub mod server;
pub mod suggest;
pub mod trace;
pub mod traffic;
pub mod traffic_source;
pub mod world;
