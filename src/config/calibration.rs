//! What an engine is like, for simulations: `engine: {prefill_tps, decode_base_ms, ...}`.

use super::error::ConfigErrors;
use super::kinds::{MANY, integer, number};
use super::node::{self, Node};
use super::overrides::Overrides;
use super::scope::Scope;
use super::section::Section;
use std::path::Path;

/// An engine's numbers; those that are not given are the simulation's to choose.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Calibration {
    /// Prompt tokens computed per second.
    pub prefill_tps: Option<f64>,
    /// What every step takes, milliseconds.
    pub decode_base_ms: Option<f64>,
    /// What a step takes for each decoding sequence, milliseconds.
    pub decode_seq_ms: Option<f64>,
    /// Most sequences at once.
    pub max_running: Option<u64>,
    /// KV cache, tokens.
    pub kv_tokens: Option<u64>,
    /// Tokens of a KV block.
    pub block: Option<u64>,
    /// Most prompt tokens of a step.
    pub chunk: Option<u64>,
}

impl Calibration {
    /// Reads a YAML file.
    ///
    /// # Errors
    /// All its problems at once.
    pub fn from_path(path: &Path) -> Result<Self, ConfigErrors> {
        Self::from_yaml(&node::read_file(path)?)
    }

    /// Reads a YAML text.
    ///
    /// # Errors
    /// As [`Calibration::from_path`].
    pub fn from_yaml(text: &str) -> Result<Self, ConfigErrors> {
        let root = node::parse(text)?;
        let overrides = Overrides::default();
        let scope = Scope::new(&overrides);
        let calibration = read(&root, &scope);
        scope.finish().0.map(|()| calibration)
    }

    /// The text that reads as this.
    pub fn to_yaml(self) -> String {
        let numbers = [
            ("prefill_tps", self.prefill_tps),
            ("decode_base_ms", self.decode_base_ms),
            ("decode_seq_ms", self.decode_seq_ms),
        ];
        let counts = [
            ("max_running", self.max_running),
            ("kv_tokens", self.kv_tokens),
            ("block", self.block),
            ("chunk", self.chunk),
        ];
        let numbers =
            numbers.into_iter().filter_map(|(key, value)| Some((key, value?.to_string())));
        let counts = counts.into_iter().filter_map(|(key, value)| Some((key, value?.to_string())));
        let lines = numbers.chain(counts).map(|(key, value)| format!("  {key}: {value}\n"));
        format!("engine:\n{}", lines.collect::<String>())
    }
}

fn read<'a>(root: &'a Node, scope: &'a Scope<'a>) -> Calibration {
    const FASTEST: f64 = 1e9;
    const SLOWEST_MS: f64 = 1e6;
    let mut top = Section::root(root, scope);
    let mut engine = top.section("engine");
    let count = || integer(1..=MANY);
    let small = || integer(1..=u64::from(u32::MAX));
    Calibration {
        prefill_tps: engine.optional("prefill_tps", None, number(1.0..=FASTEST)),
        decode_base_ms: engine.optional("decode_base_ms", None, number(0.0..=SLOWEST_MS)),
        decode_seq_ms: engine.optional("decode_seq_ms", None, number(0.0..=SLOWEST_MS)),
        max_running: engine.optional("max_running", None, small()),
        kv_tokens: engine.optional("kv_tokens", None, count()),
        block: engine.optional("block", None, small()),
        chunk: engine.optional("chunk", None, small()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let calibration = Calibration {
            prefill_tps: Some(8_000.5),
            kv_tokens: Some(1_000_000),
            chunk: Some(4_096),
            ..Calibration::default()
        };
        assert_eq!(Calibration::from_yaml(&calibration.to_yaml()).unwrap(), calibration);
    }

    #[test]
    fn every_problem_is_told_with_its_path() {
        let text = "engine: {prefill_tps: 0, blocks: 3, chunk: many}";
        let problems = Calibration::from_yaml(text).unwrap_err().to_string();
        for part in ["engine.prefill_tps", "engine.blocks", "did you mean `block`?", "engine.chunk"]
        {
            assert!(problems.contains(part), "{problems}");
        }
    }
}
