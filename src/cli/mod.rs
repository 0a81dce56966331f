//! The command line: one file per subcommand.
//!
//! Exit codes: 0; 1 failure at run time; 2 bad usage or configuration.

mod admin;
pub mod args;
pub mod check;
pub mod demo;
pub mod explain;
pub mod log;
pub mod routes;
pub mod simulate;
pub mod upgrade;

pub use args::{Args, Command};

use std::io::Read;
use std::path::Path;

/// What the process says when arguments or configuration are wrong.
pub const BAD_USAGE: u8 = 2;

/// A file's content; `-` is standard input.
fn read_input(path: &Path) -> std::io::Result<Vec<u8>> {
    if path != Path::new("-") {
        return std::fs::read(path);
    }
    let mut content = Vec::new();
    std::io::stdin().read_to_end(&mut content)?;
    Ok(content)
}
