//! Rendezvous order: which worker is a cold prefix's home.
//!
//! Every edge of a fleet must come to the same answer, so nothing here depends on the platform: no
//! floating point, no random state. Weighted as `-weight / ln(u)` with `u` uniform in (0, 1): a
//! worker is the home of a share of the keys in proportion to its weight, and a worker that comes or
//! goes moves its own keys only.

use crate::fleet::WorkerId;
use crate::request::scramble;
use xxhash_rust::xxh3::xxh3_64;

/// Fraction bits of a logarithm: 64 whole binary digits leave 2 bits unused.
const FRACTION_BITS: u32 = 56;
const TABLE_BITS: u32 = 8;
const STEPS: usize = 1 << TABLE_BITS;
/// `LOG2[i]` = log2(1 + i / 256).
const LOG2: [u64; STEPS + 1] = log2_table();

/// Place of a worker in the rendezvous order of a home key; the highest is the key's home.
pub fn rank(home: u64, id: &WorkerId, weight: u32) -> u64 {
    Stake::new(id, weight).rank(home)
}

/// A worker's part of the hash, the same in every process, and its weight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stake {
    seed: u64,
    weight: u32,
}

impl Stake {
    pub(crate) fn new(id: &WorkerId, weight: u32) -> Self {
        Self { seed: xxh3_64(id.as_str().as_bytes()), weight: weight.max(1) }
    }

    pub(crate) fn rank(self, home: u64) -> u64 {
        self.rank_of(self.draw(scramble(home)))
    }

    /// Uniform over all keys.
    fn draw(self, scrambled_home: u64) -> u64 {
        scramble(scrambled_home ^ self.seed)
    }

    fn rank_of(self, draw: u64) -> u64 {
        u64::MAX - minus_log2(draw.max(1)) / u64::from(self.weight)
    }
}

/// Position of the highest rank among some of the stakes, the first of equals.
///
/// Ranks grow with the draw and with the weight, so a stake with no more of either than the best so
/// far is passed over without a logarithm: most are.
pub(crate) fn first(
    home: u64,
    stakes: &[Stake],
    is_member: impl Fn(usize) -> bool,
) -> Option<usize> {
    let home = scramble(home);
    let mut best: Option<(usize, u64)> = None;
    let (mut draw, mut weight) = (0, 0);
    for (at, stake) in stakes.iter().enumerate() {
        let drawn = stake.draw(home);
        if drawn <= draw && stake.weight <= weight || !is_member(at) {
            continue;
        }
        let rank = stake.rank_of(drawn);
        if best.is_none_or(|(_, highest)| highest < rank) {
            best = Some((at, rank));
            (draw, weight) = (drawn, stake.weight);
        }
    }
    best.map(|(at, _)| at)
}

/// `64 - log2(bits)`, in units of 2^-56; interpolated, within 0.3 % and monotone. `bits` above 0.
fn minus_log2(bits: u64) -> u64 {
    let whole = u64::from(63 - bits.leading_zeros());
    // The binary digits behind the leading one, left-aligned.
    let mantissa = (bits << bits.leading_zeros()) << 1;
    let step = (mantissa >> (64 - TABLE_BITS)) as usize;
    let within = mantissa << TABLE_BITS;
    let rise = u128::from(LOG2[step + 1] - LOG2[step]) * u128::from(within);
    let log = (whole << FRACTION_BITS) + LOG2[step] + (rise >> 64) as u64;
    (64 << FRACTION_BITS) - log
}

const fn log2_table() -> [u64; STEPS + 1] {
    let mut table = [0; STEPS + 1];
    let mut step = 1;
    while step < STEPS {
        table[step] = log2_fraction((STEPS + step) as u128);
        step += 1;
    }
    table[STEPS] = 1 << FRACTION_BITS;
    table
}

/// log2(`scaled` / 256) for 1 <= `scaled` / 256 < 2, digit by digit: squaring doubles a logarithm.
const fn log2_fraction(scaled: u128) -> u64 {
    let mut value = scaled << (63 - TABLE_BITS);
    let mut log = 0;
    let mut digit = FRACTION_BITS;
    while 0 < digit {
        digit -= 1;
        value = (value * value) >> 63;
        if 1 << 64 <= value {
            value >>= 1;
            log |= 1 << digit;
        }
    }
    log
}

#[cfg(test)]
mod tests;
