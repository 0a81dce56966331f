//! The command line: one file per subcommand.
//!
//! Exit codes: 0; 1 failure at run time; 2 bad usage or configuration.

pub mod args;
pub mod check;
pub mod demo;
pub mod explain;

pub use args::{Args, Command};

/// What the process says when arguments or configuration are wrong.
pub const BAD_USAGE: u8 = 2;
