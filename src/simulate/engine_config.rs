//! The numbers of a simulated engine, and what they must be.

use crate::config::Calibration;
use std::time::Duration;
use thiserror::Error;

/// What the slowest engine needs for a step; keeps sums of times in range.
const LONGEST_STEP: Duration = Duration::from_secs(86_400);

/// How fast and how large an engine is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineConfig {
    /// Prompt tokens computed per second.
    pub prefill_tps: f64,
    /// What every step takes, in milliseconds.
    pub decode_base_ms: f64,
    /// What a step takes for each decoding sequence, in milliseconds.
    pub decode_seq_ms: f64,
    /// The most sequences that run at once.
    pub max_running: usize,
    /// Size of the KV cache in tokens.
    pub kv_tokens: u64,
    /// Tokens of a KV block.
    pub block: u32,
    /// The most prompt tokens computed in one step.
    pub chunk: u32,
}

impl Default for EngineConfig {
    /// A mid-size model on one accelerator.
    fn default() -> Self {
        Self {
            prefill_tps: 8_000.0,
            decode_base_ms: 20.0,
            decode_seq_ms: 0.25,
            max_running: 64,
            kv_tokens: 1_000_000,
            block: 64,
            chunk: 4_096,
        }
    }
}

/// Why an [`EngineConfig`] describes no engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EngineConfigError {
    /// A rate or time is not a usable number.
    #[error("engine.{0} must be a finite number above 0")]
    NotPositive(&'static str),
    /// A time is not a usable number.
    #[error("engine.{0} must be a finite number, 0 or more")]
    Negative(&'static str),
    /// A size is zero.
    #[error("engine.{0} must be at least 1")]
    Zero(&'static str),
    /// Not even one block fits.
    #[error("engine.kv_tokens must be at least engine.block")]
    NoBlocks,
}

impl EngineConfig {
    /// With the numbers that a calibration gives.
    pub fn calibrated(self, by: &Calibration) -> Self {
        let small = |given: Option<u64>, own| {
            given.map_or(own, |given| u32::try_from(given).unwrap_or(u32::MAX))
        };
        let max_running = by.max_running.and_then(|given| usize::try_from(given).ok());
        Self {
            prefill_tps: by.prefill_tps.unwrap_or(self.prefill_tps),
            decode_base_ms: by.decode_base_ms.unwrap_or(self.decode_base_ms),
            decode_seq_ms: by.decode_seq_ms.unwrap_or(self.decode_seq_ms),
            max_running: max_running.unwrap_or(self.max_running),
            kv_tokens: by.kv_tokens.unwrap_or(self.kv_tokens),
            block: small(by.block, self.block),
            chunk: small(by.chunk, self.chunk),
        }
    }

    /// Every step takes so many times as long.
    pub fn slowed(self, factor: f64) -> Self {
        Self {
            prefill_tps: self.prefill_tps / factor,
            decode_base_ms: self.decode_base_ms * factor,
            decode_seq_ms: self.decode_seq_ms * factor,
            ..self
        }
    }

    /// Seconds that so many prompt tokens and tokens of answers take at least: in full batches.
    pub fn least_time(&self, computed: u64, generated: u64) -> f64 {
        let batch = self.decode_base_ms / self.max_running.max(1) as f64;
        let token = (batch + self.decode_seq_ms) / 1e3;
        computed as f64 / self.prefill_tps + generated as f64 * token
    }

    /// Checks every number.
    ///
    /// # Errors
    /// Names the first one that cannot be.
    pub fn check(&self) -> Result<(), EngineConfigError> {
        if !self.prefill_tps.is_finite() || self.prefill_tps <= 0.0 {
            return Err(EngineConfigError::NotPositive("prefill_tps"));
        }
        for (name, value) in
            [("decode_base_ms", self.decode_base_ms), ("decode_seq_ms", self.decode_seq_ms)]
        {
            if !value.is_finite() || value < 0.0 {
                return Err(EngineConfigError::Negative(name));
            }
        }
        for (name, zero) in [
            ("max_running", self.max_running == 0),
            ("block", self.block == 0),
            ("chunk", self.chunk == 0),
        ] {
            if zero {
                return Err(EngineConfigError::Zero(name));
            }
        }
        if self.kv_tokens < u64::from(self.block) {
            return Err(EngineConfigError::NoBlocks);
        }
        Ok(())
    }

    /// How long a step lasts that computes so many prompt tokens beside so many decoding sequences.
    pub(super) fn step_time(&self, prompt_tokens: u32, decoding: usize) -> Duration {
        let milliseconds = f64::from(prompt_tokens) * 1e3 / self.prefill_tps
            + self.decode_base_ms
            + decoding as f64 * self.decode_seq_ms;
        // A step of no length would let an engine do infinitely much at one instant.
        Duration::try_from_secs_f64(milliseconds / 1e3)
            .unwrap_or(LONGEST_STEP)
            .clamp(Duration::from_nanos(1), LONGEST_STEP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_that_describes_no_engine_is_refused_by_name() {
        for (config, error) in [
            (
                EngineConfig { prefill_tps: 0.0, ..EngineConfig::default() },
                EngineConfigError::NotPositive("prefill_tps"),
            ),
            (
                EngineConfig { decode_seq_ms: f64::NAN, ..EngineConfig::default() },
                EngineConfigError::Negative("decode_seq_ms"),
            ),
            (
                EngineConfig { chunk: 0, ..EngineConfig::default() },
                EngineConfigError::Zero("chunk"),
            ),
            (EngineConfig { kv_tokens: 9, ..EngineConfig::default() }, EngineConfigError::NoBlocks),
        ] {
            assert_eq!(config.check().err(), Some(error));
        }
    }
}
