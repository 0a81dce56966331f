//! An engine's paged KV cache: a tree of prompt blocks that share prefixes, leaf-first LRU.
//!
//! A block's hash covers the whole prefix up to its end, so a hash names a place in the tree.
//! Invariants: a pinned block's ancestors are pinned; only a block without children and without
//! pins can be evicted; `blocks in the tree + private blocks <= capacity`.
//! Absent on purpose: the tokens themselves, and several tiers of storage.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

/// The chained hash of one full block of prompt tokens and of everything before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockHash(pub u64);

/// What one running sequence holds: a pinned chain of shared blocks, and blocks of its own.
///
/// To be handed back with [`KvCache::release`]; not `Clone`, so it is released once.
#[derive(Debug, Default)]
pub struct Lease {
    chain: Vec<usize>,
    private: usize,
}

impl Lease {
    /// Number of shared prompt blocks, counted from the start of the prompt.
    pub fn shared_blocks(&self) -> usize {
        self.chain.len()
    }
}

/// The cache of one engine, counted in blocks.
#[derive(Debug)]
pub struct KvCache {
    capacity: usize,
    nodes: Vec<Node>,
    vacant: Vec<usize>,
    by_hash: HashMap<BlockHash, usize, BuildHasherDefault<AlreadyHashed>>,
    evictable: BTreeSet<(u64, usize)>,
    pinned: usize,
    private: usize,
    tick: u64,
}

#[derive(Debug)]
struct Node {
    hash: BlockHash,
    parent: Option<usize>,
    children: usize,
    pins: usize,
    last_used: u64,
}

impl Node {
    fn can_be_evicted(&self) -> bool {
        self.pins == 0 && self.children == 0
    }
}

impl KvCache {
    /// An empty cache of `capacity` blocks.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            nodes: Vec::new(),
            vacant: Vec::new(),
            by_hash: HashMap::default(),
            evictable: BTreeSet::new(),
            pinned: 0,
            private: 0,
            tick: 0,
        }
    }

    /// Blocks that exist.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Blocks that running sequences hold.
    pub fn used(&self) -> usize {
        self.pinned + self.private
    }

    /// Blocks that are kept for reuse, held or not.
    pub fn cached(&self) -> usize {
        self.by_hash.len()
    }

    /// How many leading blocks of `prefix` are cached. Touches nothing.
    pub fn matched(&self, prefix: &[BlockHash]) -> usize {
        // A cached block's ancestors are cached.
        prefix.partition_point(|hash| self.by_hash.contains_key(hash))
    }

    /// Pins what is cached of `prefix` and takes blocks for the rest of `total`; `None`, with
    /// nothing changed, while that does not fit beside the running sequences.
    pub fn lease(&mut self, prefix: &[BlockHash], total: usize) -> Option<Lease> {
        let chain: Vec<usize> =
            prefix.iter().map_while(|hash| self.by_hash.get(hash).copied()).collect();
        let newly_pinned = chain.iter().filter(|&&at| self.nodes[at].pins == 0).count();
        let private = total.saturating_sub(chain.len());
        if self.capacity < self.used() + newly_pinned + private {
            return None;
        }
        for &at in &chain {
            self.pin(at);
        }
        self.private += private;
        self.evict_down_to_capacity();
        Some(Lease { chain, private })
    }

    /// Makes the next prompt block of a sequence, now computed, reusable by others.
    pub fn share(&mut self, lease: &mut Lease, hash: BlockHash) {
        debug_assert!(0 < lease.private, "a lease covers its whole prompt");
        let at = match self.by_hash.get(&hash) {
            // Somebody else computed the same block meanwhile: one copy is enough.
            Some(&at) => at,
            None => self.insert(hash, lease.chain.last().copied()),
        };
        self.pin(at);
        lease.chain.push(at);
        lease.private -= 1;
        self.private -= 1;
    }

    /// Takes a lease back: its own blocks are free, shared ones become most recently used.
    pub fn release(&mut self, lease: Lease) {
        self.tick += 1;
        self.private -= lease.private;
        for at in lease.chain.into_iter().rev() {
            self.unpin(at);
        }
    }

    /// Drops every block that no running sequence holds.
    pub fn flush(&mut self) {
        while self.evict_one() {}
    }

    fn insert(&mut self, hash: BlockHash, parent: Option<usize>) -> usize {
        let node = Node { hash, parent, children: 0, pins: 0, last_used: self.tick };
        if let Some(parent) = parent {
            self.nodes[parent].children += 1;
        }
        let at = match self.vacant.pop() {
            Some(at) => {
                self.nodes[at] = node;
                at
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        };
        self.by_hash.insert(hash, at);
        at
    }

    fn pin(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.pins == 0 {
            self.pinned += 1;
            self.evictable.remove(&(node.last_used, at));
        }
        node.pins += 1;
    }

    fn unpin(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.pins -= 1;
        node.last_used = self.tick;
        if node.pins == 0 {
            self.pinned -= 1;
        }
        if node.can_be_evicted() {
            self.evictable.insert((node.last_used, at));
        }
    }

    fn evict_down_to_capacity(&mut self) {
        while self.capacity < self.by_hash.len() + self.private && self.evict_one() {}
    }

    fn evict_one(&mut self) -> bool {
        let Some((_, at)) = self.evictable.pop_first() else {
            return false;
        };
        let Node { hash, parent, .. } = self.nodes[at];
        self.by_hash.remove(&hash);
        self.vacant.push(at);
        if let Some(parent_at) = parent {
            let parent = &mut self.nodes[parent_at];
            parent.children -= 1;
            if parent.can_be_evicted() {
                self.evictable.insert((parent.last_used, parent_at));
            }
        }
        true
    }
}

/// Block hashes are mixed already; hashing them again would only cost time.
#[derive(Default)]
struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn chain(hashes: &[u64]) -> Vec<BlockHash> {
        hashes.iter().copied().map(BlockHash).collect()
    }

    /// Runs one sequence from admission to its end.
    fn run(cache: &mut KvCache, prompt: &[u64], extra: usize) -> usize {
        let prompt = chain(prompt);
        let mut lease = cache.lease(&prompt, prompt.len() + extra).unwrap();
        let reused = lease.shared_blocks();
        for &hash in &prompt[reused..] {
            cache.share(&mut lease, hash);
        }
        cache.release(lease);
        reused
    }

    #[test]
    fn a_finished_prompt_is_reused_up_to_the_first_difference() {
        let mut cache = KvCache::new(100);
        assert_eq!(run(&mut cache, &[1, 2, 3], 2), 0);
        assert_eq!(run(&mut cache, &[1, 2, 9], 2), 2);
        assert_eq!(cache.matched(&chain(&[1, 2, 9, 10])), 3);
        assert_eq!((cache.used(), cache.cached()), (0, 4));
    }

    #[test]
    fn the_oldest_leaf_goes_first_and_its_parent_only_after_all_its_children() {
        let mut cache = KvCache::new(4);
        run(&mut cache, &[1, 2], 0);
        run(&mut cache, &[1, 3], 0);
        run(&mut cache, &[4], 0);
        run(&mut cache, &[5], 0);
        assert_eq!(cache.matched(&chain(&[1, 2])), 1, "2 was the oldest leaf");
        run(&mut cache, &[6], 0);
        assert_eq!(cache.matched(&chain(&[1, 3])), 1, "3 was next, 1 still leads nowhere else");
        run(&mut cache, &[7], 0);
        assert_eq!(cache.matched(&chain(&[1])), 0, "a parent without children is a leaf");
        assert_eq!(cache.matched(&chain(&[4])), 1);
    }

    #[test]
    fn a_reused_leaf_outlives_an_older_one() {
        let mut cache = KvCache::new(2);
        run(&mut cache, &[1], 0);
        run(&mut cache, &[2], 0);
        assert_eq!(run(&mut cache, &[1], 0), 1);
        run(&mut cache, &[3], 0);
        assert_eq!(cache.matched(&chain(&[1])), 1);
        assert_eq!(cache.matched(&chain(&[2])), 0);
    }

    #[test]
    fn blocks_of_running_sequences_are_never_evicted() {
        let mut cache = KvCache::new(4);
        run(&mut cache, &[1, 2], 0);
        let held = cache.lease(&chain(&[1, 2]), 2).unwrap();
        assert!(cache.lease(&chain(&[3]), 3).is_none(), "2 held and 3 wanted of 4");
        assert_eq!((cache.used(), cache.cached()), (2, 2), "a refusal changes nothing");
        cache.flush();
        assert_eq!(cache.matched(&chain(&[1, 2])), 2);
        cache.release(held);
        assert!(cache.lease(&chain(&[3]), 3).is_some());
        assert_eq!(cache.matched(&chain(&[1, 2])), 1, "one block had to go, the leaf");
    }

    #[test]
    fn two_sequences_that_compute_the_same_block_keep_one_copy() {
        let mut cache = KvCache::new(4);
        let (mut a, mut b) =
            (cache.lease(&chain(&[1]), 2).unwrap(), cache.lease(&chain(&[1]), 2).unwrap());
        cache.share(&mut a, BlockHash(1));
        cache.share(&mut b, BlockHash(1));
        assert_eq!((cache.used(), cache.cached()), (3, 1));
        cache.release(a);
        assert_eq!(cache.used(), 2, "the other one still pins the shared block");
        cache.release(b);
        assert_eq!((cache.used(), cache.cached()), (0, 1));
    }
}
