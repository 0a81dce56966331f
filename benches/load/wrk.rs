//! The generator: wrk, one thread, with bodies made once.

use crate::engine::EVENTS;
use crate::process::{self, Side};
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::Command;

/// A kind of request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A chat of about that many bytes, answered by a short JSON document.
    Body(usize),
    /// A chat of 2 KB, answered by a stream of [`EVENTS`] events.
    Stream,
}

impl Kind {
    pub fn named(name: &str) -> Self {
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
            Self::Stream => format!("stream of {EVENTS} events"),
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Body(bytes) => bytes,
            Self::Stream => 2048,
        }
    }
}

/// What wrk has seen.
pub struct Seen {
    pub requests: u64,
    pub per_second: f64,
    pub p50_us: f64,
    /// Answers other than 200, and connections that broke.
    pub bad: u64,
}

/// 32 prompts in turn: conversations that come again, as an edge sees them.
const SCRIPT: &str = r#"
local requests = {}
function init(args)
  local size, stream = tonumber(args[1]), args[2] == "sse"
  local words = {"the ", "engine ", "keeps ", "a ", "prefix ", "of ", "every ", "prompt "}
  for i = 1, 32 do
    local parts, length, at = {}, 0, i
    while length < size - 110 do
      local word = words[(at * 7 + i) % 8 + 1]
      at = at + 1 + (at * i) % 3
      parts[#parts + 1] = word
      length = length + #word
    end
    local body = '{"model":"m","stream":' .. tostring(stream) .. ',"messages":[{"role":"user","content":"' .. i .. ' ' .. table.concat(parts) .. '"}]}'
    local headers = {["content-type"] = "application/json", ["authorization"] = "Bearer sk-0123456789abcdef", ["user-agent"] = "bench"}
    if stream then headers["x-kind"] = "sse" end
    requests[i] = wrk.format("POST", "/v1/chat/completions", headers, body)
  end
end
local turn = 0
function request()
  turn = turn + 1
  return requests[turn % 32 + 1]
end
function done(summary, latency)
  local errors = summary.errors
  io.write(string.format("SEEN %d %f %f %d\n", summary.requests, summary.requests / (summary.duration / 1e6), latency:percentile(50),
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
"#;

pub fn run(address: SocketAddr, kind: Kind, connections: usize, seconds: u64) -> Seen {
    let mut script = tempfile::NamedTempFile::new().unwrap();
    script.write_all(SCRIPT.as_bytes()).unwrap();
    let mut command = Command::new("wrk");
    command.args(["-t1", &format!("-c{connections}"), &format!("-d{seconds}s"), "-s"]);
    command.arg(script.path()).arg(format!("http://{address}"));
    let how = if kind == Kind::Stream { "sse" } else { "whole" };
    command.args(["--", &kind.bytes().to_string(), how]);
    let output = process::pinned(&command, Side::Load).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("SEEN "));
    let line =
        line.unwrap_or_else(|| panic!("wrk: {text}{}", String::from_utf8_lossy(&output.stderr)));
    let field = |at: usize| line.split(' ').nth(at).unwrap();
    Seen {
        requests: field(0).parse().unwrap(),
        per_second: field(1).parse().unwrap(),
        p50_us: field(2).parse().unwrap(),
        bad: field(3).parse().unwrap(),
    }
}
