//! The hash of the index's tables.

use crate::prefix::PrefixKey;
use std::hash::{BuildHasher, Hasher};

/// Keys are hashes already, but anyone can choose them: mixed with a number that clients do not
/// know, nobody can crowd one part of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seed(pub(super) u64);

impl Seed {
    /// Where a key lies in a hash table.
    pub(super) fn hash(self, key: PrefixKey) -> u64 {
        const ODD: u128 = 0x9e37_79b9_7f4a_7c15;
        let wide = u128::from(key.0 ^ self.0) * ODD;
        // Folded, so that every bit of the key reaches the low bits.
        (wide >> 64) as u64 ^ wide as u64
    }
}

impl BuildHasher for Seed {
    type Hasher = KeyHasher;

    fn build_hasher(&self) -> KeyHasher {
        KeyHasher { seed: *self, hash: 0 }
    }
}

/// Hashes a [`PrefixKey`], which is one `u64`.
#[derive(Debug)]
pub(super) struct KeyHasher {
    seed: Seed,
    hash: u64,
}

impl Hasher for KeyHasher {
    fn write_u64(&mut self, key: u64) {
        self.hash = self.seed.hash(PrefixKey(key));
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.hash = self.seed.hash(PrefixKey(self.hash ^ u64::from(byte)));
        }
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}
