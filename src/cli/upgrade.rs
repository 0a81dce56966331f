//! `tidegate upgrade`: one command from the running binary to the next. It starts the successor,
//! waits until it waits for the sockets, tells the running edge, and reports who serves.

mod log;
mod process;

use super::BAD_USAGE;
use super::admin::{AskError, Endpoint, ask};
use crate::boot;
use crate::config::{Address, Config, ConfigErrors, Overrides, Source};
use bytes::Bytes;
use clap::Args;
use http::{Request, header};
use http_body_util::Full;
use process::{Running, Started};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use thiserror::Error;

/// For the successor to read its configuration and wait for the sockets.
const START: Duration = Duration::from_secs(30);
/// For sockets and warm state to change hands.
const HAND_OVER: Duration = Duration::from_secs(90);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// For one answer of an admin listener.
const ANSWER: Duration = Duration::from_secs(5);

/// Arguments of `tidegate upgrade`.
#[derive(Args, Clone, Debug)]
#[group(skip)]
pub struct UpgradeArgs {
    /// Configuration file of both processes
    #[arg(short, long, value_name = "FILE", alias = "config")]
    conf: PathBuf,
    /// The running edge's process [asked of its admin listener]
    #[arg(long)]
    pid: Option<u32>,
    /// A file with its process id
    #[arg(long, value_name = "FILE", conflicts_with = "pid")]
    pid_file: Option<PathBuf>,
    /// The next binary [this one]
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
}

/// Why the old process serves on.
#[derive(Debug, Error)]
enum UpgradeError {
    #[error("{}: {why}", path.display())]
    PidFile { path: PathBuf, why: String },
    #[error("{0}")]
    Config(#[from] ConfigErrors),
    #[error("the admin listener of the running edge does not answer ({0}); name it with --pid")]
    NotFound(AskError),
    #[error("process {pid}: {why}")]
    NotRunning { pid: u32, why: String },
    #[error("another upgrade is under way")]
    UnderWay,
    #[error("{}: {error}", path.display())]
    Binary { path: PathBuf, error: std::io::Error },
    #[error("the new process ended: {0}")]
    Ended(std::process::ExitStatus),
    #[error("the new process did not {0} in time and was ended")]
    Late(&'static str),
    #[error("process {pid} cannot be told: {why}")]
    Signal { pid: u32, why: String },
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl UpgradeError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::PidFile { .. } | Self::Config(_) => BAD_USAGE,
            Self::NotFound(_)
            | Self::NotRunning { .. }
            | Self::UnderWay
            | Self::Binary { .. }
            | Self::Ended(_)
            | Self::Late(_)
            | Self::Signal { .. }
            | Self::Io(_) => 1,
        }
    }
}

/// Who an admin listener says it is.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Identity {
    pid: u32,
    took_over_from: Option<i64>,
}

/// Runs it.
pub fn run(args: &UpgradeArgs) -> ExitCode {
    match upgrade(args) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("tidegate: {error}\nnothing changed: the running edge serves on");
            ExitCode::from(error.exit_code())
        }
    }
}

fn upgrade(args: &UpgradeArgs) -> Result<String, UpgradeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let pid = match pid(args)? {
        Some(pid) => pid,
        None => {
            let config = load(&args.conf, Overrides::from_process())?;
            runtime.block_on(identity(&config)).map_err(UpgradeError::NotFound)?.pid
        }
    };
    let old = Running::of(pid)?;
    let config = load(&args.conf, old.overrides())?;
    let binary = match &args.binary {
        Some(path) => path.clone(),
        None => std::env::current_exe()?,
    };
    if boot::is_upgrade_under_way(&config.upgrade_sock) {
        return Err(UpgradeError::UnderWay);
    }
    // What an earlier attempt left would be taken for a successor that waits.
    match std::fs::remove_file(&config.upgrade_sock) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        Ok(()) | Err(_) => {}
    }
    let began = Instant::now();
    let mut new = old.succeed(&binary, &args.conf)?;
    runtime.block_on(replace(&old, &mut new, &config)).inspect_err(|_| new.end())?;
    let seconds = began.elapsed().as_secs_f64();
    Ok(format!(
        "process {} serves since {seconds:.1} s after the start; process {pid} finishes what it has and leaves",
        new.pid()
    ))
}

fn pid(args: &UpgradeArgs) -> Result<Option<u32>, UpgradeError> {
    let Some(path) = &args.pid_file else {
        return Ok(args.pid);
    };
    let failed = |why: String| UpgradeError::PidFile { path: path.clone(), why };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let pid = text.trim().parse().map_err(|_| failed("must hold a process id".to_owned()))?;
    Ok(Some(pid))
}

fn load(path: &Path, overrides: Overrides) -> Result<Config, ConfigErrors> {
    Source::file(path.to_owned(), overrides).load().map(|loaded| loaded.config)
}

/// From the successor's start to its word that it serves.
async fn replace(old: &Running, new: &mut Started, config: &Config) -> Result<(), UpgradeError> {
    let start = Instant::now() + START;
    while !config.upgrade_sock.exists() {
        new.check()?;
        if start < Instant::now() {
            return Err(UpgradeError::Late("wait for the sockets"));
        }
        tokio::time::sleep(LOOK).await;
    }
    old.tell()?;
    let end = Instant::now() + HAND_OVER;
    while Instant::now() < end {
        new.check()?;
        // Both answer for a while; only the successor says that it has taken over from the old one.
        if let Ok(who) = identity(config).await
            && who.pid != old.pid
            && who.took_over_from.is_some()
        {
            new.is(who.pid);
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
    Err(UpgradeError::Late("take over"))
}

async fn identity(config: &Config) -> Result<Identity, AskError> {
    let endpoint = match &config.admin.address {
        Address::Tcp(address) => {
            let ip = match address.ip() {
                ip if ip.is_unspecified() && ip.is_ipv4() => "127.0.0.1".to_owned(),
                ip if ip.is_unspecified() => "::1".to_owned(),
                ip => ip.to_string(),
            };
            Endpoint::Tcp(ip, address.port())
        }
        Address::Unix(path) => Endpoint::Unix(path.clone()),
    };
    let mut request = Request::get("/v1/config").header(header::HOST, "localhost");
    if let Some(token) = &config.admin.token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.expose()));
    }
    let request = request.body(Full::new(Bytes::new()))?;
    let (status, body) = tokio::time::timeout(ANSWER, ask(&endpoint, request)).await??;
    if !status.is_success() {
        return Err(format!("it answers {status}").into());
    }
    Ok(serde_json::from_slice(&body)?)
}
