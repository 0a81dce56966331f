//! The generator: wrk, one thread, with bodies made once.

use crate::engine::ALL_EVENTS;
use crate::process::{self, Side};
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is sent, and by how many at a time.
#[derive(Clone, Copy)]
pub struct Load {
    pub kind: Kind,
    pub connections: usize,
}

impl Load {
    /// `KIND` or `KIND:CONNECTIONS`.
    pub fn named(name: &str) -> Self {
        let (kind, connections) = name.split_once(':').unwrap_or((name, "32"));
        let connections = connections.parse().ok();
        Self {
            kind: Kind::named(kind),
            connections: connections.unwrap_or_else(|| panic!("kinds={name}: 2k or 2k:32")),
        }
    }

    /// More connections take longer until all of them are there.
    pub fn seconds(self, seconds: u64) -> u64 {
        if self.connections < 1000 { seconds } else { 2 * seconds }
    }
}

/// A kind of request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A chat of about that many bytes, answered by a short JSON document.
    Body(usize),
    /// The same, and no prompt comes twice.
    Distinct(usize),
    /// A chat of 2 KB, answered by a stream of [`ALL_EVENTS`] events.
    Stream,
}

impl Kind {
    fn named(name: &str) -> Self {
        match name {
            "sse" => Self::Stream,
            size => {
                let kib = size.strip_suffix('k').and_then(|size| size.parse::<usize>().ok());
                Self::Body(
                    kib.unwrap_or_else(|| panic!("kinds={size}: sse, or KiB as in 2k")) * 1024,
                )
            }
        }
    }

    pub fn title(self) -> String {
        match self {
            Self::Body(bytes) => format!("body of {} KB", bytes / 1024),
            Self::Distinct(bytes) => format!("distinct body of {} KB", bytes / 1024),
            Self::Stream => format!("stream of {ALL_EVENTS} events"),
        }
    }

    /// What its figures are of, and how many of them a request is.
    pub fn unit(self) -> (&'static str, f64) {
        match self {
            Self::Body(_) | Self::Distinct(_) => ("request", 1.0),
            Self::Stream => ("event", ALL_EVENTS as f64),
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Body(bytes) | Self::Distinct(bytes) => bytes,
            Self::Stream => 2048,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Body(_) => "whole",
            Self::Distinct(_) => "distinct",
            Self::Stream => "sse",
        }
    }
}

/// What wrk has seen.
pub struct Seen {
    pub requests: u64,
    pub per_second: f64,
    pub p50_us: f64,
    pub longest_us: f64,
    /// Answers other than 200, and connections that broke.
    pub bad: u64,
}

/// 32 prompts in turn: conversations that come again, as an edge sees them. Or prompts that differ from their first
/// word on, from a number on that no other run has.
const SCRIPT: &str = r#"
local requests = {}
local distinct, turn
function init(args)
  local size, stream = tonumber(args[1]), args[2] == "sse"
  distinct, turn = args[2] == "distinct", tonumber(args[3])
  local words = {"the ", "engine ", "keeps ", "a ", "prefix ", "of ", "every ", "prompt "}
  local parts, length, at = {}, 0, 1
  while length < size - 110 do
    local word = words[(at * 7) % 8 + 1]
    at = at + 1 + (at * at) % 3
    parts[#parts + 1] = word
    length = length + #word
  end
  local text = table.concat(parts)
  for i = 1, 32 do
    local cut = i * 37 % #text
    local turned = string.sub(text, cut + 1) .. string.sub(text, 1, cut)
    local body = '{"model":"m","stream":' .. tostring(stream) .. ',"messages":[{"role":"user","content":"' .. i .. ' ' .. turned .. '"}]}'
    local headers = {["content-type"] = "application/json", ["authorization"] = "Bearer sk-0123456789abcdef", ["user-agent"] = "bench"}
    if stream then headers["x-kind"] = "sse" end
    requests[i] = wrk.format("POST", "/v1/chat/completions", headers, body)
  end
end
function request()
  turn = turn + 1
  local request = requests[turn % 32 + 1]
  if not distinct then return request end
  return (string.gsub(request, '"content":"............', string.format('"content":"%012d', turn), 1))
end
function done(summary, latency)
  local errors = summary.errors
  for cause, count in pairs(errors) do io.write(string.format("%s %d\n", cause, count)) end
  io.write(string.format("SEEN %d %f %f %f %d\n", summary.requests, summary.requests / (summary.duration / 1e6), latency:percentile(50), latency.max,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
"#;

/// The first prompt of the next run of distinct ones.
static TURN: AtomicU64 = AtomicU64::new(0);
/// More than one run can send.
const TURNS: u64 = 1 << 32;

pub fn run(address: SocketAddr, load: Load, seconds: u64) -> Seen {
    let mut script = tempfile::NamedTempFile::new().unwrap();
    script.write_all(SCRIPT.as_bytes()).unwrap();
    let mut command = Command::new("wrk");
    let Load { kind, connections } = load;
    command.args(["-t1", &format!("-c{connections}"), &format!("-d{seconds}s")]);
    // Longer than any run: a busy machine's pause is no failure.
    command.args(["--timeout", "60s", "-s"]);
    command.arg(script.path()).arg(format!("http://{address}"));
    let turn = TURN.fetch_add(TURNS, Ordering::Relaxed);
    command.args(["--", &kind.bytes().to_string(), kind.word(), &turn.to_string()]);
    let output = process::pinned(&command, Side::Load).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("SEEN "));
    let line =
        line.unwrap_or_else(|| panic!("wrk: {text}{}", String::from_utf8_lossy(&output.stderr)));
    if !line.ends_with(" 0") {
        println!("wrk: {text}");
    }
    let field = |at: usize| line.split(' ').nth(at).unwrap();
    Seen {
        requests: field(0).parse().unwrap(),
        per_second: field(1).parse().unwrap(),
        p50_us: field(2).parse().unwrap(),
        longest_us: field(3).parse().unwrap(),
        bad: field(4).parse().unwrap(),
    }
}
