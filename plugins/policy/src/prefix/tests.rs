#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;

fn hasher(block_bytes: u32, root: Root) -> PrefixHasher {
    PrefixHasher::new(NonZeroU32::new(block_bytes).unwrap(), root)
}

fn keys_of(block_bytes: u32, prompt: &[u8]) -> PrefixKeys {
    let mut hasher = hasher(block_bytes, Root::new("m"));
    hasher.push(prompt);
    hasher.finish()
}

/// The definition of the module's documentation, word by word.
fn by_definition(block_bytes: usize, root: u64, prompt: &[u8]) -> Vec<PrefixKey> {
    let mut last = root;
    let mut keys = Vec::new();
    for block in prompt.chunks(block_bytes) {
        let pair = [last.to_le_bytes(), xxh3_64(block).to_le_bytes()].concat();
        last = xxh3_64(&pair);
        keys.push(PrefixKey(last));
    }
    keys
}

#[test]
fn the_keys_are_those_every_edge_computes() {
    let root = Root::new("qwen3-32b").adapter(b"sql").cache_salt(b"tenant-7").extra_key(b"x");
    let mut hasher = hasher(20, root);
    hasher.push(b"system\0You answer briefly.\0user\0Why?");
    hasher.push_ids(&[1, 70_000, u32::MAX]);
    let golden = GOLDEN.map(PrefixKey);
    assert_eq!(hasher.finish().keys(), golden);
    assert_eq!(Root::new("m").key(), PrefixKey(GOLDEN_ROOT));
}

const GOLDEN_ROOT: u64 = 10464502525199220289;
const GOLDEN: [u64; 3] = [0xbc692029ea2d024, 0x7e9191eb2c9a65ab, 0xd18124422fcb1592];

#[test]
fn an_empty_prompt_has_no_keys() {
    let keys = keys_of(512, b"");
    assert_eq!((keys.keys(), keys.bytes(), keys.at_bytes(4096)), (&[][..], 0, None));
}

#[test]
fn a_partial_block_has_a_key_that_the_full_block_does_not_share() {
    let partial = keys_of(4, b"abcdef");
    let full = keys_of(4, b"abcdefgh");
    assert_eq!(partial.keys().len(), 2);
    assert_eq!(partial.keys()[0], full.keys()[0]);
    assert_ne!(partial.keys()[1], full.keys()[1]);
}

#[test]
fn a_key_stands_for_everything_before_its_block() {
    let one = keys_of(4, b"aaaabbbb");
    let other = keys_of(4, b"AAAAbbbb");
    assert_ne!(one.keys()[1], other.keys()[1]);
}

#[test]
fn bytes_are_reached_in_the_block_that_completes_them() {
    let keys = keys_of(4, b"aaaabbbbcc");
    let at = |count| keys.at_bytes(count).unwrap();
    let blocks = [0, 1, 4, 5, 8, 9, 10, 11, u64::MAX].map(at);
    let [a, b, c] = *keys.keys() else { unreachable!("three blocks") };
    assert_eq!(blocks, [a, a, a, b, b, c, c, c, c]);
}

#[test]
fn everything_that_gives_another_cache_gives_another_root() {
    let roots = [
        Root::new("m"),
        Root::new("n"),
        Root::new(""),
        Root::new("m").adapter(b""),
        Root::new("m").cache_salt(b""),
        Root::new("m").extra_key(b""),
        Root::new("m").adapter(b"a"),
        Root::new("m").cache_salt(b"a"),
        Root::new("m").extra_key(b"a"),
        Root::new("m").adapter(b"ab"),
        Root::new("m").adapter(b"a").cache_salt(b"b"),
        Root::new("m").adapter(b"b").cache_salt(b"a"),
        Root::new("ma"),
    ];
    let mut keys: Vec<_> = roots.iter().map(|root| root.key()).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), roots.len());
}

#[test]
fn the_root_reaches_every_key() {
    let mut plain = hasher(4, Root::new("m"));
    let mut salted = hasher(4, Root::new("m").cache_salt(b"s"));
    plain.push(b"aaaabbbb");
    salted.push(b"aaaabbbb");
    let (plain, salted) = (plain.finish(), salted.finish());
    assert!(plain.keys().iter().zip(salted.keys()).all(|(a, b)| a != b));
}

#[test]
fn token_ids_count_four_little_endian_bytes_each() {
    let ids: Vec<u32> = (0..1000).map(|id| id * 77_777).collect();
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    let mut hasher = hasher(512, Root::new("m"));
    hasher.push_ids(&ids);
    assert_eq!(hasher.finish(), keys_of(512, &bytes));
}

#[test]
fn keys_end_at_the_bound_and_bytes_are_still_counted() {
    let mut hasher = hasher(1, Root::new("m"));
    let chunk = [7; 1 << 16];
    for _ in 0..3 {
        hasher.push(&chunk);
    }
    hasher.push(b"x");
    let keys = hasher.finish();
    assert_eq!(keys.keys().len(), MAX_BLOCKS);
    assert_eq!(keys.bytes(), 3 * 65_536 + 1);
    assert_eq!(keys.at_bytes(u64::MAX), keys.keys().last().copied());
}

#[test]
fn a_block_larger_than_any_prompt_holds_the_whole_prompt() {
    let keys = keys_of(u32::MAX, b"short");
    assert_eq!(keys.keys().len(), 1);
    assert_eq!(keys.keys(), by_definition(5, Root::new("m").key().0, b"short"));
}

proptest! {
    #[test]
    fn any_cut_of_the_bytes_gives_the_same_keys(
        prompt in prop::collection::vec(any::<u8>(), 0..700),
        block_bytes in 1u32..80,
        cuts in prop::collection::vec(0usize..120, 0..30),
    ) {
        let mut hasher = hasher(block_bytes, Root::new("m"));
        let mut rest = prompt.as_slice();
        for cut in cuts {
            let (head, tail) = rest.split_at(cut.min(rest.len()));
            hasher.push(head);
            rest = tail;
        }
        hasher.push(rest);
        let keys = hasher.finish();
        let expected = by_definition(block_bytes as usize, Root::new("m").key().0, &prompt);
        prop_assert_eq!(keys.keys(), expected);
        prop_assert_eq!(keys.bytes(), prompt.len() as u64);
    }

    #[test]
    fn a_conversation_that_grows_keeps_its_keys(
        prompt in prop::collection::vec(any::<u8>(), 0..500),
        more in prop::collection::vec(any::<u8>(), 0..500),
        block_bytes in 1u32..80,
    ) {
        let whole_blocks = prompt.len() / block_bytes as usize;
        let before = keys_of(block_bytes, &prompt);
        let after = keys_of(block_bytes, &[prompt, more].concat());
        prop_assert_eq!(&before.keys()[..whole_blocks], &after.keys()[..whole_blocks]);
    }
}

#[test]
fn the_home_block_is_where_the_bytes_are_complete_and_a_shorter_prompt_has_none() {
    let keys = {
        let mut hasher = PrefixHasher::new(NonZeroU32::new(16).unwrap(), Root::new("m"));
        hasher.push(&[7; 40]);
        hasher.finish()
    };
    assert_eq!([0, 1, 16, 17, 40].map(|count| keys.blocks_to(count)), [1, 1, 1, 2, 3].map(Some));
    assert_eq!(keys.blocks_to(41), None);
}
