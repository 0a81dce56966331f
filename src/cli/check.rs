//! `tidegate check` and `-t`: every problem at once, or what is legal and hardly meant.

use super::BAD_USAGE;
use super::args::CheckArgs;
use crate::config::{Config, ConfigErrors};
use std::process::ExitCode;

/// Checks the file; 0 or 2.
pub fn run(args: &CheckArgs) -> ExitCode {
    report(&Config::from_path(&args.conf, &args.policy.overrides()))
}

/// Prints the verdict, problems and warnings to stderr; 0, with warnings too, or 2.
pub fn report(result: &Result<Config, ConfigErrors>) -> ExitCode {
    match result {
        Ok(config) => {
            println!("OK: {}", config.summary());
            config.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
            ExitCode::SUCCESS
        }
        Err(errors) => {
            eprintln!("{errors}");
            ExitCode::from(BAD_USAGE)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::{Overrides, QuickStart};

    #[test]
    fn the_summary_counts_models_and_workers() {
        let workers = vec!["http://a:1".into(), "http://b:1".into()];
        let quick = QuickStart { workers, ..QuickStart::default() };
        let config = Config::from_quick_start(&quick, &Overrides::default()).unwrap();
        assert_eq!(config.summary(), "1 model, 2 workers");
    }
}
