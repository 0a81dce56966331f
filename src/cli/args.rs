//! What can be typed. `--help` fits a screen; the policy settings come from one table that the
//! configuration reader uses too, so that flag, variable and YAML key cannot drift apart.

use super::demo::Demo;
use super::explain::ExplainArgs;
use super::routes::RoutesArgs;
use super::simulate::SimulateArgs;
use super::upgrade::UpgradeArgs;
use crate::config::{Overrides, POLICY_SETTINGS, PolicySetting, QuickStart, Source};
use clap::{ArgGroup, ArgMatches, FromArgMatches, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

/// The L7 edge of an LLM inference fleet: sends each prompt to the worker that holds its prefix.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "tidegate",
    version = version(),
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    override_usage = "tidegate -c FILE [-t] [-d] [-u] [policy settings]\n       \
                      tidegate --worker URL ... [policy settings]\n       \
                      tidegate check|explain|routes|simulate|upgrade|demo ...  (each has its own --help)"
)]
pub struct Args {
    /// What to do; to run the edge, if none is given.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// How to run the edge.
    #[command(flatten)]
    pub run: RunArgs,
}

/// Everything but running the edge.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Check a configuration and print every problem
    Check(CheckArgs),
    /// Say where a request would go and why, rung by rung
    Explain(ExplainArgs),
    /// Say which learned route a request would take, step by step
    Routes(RoutesArgs),
    /// Replay a trace against simulated engines, under one rule set or several
    Simulate(Box<SimulateArgs>),
    /// Replace the running edge by this binary without dropping a request
    Upgrade(UpgradeArgs),
    /// Run simulated engines, the edge and some traffic in one process
    Demo(DemoArgs),
}

/// `tidegate -c FILE`, `tidegate --worker URL ...`.
#[derive(Clone, Debug, clap::Args)]
#[command(group(ArgGroup::new("source").required(true).args(["conf", "workers"])))]
pub struct RunArgs {
    /// Configuration file
    #[arg(short, long, value_name = "FILE", alias = "config")]
    pub conf: Option<PathBuf>,
    /// Check the configuration and exit
    #[arg(short, long)]
    pub test: bool,
    /// Run in the background
    #[arg(short, long)]
    pub daemon: bool,
    /// Take the sockets over from the running process
    #[arg(short, long)]
    pub upgrade: bool,
    /// Run without a file: a worker's URL, once for each or with commas
    #[arg(long = "worker", value_name = "URL", value_delimiter = ',', help_heading = WITHOUT_A_FILE)]
    pub workers: Vec<String>,
    /// The model's name [*: all names]
    #[arg(long, value_name = "NAME", conflicts_with = "conf", help_heading = WITHOUT_A_FILE)]
    pub model: Option<String>,
    /// Traffic listener [127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "conf", help_heading = WITHOUT_A_FILE)]
    pub listen: Option<String>,
    /// Admin listener [127.0.0.1:9909]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "conf", help_heading = WITHOUT_A_FILE)]
    pub admin: Option<String>,
    /// Over file and environment.
    #[command(flatten)]
    pub policy: PolicyArgs,
}

const WITHOUT_A_FILE: &str = "Without a file";

impl RunArgs {
    /// Where the configuration these arguments ask for comes from, with this process's environment.
    pub fn source(&self) -> Source {
        let overrides = self.policy.overrides();
        match &self.conf {
            Some(path) => Source::file(path.clone(), overrides),
            None => Source::quick_start(self.quick_start(), overrides),
        }
    }

    /// The run without a file.
    pub fn quick_start(&self) -> QuickStart {
        QuickStart {
            workers: self.workers.clone(),
            model: self.model.clone(),
            listen: self.listen.clone(),
            admin: self.admin.clone(),
        }
    }
}

/// `tidegate check`.
#[derive(Clone, Debug, clap::Args)]
pub struct CheckArgs {
    /// Configuration file
    #[arg(short, long, value_name = "FILE", alias = "config")]
    pub conf: PathBuf,
    /// Over file and environment.
    #[command(flatten)]
    pub policy: PolicyArgs,
}

/// `tidegate demo`.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoArgs {
    /// Simulated engines
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub workers: u16,
    /// End after this many seconds [until interrupted]
    #[arg(long, value_name = "S")]
    pub seconds: Option<u64>,
    /// Traffic listener [127.0.0.1:8080, or a free port]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Admin listener [127.0.0.1:9909, or a free port]
    #[arg(long, value_name = "ADDRESS")]
    pub admin: Option<SocketAddr>,
}

impl DemoArgs {
    /// The demo these arguments ask for.
    pub fn plan(&self) -> Demo {
        Demo {
            workers: self.workers.into(),
            listen: self.listen,
            admin: self.admin,
            duration: self.seconds.map(Duration::from_secs),
        }
    }
}

/// The policy settings given as flags.
#[derive(Clone, Debug, Default)]
pub struct PolicyArgs {
    given: Vec<(&'static PolicySetting, String)>,
}

impl PolicyArgs {
    /// These flags over this process's environment.
    pub fn overrides(&self) -> Overrides {
        self.over(Overrides::from_process())
    }

    /// The same over other settings.
    pub(super) fn over(&self, overrides: Overrides) -> Overrides {
        let over = |overrides: Overrides, (setting, value): &(&PolicySetting, String)| {
            overrides.with_flag(setting, value)
        };
        self.given.iter().fold(overrides, over)
    }
}

/// The flags of [`POLICY_SETTINGS`], in its order: clap wants names that live as long as the process.
fn flags() -> &'static [String] {
    static FLAGS: OnceLock<Vec<String>> = OnceLock::new();
    FLAGS.get_or_init(|| POLICY_SETTINGS.iter().map(PolicySetting::flag).collect())
}

/// The settings that have no line of their own.
fn the_rest() -> String {
    let rest = POLICY_SETTINGS.iter().filter(|setting| setting.help.is_empty());
    let flags: Vec<_> = rest.map(|s| format!("--{} {}", s.flag(), s.value)).collect();
    format!("Also (see conf/reference.yaml): {}", flags.join(", "))
}

impl clap::Args for PolicyArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        let arg = |(setting, flag): (&PolicySetting, &'static String)| {
            clap::Arg::new(setting.key)
                .long(flag.as_str())
                .value_name(setting.value)
                .help(setting.help)
                .hide(setting.help.is_empty())
                .allow_hyphen_values(true)
                .help_heading("Policy settings (also as TIDEGATE_WORKER_QUEUE_LIMIT and so on)")
        };
        command.args(POLICY_SETTINGS.iter().zip(flags()).map(arg)).after_help(the_rest())
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for PolicyArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let one = |setting: &'static PolicySetting| {
            matches.get_one::<String>(setting.key).map(|value| (setting, value.clone()))
        };
        Ok(Self { given: POLICY_SETTINGS.iter().filter_map(one).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The version and the commit, if whoever built it said which (`TIDEGATE_COMMIT`).
pub fn version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    let commit = option_env!("TIDEGATE_COMMIT").unwrap_or("unknown commit");
    VERSION.get_or_init(|| format!("{} ({commit})", env!("CARGO_PKG_VERSION")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn help_fits_a_screen_and_is_grouped() {
        let help = Args::command().render_help().to_string();
        assert!(help.lines().count() <= 58, "{} lines:\n{help}", help.lines().count());
        assert!(help.contains("Policy settings") && help.contains("Without a file:"), "{help}");
        for setting in POLICY_SETTINGS {
            assert!(help.contains(&format!("--{}", setting.flag())), "{}", setting.key);
        }
    }

    #[test]
    fn a_file_or_workers_are_needed_and_not_both() {
        for line in [
            "tidegate",
            "tidegate -t",
            "tidegate -c f --worker http://a:1",
            "tidegate --listen x -c f",
        ] {
            let error = parse(line).unwrap_err();
            assert_eq!(error.exit_code(), i32::from(crate::cli::BAD_USAGE), "{line}");
        }
        assert!(parse("tidegate -c f -t -d -u").unwrap().run.upgrade);
        assert_eq!(parse("tidegate --worker a --worker b,c").unwrap().run.workers, ["a", "b", "c"]);
    }

    #[test]
    fn subcommands_need_no_file() {
        for line in [
            "tidegate check -c f --worker-queue-limit 4",
            "tidegate explain --admin http://127.0.0.1:9909 --request body.json",
            "tidegate explain --scenario f --json",
            "tidegate routes --scenario f --json",
            "tidegate simulate --trace f --compare cost pin --seeds 5",
            "tidegate upgrade -c f --pid 7 --binary /b",
            "tidegate demo --workers 8",
        ] {
            assert!(parse(line).unwrap().command.is_some(), "{line}");
        }
        assert!(parse("tidegate explain").is_err());
        assert!(parse("tidegate routes").is_err());
        assert!(parse("tidegate explain --admin x").is_err());
    }

    #[test]
    fn policy_flags_reach_the_configuration() {
        let line = "tidegate --worker http://a:1 --worker-queue-limit 4 --saturation-queue-floor 2";
        let config = parse(line).unwrap().run.source().load().unwrap().config;
        let crate::config::Policy::CacheAware(rules) = &config.models[0].policy else {
            unreachable!("the default policy")
        };
        assert_eq!(rules.saturation_queue_floor.unwrap().get(), 2);
    }

    #[test]
    fn the_version_names_the_package() {
        assert!(version().starts_with(env!("CARGO_PKG_VERSION")));
    }
}
