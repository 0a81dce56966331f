//! Prompt bytes to a chain of keys, so that equal beginnings of prompts are found by equal keys.
//!
//! The prompt bytes are cut into blocks of `block_bytes`; the last block may be shorter. With
//! `|` for concatenation, numbers in little endian and XXH3 in its 64-bit form without seed or
//! secret:
//!
//! ```text
//! key[-1] = the root, see Root
//! key[i]  = XXH3(key[i-1] | XXH3(block[i]))
//! ```
//!
//! All edges of a fleet must agree on this, since the home of a cold prefix is drawn from a key.
//! The golden values in the tests hold it fixed. XXH3 is no cryptographic hash: who looks for two
//! prompts with one key will find them, and gains a badly routed request of their own. No answer
//! ever comes from a key.

use std::num::NonZeroU32;
use xxhash_rust::xxh3::xxh3_64;

/// Most keys kept of one prompt: 64 MiB in blocks of 512 bytes. What follows is counted in
/// [`PrefixKeys::bytes`] and has no keys.
pub const MAX_BLOCKS: usize = 131_072;

/// Token ids turned into bytes at a time.
const IDS_AT_ONCE: usize = 128;

/// The key of one block and of everything before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrefixKey(pub u64);

impl PrefixKey {
    /// The key of the block with this digest, behind the one with this key.
    fn after(self, digest: u64) -> Self {
        let mut pair = [0; 16];
        pair[..8].copy_from_slice(&self.0.to_le_bytes());
        pair[8..].copy_from_slice(&digest.to_le_bytes());
        Self(xxh3_64(&pair))
    }
}

/// Everything that gives the engine another cache, mixed into the start of the chain.
///
/// Of each field the digest goes in at a place of its own, so that no value of one field can be
/// taken for a value of another, and an absent field differs from an empty one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    model: u64,
    adapter: Option<u64>,
    cache_salt: Option<u64>,
    extra_key: Option<u64>,
}

impl Root {
    /// The root of a model's prompts. Give the configured name, not the alias the client used.
    pub fn new(model: &str) -> Self {
        Self { model: xxh3_64(model.as_bytes()), adapter: None, cache_salt: None, extra_key: None }
    }

    /// The LoRA adapter.
    #[must_use]
    pub fn adapter(self, name: &[u8]) -> Self {
        Self { adapter: Some(xxh3_64(name)), ..self }
    }

    /// The request's `cache_salt`.
    #[must_use]
    pub fn cache_salt(self, salt: &[u8]) -> Self {
        Self { cache_salt: Some(xxh3_64(salt)), ..self }
    }

    /// The request's `extra_key`.
    #[must_use]
    pub fn extra_key(self, key: &[u8]) -> Self {
        Self { extra_key: Some(xxh3_64(key)), ..self }
    }

    /// Four records of nine bytes: 1 and the digest, or zeros for an absent field.
    /// The key in front of the first block; on its own, a key of what was mixed in.
    pub fn key(self) -> PrefixKey {
        const RECORD: usize = 9;
        let mut bytes = [0; 4 * RECORD];
        let fields = [Some(self.model), self.adapter, self.cache_salt, self.extra_key];
        for (record, field) in bytes.chunks_exact_mut(RECORD).zip(fields) {
            if let Some(digest) = field {
                record[0] = 1;
                record[1..].copy_from_slice(&digest.to_le_bytes());
            }
        }
        PrefixKey(xxh3_64(&bytes))
    }
}

/// The keys of one prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixKeys {
    keys: Vec<PrefixKey>,
    bytes: u64,
    block_bytes: NonZeroU32,
}

impl PrefixKeys {
    /// The keys of a prompt of which only the blocks' digests are known, as those of a trace: each
    /// stands for `XXH3(block[i])`. `bytes` is the length of the prompt.
    pub fn of_digests(
        block_bytes: NonZeroU32,
        root: Root,
        bytes: u64,
        digests: impl IntoIterator<Item = u64>,
    ) -> Self {
        let mut last = root.key();
        let digests = digests.into_iter().take(MAX_BLOCKS);
        let keys = digests.map(|digest| {
            last = last.after(digest);
            last
        });
        Self { keys: keys.collect(), bytes, block_bytes }
    }

    /// One key per block, from block 0; at most [`MAX_BLOCKS`]. Empty for an empty prompt.
    pub fn keys(&self) -> &[PrefixKey] {
        &self.keys
    }

    /// Prompt bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The key of the block in which the first `count` bytes are complete; the last key if the
    /// prompt is shorter, `None` if it is empty.
    pub fn at_bytes(&self, count: u64) -> Option<PrefixKey> {
        let block = usize::try_from(self.block_at(count)).unwrap_or(usize::MAX);
        self.keys.get(block).or(self.keys.last()).copied()
    }

    /// Blocks down to the one in which the first `count` bytes are complete; `None` if the prompt is
    /// shorter.
    pub fn blocks_to(&self, count: u64) -> Option<u32> {
        let is_reached = count <= self.bytes && self.block_at(count) < self.keys.len() as u64;
        is_reached.then(|| u32::try_from(self.block_at(count) + 1).ok()).flatten()
    }

    fn block_at(&self, count: u64) -> u64 {
        count.saturating_sub(1) / u64::from(self.block_bytes.get())
    }
}

/// Prompt bytes in, keys out. The cut of the bytes into pushes does not matter.
#[derive(Clone, Debug)]
pub struct PrefixHasher {
    block_bytes: NonZeroU32,
    last: PrefixKey,
    keys: Vec<PrefixKey>,
    bytes: u64,
    /// The beginning of a block whose end has not been pushed yet; always shorter than a block.
    begun: Vec<u8>,
}

impl PrefixHasher {
    /// Nothing pushed yet.
    pub fn new(block_bytes: NonZeroU32, root: Root) -> Self {
        Self { block_bytes, last: root.key(), keys: Vec::new(), bytes: 0, begun: Vec::new() }
    }

    /// Appends to the prompt. Blocks that lie whole in `bytes` are hashed where they are.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        let rest = self.complete_begun(bytes);
        let mut blocks = rest.chunks_exact(self.block_len());
        for block in &mut blocks {
            self.close_block(block);
        }
        self.begin(blocks.remainder());
    }

    /// Appends token ids, each as four bytes in little endian.
    pub fn push_ids(&mut self, ids: &[u32]) {
        let mut bytes = [0; 4 * IDS_AT_ONCE];
        for ids in ids.chunks(IDS_AT_ONCE) {
            for (four, id) in bytes.chunks_exact_mut(4).zip(ids) {
                four.copy_from_slice(&id.to_le_bytes());
            }
            self.push(&bytes[..4 * ids.len()]);
        }
    }

    /// The keys of all that was pushed.
    pub fn finish(mut self) -> PrefixKeys {
        let begun = std::mem::take(&mut self.begun);
        if !begun.is_empty() {
            self.close_block(&begun);
        }
        PrefixKeys { keys: self.keys, bytes: self.bytes, block_bytes: self.block_bytes }
    }

    fn block_len(&self) -> usize {
        usize::try_from(self.block_bytes.get()).unwrap_or(usize::MAX)
    }

    /// Adds to the begun block, closes it if it is full, and returns what it had no room for.
    fn complete_begun<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.begun.is_empty() {
            return bytes;
        }
        let (head, rest) = bytes.split_at(bytes.len().min(self.block_len() - self.begun.len()));
        self.begin(head);
        if self.begun.len() == self.block_len() {
            let mut block = std::mem::take(&mut self.begun);
            self.close_block(&block);
            block.clear();
            self.begun = block;
        }
        rest
    }

    fn begin(&mut self, bytes: &[u8]) {
        if self.keys.len() < MAX_BLOCKS && !bytes.is_empty() {
            // All of it at once: it is never longer.
            self.begun.reserve_exact(self.block_len() - self.begun.len());
            self.begun.extend_from_slice(bytes);
        }
    }

    fn close_block(&mut self, block: &[u8]) {
        if MAX_BLOCKS <= self.keys.len() {
            return;
        }
        self.last = self.last.after(xxh3_64(block));
        self.keys.push(self.last);
    }
}

#[cfg(test)]
mod tests;
