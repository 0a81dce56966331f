//! Simulated inference engines, a trace replayer and a traffic source.
//!
//! `engine` and `kv` are the model, pure and in virtual time; `clock`, `live`, `api`, `answer` and
//! `server` put it behind HTTP in compressed time, with `nodes` at the pace of a learned route; `trace`, `replay`, `client` and `traffic` send
//! requests at it or at an edge before it. Used by `tidegate demo` and by the tests.

mod answer;
mod api;
pub mod client;
pub mod clock;
pub mod engine;
pub mod engine_config;
pub mod kv;
mod live;
pub mod nodes;
pub mod prompt;
pub mod replay;
pub mod server;
pub mod trace;
pub mod traffic;
