//! Finding a byte that is probably near.
//!
//! `memchr` is the fastest way through a long stretch and a slow one through a short stretch.
//! Prompts full of code have an escape every few bytes, so the first bytes are looked at a word
//! at a time. Measured on code: half the time of `memchr` alone.

use memchr::{memchr, memchr2};

/// Bytes looked at before a stretch counts as long.
pub(super) const BLOCK: usize = 32;

/// Where `needle` first is.
#[inline]
pub(super) fn find(needle: u8, haystack: &[u8]) -> Option<usize> {
    find_by(haystack, |word| found_in(needle, word), |rest| memchr(needle, rest))
}

/// Where the first of two needles is.
#[inline]
pub(super) fn find2(one: u8, other: u8, haystack: &[u8]) -> Option<usize> {
    let near = |word| found_in(one, word) | found_in(other, word);
    find_by(haystack, near, |rest| memchr2(one, other, rest))
}

#[inline]
fn find_by(
    haystack: &[u8],
    near: impl Fn([u8; 8]) -> u64,
    far: impl FnOnce(&[u8]) -> Option<usize>,
) -> Option<usize> {
    let mut rest = haystack;
    let mut passed = 0;
    while passed < BLOCK
        && let Some((word, behind)) = rest.split_first_chunk()
    {
        let found = near(*word);
        if found != 0 {
            return Some(passed + (found.trailing_zeros() / 8) as usize);
        }
        (rest, passed) = (behind, passed + 8);
    }
    far(rest).map(|at| passed + at)
}

/// How many bytes of a block are in front of the first `needle`; all of them if there is none.
#[inline]
pub(super) fn before(needle: u8, block: &[u8; BLOCK]) -> usize {
    let (words, _) = block.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let found = found_in(needle, *word);
        if found != 0 {
            return 8 * at + (found.trailing_zeros() / 8) as usize;
        }
    }
    BLOCK
}

/// The lowest bit that is set is the high bit of the first byte that is `needle`; those above it
/// mean nothing.
#[inline]
fn found_in(needle: u8, word: [u8; 8]) -> u64 {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let zero_where_found = u64::from_le_bytes(word) ^ (LOW * u64::from(needle));
    // The borrow may set the high bits of bytes above the first.
    zero_where_found.wrapping_sub(LOW) & !zero_where_found & HIGH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_what_memchr_finds() {
        let mut haystack = [b'a'; 100];
        for length in 0..haystack.len() {
            for at in 0..length {
                haystack[at] = b'x';
                // A byte that differs in its lowest bit, where a borrow would show.
                haystack[at + 1] = b'x' ^ 1;
                assert_eq!(find(b'x', &haystack[..length]), Some(at));
                haystack[at..at + 2].fill(b'a');
            }
            assert_eq!(find(b'x', &haystack[..length]), None);
            assert_eq!(find(0, &haystack[..length]), None);
        }
    }

    #[test]
    fn of_several_it_finds_the_first() {
        for first in 0..40 {
            for second in first..40 {
                let mut haystack = [b'a'; 40];
                haystack[first] = b'\\';
                haystack[second] = b'\\';
                assert_eq!(find(b'\\', &haystack), Some(first));
                haystack[second] = b'"';
                haystack[first] = b'\\';
                assert_eq!(find2(b'"', b'\\', &haystack), Some(first));
                assert_eq!(find2(b'\\', b'"', &haystack[..first]), None);
            }
        }
    }
}
