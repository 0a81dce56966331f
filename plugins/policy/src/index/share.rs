//! What one worker is believed to hold: the side of the index that is written under a lock.
//!
//! A block is *pinned* while a request that needs it is in flight at the worker; pinned blocks
//! are in no list and cannot be evicted. A block is *counted* against the worker's capacity from
//! the first byte of a request that needs it. The other blocks are listed by last use.
//!
//! Invariants, for a block and the block before it in a chain:
//! - counted implies that the block before is counted, pinned that it is pinned;
//! - what is not pinned is counted, and the block before is pinned or of later use.
//!
//! So the least recently used block never has a successor, and shares shrink from the leaves.

use super::seed::Seed;
use crate::prefix::PrefixKey;
use hashbrown::HashTable;

/// No block: the end of a list.
const NONE: u32 = u32::MAX;

/// A block's place in its share, valid until the block is taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u32);

/// When a block was last used, in uses of the index. It wraps; a block unused for 2^31 uses
/// looks young again, which keeps it longer than it deserves and does no other harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tick(pub(super) u32);

/// Pins of a block, and whether it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hold(u32);

impl Hold {
    const COUNTED: u32 = 1 << 31;

    fn pins(self) -> u32 {
        self.0 & !Self::COUNTED
    }

    fn is_counted(self) -> bool {
        self.0 & Self::COUNTED != 0
    }
}

#[derive(Debug)]
struct Block {
    key: PrefixKey,
    /// The next block in the list; of a pinned block, which is in none, its depth in the chain.
    newer: u32,
    older: u32,
    used: Tick,
    hold: Hold,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Share {
    seed: Seed,
    places: HashTable<u32>,
    blocks: Vec<Block>,
    /// Free places, linked by `older`.
    free: u32,
    newest: u32,
    coldest: u32,
    counted: u64,
}

impl Share {
    pub(super) fn new(seed: Seed) -> Self {
        Self {
            seed,
            places: HashTable::new(),
            blocks: Vec::new(),
            free: NONE,
            newest: NONE,
            coldest: NONE,
            counted: 0,
        }
    }

    /// Blocks held.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Blocks that count against the capacity.
    pub(super) fn counted(&self) -> u64 {
        self.counted
    }

    /// All blocks, in no order.
    pub(super) fn keys(&self) -> impl Iterator<Item = PrefixKey> {
        self.places.iter().map(|&at| self.blocks[at as usize].key)
    }

    /// Is the block held?
    pub(super) fn holds(&self, key: PrefixKey) -> bool {
        let Self { places, blocks, seed, .. } = self;
        places.find(seed.hash(key), |&at| blocks[at as usize].key == key).is_some()
    }

    /// Pins a block if it is held; `depth` is its number in the chain.
    pub(super) fn pin(&mut self, key: PrefixKey, depth: u32) -> Option<Place> {
        let Self { places, blocks, seed, .. } = self;
        let at = *places.find(seed.hash(key), |&at| blocks[at as usize].key == key)?;
        if self.block(at).hold.pins() == 0 {
            self.unlink(at);
            self.block(at).newer = depth;
        }
        self.block(at).hold.0 += 1;
        Some(Place(at))
    }

    /// Adds a block that is not held, pinned once and not counted.
    pub(super) fn insert(&mut self, key: PrefixKey, depth: u32) -> Place {
        let block = Block { key, newer: depth, older: NONE, used: Tick(0), hold: Hold(1) };
        let at = self.free;
        let at = if at == NONE {
            self.blocks.push(block);
            // The index holds fewer than `u32::MAX` blocks in all.
            (self.blocks.len() - 1) as u32
        } else {
            self.free = self.block(at).older;
            *self.block(at) = block;
            at
        };
        let Self { places, blocks, seed, .. } = self;
        places.insert_unique(seed.hash(key), at, |&at| seed.hash(blocks[at as usize].key));
        Place(at)
    }

    /// Counts a block, once.
    pub(super) fn count(&mut self, Place(at): Place) {
        let hold = &mut self.block(at).hold;
        if !hold.is_counted() {
            hold.0 |= Hold::COUNTED;
            self.counted += 1;
        }
    }

    /// Is the block counted?
    pub(super) fn is_counted(&self, Place(at): Place) -> bool {
        self.blocks[at as usize].hold.is_counted()
    }

    /// Takes one pin off and says whether it was the last. Who gets `true` must list or remove
    /// the block.
    pub(super) fn unpin(&mut self, Place(at): Place) -> bool {
        let hold = &mut self.block(at).hold;
        hold.0 -= 1;
        hold.pins() == 0
    }

    /// Lists an unpinned block as the most recently used.
    pub(super) fn list_newest(&mut self, Place(at): Place, used: Tick) {
        let newest = std::mem::replace(&mut self.newest, at);
        let block = self.block(at);
        (block.older, block.newer, block.used) = (newest, NONE, used);
        match newest {
            NONE => self.coldest = at,
            newest => self.block(newest).newer = at,
        }
    }

    /// Lists an unpinned block as the least recently used; `used` if it is the only one.
    pub(super) fn list_coldest(&mut self, Place(at): Place, used: Tick) {
        let used = self.coldest_tick().unwrap_or(used);
        let coldest = std::mem::replace(&mut self.coldest, at);
        let block = self.block(at);
        (block.older, block.newer, block.used) = (NONE, coldest, used);
        match coldest {
            NONE => self.newest = at,
            coldest => self.block(coldest).older = at,
        }
    }

    /// All blocks, the least recently used first; those in flight count as the most recent, and the
    /// block before another in a chain comes after it.
    pub(super) fn coldest_first(&self) -> Vec<PrefixKey> {
        let block = |at: u32| &self.blocks[at as usize];
        let one = |at: u32| (at != NONE).then_some(at);
        let listed = std::iter::successors(one(self.coldest), |&at| one(block(at).newer));
        let mut keys: Vec<PrefixKey> = listed.map(|at| block(at).key).collect();
        let mut pinned: Vec<&Block> = self.places.iter().map(|&at| block(at)).collect();
        pinned.retain(|block| 0 < block.hold.pins());
        pinned.sort_unstable_by_key(|block| std::cmp::Reverse(block.newer));
        keys.extend(pinned.into_iter().map(|block| block.key));
        keys
    }

    /// Last use of the least recently used block; `None` if all are pinned.
    pub(super) fn coldest_tick(&self) -> Option<Tick> {
        (self.coldest != NONE).then(|| self.blocks[self.coldest as usize].used)
    }

    /// Takes the least recently used block out; `None` if all are pinned.
    pub(super) fn take_coldest(&mut self) -> Option<PrefixKey> {
        let at = self.coldest;
        if at == NONE {
            return None;
        }
        self.unlink(at);
        Some(self.remove(Place(at)))
    }

    /// Takes a block out that is neither pinned nor listed.
    pub(super) fn remove(&mut self, Place(at): Place) -> PrefixKey {
        let block = &self.blocks[at as usize];
        let (key, was_counted) = (block.key, block.hold.is_counted());
        if let Ok(entry) = self.places.find_entry(self.seed.hash(key), |&place| place == at) {
            entry.remove();
        }
        self.counted -= u64::from(was_counted);
        self.block(at).older = self.free;
        self.free = at;
        key
    }

    fn unlink(&mut self, at: u32) {
        let Block { newer, older, .. } = *self.block(at);
        match newer {
            NONE => self.newest = older,
            newer => self.block(newer).older = older,
        }
        match older {
            NONE => self.coldest = newer,
            older => self.block(older).newer = newer,
        }
    }

    fn block(&mut self, at: u32) -> &mut Block {
        &mut self.blocks[at as usize]
    }
}

#[cfg(test)]
mod tests;
