//! The index against an implementation that is too simple to be wrong: every rule is a search
//! through all blocks.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    pins: u32,
    counted: bool,
    /// Larger is more recent; `None` while pinned.
    rank: Option<(u64, i64)>,
}

#[derive(Debug, Default)]
struct Worker {
    life: u64,
    /// As it started, and as it is believed by now.
    start: u64,
    capacity: f64,
    blocks: BTreeMap<PrefixKey, Block>,
}

#[derive(Debug)]
struct Flight {
    slot: Slot,
    life: u64,
    keys: Vec<PrefixKey>,
    has_first_byte: bool,
}

#[derive(Debug, Default)]
struct Model {
    max_entries: usize,
    unknown_capacity: u64,
    workers: BTreeMap<u16, Worker>,
    now: u64,
    lives: u64,
    evictions: [u64; 5],
}

impl Model {
    fn entries(&self) -> usize {
        self.workers.values().map(|worker| worker.blocks.len()).sum()
    }

    fn add(&mut self, slot: Slot) {
        self.lives += 1;
        let (life, start) = (self.lives, self.unknown_capacity);
        let worker = Worker { life, start, capacity: start as f64, ..Worker::default() };
        let before = self.workers.insert(slot.0, worker);
        assert!(before.is_none(), "a slot is given out once");
    }

    fn clear(&mut self, slot: Slot, cause: Cause) {
        self.lives += 1;
        let worker = self.workers.get_mut(&slot.0).unwrap();
        worker.life = self.lives;
        self.evictions[cause as usize] += std::mem::take(&mut worker.blocks).len() as u64;
    }

    fn credit(&mut self, slot: Slot, keys: &[PrefixKey]) -> Flight {
        let mut credited = Vec::new();
        for &key in keys {
            let Some(worker) = self.workers.get_mut(&slot.0) else {
                break;
            };
            if let Some(block) = worker.blocks.get_mut(&key) {
                block.pins += 1;
                block.rank = None;
            } else {
                if self.entries() == self.max_entries && !self.evict_coldest() {
                    self.evictions[Cause::Full as usize] += (keys.len() - credited.len()) as u64;
                    break;
                }
                let block = Block { pins: 1, ..Block::default() };
                self.workers.get_mut(&slot.0).unwrap().blocks.insert(key, block);
            }
            credited.push(key);
        }
        let life = self.workers.get(&slot.0).map_or(0, |worker| worker.life);
        Flight { slot, life, keys: credited, has_first_byte: false }
    }

    fn evict_coldest(&mut self) -> bool {
        let all = self.workers.iter().flat_map(|(&slot, worker)| {
            worker.blocks.iter().filter_map(move |(&key, block)| Some((block.rank?, slot, key)))
        });
        let Some((_, slot, key)) = all.min() else {
            return false;
        };
        self.workers.get_mut(&slot).unwrap().blocks.remove(&key);
        self.evictions[Cause::Global as usize] += 1;
        true
    }

    fn shrink(&mut self, slot: Slot) {
        let worker = self.workers.get_mut(&slot.0).unwrap();
        loop {
            let counted = worker.blocks.values().filter(|block| block.counted).count() as u64;
            let unpinned = worker.blocks.iter().filter_map(|(&key, b)| Some((b.rank?, key)));
            let Some((_, coldest)) = unpinned.min() else {
                return;
            };
            if counted <= worker.capacity as u64 {
                return;
            }
            worker.blocks.remove(&coldest);
            self.evictions[Cause::Capacity as usize] += 1;
        }
    }

    fn flying(&mut self, flight: &Flight) -> Option<&mut Worker> {
        let worker = self.workers.get_mut(&flight.slot.0)?;
        (worker.life == flight.life).then_some(worker)
    }

    fn first_byte(&mut self, flight: &mut Flight) {
        flight.has_first_byte = true;
        let Some(worker) = self.flying(flight) else {
            return;
        };
        for key in &flight.keys {
            worker.blocks.get_mut(key).unwrap().counted = true;
        }
        self.shrink(flight.slot);
    }

    fn settle(&mut self, flight: &Flight, how: How) {
        if flight.keys.is_empty() {
            return;
        }
        self.now += 1;
        let now = self.now;
        let Some(worker) = self.flying(flight) else {
            return;
        };
        let oldest = worker.blocks.values().filter_map(|block| block.rank).min();
        for (depth, key) in (0i64..).zip(&flight.keys) {
            let block = worker.blocks.get_mut(key).unwrap();
            block.pins -= 1;
            let was_counted = block.counted;
            block.counted |= how != How::Refused;
            if 0 < block.pins {
                continue;
            }
            let abandoned = how == How::Dropped && !was_counted;
            if !block.counted {
                worker.blocks.remove(key);
            } else if abandoned {
                let (tick, rank) = oldest.unwrap_or((now, 0));
                block.rank = Some((tick, rank - 1 - depth));
            } else {
                block.rank = Some((now, 1000 - depth));
            }
        }
        self.shrink(flight.slot);
    }

    fn depth(&self, slot: u16, keys: &[PrefixKey]) -> u32 {
        let blocks = &self.workers[&slot].blocks;
        keys.iter().take_while(|key| blocks.contains_key(key)).count() as u32
    }

    fn held(&self, keys: &[PrefixKey]) -> Vec<(u16, u32)> {
        let depths = self.workers.keys().map(|&slot| (slot, self.depth(slot, keys)));
        depths.filter(|&(_, depth)| 0 < depth).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Completed,
    Refused,
    Dropped,
}

#[derive(Clone, Debug)]
enum Step {
    Add,
    Remove(usize),
    Forget(usize),
    SetCapacity(usize, u64),
    /// Predicted and reported, percent of the input.
    Reported(usize, u64, u64),
    Credit(usize, Vec<bool>),
    FirstByte(usize),
    Settle(usize, How),
}

fn step() -> impl Strategy<Value = Step> {
    let how = prop_oneof![
        3 => Just(How::Completed),
        1 => Just(How::Refused),
        1 => Just(How::Dropped),
    ];
    let prompt = prop::collection::vec(prop::bool::weighted(0.3), 0..9);
    prop_oneof![
        1 => Just(Step::Add),
        1 => (0usize..8).prop_map(Step::Remove),
        1 => (0usize..8).prop_map(Step::Forget),
        2 => (0usize..8, 0u64..24).prop_map(|(at, blocks)| Step::SetCapacity(at, blocks)),
        4 => (0usize..8, 0u64..101, 0u64..101).prop_map(|(at, predicted, reported)| Step::Reported(at, predicted, reported)),
        20 => (0usize..8, prompt).prop_map(|(at, prompt)| Step::Credit(at, prompt)),
        8 => (0usize..64).prop_map(Step::FirstByte),
        16 => (0usize..64, how).prop_map(|(at, how)| Step::Settle(at, how)),
    ]
}

/// Prompts are paths in a binary tree, so that they share beginnings.
fn path(prompt: &[bool]) -> Vec<PrefixKey> {
    let mut node = 1;
    let key = |&turn: &bool| {
        node = node * 2 + u64::from(turn);
        PrefixKey(node)
    };
    prompt.iter().map(key).collect()
}

/// The index, the model, and the requests in flight at both.
struct Pair {
    index: PrefixIndex,
    model: Model,
    slots: Vec<Slot>,
    flights: Vec<(Credit, Flight)>,
    asked: BTreeSet<Vec<PrefixKey>>,
}

impl Pair {
    fn new(max_entries: usize, unknown_capacity: u64) -> Self {
        let mut pair = Self {
            index: index(max_entries as u64, unknown_capacity),
            model: Model { max_entries, unknown_capacity, ..Model::default() },
            slots: Vec::new(),
            flights: Vec::new(),
            asked: BTreeSet::new(),
        };
        pair.add();
        pair.add();
        pair
    }

    fn add(&mut self) {
        if self.slots.len() < 5 {
            let slot = self.index.add().unwrap();
            self.model.add(slot);
            self.slots.push(slot);
        }
    }

    fn slot(&self, at: usize) -> Option<Slot> {
        self.slots.get(at % self.slots.len().max(1)).copied()
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Add => self.add(),
            Step::Remove(at) => {
                if let Some(slot) = self.slot(at) {
                    self.slots.retain(|&other| other != slot);
                    self.index.remove(slot);
                    self.model.clear(slot, Cause::Removed);
                    self.model.workers.remove(&slot.0);
                }
            }
            Step::Forget(at) => {
                if let Some(slot) = self.slot(at) {
                    self.index.forget(slot);
                    self.model.clear(slot, Cause::Forgotten);
                }
            }
            Step::SetCapacity(at, blocks) => {
                if let Some(slot) = self.slot(at) {
                    self.index.set_capacity(slot, blocks);
                    let worker = self.model.workers.get_mut(&slot.0).unwrap();
                    if worker.start != blocks.max(1) {
                        worker.start = blocks.max(1);
                        worker.capacity = worker.start as f64;
                    }
                    self.model.shrink(slot);
                }
            }
            Step::Reported(at, predicted, reported) => {
                if let Some(slot) = self.slot(at) {
                    self.index.reported(slot, predicted, reported, 100);
                    let worker = self.model.workers.get_mut(&slot.0).unwrap();
                    let start = worker.start as f64;
                    let factor = 1.0 + 0.1 * (reported as f64 - predicted as f64) / 100.0;
                    let most = start * 16.0;
                    worker.capacity =
                        (worker.capacity * factor).clamp((start / 16.0).max(1.0), most);
                    self.model.shrink(slot);
                }
            }
            Step::Credit(at, prompt) => {
                if let Some(slot) = self.slot(at) {
                    let keys = path(&prompt);
                    let credit = self.index.credit(slot, &keys);
                    let flight = self.model.credit(slot, &keys);
                    assert_eq!(credit.blocks(), flight.keys.len());
                    self.flights.push((credit, flight));
                    self.asked.insert(keys);
                }
            }
            Step::FirstByte(at) => {
                let count = self.flights.len().max(1);
                if let Some((credit, flight)) = self.flights.get_mut(at % count) {
                    credit.first_byte();
                    self.model.first_byte(flight);
                }
            }
            Step::Settle(at, how) => {
                if !self.flights.is_empty() {
                    let (credit, flight) = self.flights.swap_remove(at % self.flights.len());
                    self.settle(credit, &flight, how);
                }
            }
        }
    }

    fn settle(&mut self, credit: Credit, flight: &Flight, how: How) {
        match how {
            How::Completed => credit.completed(),
            // The proxy cannot be refused by who has answered already.
            How::Refused if flight.has_first_byte => {
                drop(credit);
                return self.model.settle(flight, How::Dropped);
            }
            How::Refused => credit.refused(),
            How::Dropped => drop(credit),
        }
        self.model.settle(flight, how);
    }

    fn assert_same(&self) {
        for keys in &self.asked {
            assert_eq!(held(&self.index, keys), self.model.held(keys), "{keys:?}");
        }
        for (&slot, worker) in &self.model.workers {
            assert_eq!(self.index.capacity(Slot(slot)), Some(worker.capacity as u64));
            assert_eq!(self.index.owned(Slot(slot)), worker.blocks.len() as u64);
        }
        let stats = self.index.stats();
        assert_eq!(stats.entries, self.model.entries() as u64);
        assert_eq!(stats.evictions, self.model.evictions);
    }
}

proptest! {
    #[test]
    fn the_index_does_what_the_simple_one_does(
        max_entries in 1usize..60,
        unknown_capacity in 1u64..30,
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut pair = Pair::new(max_entries, unknown_capacity);
        for step in steps {
            pair.take(step);
            pair.assert_same();
        }
        for (credit, flight) in std::mem::take(&mut pair.flights) {
            pair.settle(credit, &flight, How::Completed);
        }
        pair.assert_same();
        assert_at_rest(&pair.index);
    }
}
