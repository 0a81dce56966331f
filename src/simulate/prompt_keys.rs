//! The prompts of a trace as the edge and the engines see them, without making their text.
//!
//! Both cut a prompt into blocks of their own size; a block's digest is made of the parts of the
//! trace's blocks that lie in it, so that equal beginnings have equal digests and nothing else has.

use super::kv::BlockHash;
use super::prompt::mix;
use super::trace::{TRACE_BLOCK, TraceRequest};
use crate::prompt::PromptKeys;
use std::num::NonZeroU32;
use std::sync::Arc;
use tidegate_policy::prefix::{PrefixKeys, Root};

/// The keys the edge would have of a prompt in which a token is so many bytes.
pub(super) fn prefix_keys(
    request: &TraceRequest,
    bytes_per_token: u32,
    block_bytes: NonZeroU32,
    root: Root,
) -> PromptKeys {
    let bytes = u64::from(request.input_tokens) * u64::from(bytes_per_token);
    let unit = u64::from(TRACE_BLOCK) * u64::from(bytes_per_token);
    let cut = Cut { ids: &request.blocks, unit, block: u64::from(block_bytes.get()) };
    let digests = cut.digests(bytes);
    let keys = PrefixKeys::of_digests(block_bytes, root, bytes, digests);
    PromptKeys { keys, exact_tokens: None }
}

/// The hashes of its full blocks of so many tokens.
pub(super) fn block_hashes(request: &TraceRequest, block: u32) -> Arc<[BlockHash]> {
    let block = u64::from(block.max(1));
    let tokens = u64::from(request.input_tokens);
    let cut = Cut { ids: &request.blocks, unit: u64::from(TRACE_BLOCK), block };
    let mut chain = 0;
    let hashes = cut.digests(tokens - tokens % block).map(|digest| {
        chain = mix(chain ^ digest);
        BlockHash(chain)
    });
    hashes.collect()
}

/// Blocks of the trace, `unit` long, cut anew into blocks of another length.
#[derive(Clone, Copy)]
struct Cut<'a> {
    ids: &'a [u64],
    unit: u64,
    block: u64,
}

impl<'a> Cut<'a> {
    /// The digests of the blocks of the first `total`; the last may be shorter.
    fn digests(self, total: u64) -> impl Iterator<Item = u64> + use<'a> {
        let blocks = total.div_ceil(self.block);
        (0..blocks).map(move |at| {
            let from = at * self.block;
            self.digest(from, (from + self.block).min(total))
        })
    }

    fn digest(self, from: u64, to: u64) -> u64 {
        let (mut digest, mut at) = (0, from);
        while at < to {
            let id = self.ids.get((at / self.unit) as usize).copied().unwrap_or_default();
            let begin = at % self.unit;
            let end = self.unit.min(begin + to - at);
            digest = mix(digest ^ mix(id).wrapping_add(begin << 32 | end));
            at += end - begin;
        }
        digest
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    fn request(tokens: u32, blocks: &[u64]) -> TraceRequest {
        let blocks = blocks.to_vec();
        TraceRequest { at: Duration::ZERO, input_tokens: tokens, output_tokens: 1, blocks }
    }

    fn common(a: &[BlockHash], b: &[BlockHash]) -> usize {
        a.iter().zip(b).take_while(|(a, b)| a == b).count()
    }

    #[test]
    fn equal_beginnings_are_equal_blocks_of_any_size() {
        let (short, long) = (request(1_300, &[1, 2, 3]), request(2_000, &[1, 2, 3, 4]));
        let other = request(2_000, &[1, 2, 9, 4]);
        for block in [16, 64, 100, 512, 700] {
            let [short, long, other] = [&short, &long, &other].map(|r| block_hashes(r, block));
            assert_eq!(short.len(), 1_300 / block as usize);
            assert_eq!(common(&short, &long), short.len(), "blocks of {block}");
            assert_eq!(common(&long, &other), 1_024 / block as usize, "blocks of {block}");
        }
    }

    #[test]
    fn keys_are_as_many_as_the_prompt_has_blocks_and_the_last_is_its_own() {
        let block = NonZeroU32::new(512).unwrap();
        let keys = |request: &TraceRequest| prefix_keys(request, 4, block, Root::new("m")).keys;
        let (short, long) = (keys(&request(600, &[1, 2])), keys(&request(1_024, &[1, 2])));
        assert_eq!((short.bytes(), short.keys().len()), (2_400, 5));
        assert_eq!(short.keys()[..4], long.keys()[..4]);
        assert_ne!(short.keys()[4], long.keys()[4], "it is partial");
    }
}
