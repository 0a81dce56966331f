//! Mooncake traces: when requests came, how long they were, and which 512-token blocks they share.
//!
//! One JSON object a line: `timestamp` (milliseconds), `input_length`, `output_length` (tokens) and
//! `hash_ids`, one for each 512 tokens of the prompt begun; equal ids are equal blocks. Other keys
//! are ignored. A trace has no text; [`TraceRequest::text`] makes one in which equal ids are equal.

use super::prompt::mix;
use serde::Deserialize;
use std::io::{self, BufRead, Read};
use std::path::Path;
use std::time::Duration;
use thiserror::Error;

/// Tokens of a block of the trace.
pub const TRACE_BLOCK: u32 = 512;
/// The trace's timestamps are counts of this, or a millisecond less.
const GRID: Duration = Duration::from_secs(3);
/// The longest line read; a request of two million tokens needs less.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// One request of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// When it came, since the trace's begin.
    pub at: Duration,
    /// Length of the prompt.
    pub input_tokens: u32,
    /// Length of the answer.
    pub output_tokens: u32,
    /// What the prompt is made of; the last block may be partial.
    pub blocks: Vec<u64>,
}

/// Why a trace cannot be read.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The file or stream.
    #[error("cannot read the trace: {0}")]
    Read(#[from] io::Error),
    /// A line is no request.
    #[error("line {line}: {source}")]
    Json {
        /// Counted from 1.
        line: usize,
        /// What is wrong there.
        source: serde_json::Error,
    },
    /// A line is longer than any request.
    #[error("line {line}: longer than {MAX_LINE_BYTES} bytes")]
    TooLong {
        /// Counted from 1.
        line: usize,
    },
    /// Length and ids do not fit each other.
    #[error("line {line}: {input_length} tokens are {needed} blocks, hash_ids has {found}")]
    Blocks {
        /// Counted from 1.
        line: usize,
        /// Tokens of the prompt.
        input_length: u32,
        /// Ids there should be.
        needed: usize,
        /// Ids there are.
        found: usize,
    },
}

#[derive(Deserialize)]
struct Line {
    timestamp: u64,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
}

/// Reads a trace file; see [`read`].
///
/// # Errors
/// [`TraceError`].
pub fn read_file(path: &Path) -> Result<Vec<TraceRequest>, TraceError> {
    read(io::BufReader::new(std::fs::File::open(path)?))
}

/// Reads a trace and puts it into the order of arrival. Empty lines are skipped.
///
/// # Errors
/// [`TraceError`], which names the first line that is wrong.
pub fn read(mut reader: impl BufRead) -> Result<Vec<TraceRequest>, TraceError> {
    let mut requests = Vec::new();
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        let mut bounded = reader.by_ref().take(MAX_LINE_BYTES);
        if bounded.read_until(b'\n', &mut text)? == 0 {
            break;
        }
        if text.last() != Some(&b'\n') && text.len() as u64 == MAX_LINE_BYTES {
            return Err(TraceError::TooLong { line });
        }
        if !text.trim_ascii().is_empty() {
            requests.push(request_of(line, &text)?);
        }
    }
    requests.sort_by_key(|request| request.at);
    Ok(requests)
}

fn request_of(line: usize, text: &[u8]) -> Result<TraceRequest, TraceError> {
    let parsed: Line =
        serde_json::from_slice(text).map_err(|source| TraceError::Json { line, source })?;
    let needed = parsed.input_length.div_ceil(TRACE_BLOCK) as usize;
    if parsed.hash_ids.len() != needed {
        return Err(TraceError::Blocks {
            line,
            input_length: parsed.input_length,
            needed,
            found: parsed.hash_ids.len(),
        });
    }
    Ok(TraceRequest {
        at: Duration::from_millis(parsed.timestamp),
        input_tokens: parsed.input_length,
        output_tokens: parsed.output_length,
        blocks: parsed.hash_ids,
    })
}

/// Undoes the rounding of the timestamps to a grid of 3 s: the requests of each grid point are
/// spread evenly at random over the 3 s from there, in their order, the same way for the same seed.
pub fn spread(requests: &mut [TraceRequest], seed: u64) {
    let grid = GRID.as_millis() as u64;
    let slot =
        |request: &TraceRequest| (request.at.as_millis() as u64).saturating_add(grid / 2) / grid;
    let offset = |draw| Duration::from_micros(mix(draw) % (grid * 1_000));
    let mut drawn = mix(seed);
    for group in requests.chunk_by_mut(|a, b| slot(a) == slot(b)) {
        let start = GRID * u32::try_from(slot(&group[0])).unwrap_or(u32::MAX);
        let mut offsets: Vec<Duration> =
            (0..group.len() as u64).map(|at| offset(drawn.wrapping_add(at))).collect();
        offsets.sort_unstable();
        drawn = drawn.wrapping_add(group.len() as u64);
        for (request, offset) in group.iter_mut().zip(offsets) {
            request.at = start + offset;
        }
    }
}

impl TraceRequest {
    /// A prompt of as many tokens as the trace says, `bytes_per_token` bytes each.
    pub fn text(&self, bytes_per_token: u32) -> String {
        let bytes_per_token = bytes_per_token as usize;
        let length = self.input_tokens as usize * bytes_per_token;
        let mut text = String::with_capacity(length);
        for &block in &self.blocks {
            let rest = length - text.len();
            push_block(block, rest.min(TRACE_BLOCK as usize * bytes_per_token), &mut text);
        }
        text
    }
}

/// Appends the first `length` bytes of a block's text: a pure function of its id, of characters
/// that need no escaping in JSON.
pub fn push_block(id: u64, length: usize, text: &mut String) {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz .,-:;";
    const LETTERS_PER_DRAW: usize = 12;
    let seed = mix(id);
    let letters = (0..length.div_ceil(LETTERS_PER_DRAW) as u64)
        .map(|draw| mix(seed.wrapping_add(draw)))
        .flat_map(|bits| (0..LETTERS_PER_DRAW).map(move |at| (bits >> (5 * at)) as usize % 32))
        .take(length)
        .map(|letter| char::from(LETTERS[letter]));
    text.extend(letters);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn line(timestamp: u64, input_length: u32, hash_ids: &[u64]) -> String {
        format!(
            r#"{{"timestamp": {timestamp}, "input_length": {input_length}, "output_length": 5, "hash_ids": {hash_ids:?}}}"#
        )
    }

    #[test]
    fn requests_come_in_the_order_of_arrival() {
        let text = [line(6_000, 600, &[1, 2]), String::new(), line(0, 512, &[1])].join("\n");
        let requests = read(text.as_bytes()).unwrap();
        assert_eq!(requests.len(), 2);
        assert_eq!(requests[1].at, Duration::from_secs(6));
        assert_eq!(requests[1].blocks, [1, 2]);
    }

    #[test]
    fn a_bad_line_is_named() {
        let good = line(0, 10, &[1]);
        for (bad, message) in [
            ("{\"timestamp\": 1".to_owned(), "line 3: EOF"),
            (line(0, 10, &[1]).replace("10", "-1"), "line 3: invalid value"),
            (line(0, 10, &[1]).replace("hash_ids", "x"), "line 3: missing field `hash_ids`"),
            (line(0, 513, &[1]), "line 3: 513 tokens are 2 blocks, hash_ids has 1"),
            (" ".repeat(2 << 20), "line 3: longer than"),
            ("\u{0}".to_owned(), "line 3: expected value"),
        ] {
            let text = format!("{good}\n\n{bad}\n{good}");
            let error = read(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn equal_ids_are_equal_text_and_a_partial_block_is_its_beginning() {
        let requests = [line(0, 1_024, &[7, 8]), line(0, 600, &[7, 8]), line(0, 512, &[9])];
        let requests = read(requests.join("\n").as_bytes()).unwrap();
        let texts: Vec<String> = requests.iter().map(|request| request.text(2)).collect();
        assert_eq!(texts[0].len(), 2_048);
        assert!(texts[0].starts_with(&texts[1]) && texts[1].len() == 1_200);
        assert_ne!(texts[2], texts[0][..1_024]);
        assert_eq!(serde_json::to_string(&texts[0]).unwrap().len(), 2_050, "nothing to escape");
    }

    #[test]
    fn a_time_far_away_is_no_reason_to_panic() {
        let mut requests = read(line(u64::MAX, 10, &[1]).as_bytes()).unwrap();
        spread(&mut requests, 1);
        assert_eq!(requests[0].input_tokens, 10);
    }

    #[test]
    fn spreading_keeps_the_order_and_each_grid_point_its_three_seconds() {
        let lines: Vec<String> = [0, 0, 0, 2_999, 3_000, 5_999]
            .iter()
            .enumerate()
            .map(|(id, &at)| line(at, 10, &[id as u64]))
            .collect();
        let mut requests = read(lines.join("\n").as_bytes()).unwrap();
        let mut again = requests.clone();
        spread(&mut requests, 1);
        spread(&mut again, 1);
        assert_eq!(requests, again);
        let slots: Vec<u64> = requests.iter().map(|request| request.at.as_secs() / 3).collect();
        assert_eq!(slots, [0, 0, 0, 1, 1, 2]);
        assert!(requests.is_sorted_by_key(|request| request.at));
        assert_ne!(requests[0].at, requests[2].at);
    }
}
