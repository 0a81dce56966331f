use super::*;

fn share() -> Share {
    Share::new(Seed(3))
}

fn listed(share: &mut Share, key: u64, used: u32) -> Place {
    let place = share.insert(PrefixKey(key), 0);
    share.count(place);
    assert!(share.unpin(place));
    share.list_newest(place, Tick(used));
    place
}

fn drain(share: &mut Share) -> Vec<u64> {
    std::iter::from_fn(|| share.take_coldest()).map(|key| key.0).collect()
}

#[test]
fn a_block_and_its_bookkeeping_are_small() {
    assert!(size_of::<Block>() <= 24);
}

#[test]
fn blocks_leave_in_the_order_of_their_use() {
    let mut share = share();
    for key in 1..=3 {
        listed(&mut share, key, key as u32);
    }
    let pinned = share.pin(PrefixKey(2), 0);
    assert_eq!(share.coldest_tick(), Some(Tick(1)));
    let place = pinned.unwrap_or(Place(NONE));
    assert!(share.unpin(place));
    share.list_newest(place, Tick(4));
    assert_eq!(drain(&mut share), [1, 3, 2]);
    assert_eq!((share.len(), share.counted(), share.coldest_tick()), (0, 0, None));
}

#[test]
fn the_cold_end_takes_its_age_from_what_lies_there() {
    let mut share = share();
    listed(&mut share, 1, 5);
    let place = share.insert(PrefixKey(2), 0);
    share.count(place);
    assert!(share.unpin(place));
    share.list_coldest(place, Tick(9));
    assert_eq!(share.coldest_tick(), Some(Tick(5)));
    assert_eq!(drain(&mut share), [2, 1]);
    listed(&mut share, 3, 10);
    assert_eq!(drain(&mut share), [3]);
}

#[test]
fn a_block_is_free_when_every_pin_is_off() {
    let mut share = share();
    let place = share.insert(PrefixKey(1), 0);
    assert_eq!(share.pin(PrefixKey(1), 0), Some(place));
    assert!(!share.unpin(place));
    assert!(share.unpin(place));
    assert!(!share.is_counted(place));
    assert_eq!(share.remove(place), PrefixKey(1));
    assert_eq!(share.pin(PrefixKey(1), 0), None);
}

#[test]
fn places_are_used_again() {
    let mut share = share();
    for round in 0..100 {
        for key in 0..8 {
            listed(&mut share, round * 8 + key, round as u32);
        }
        assert_eq!(drain(&mut share).len(), 8);
    }
    assert_eq!(share.blocks.len(), 8);
}

impl Share {
    /// Checks the bookkeeping and returns how many blocks are pinned.
    pub(in crate::index) fn assert_consistent(&self) -> usize {
        let held: Vec<&Block> = self.places.iter().map(|&at| &self.blocks[at as usize]).collect();
        let pinned = held.iter().filter(|block| 0 < block.hold.pins()).count();
        let counted = held.iter().filter(|block| block.hold.is_counted()).count();
        assert_eq!(self.counted, counted as u64);
        let mut listed = 0;
        let (mut at, mut newer) = (self.newest, NONE);
        while at != NONE {
            let block = &self.blocks[at as usize];
            assert!(block.hold.is_counted() && block.hold.pins() == 0);
            assert_eq!(block.newer, newer);
            (newer, at) = (at, block.older);
            listed += 1;
        }
        assert_eq!(self.coldest, newer);
        assert_eq!(listed + pinned, held.len());
        pinned
    }
}
