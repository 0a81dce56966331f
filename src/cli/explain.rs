//! `tidegate explain`: what would happen to a request, rung by rung; asked of a live edge, or
//! offline from a scenario.

use super::admin::{Endpoint, ask};
use super::{BAD_USAGE, read_input};
use crate::config::Policy;
use crate::explain::{Case, Explanation, visible};
use bytes::Bytes;
use clap::Args;
use http::uri::{Authority, Scheme};
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::Full;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use thiserror::Error;
use tidegate_policy::scenario::{self, Scenario, ScenarioError};

/// Longest wait for the edge's answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Exit code of a run-time failure.
const FAILED: u8 = 1;

/// Arguments of `tidegate explain`.
#[derive(Args, Clone, Debug)]
#[group(skip)]
pub struct ExplainArgs {
    /// Admin listener of a running edge, http://HOST:PORT
    #[arg(long, value_name = "URL", required_unless_present = "scenario", requires = "request")]
    admin: Option<String>,
    /// The request's body; - is standard input
    #[arg(long, value_name = "FILE", requires = "admin")]
    request: Option<PathBuf>,
    /// The request's path
    #[arg(long, value_name = "PATH", default_value = "/v1/chat/completions")]
    path: String,
    /// Bearer token of the admin listener
    #[arg(long, env = "TIDEGATE_ADMIN_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Scenarios instead of an edge: one, a JSON list, or JSON Lines; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["admin", "request"])]
    scenario: Option<PathBuf>,
    /// JSON; of scenarios a line each, with the field names of `expect`
    #[arg(long)]
    json: bool,
}

/// Why there is nothing to show.
#[derive(Debug, Error)]
enum ExplainError {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: std::io::Error },
    #[error("{}: {error}", path.display())]
    Scenario { path: PathBuf, error: ScenarioError },
    #[error("`{0}` is not http://HOST:PORT")]
    Url(String),
    #[error("the token cannot be sent in a header")]
    Token,
    #[error("{url}: {why}")]
    Unreachable { url: String, why: String },
    #[error("the edge answers {status}: {message}")]
    Refused { status: StatusCode, message: String },
    #[error("the edge's answer is no explanation: {0}")]
    Answer(#[from] serde_json::Error),
    #[error("standard output: {0}")]
    Output(#[from] std::io::Error),
}

impl ExplainError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::File { .. } | Self::Scenario { .. } | Self::Url(_) | Self::Token => BAD_USAGE,
            Self::Unreachable { .. } | Self::Refused { .. } | Self::Answer(_) | Self::Output(_) => {
                FAILED
            }
        }
    }
}

/// Runs it. 0; 1: the edge cannot be asked; 2: bad usage, request file or scenario.
pub fn run(args: &ExplainArgs) -> ExitCode {
    match explain(args).and_then(|text| Ok(std::io::stdout().write_all(text.as_bytes())?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidegate explain: {}", visible(&error.to_string()));
            ExitCode::from(error.exit_code())
        }
    }
}

fn explain(args: &ExplainArgs) -> Result<String, ExplainError> {
    match (&args.scenario, &args.admin, &args.request) {
        (Some(file), _, _) => offline(file, args.json),
        (None, Some(url), Some(request)) => live(args, url, request),
        // The arguments' rules leave no other case.
        (None, _, _) => Err(ExplainError::Url(args.admin.clone().unwrap_or_default())),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ExplainError> {
    read_input(path).map_err(|error| ExplainError::File { path: path.to_owned(), error })
}

fn offline(file: &Path, json: bool) -> Result<String, ExplainError> {
    let text = String::from_utf8_lossy(&read(file)?).into_owned();
    let bad = |error| ExplainError::Scenario { path: file.to_owned(), error };
    let scenarios = scenario::read(&text).map_err(bad)?;
    let mut out = String::new();
    for scenario in &scenarios {
        if json {
            out.push_str(&serde_json::to_string(&scenario.run())?);
            out.push('\n');
        } else {
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(&told(scenario));
        }
    }
    Ok(out)
}

fn told(scenario: &Scenario) -> String {
    let case = Case {
        model: "",
        policy: &Policy::CacheAware(scenario.rules().clone()),
        fleet: scenario.fleet(),
        request: scenario.request(),
        blocks: None,
        routes: None,
        pin: None,
    };
    let title = [scenario.name(), scenario.why()];
    let title: Vec<&str> = title.into_iter().filter(|part| !part.is_empty()).collect();
    let story = Explanation::new(&case).text();
    if title.is_empty() { story } else { format!("# {}\n{story}", visible(&title.join(": "))) }
}

fn live(args: &ExplainArgs, url: &str, request: &Path) -> Result<String, ExplainError> {
    let (endpoint, question) = question(args, url, read(request)?)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked = async { tokio::time::timeout(PATIENCE, ask(&endpoint, question)).await };
    let (status, body) = match runtime.block_on(asked) {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return Err(unreachable(url, &error.to_string())),
        Err(_) => return Err(unreachable(url, "no answer in time")),
    };
    if status != StatusCode::OK {
        return Err(ExplainError::Refused { status, message: message(&body) });
    }
    if args.json {
        return Ok(format!("{}\n", String::from_utf8_lossy(&body)));
    }
    Ok(serde_json::from_slice::<Explanation>(&body)?.text())
}

fn unreachable(url: &str, why: &str) -> ExplainError {
    ExplainError::Unreachable { url: url.to_owned(), why: why.to_owned() }
}

fn question(
    args: &ExplainArgs,
    url: &str,
    body: Vec<u8>,
) -> Result<(Endpoint, Request<Full<Bytes>>), ExplainError> {
    let bad = || ExplainError::Url(url.to_owned());
    let target: Uri = url.parse().map_err(|_| bad())?;
    let authority =
        target.authority().filter(|_| target.scheme() == Some(&Scheme::HTTP)).ok_or_else(bad)?;
    let base = target.path().trim_end_matches('/');
    let path = format!("{base}/v1/explain?path={}", percent_encoded(&args.path));
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(format!("http://{authority}{path}"))
        .header(header::HOST, authority.as_str())
        .header(header::CONTENT_TYPE, "application/json");
    if let Some(token) = &args.token {
        let value = header::HeaderValue::try_from(format!("Bearer {token}"));
        request = request.header(header::AUTHORIZATION, value.map_err(|_| ExplainError::Token)?);
    }
    let request = request.body(Full::new(Bytes::from(body))).map_err(|_| bad())?;
    Ok((endpoint(authority), request))
}

fn endpoint(authority: &Authority) -> Endpoint {
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    Endpoint::Tcp(host.to_owned(), authority.port_u16().unwrap_or(80))
}

/// The message of an error of the edge, or the answer itself.
fn message(body: &[u8]) -> String {
    let value: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let message = value.pointer("/error/message").and_then(serde_json::Value::as_str);
    message.map_or_else(|| String::from_utf8_lossy(body).trim().to_owned(), str::to_owned)
}

fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

    use super::*;

    fn args(path: &str, token: Option<&str>) -> ExplainArgs {
        ExplainArgs {
            admin: None,
            request: None,
            path: path.to_owned(),
            token: token.map(str::to_owned),
            scenario: None,
            json: false,
        }
    }

    #[test]
    fn the_question_carries_path_and_token() {
        let args = args("/v1/messages?beta=1&x", Some("secret"));
        let (_, question) = question(&args, "http://edge:9909/", b"{}".to_vec()).unwrap();
        let asked = "http://edge:9909/v1/explain?path=/v1/messages%3Fbeta%3D1%26x";
        assert_eq!(question.uri().to_string(), asked);
        assert_eq!(question.headers()["host"], "edge:9909");
        assert_eq!(question.headers()["authorization"], "Bearer secret");
    }

    #[test]
    fn an_address_may_be_a_name_or_a_literal_and_has_a_default_port() {
        let endpoint = |authority: &str| endpoint(&authority.parse().unwrap());
        assert_eq!(endpoint("edge"), Endpoint::Tcp("edge".to_owned(), 80));
        assert_eq!(endpoint("[::1]:9909"), Endpoint::Tcp("::1".to_owned(), 9909));
    }

    #[test]
    fn other_schemes_and_tokens_no_header_can_carry_are_bad_usage() {
        for url in ["https://edge:9909", "edge:9909", "/v1", ""] {
            let error = question(&args("/generate", None), url, Vec::new()).unwrap_err();
            assert_eq!(error.exit_code(), BAD_USAGE, "{url}");
        }
        let error = question(&args("/generate", Some("a\nb")), "http://edge", Vec::new());
        assert!(matches!(error, Err(ExplainError::Token)));
    }
}
