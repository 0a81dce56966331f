//! The binary: arguments, then [`tidegate`].

use clap::Parser;
use std::process::ExitCode;
use std::sync::Arc;
use tidegate::boot::{self, Start};
use tidegate::cli::args::RunArgs;
use tidegate::cli::{
    Args, BAD_USAGE, Command, check, demo, explain, log, routes, simulate, upgrade,
};

// Less CPU per request than glibc's allocator, by measurements of bare Pingora.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = Args::parse();
    let filter = if args.command.is_some() { "warn" } else { boot::LOG_FILTER };
    log::init(filter);
    let code = match args.command {
        None => run(&args.run),
        Some(Command::Check(args)) => check::run(&args),
        Some(Command::Explain(args)) => explain::run(&args),
        Some(Command::Routes(args)) => routes::run(&args),
        Some(Command::Simulate(args)) => simulate::run(&args),
        Some(Command::Upgrade(args)) => upgrade::run(&args),
        Some(Command::Demo(args)) => ended(demo::run(&args.plan())),
    };
    ::log::logger().flush();
    code
}

fn run(args: &RunArgs) -> ExitCode {
    let mut source = args.source();
    let config = source.load().map(|loaded| loaded.config);
    if args.test {
        return check::report(&config);
    }
    match config {
        Ok(config) => {
            let start = Start { daemon: args.daemon, upgrade: args.upgrade };
            ended(boot::serve(Arc::new(config), Some(source), start))
        }
        Err(errors) => {
            eprintln!("{errors}");
            ExitCode::from(BAD_USAGE)
        }
    }
}

fn ended<E: std::fmt::Display>(result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidegate: {error}");
            ExitCode::FAILURE
        }
    }
}
