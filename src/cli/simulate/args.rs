//! What `tidegate simulate` can be told.

use crate::config::{Calibration, duration_of};
use crate::simulate::arrivals::{Burst, Hot, Shape};
use crate::simulate::engine::EngineConfig;
use crate::simulate::generate::Generator;
use crate::simulate::server::LoadEndpoint;
use crate::simulate::world::{Outage, Scene, WorldError};
use clap::{ArgGroup, ValueEnum};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

/// `tidegate simulate`.
#[derive(Clone, Debug, clap::Args)]
#[command(group(ArgGroup::new("arrivals").required(true).args(["trace", "access_log", "generate", "fit"])))]
pub struct SimulateArgs {
    /// Configuration: its policy is the rule set `file`, its other settings are everybody's
    #[arg(short, long, value_name = "FILE", alias = "config")]
    pub conf: Option<PathBuf>,
    /// Which of its models, if it has several
    #[arg(long, value_name = "NAME", requires = "conf")]
    pub model: Option<String>,
    /// Rule sets, once for each or with spaces: NAME[:KEY=VALUE[/VALUE...],...]
    #[arg(long, value_name = "SPEC", num_args = 1.., help_heading = COMPARED)]
    pub compare: Vec<String>,
    /// Try limits and floors, and say which would be best and why
    #[arg(long, help_heading = COMPARED)]
    pub suggest: bool,
    /// Runs of each rule set, each with arrivals and dice of its own
    #[arg(long, value_name = "N", default_value = "1", help_heading = COMPARED)]
    pub seeds: NonZeroU32,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = COMPARED)]
    pub seed: u64,
    /// Runs at a time [the number of cores]
    #[arg(long, value_name = "N", help_heading = COMPARED)]
    pub jobs: Option<NonZeroUsize>,
    /// Write all figures as JSON
    #[arg(long, value_name = "FILE", help_heading = COMPARED)]
    pub json: Option<PathBuf>,
    /// Draw the figures as SVG
    #[arg(long, value_name = "FILE", help_heading = COMPARED)]
    pub svg: Option<PathBuf>,
    /// Print the numbers of the engines behind an access log, as a file for --engine, and end
    #[arg(long, value_name = "LOG", exclusive = true)]
    pub fit: Option<PathBuf>,
    /// What comes.
    #[command(flatten)]
    pub traffic: TrafficArgs,
    /// What there is.
    #[command(flatten)]
    pub fleet: FleetArgs,
}

const COMPARED: &str = "What is compared";
const TRAFFIC: &str = "What comes";
const FLEET: &str = "What there is";

/// Where arrivals come from and what is done to them.
#[derive(Clone, Debug, clap::Args)]
pub struct TrafficArgs {
    /// Mooncake trace: timestamp, input_length, output_length and hash_ids a line
    #[arg(long, value_name = "FILE", help_heading = TRAFFIC)]
    pub trace: Option<PathBuf>,
    /// The edge's access log, written with `access_log: {prefixes: true}`
    #[arg(long, value_name = "FILE", help_heading = TRAFFIC)]
    pub access_log: Option<PathBuf>,
    /// Made up: chat, agents, system, hot or unique[:requests=N,rate=F,prefixes=N,prefix_tokens=N,turns=F,input_tokens=F,output_tokens=F,pause=F]
    #[arg(long, value_name = "KIND", value_parser = generator, help_heading = TRAFFIC)]
    pub generate: Option<Generator>,
    /// Settings of rate, until, burst, hot and unshared that go together
    #[arg(long, value_name = "NAME", help_heading = TRAFFIC)]
    pub scene: Option<SceneName>,
    /// Multiply the rate of arrivals [1]
    #[arg(long, value_name = "F", value_parser = positive, help_heading = TRAFFIC)]
    pub rate: Option<f64>,
    /// The same, to LOAD times what the engines could do if nothing were computed twice
    #[arg(long, value_name = "LOAD", value_parser = positive, conflicts_with = "rate", help_heading = TRAFFIC)]
    pub load: Option<f64>,
    /// Only what comes before this time of the trace
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = TRAFFIC)]
    pub until: Option<Duration>,
    /// From START on, SECONDS of FACTOR times as many arrivals
    #[arg(long, value_name = "START:SECONDS:FACTOR", value_parser = burst, help_heading = TRAFFIC)]
    pub burst: Option<Burst>,
    /// SHARE of the conversations begin with the same 512-token BLOCKS
    #[arg(long, value_name = "SHARE:BLOCKS", value_parser = hot, help_heading = TRAFFIC)]
    pub hot: Option<Hot>,
    /// Share of the requests that get a prompt nobody else has [0]
    #[arg(long, value_name = "SHARE", value_parser = share, help_heading = TRAFFIC)]
    pub unshared: Option<f64>,
    /// Share of the requests that are not streamed
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share, help_heading = TRAFFIC)]
    pub unstreamed: f64,
    /// Leave a trace's timestamps on their grid of 3 s
    #[arg(long, help_heading = TRAFFIC)]
    pub on_grid: bool,
}

/// Engines, edges and reports.
#[derive(Clone, Debug, clap::Args)]
pub struct FleetArgs {
    /// Engines [the model's workers, or 8]
    #[arg(long, value_name = "N", help_heading = FLEET)]
    pub engines: Option<NonZeroU32>,
    /// Edges that share the traffic
    #[arg(long, value_name = "N", default_value = "1", help_heading = FLEET)]
    pub edges: NonZeroU32,
    /// An engine's numbers: a YAML file, or KEY=VALUE,...
    #[arg(long, value_name = "FILE|KEYS", value_parser = calibration, help_heading = FLEET)]
    pub engine: Option<Calibration>,
    /// Engine N (from 0) takes FACTOR times as long
    #[arg(long, value_name = "N:FACTOR", value_parser = slow, help_heading = FLEET)]
    pub slow: Vec<(u32, f64)>,
    /// Engine N is down from START on for SECONDS, and starts again empty
    #[arg(long, value_name = "N:START:SECONDS", value_parser = outage, help_heading = FLEET)]
    pub outage: Vec<Outage>,
    /// What engines report: counts, tokens too, or nothing
    #[arg(long, value_name = "FORM", default_value = "get_load", help_heading = FLEET)]
    pub reports: ReportForm,
    /// From a poll to its answer
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time, help_heading = FLEET)]
    pub report_delay: Duration,
    /// Share of the polls without an answer
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share, help_heading = FLEET)]
    pub report_loss: f64,
    /// Prompt bytes of a token; the edge takes 4 until it has learned
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=16), help_heading = FLEET)]
    pub bytes_per_token: u32,
}

/// Forms of load reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum ReportForm {
    /// Requests running and waiting.
    GetLoad,
    /// The same, tokens and prefill counters.
    V1Loads,
    /// None.
    None,
}

/// Scenes over the conversation trace, for eight engines of 8,000 prefill tokens/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum SceneName {
    /// Nothing queues for long.
    Moderate,
    /// Every engine queues throughout.
    Saturated,
    /// One burst fills every queue.
    Burst,
    /// Half of the conversations share one long prefix.
    Hot,
    /// Nine in ten prompts have nothing in common with any other.
    LowSharing,
}

impl TrafficArgs {
    /// What is made of the trace.
    pub fn shape(&self) -> Shape {
        let scene = self.scene.map_or_else(Shape::default, SceneName::shape);
        Shape {
            // Other arrivals have times of their own.
            spread: !self.on_grid && self.trace.is_some(),
            until: self.until.or(scene.until),
            unshared: self.unshared.unwrap_or(scene.unshared),
            hot: self.hot.or(scene.hot),
            rate: self.rate.unwrap_or(scene.rate),
            burst: self.burst.or(scene.burst),
        }
    }
}

impl SceneName {
    fn shape(self) -> Shape {
        let until = |seconds| Some(Duration::from_secs(seconds));
        let plain = Shape { until: until(600), ..Shape::default() };
        match self {
            Self::Moderate => plain,
            Self::Saturated => Shape { rate: 2.0, until: until(1_200), ..plain },
            Self::Burst => {
                let (start, lasts) = (Duration::from_secs(200), Duration::from_secs(20));
                let burst = Some(Burst { start, lasts, factor: 3.0 });
                Shape { rate: 1.7, until: until(1_500), burst, ..plain }
            }
            Self::Hot => Shape { hot: Some(Hot { share: 0.5, blocks: 48 }), ..plain },
            Self::LowSharing => Shape { unshared: 0.9, ..plain },
        }
    }
}

impl FleetArgs {
    /// The scene with so many engines.
    ///
    /// # Errors
    /// One that is to be slow is not there.
    pub fn scene(&self, engines: usize, unstreamed: f64) -> Result<Scene, WorldError> {
        let engine = EngineConfig::default();
        let engine = self.engine.map_or(engine, |calibration| engine.calibrated(&calibration));
        let mut engines = vec![engine; engines];
        for &(slow, factor) in &self.slow {
            let all = engines.len();
            let Some(engine) = engines.get_mut(slow as usize) else {
                return Err(WorldError::NoEngine { engine: slow, engines: all });
            };
            *engine = engine.slowed(factor);
        }
        Ok(Scene {
            engines,
            edges: self.edges.get(),
            reports: match self.reports {
                ReportForm::GetLoad => LoadEndpoint::GetLoad,
                ReportForm::V1Loads => LoadEndpoint::V1Loads,
                ReportForm::None => LoadEndpoint::Absent,
            },
            report_delay: self.report_delay,
            report_loss: self.report_loss,
            unstreamed,
            bytes_per_token: self.bytes_per_token,
            outages: self.outage.clone(),
        })
    }
}

fn time(text: &str) -> Result<Duration, String> {
    duration_of(text).ok_or_else(|| "give a time such as 500ms, 2s or 10m".to_owned())
}

fn positive(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value: &f64| 0.0 < *value && value.is_finite());
    value.ok_or_else(|| "give a number above 0".to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value| (0.0..=1.0).contains(value));
    value.ok_or_else(|| "give a number from 0 to 1".to_owned())
}

/// The parts of a text with colons between.
fn parts<const N: usize>(text: &str) -> Result<[&str; N], String> {
    let parts: Vec<&str> = text.split(':').collect();
    parts.try_into().map_err(|_| format!("give {N} parts with colons between"))
}

fn whole(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("`{text}` is not a whole number"))
}

fn burst(text: &str) -> Result<Burst, String> {
    let [start, lasts, factor] = parts(text)?;
    Ok(Burst { start: time(start)?, lasts: time(lasts)?, factor: positive(factor)? })
}

fn hot(text: &str) -> Result<Hot, String> {
    let [part, blocks] = parts(text)?;
    Ok(Hot { share: share(part)?, blocks: whole(blocks)? })
}

fn slow(text: &str) -> Result<(u32, f64), String> {
    let [engine, factor] = parts(text)?;
    Ok((whole(engine)?, positive(factor)?))
}

fn outage(text: &str) -> Result<Outage, String> {
    let [engine, at, lasts] = parts(text)?;
    let at = time(at)?;
    Ok(Outage { engine: whole(engine)?, at, until: at.saturating_add(time(lasts)?) })
}

fn generator(text: &str) -> Result<Generator, String> {
    Generator::named(text).map_err(|error| error.to_string())
}

fn calibration(text: &str) -> Result<Calibration, String> {
    let read = if text.contains('=') {
        Calibration::from_yaml(&format!("engine: {{{}}}", text.replace('=', ": ")))
    } else {
        Calibration::from_path(text.as_ref())
    };
    read.map_err(|errors| errors.to_string())
}
