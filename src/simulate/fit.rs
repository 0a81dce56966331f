//! An engine's numbers out of an access log.
//!
//! While an answer is decoded, each step gives it one token and takes `decode_base` and `decode_seq`
//! for every sequence that decodes, and whatever prompts are computed meanwhile take `1 / prefill_tps`
//! a token. So the time from an answer's first token to its last is linear in three numbers that a log
//! gives: its tokens, its tokens times those decoded beside it, and prompt tokens computed meanwhile.
//! The factors are found by least squares over all streamed answers, each divided by its duration.
//!
//! A line that does not say how much of its prompt was cached says nothing of the work it was: answers
//! decoded while it was computed are left out, and how many lines there are is told.

use super::access_log::Logged;
use crate::config::Calibration;
use std::collections::BTreeMap;
use std::fmt;
use thiserror::Error;

/// Answers below which nothing is fitted.
const LEAST_ANSWERS: usize = 100;
/// An answer with fewer tokens is more latency than decoding.
const LEAST_TOKENS: u64 = 16;

/// What came out.
#[derive(Clone, Copy, Debug)]
pub struct Fitted {
    /// The engine; what a log does not show is left out.
    pub engine: Calibration,
    /// Answers it was fitted to.
    pub answers: usize,
    /// Mean relative error of the decoding times.
    pub error: f64,
    /// The most answers that one engine decoded at a time.
    pub most_at_once: u64,
    /// What could not be used.
    pub left_out: LeftOut,
}

/// What a log does not say, and what that costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Lines that do not say how much of their prompt was cached.
    pub unknown: usize,
    /// Answers that were decoded while one of them was computed.
    pub beside: usize,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unknown == 0 {
            return f.write_str("every line says how much of its prompt was cached");
        }
        write!(
            f,
            "{} lines do not say how much of their prompt was cached, so {} answers beside them are left out",
            self.unknown, self.beside
        )
    }
}

/// Why nothing came out.
#[derive(Debug, Error)]
pub enum FitError {
    /// Too little to go by.
    #[error(
        "the log has {usable} streamed answers of {LEAST_TOKENS} tokens and more; \
         {LEAST_ANSWERS} are needed ({left_out})"
    )]
    TooFew {
        /// Answers that could be used.
        usable: usize,
        /// Others.
        left_out: LeftOut,
    },
    /// The numbers cannot be told apart.
    #[error(
        "the answers of the log are too much alike: an engine's speed shows where it decodes \
         few and many at once, and computes prompts meanwhile"
    )]
    Alike,
}

/// Fits one engine to the answers of all workers.
///
/// # Errors
/// [`FitError`].
pub fn fit(logged: &[Logged]) -> Result<Fitted, FitError> {
    let mut by_worker: BTreeMap<&str, Vec<&Logged>> = BTreeMap::new();
    for request in logged {
        by_worker.entry(&request.worker).or_default().push(request);
    }
    let mut rows = Vec::new();
    let mut most_at_once = 0;
    let mut left_out = LeftOut::default();
    for requests in by_worker.values() {
        let past = Past::of(requests);
        most_at_once = most_at_once.max(past.most_at_once);
        left_out.unknown += past.unknown.len();
        for request in requests.iter().filter(|request| decodes(request)) {
            match past.row(request) {
                Some(row) => rows.push(row),
                None => left_out.beside += 1,
            }
        }
    }
    if rows.len() < LEAST_ANSWERS {
        return Err(FitError::TooFew { usable: rows.len(), left_out });
    }
    let [base, per_sequence, per_token] = least_squares(&rows).ok_or(FitError::Alike)?;
    if per_token <= 0.0 || base + per_sequence <= 0.0 {
        return Err(FitError::Alike);
    }
    let of = |row: &Row| row[0] * base + row[1] * per_sequence + row[2] * per_token;
    let error = rows.iter().map(|row| (of(row) - 1.0).abs()).sum::<f64>() / rows.len() as f64;
    let rounded = |value: f64| (value.max(0.0) * 1e3).round() / 1e3;
    let engine = Calibration {
        prefill_tps: Some((1.0 / per_token).round().max(1.0)),
        decode_base_ms: Some(rounded(base * 1e3)),
        decode_seq_ms: Some(rounded(per_sequence * 1e3)),
        ..Calibration::default()
    };
    Ok(Fitted { engine, answers: rows.len(), error, most_at_once, left_out })
}

/// Tokens, tokens times sequences, and prompt tokens computed meanwhile, for each second.
type Row = [f64; 3];

/// What one worker did, so that any stretch of it can be asked for.
struct Past {
    /// Begins and ends of decoding: time, sequences from then on, and sequence-seconds up to then.
    decoding: Vec<(f64, i64, f64)>,
    /// First tokens: time, and prompt tokens computed up to then.
    prefilled: Vec<(f64, u64)>,
    /// First tokens of prompts of which it is not known how much was computed.
    unknown: Vec<f64>,
    most_at_once: u64,
}

/// Does the answer say anything about decoding?
fn decodes(request: &Logged) -> bool {
    // What is not streamed has its first byte at its end.
    let seconds = request.total - request.first_token;
    let tokens = request.output_tokens.saturating_sub(1) as f64;
    LEAST_TOKENS <= request.output_tokens && 1e-3 * tokens < seconds
}

impl Past {
    fn of(requests: &[&Logged]) -> Self {
        let first = |request: &Logged| request.started + request.first_token;
        let mut changes: Vec<(f64, i64)> = Vec::with_capacity(2 * requests.len());
        let mut prompts: Vec<(f64, u64)> = Vec::with_capacity(requests.len());
        let mut unknown = Vec::new();
        for request in requests {
            changes.push((first(request), 1));
            changes.push((request.started + request.total, -1));
            match request.computed_tokens {
                Some(computed) => prompts.push((first(request), computed)),
                None => unknown.push(first(request)),
            }
        }
        unknown.sort_by(f64::total_cmp);
        changes.sort_by(|a, b| a.0.total_cmp(&b.0));
        prompts.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut sequences, mut area, mut before, mut most) = (0, 0.0, f64::NAN, 0);
        let decoding = changes.into_iter().map(|(at, change)| {
            area += if before.is_nan() { 0.0 } else { sequences as f64 * (at - before) };
            (sequences, before) = (sequences + change, at);
            most = most.max(sequences);
            (at, sequences, area)
        });
        let decoding = decoding.collect();
        let mut sum = 0;
        let prefilled = prompts.into_iter().map(|(at, tokens)| {
            sum += tokens;
            (at, sum)
        });
        Self {
            decoding,
            prefilled: prefilled.collect(),
            unknown,
            most_at_once: u64::try_from(most).unwrap_or(0),
        }
    }

    /// Sequence-seconds decoded up to a time.
    fn area(&self, at: f64) -> f64 {
        let before = self.decoding.partition_point(|(change, ..)| *change <= at);
        let last = before.checked_sub(1).and_then(|last| self.decoding.get(last));
        last.map_or(0.0, |(change, sequences, area)| area + *sequences as f64 * (at - change))
    }

    /// Prompt tokens computed up to a time.
    fn computed(&self, at: f64) -> u64 {
        let before = self.prefilled.partition_point(|(first, _)| *first <= at);
        before.checked_sub(1).map_or(0, |last| self.prefilled[last].1)
    }

    /// `None`: it is not known what was computed meanwhile.
    fn row(&self, request: &Logged) -> Option<Row> {
        let (from, to) = (request.started + request.first_token, request.started + request.total);
        let unknown = |at: f64| self.unknown.partition_point(|first| *first <= at);
        if unknown(from) < unknown(to) {
            return None;
        }
        let seconds = to - from;
        let tokens = request.output_tokens.saturating_sub(1) as f64;
        let beside = (self.area(to) - self.area(from)) / seconds;
        let computed = (self.computed(to) - self.computed(from)) as f64;
        Some([tokens / seconds, tokens * beside / seconds, computed / seconds])
    }
}

/// The factors with which all rows come nearest to 1; `None` if they cannot be told.
fn least_squares(rows: &[Row]) -> Option<[f64; 3]> {
    // Normal equations, eliminated with the largest pivot first.
    let mut system = [[0.0; 4]; 3];
    for row in rows {
        for (equation, own) in system.iter_mut().zip(row) {
            for (cell, other) in equation.iter_mut().zip(row.iter().chain(&[1.0])) {
                *cell += own * other;
            }
        }
    }
    for at in 0..3 {
        let scale = system[at].iter().map(|cell: &f64| cell.abs()).fold(0.0, f64::max);
        let pivot = (at..3).max_by(|a, b| system[*a][at].abs().total_cmp(&system[*b][at].abs()))?;
        system.swap(at, pivot);
        if system[at][at].abs() <= 1e-9 * scale {
            return None;
        }
        let own = system[at];
        for (_, equation) in system.iter_mut().enumerate().filter(|(other, _)| *other != at) {
            let factor = equation[at] / own[at];
            equation.iter_mut().zip(own).for_each(|(cell, own)| *cell -= factor * own);
        }
    }
    Some([0, 1, 2].map(|at| system[at][3] / system[at][at]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::engine::{Engine, EngineConfig, Job, JobId, Progress};
    use super::*;
    use std::time::Duration;

    /// What a log would say of one engine under so many requests.
    fn log_of(config: EngineConfig, requests: u64) -> Vec<Logged> {
        let mut engine = Engine::new(config).unwrap();
        let mut arrived = Vec::new();
        let mut tokens: Vec<(JobId, Progress)> = Vec::new();
        let mut now = Duration::ZERO;
        for id in 0..requests {
            now += Duration::from_millis(20 + id * 7_919 % 900);
            engine.advance(now, &mut |id, progress| tokens.push((id, progress)));
            let prompt_tokens = 200 + (id * 104_729 % 5_000) as u32;
            let output_tokens = 20 + (id * 1_299_709 % 300) as u32;
            let job = Job { id: JobId(id), prompt_tokens, output_tokens, blocks: [].into() };
            engine.submit(now, job).unwrap();
            arrived.push((now.as_secs_f64(), prompt_tokens, output_tokens));
        }
        engine.advance(Duration::MAX / 2, &mut |id, progress| tokens.push((id, progress)));
        let at = |id: u64, last: bool| {
            let is_it = |p: &Progress| if last { p.finished } else { p.generated == 1 };
            let found = tokens.iter().find(|(of, progress)| of.0 == id && is_it(progress));
            found.unwrap().1.at.as_secs_f64()
        };
        let line = |(id, &(started, prompt, output)): (u64, &(f64, u32, u32))| Logged {
            started,
            first_token: at(id, false) - started,
            total: at(id, true) - started,
            worker: "w".to_owned(),
            prompt_tokens: prompt.into(),
            computed_tokens: Some(prompt.into()),
            output_tokens: output.into(),
            prefix: None,
        };
        (0..).zip(&arrived).map(line).collect()
    }

    #[test]
    fn the_numbers_of_an_engine_come_out_of_its_log() {
        for config in [
            EngineConfig::default(),
            EngineConfig {
                prefill_tps: 20_000.0,
                decode_base_ms: 8.0,
                decode_seq_ms: 0.6,
                ..EngineConfig::default()
            },
        ] {
            let fitted = fit(&log_of(config, 400)).unwrap();
            let near = |fitted: Option<f64>, real: f64| (fitted.unwrap() / real - 1.0).abs();
            let engine = fitted.engine;
            assert!(near(engine.prefill_tps, config.prefill_tps) < 0.1, "{engine:?}");
            assert!(near(engine.decode_base_ms, config.decode_base_ms) < 0.1, "{engine:?}");
            assert!(near(engine.decode_seq_ms, config.decode_seq_ms) < 0.25, "{engine:?}");
            assert!(fitted.error < 0.1, "{}", fitted.error);
            assert!(1 < fitted.most_at_once);
        }
    }

    #[test]
    fn lines_without_the_cached_part_are_unknown_and_not_taken_for_cached() {
        let config = EngineConfig::default();
        let mut log = log_of(config, 1_200);
        let all = fit(&log).unwrap().answers;
        log.iter_mut().take(400).for_each(|request| request.computed_tokens = None);
        let fitted = fit(&log).unwrap();
        assert_eq!(fitted.left_out.unknown, 400);
        assert_eq!(fitted.answers + fitted.left_out.beside, all);
        assert!((300..500).contains(&fitted.left_out.beside), "{:?}", fitted.left_out);
        let off =
            |fitted: &Fitted| (fitted.engine.prefill_tps.unwrap() / config.prefill_tps - 1.0).abs();
        assert!(off(&fitted) < 0.1, "{:?}", fitted.engine);
        log.iter_mut().take(400).for_each(|request| request.computed_tokens = Some(0));
        assert!(0.1 < off(&fit(&log).unwrap()));
        log.iter_mut().for_each(|request| request.computed_tokens = None);
        let error = fit(&log).unwrap_err().to_string();
        assert!(
            error.contains("1200 lines do not say how much of their prompt was cached"),
            "{error}"
        );
    }

    #[test]
    fn too_little_or_too_uniform_a_log_fits_nothing() {
        let log = log_of(EngineConfig::default(), 50);
        assert!(matches!(fit(&log), Err(FitError::TooFew { usable: 50, .. })));
        let same = vec![log[0].clone(); 200];
        assert!(matches!(fit(&same), Err(FitError::Alike)), "{:?}", fit(&same));
    }
}
