//! The edge's own access log as a trace: when requests came, how long they were, what they share.
//!
//! What prompts share is told by their prefix keys (`access_log.prefixes`), which are further apart
//! the longer a prompt is. A key names everything before it, so where a shorter prompt with the same
//! beginning was logged, its denser keys count for the longer one too; what is left is a sharing
//! that ends between two keys, and counts down to the former.

use super::prompt::mix;
use super::trace::{TRACE_BLOCK, TraceRequest};
use crate::journal::PrefixRow;
use serde::Deserialize;
use std::collections::HashMap;
use std::io::BufRead;
use std::time::Duration;
use thiserror::Error;

/// The longest line read.
const MAX_LINE_BYTES: u64 = 1 << 16;

/// One answered request of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Logged {
    /// When its head was read, seconds since 1970.
    pub started: f64,
    /// Its first content, seconds since `started`.
    pub first_token: f64,
    /// Its end, seconds since `started`.
    pub total: f64,
    /// Who answered.
    pub worker: String,
    /// Prompt tokens, reported or estimated.
    pub prompt_tokens: u64,
    /// Those of them that were computed; `None`: not reported.
    pub computed_tokens: Option<u64>,
    /// Tokens generated.
    pub output_tokens: u64,
    /// Its prefix keys.
    pub prefix: Option<PrefixRow>,
}

/// Why a log is no input.
#[derive(Debug, Error)]
pub enum LogError {
    /// The file or stream.
    #[error("cannot read the log: {0}")]
    Read(#[from] std::io::Error),
    /// Nobody was answered in it.
    #[error("the log has no line of an answered request with tokens and times")]
    Empty,
    /// Nothing says what prompts share.
    #[error(
        "the log does not say what prompts share; it does with `access_log: {{prefixes: true}}`"
    )]
    NoPrefixes,
}

#[derive(Deserialize)]
struct Line {
    time: f64,
    outcome: String,
    worker: Option<String>,
    prompt_tokens: Tokens,
    completion_tokens: Option<u64>,
    ttft_ms: Option<u64>,
    total_ms: u64,
    prefix: Option<PrefixRow>,
}

#[derive(Deserialize)]
struct Tokens {
    estimated: Option<u64>,
    reported: Option<u64>,
    cached: Option<u64>,
}

/// Reads the lines of answered requests, in the order of their beginnings; other lines are passed
/// over, since a log is seldom nothing but access lines.
///
/// # Errors
/// [`LogError`].
pub fn read(mut reader: impl BufRead) -> Result<Vec<Logged>, LogError> {
    let mut logged = Vec::new();
    let mut text = Vec::new();
    loop {
        text.clear();
        let mut bounded = std::io::Read::take(&mut reader, MAX_LINE_BYTES);
        if bounded.read_until(b'\n', &mut text)? == 0 {
            break;
        }
        let line = serde_json::from_slice(&text).ok();
        logged.extend(line.and_then(answered));
    }
    if logged.is_empty() {
        return Err(LogError::Empty);
    }
    logged.sort_by(|a, b| a.started.total_cmp(&b.started));
    Ok(logged)
}

fn answered(line: Line) -> Option<Logged> {
    let total = line.total_ms as f64 / 1e3;
    let prompt_tokens = line.prompt_tokens.reported.or(line.prompt_tokens.estimated)?;
    let computed = line.prompt_tokens.reported.zip(line.prompt_tokens.cached);
    (line.outcome == "ok" && line.time.is_finite() && 0 < prompt_tokens).then_some(())?;
    Some(Logged {
        started: line.time - total,
        first_token: line.ttft_ms? as f64 / 1e3,
        total,
        worker: line.worker?,
        prompt_tokens,
        computed_tokens: computed.map(|(all, cached)| all.saturating_sub(cached)),
        output_tokens: line.completion_tokens.filter(|tokens| 0 < *tokens)?,
        prefix: line.prefix,
    })
}

/// The requests with prefix keys as a trace.
///
/// # Errors
/// [`LogError::NoPrefixes`].
pub fn trace(logged: &[Logged]) -> Result<Vec<TraceRequest>, LogError> {
    let keyed: Vec<(&Logged, Keys)> = logged
        .iter()
        .filter_map(|request| Some((request, Keys::of(request.prefix.as_ref()?)?)))
        .collect();
    let first = keyed.first().ok_or(LogError::NoPrefixes)?.0.started;
    let sum = |of: fn(&(&Logged, Keys)) -> u64| keyed.iter().map(of).sum::<u64>() as f64;
    // One ratio for all, or equal beginnings would be cut at different places.
    let bytes_per_token = sum(|(_, keys)| keys.bytes) / sum(|(request, _)| request.prompt_tokens);
    let chains = Chains::new(keyed.iter().map(|(_, keys)| keys).collect());
    let requests = keyed.iter().enumerate().map(|(at, (request, keys))| TraceRequest {
        at: Duration::try_from_secs_f64(request.started - first).unwrap_or_default(),
        input_tokens: tokens(keys.bytes, bytes_per_token),
        output_tokens: u32::try_from(request.output_tokens).unwrap_or(u32::MAX),
        blocks: chains.blocks(at, bytes_per_token),
    });
    Ok(requests.collect())
}

fn tokens(bytes: u64, bytes_per_token: f64) -> u32 {
    ((bytes as f64 / bytes_per_token).round() as u32).max(1)
}

/// The keys of one request, read.
struct Keys {
    bytes: u64,
    step: u64,
    keys: Vec<u64>,
}

impl Keys {
    fn of(row: &PrefixRow) -> Option<Self> {
        let keys: Result<Vec<u64>, _> =
            row.keys.iter().map(|key| u64::from_str_radix(key, 16)).collect();
        let is_one = 0 < row.step && 0 < row.bytes;
        is_one.then_some(Self { bytes: row.bytes, step: row.step, keys: keys.ok()? })
    }
}

/// A place in a chain: the request, and how many of its keys.
type Place = (usize, usize);

struct Chains<'a> {
    all: Vec<&'a Keys>,
    /// Of each key, where the densest keys lead to it.
    densest: HashMap<u64, Place>,
}

impl<'a> Chains<'a> {
    fn new(all: Vec<&'a Keys>) -> Self {
        let mut densest: HashMap<u64, Place> = HashMap::new();
        for (request, keys) in all.iter().enumerate() {
            for (at, key) in keys.keys.iter().enumerate() {
                let here = densest.entry(*key).or_insert((request, at + 1));
                if keys.step < all[here.0].step {
                    *here = (request, at + 1);
                }
            }
        }
        Self { all, densest }
    }

    /// All that is known of a beginning: key after key, with their ends in bytes.
    fn known(&self, (request, count): Place) -> Vec<(u64, u64)> {
        let keys = self.all[request];
        let denser = (1..=count).rev().find_map(|at| {
            let place = *self.densest.get(&keys.keys[at - 1])?;
            (self.all[place.0].step < keys.step).then_some((at, place))
        });
        // Steps shrink with each call, so this ends.
        let (from, mut known) = match denser {
            Some((at, place)) => (at, self.known(place)),
            None => (0, Vec::new()),
        };
        known.extend((from..count).map(|at| ((at as u64 + 1) * keys.step, keys.keys[at])));
        known
    }

    /// The ids of a request's blocks: one whose middle lies before a key is part of all that has the
    /// key. Its end would be too late: tokens and bytes never fit each other exactly.
    fn blocks(&self, request: usize, bytes_per_token: f64) -> Vec<u64> {
        let keys = self.all[request];
        let known = self.known((request, keys.keys.len()));
        let blocks = tokens(keys.bytes, bytes_per_token).div_ceil(TRACE_BLOCK);
        let own = mix(!(request as u64));
        let id = |at: u32| {
            let middle = (f64::from(at) + 0.5) * f64::from(TRACE_BLOCK) * bytes_per_token;
            let after = known.partition_point(|(end, _)| (*end as f64) < middle);
            let key = known.get(after).map_or(own, |(_, key)| *key);
            mix(key ^ mix(u64::from(at)))
        };
        (0..blocks).map(id).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const BLOCK: u64 = 2_048;

    /// A prompt of so many bytes: up to `shared` it is text 1, then text `own`.
    fn row(bytes: u64, step: u64, shared: u64, own: u64) -> PrefixRow {
        let keys = (1..=bytes / step).map(|at| {
            let end = at * step;
            format!("{:x}", if end <= shared { mix(end) } else { mix(end ^ (own << 40)) })
        });
        PrefixRow { bytes, step, keys: keys.collect() }
    }

    fn logged(prefix: PrefixRow) -> Logged {
        Logged {
            started: 1.0,
            first_token: 0.5,
            total: 2.0,
            worker: "w".to_owned(),
            prompt_tokens: prefix.bytes / 4,
            computed_tokens: None,
            output_tokens: 7,
            prefix: Some(prefix),
        }
    }

    fn common(a: &TraceRequest, b: &TraceRequest) -> usize {
        a.blocks.iter().zip(&b.blocks).take_while(|(a, b)| a == b).count()
    }

    #[test]
    fn prompts_share_their_common_beginning_and_nothing_else() {
        let rows = [row(40 * BLOCK, BLOCK, 30 * BLOCK, 2), row(50 * BLOCK, BLOCK, 30 * BLOCK, 3)];
        let requests = trace(&rows.map(logged)).unwrap();
        assert_eq!(common(&requests[0], &requests[1]), 30);
        assert_eq!((requests[0].input_tokens, requests[0].blocks.len()), (20_480, 40));
    }

    #[test]
    fn denser_keys_of_a_shorter_prompt_count_for_a_longer_one() {
        let short = row(20 * BLOCK, BLOCK, 16 * BLOCK, 2);
        let long = row(64 * BLOCK, 4 * BLOCK, 40 * BLOCK, 3);
        let other = row(64 * BLOCK, 4 * BLOCK, 18 * BLOCK, 4);
        let requests = trace(&[short, long, other].map(logged)).unwrap();
        assert_eq!(common(&requests[0], &requests[1]), 16);
        assert_eq!(common(&requests[1], &requests[2]), 16, "the key at 20 is another one");
    }

    #[test]
    fn lines_of_answers_are_read_and_others_passed_over() {
        let ok = r#"{"time":100.5,"request_id":"a","outcome":"ok","worker":"w0","prompt_tokens":{"estimated":90,"reported":100,"matched":0,"cached":64},"completion_tokens":5,"ttft_ms":200,"total_ms":500}"#;
        let text = format!(
            "[INFO] a word\n{}\n{ok}\n\n{}\n",
            ok.replace("\"ok\"", "\"cancelled\""),
            ok.replace("100.5", "99.5"),
        );
        let logged = read(text.as_bytes()).unwrap();
        let started: Vec<f64> = logged.iter().map(|request| request.started).collect();
        assert_eq!(started, [99.0, 100.0]);
        assert_eq!(logged[0].computed_tokens, Some(36));
        assert!(matches!(read(&b"nothing\n"[..]), Err(LogError::Empty)));
        assert!(matches!(trace(&logged), Err(LogError::NoPrefixes)));
    }
}
