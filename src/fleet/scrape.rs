//! Asks one worker for its load. All that is known of where a worker keeps its report lives here:
//! which path answered, how many data-parallel ranks it has, what to try next.
//!
//! Deliberately absent: when to ask (the caller's loop, with its jitter), what a report means
//! (`tidegate-reports`) and what becomes of it (the fleet's table). A poll never outlives its timeout,
//! follows no redirect and reads at most [`tidegate_reports::MAX_BODY_BYTES`].

use super::WorkerAddress;
use crate::config::{
    self, Authorities, LoadReports, ReportChoice, Scheme, UpstreamAuth, WorkerHost,
};
use client::{GetError, Line, OwnClient};
use http::StatusCode;
use std::num::NonZeroU32;
use std::time::Duration;
use tidegate_reports::{LoadReport, ReportError, ReportFormat, dp_size_of_server_info, parse};
use tokio::time::{Instant, timeout_at};

mod client;
#[cfg(test)]
mod tests;

pub use client::Scraper;

/// How often a worker without any report is asked.
pub const ABSENT_INTERVAL: Duration = Duration::from_secs(30);

/// Where reports are looked for, best first.
const PATHS: [&str; 3] = ["/v1/loads", "/get_load", "/metrics"];

/// Where SGLang says how many ranks it has; newer versions prefer the second.
const SERVER_INFO_PATHS: [&str; 2] = ["/get_server_info", "/server_info"];

/// Failures in a row after which all paths are tried again.
const REPROBE_AFTER: u32 = 5;

/// Server info that does not come is not asked for again after this many tries.
const SERVER_INFO_TRIES: u32 = 3;

/// Where a worker is and how to talk to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// TLS?
    pub scheme: Scheme,
    /// Where to connect.
    pub address: WorkerAddress,
    /// `Host` header.
    pub host: String,
    /// Server name of an https worker; its IP address if `None`.
    pub sni: Option<String>,
    /// CAs to trust instead of the system's.
    pub ca: Option<Authorities>,
    /// Sent with every poll.
    pub auth: Option<UpstreamAuth>,
}

impl Target {
    /// The target of a configured worker. `address` is what its URL stands for now; `auth` is
    /// `load_reports.auth` if set, else the worker's `upstream_auth`.
    pub fn new(
        worker: &config::Worker,
        address: WorkerAddress,
        auth: Option<UpstreamAuth>,
    ) -> Self {
        let (host, name) = match &worker.url.host {
            WorkerHost::Ip(address) => (address.to_string(), None),
            WorkerHost::Name { host, port } => (format!("{host}:{port}"), Some(host.clone())),
            WorkerHost::Unix(_) => ("localhost".to_owned(), None),
        };
        let (scheme, ca) = (worker.url.scheme, worker.tls.ca.clone());
        let sni = worker.tls.sni.clone().or(name);
        Self { scheme, address, host, sni, ca, auth }
    }
}

/// How a poll ended.
#[derive(Clone, Debug, PartialEq)]
pub enum PollOutcome {
    /// A readable report.
    Report(LoadReport),
    /// The worker has no report at any path that was tried.
    Absent,
    /// It wants other credentials.
    Unauthorized,
    /// It answered with something else, or with numbers that cannot be trusted.
    Unreadable(ReportError),
    /// No whole answer in time.
    Timeout,
    /// No answer, or one that says nothing about where its report is (5xx, 429); the reason.
    Unreachable(String),
}

impl PollOutcome {
    /// The label of `tidegate_report_polls_total`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Report(_) => "ok",
            Self::Absent => "absent",
            Self::Unauthorized => "unauthorized",
            Self::Unreadable(_) => "unreadable",
            Self::Timeout => "timeout",
            Self::Unreachable(_) => "unreachable",
        }
    }

    /// Of two paths of one worker, the one with the weightier outcome is where its report is.
    fn weight(&self) -> u8 {
        match self {
            Self::Absent => 0,
            Self::Unreadable(ReportError::Foreign | ReportError::BrokenJson { .. }) => 1,
            Self::Timeout | Self::Unreachable(_) => 2,
            Self::Unauthorized => 3,
            Self::Unreadable(ReportError::NotReady { .. }) => 5,
            Self::Unreadable(_) => 4,
            Self::Report(_) => 6,
        }
    }

    /// Another path cannot say more. A worker that is not ready is not to be called idle by a form
    /// that cannot tell.
    fn is_decisive(&self) -> bool {
        match self {
            Self::Report(_) | Self::Unreadable(ReportError::NotReady { .. }) => true,
            Self::Absent
            | Self::Unauthorized
            | Self::Unreadable(_)
            | Self::Timeout
            | Self::Unreachable(_) => false,
        }
    }
}

/// One worker's report, wherever it is.
#[derive(Debug)]
pub struct ReportSource {
    choice: ReportChoice,
    timeout: Duration,
    dp_size: Option<u32>,
    memory: Memory,
    own_client: Option<OwnClient>,
}

/// What was learned about an engine; a restart may change all of it.
#[derive(Debug, Default)]
struct Memory {
    /// Where its report is.
    path: Option<&'static str>,
    /// Index of the path to try next; not 0 if the last round over all paths was broken off.
    next: usize,
    /// Polls without a report in a row.
    failures: u32,
    /// From server info.
    dp_size: Option<u32>,
    server_info_tries: u32,
    is_absent: bool,
}

impl ReportSource {
    /// A worker that was never asked. `dp_size` is the configured one.
    pub fn new(settings: &LoadReports, dp_size: Option<NonZeroU32>) -> Self {
        Self {
            choice: settings.format,
            timeout: settings.timeout,
            dp_size: dp_size.map(NonZeroU32::get),
            memory: Memory::default(),
            own_client: None,
        }
    }

    /// Asks once. Takes no longer than the configured timeout; may be dropped at any time. A worker
    /// with `format: none` is [`PollOutcome::Absent`] without being asked.
    pub async fn poll(&mut self, scraper: &Scraper, target: &Target) -> PollOutcome {
        if self.choice == ReportChoice::None {
            return PollOutcome::Absent;
        }
        let deadline = Instant::now() + self.timeout;
        let asked = match scraper.line(target, deadline, &mut self.own_client) {
            Ok(line) => timeout_at(deadline, self.ask(&line)).await,
            Err(error) => Ok(Err(error)),
        };
        let outcome = match asked {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => PollOutcome::Unreachable(error.to_string()),
            Err(_) => PollOutcome::Timeout,
        };
        self.book(&outcome);
        outcome
    }

    /// How long to wait before the next poll, jitter aside.
    pub fn next_in(&self, interval: Duration) -> Duration {
        if self.memory.is_absent { interval.max(ABSENT_INTERVAL) } else { interval }
    }

    /// The worker was restarted, or is another one: nothing learned about it holds.
    pub fn restarted(&mut self) {
        self.memory = Memory::default();
    }

    /// Remembers how a poll ended.
    fn book(&mut self, outcome: &PollOutcome) {
        self.memory.is_absent = *outcome == PollOutcome::Absent;
        self.memory.failures = match outcome {
            PollOutcome::Report(_) | PollOutcome::Absent => 0,
            PollOutcome::Unauthorized
            | PollOutcome::Unreadable(_)
            | PollOutcome::Timeout
            | PollOutcome::Unreachable(_) => self.memory.failures.saturating_add(1),
        };
    }

    /// `Err` if the worker cannot be talked to; what was learned about it is kept then.
    async fn ask(&mut self, line: &Line<'_>) -> Result<PollOutcome, GetError> {
        let is_doubtful = REPROBE_AFTER <= self.memory.failures;
        if is_doubtful {
            self.memory.failures = 0;
            self.memory.dp_size = None;
            self.memory.server_info_tries = 0;
        }
        if let Some(path) = configured_path(self.choice) {
            return self.ask_at(line, path).await;
        }
        if let Some(path) = self.memory.path.filter(|_| !is_doubtful) {
            let outcome = self.ask_at(line, path).await?;
            if outcome != PollOutcome::Absent {
                return Ok(outcome);
            }
        }
        self.ask_everywhere(line).await
    }

    /// Tries the paths in turn. A path in whose middle the poll ends is not tried first by the next
    /// one, so that a path that hangs cannot hide the others.
    async fn ask_everywhere(&mut self, line: &Line<'_>) -> Result<PollOutcome, GetError> {
        let mut is_sure = self.memory.next == 0;
        let mut best = (None, PollOutcome::Absent);
        for _ in PATHS {
            let path = PATHS[self.memory.next];
            self.memory.next = (self.memory.next + 1) % PATHS.len();
            let outcome = self.ask_at(line, path).await?;
            is_sure &= !matches!(outcome, PollOutcome::Unreachable(_));
            if best.1.weight() < outcome.weight() {
                best = (Some(path), outcome);
            }
            if best.1.is_decisive() {
                break;
            }
        }
        self.memory.next = 0;
        // After trouble on a better path this one is good for now, but not for good.
        if is_sure {
            self.memory.path = best.0;
        }
        Ok(best.1)
    }

    async fn ask_at(
        &mut self,
        line: &Line<'_>,
        path: &'static str,
    ) -> Result<PollOutcome, GetError> {
        let (status, body) = match line.get(path).await {
            Ok(answer) => answer,
            Err(GetError::TooLong { limit }) => {
                return Ok(PollOutcome::Unreadable(ReportError::TooLong { limit }));
            }
            Err(error) => return Err(error),
        };
        if status != StatusCode::OK {
            return Ok(without_report(status));
        }
        let mut parsed = parse(&body, self.dp_size());
        if let Ok(report) = &parsed
            && self.lacks_dp_size(report.format)
        {
            self.learn_dp_size(line).await;
            parsed = parse(&body, self.dp_size());
        }
        Ok(parsed.map_or_else(PollOutcome::Unreadable, PollOutcome::Report))
    }

    fn dp_size(&self) -> Option<u32> {
        self.dp_size.or(self.memory.dp_size)
    }

    /// Only SGLang can be asked for it.
    fn lacks_dp_size(&self, format: ReportFormat) -> bool {
        let is_sglang = match format {
            ReportFormat::GetLoad | ReportFormat::V1Loads | ReportFormat::SglangMetrics => true,
            ReportFormat::VllmMetrics | ReportFormat::LlamacppMetrics => false,
        };
        is_sglang && self.dp_size().is_none() && self.memory.server_info_tries < SERVER_INFO_TRIES
    }

    /// Asks for server info until it is answered, in half of the time that is left, so that a report
    /// at hand is not lost over it.
    async fn learn_dp_size(&mut self, line: &Line<'_>) {
        self.memory.server_info_tries += 1;
        let now = Instant::now();
        let deadline = now + line.deadline.saturating_duration_since(now) / 2;
        if let Ok(Ok(dp_size)) = timeout_at(deadline, ask_dp_size(line)).await {
            self.memory.server_info_tries = SERVER_INFO_TRIES;
            self.memory.dp_size = dp_size;
        }
    }
}

/// `None` if the worker answers and does not say.
async fn ask_dp_size(line: &Line<'_>) -> Result<Option<u32>, GetError> {
    for path in SERVER_INFO_PATHS {
        let (status, body) = line.get(path).await?;
        if status == StatusCode::OK {
            return Ok(dp_size_of_server_info(&body));
        }
    }
    Ok(None)
}

/// The one path of a chosen form.
fn configured_path(choice: ReportChoice) -> Option<&'static str> {
    match choice {
        ReportChoice::V1Loads => Some(PATHS[0]),
        ReportChoice::GetLoad => Some(PATHS[1]),
        ReportChoice::SglangMetrics | ReportChoice::VllmMetrics | ReportChoice::LlamacppMetrics => {
            Some(PATHS[2])
        }
        ReportChoice::Auto | ReportChoice::None => None,
    }
}

/// What a status other than 200 says about a path. 501 is llama.cpp's answer where metrics are off.
fn without_report(status: StatusCode) -> PollOutcome {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => PollOutcome::Unauthorized,
        StatusCode::NOT_IMPLEMENTED => PollOutcome::Absent,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
            PollOutcome::Unreachable(format!("HTTP {status}"))
        }
        _ if status.is_server_error() => PollOutcome::Unreachable(format!("HTTP {status}")),
        _ => PollOutcome::Absent,
    }
}
