//! Prompt text to tokens and KV blocks, as a simulated engine sees it.

use super::kv::BlockHash;
use serde_json::Value;
use std::sync::Arc;

/// A prompt, cut into blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Its length in tokens.
    pub tokens: u32,
    /// The chained hashes of its full blocks.
    pub blocks: Arc<[BlockHash]>,
}

impl Prompt {
    /// Counts every `bytes_per_token` bytes as one token (the last one may be shorter) and hashes
    /// every `block` tokens, each block with all before it.
    pub fn of_bytes(bytes: &[u8], bytes_per_token: u32, block: u32) -> Self {
        let bytes_per_token = bytes_per_token.max(1) as usize;
        let block_bytes = bytes_per_token.saturating_mul(block.max(1) as usize);
        let mut chain = 0;
        let blocks = bytes.chunks_exact(block_bytes).map(|block| {
            chain = hash(chain, block);
            BlockHash(chain)
        });
        Self {
            tokens: u32::try_from(bytes.len().div_ceil(bytes_per_token)).unwrap_or(u32::MAX),
            blocks: blocks.collect(),
        }
    }

    /// The prompt of a request body: tools, `system`, then the text of the messages one after the other, or
    /// `prompt`, `text` or `input_ids`. Of a list of prompts all are taken as one.
    pub fn of_body(body: &Value, bytes_per_token: u32, block: u32) -> Self {
        if let Some(Value::Array(ids)) = body.get("input_ids") {
            let ids: Vec<u8> =
                ids.iter().flat_map(|id| id.as_u64().unwrap_or(u64::MAX).to_le_bytes()).collect();
            return Self::of_bytes(&ids, size_of::<u64>() as u32, block);
        }
        let mut text = String::new();
        if let Some(tools) = body.get("tools") {
            text.push_str(&tools.to_string());
        }
        for key in ["system", "messages", "prompt", "text"] {
            push_text(body.get(key).unwrap_or(&Value::Null), &mut text);
        }
        Self::of_bytes(text.as_bytes(), bytes_per_token, block)
    }
}

/// Appends the text of messages, content parts and lists of strings. A message's role is no text.
fn push_text(value: &Value, text: &mut String) {
    match value {
        Value::String(string) => text.push_str(string),
        Value::Array(parts) => parts.iter().for_each(|part| push_text(part, text)),
        Value::Object(object) => {
            for key in ["content", "text"] {
                push_text(object.get(key).unwrap_or(&Value::Null), text);
            }
        }
        Value::Number(id) => text.push_str(&id.to_string()),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Mixes eight bytes at a time; good enough to tell prompts apart, not made against an attacker.
fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let mut hash = mix(seed ^ bytes.len() as u64);
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash ^ u64::from_le_bytes(word));
    }
    hash
}

/// A bijection of 64 bits in which each input bit moves about half of the output bits: the
/// finaliser of the splitmix64 generator.
pub(super) fn mix(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn equal_blocks(a: &Value, b: &Value) -> usize {
        let (a, b) = (Prompt::of_body(a, 1, 4), Prompt::of_body(b, 1, 4));
        let pairs = a.blocks.iter().zip(b.blocks.iter());
        pairs.take_while(|(a, b)| a == b).count()
    }

    #[test]
    fn a_conversation_that_grows_keeps_its_blocks() {
        let first = json!({"messages": [{"role": "user", "content": "abcdefgh"}]});
        let second = json!({"messages": [
            {"role": "user", "content": [{"type": "text", "text": "abcdefgh"}]},
            {"role": "assistant", "content": null},
            {"role": "user", "content": "ijkl"},
        ]});
        assert_eq!(equal_blocks(&first, &second), 2);
        assert_eq!(Prompt::of_body(&second, 1, 4).tokens, 12);
    }

    #[test]
    fn a_block_after_a_difference_is_another_block() {
        let (a, b) = (json!({"prompt": "abcdXfghijkl"}), json!({"prompt": "abcdefghijkl"}));
        assert_eq!(equal_blocks(&a, &b), 1);
        let (a, b) = (Prompt::of_body(&a, 1, 4), Prompt::of_body(&b, 1, 4));
        assert_ne!(a.blocks[2], b.blocks[2]);
    }

    #[test]
    fn a_partial_block_counts_as_tokens_and_not_as_a_block() {
        let prompt = Prompt::of_bytes(b"0123456789", 2, 2);
        assert_eq!((prompt.tokens, prompt.blocks.len()), (5, 2));
        assert_eq!(Prompt::of_bytes(b"012", 2, 2).tokens, 2);
    }

    #[test]
    fn token_ids_are_tokens() {
        let prompt = Prompt::of_body(&json!({"input_ids": [5, 6, 7, 8, 9], "text": "x"}), 4, 2);
        assert_eq!((prompt.tokens, prompt.blocks.len()), (5, 2));
    }
}
