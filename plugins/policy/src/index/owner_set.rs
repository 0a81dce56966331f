//! The owners of one block, in one word or, if there are many, as a bit set.

use crate::fleet::Slot;
use smallvec::SmallVec;

/// Owners that fit into a word.
pub(super) const FEW: usize = 4;

/// At most [`FEW`] owners: sixteen bits each hold a slot plus one, from the low end; 0 is nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Few(pub(super) u64);

impl Few {
    /// No owner: what an unused place in the table holds.
    pub(super) const NOBODY: Self = Self(0);
    /// Stands for a bit set kept elsewhere. Never a list, since slots are below
    /// [`super::MAX_WORKERS`].
    pub(super) const MANY: Self = Self(u64::MAX);

    pub(super) fn iter(self) -> impl Iterator<Item = Slot> {
        (0..FEW)
            .map(move |lane| (self.0 >> (16 * lane)) as u16)
            .map_while(|lane| lane.checked_sub(1).map(Slot))
    }

    pub(super) fn contains(self, slot: Slot) -> bool {
        self.iter().any(|owner| owner == slot)
    }

    /// One more, who is none of them; `None` if the word is full.
    pub(super) fn with(self, slot: Slot) -> Option<Self> {
        let lane = self.iter().count();
        (lane < FEW).then(|| Self(self.0 | (u64::from(slot.0) + 1) << (16 * lane)))
    }

    pub(super) fn without(self, slot: Slot) -> Self {
        self.iter().filter(|&owner| owner != slot).collect()
    }
}

impl FromIterator<Slot> for Few {
    /// Takes the first [`FEW`].
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> Self {
        slots.into_iter().fold(Self::NOBODY, |few, slot| few.with(slot).unwrap_or(few))
    }
}

/// Any number of owners: bit `slot % 64` of word `slot / 64`; a fleet of 256 in place. In the
/// index it is changed by replacing it, so that readers need no lock.
#[derive(Clone, Debug, Default)]
pub(super) struct Bits {
    words: SmallVec<[u64; 4]>,
}

impl Bits {
    pub(super) fn contains(&self, slot: Slot) -> bool {
        let word = self.words.get(usize::from(slot.0 / 64)).copied().unwrap_or(0);
        word >> (slot.0 % 64) & 1 == 1
    }

    pub(super) fn insert(&mut self, slot: Slot) {
        let at = usize::from(slot.0 / 64);
        if self.words.len() <= at {
            self.words.resize(at + 1, 0);
        }
        self.words[at] |= 1 << (slot.0 % 64);
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        if let Some(word) = self.words.get_mut(usize::from(slot.0 / 64)) {
            *word &= !(1 << (slot.0 % 64));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    pub(super) fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Slot> {
        (0u16..).zip(&self.words).flat_map(|(at, &word)| {
            let lowest_off = |word: &u64| Some(word & word.wrapping_sub(1));
            std::iter::successors(Some(word), lowest_off)
                .take_while(|&word| word != 0)
                .map(move |word| Slot(at * 64 + word.trailing_zeros() as u16))
        })
    }

    /// Those who own a block too.
    pub(super) fn who_own(&self, owners: Owners<'_>) -> Self {
        match owners {
            Owners::Few(few) => few.iter().filter(|&slot| self.contains(slot)).collect(),
            Owners::Many(bits) => {
                Self { words: self.words.iter().zip(&bits.words).map(|(a, b)| a & b).collect() }
            }
        }
    }

    pub(super) fn subtract(&mut self, others: &Self) {
        for (word, other) in self.words.iter_mut().zip(&others.words) {
            *word &= !other;
        }
    }
}

impl FromIterator<Slot> for Bits {
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> Self {
        let mut bits = Self::default();
        slots.into_iter().for_each(|slot| bits.insert(slot));
        bits
    }
}

/// What a reader sees.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owners<'a> {
    Few(Few),
    Many(&'a Bits),
}

impl Owners<'_> {
    pub(super) fn to_bits(self) -> Bits {
        match self {
            Self::Few(few) => few.iter().collect(),
            Self::Many(bits) => bits.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
