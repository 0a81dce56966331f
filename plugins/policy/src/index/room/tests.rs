use super::*;

#[test]
fn reservations_stop_at_the_bound() {
    let entries = Entries::new(10);
    assert_eq!([entries.reserve(7), entries.reserve(7), entries.reserve(1)], [7, 3, 0]);
    entries.release(2);
    assert_eq!((entries.reserve(u64::MAX), entries.used()), (2, 10));
}

#[test]
fn places_always_fit_thirty_two_bits() {
    let entries = Entries::new(u64::MAX);
    assert_eq!(entries.reserve(u64::MAX), u64::from(u32::MAX) - 1);
}

fn ends(ticks: &[Option<u32>]) -> ColdEnds {
    let ends = ColdEnds::new(ticks.len() + 1);
    for (slot, tick) in (0u16..).zip(ticks) {
        ends.set(Slot(slot), tick.map(Tick));
    }
    ends
}

fn coldest(ticks: &[Option<u32>], now: u32) -> Option<(u16, u32)> {
    let found = ends(ticks).coldest(ticks.len(), Tick(now))?;
    Some((found.slot.0, found.runner_up))
}

#[test]
fn the_coldest_worker_is_found_with_the_age_of_the_next() {
    assert_eq!(coldest(&[], 10), None);
    assert_eq!(coldest(&[None, None], 10), None);
    assert_eq!(coldest(&[None, Some(4)], 10), Some((1, 0)));
    assert_eq!(coldest(&[Some(7), Some(4), Some(5)], 10), Some((1, 5)));
    assert_eq!(coldest(&[Some(3), Some(4), Some(5)], 10), Some((0, 6)));
    assert_eq!(coldest(&[Some(5), Some(4), Some(3)], 10), Some((2, 6)));
}

#[test]
fn age_survives_the_wrap_of_the_clock() {
    assert_eq!(coldest(&[Some(u32::MAX), Some(1)], 3), Some((0, 2)));
}

#[test]
fn what_was_used_after_now_is_young() {
    assert_eq!(age(Tick(5), Tick(6)), 0);
    assert_eq!(coldest(&[Some(6), Some(4)], 5), Some((1, 0)));
}
