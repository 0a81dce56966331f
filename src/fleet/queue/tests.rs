#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use futures_util::FutureExt;
use proptest::prelude::*;
use std::net::Ipv4Addr;

fn client(number: u8) -> Client {
    Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, number)))
}

fn is_called(place: &Place) -> bool {
    place.called().now_or_never().is_some()
}

/// Who is called, one after the other, if each leaves at once; as positions in `places`.
fn order(places: Vec<Place>) -> Vec<usize> {
    let mut left: Vec<Option<Place>> = places.into_iter().map(Some).collect();
    let mut order = Vec::new();
    while let Some(at) = left.iter().position(|place| place.as_ref().is_some_and(is_called)) {
        order.push(at);
        left[at].take().unwrap().taken();
    }
    assert_eq!(order.len(), left.len(), "somebody was never called");
    order
}

#[test]
fn clients_take_turns_and_each_clients_requests_keep_their_order() {
    let queue = Arc::<Queue>::default();
    let clients = [1, 1, 1, 1, 2, 2, 3];
    let places = clients.map(|number| queue.join(client(number), 100).unwrap());
    // The first was called before anybody else was there.
    assert_eq!(order(places.into()), [0, 1, 4, 6, 2, 5, 3]);
    assert!(queue.is_empty());
}

#[test]
fn one_is_called_at_a_time_and_the_next_when_it_leaves() {
    let queue = Arc::<Queue>::default();
    let first = queue.join(client(1), 2).unwrap();
    let second = queue.join(client(2), 2).unwrap();
    assert!(is_called(&first) && !is_called(&second));
    assert!(queue.join(client(3), 2).is_none(), "no more than two");
    drop(first);
    assert!(is_called(&second));
}

#[test]
fn who_leaves_uncalled_is_called_no_more() {
    let queue = Arc::<Queue>::default();
    let first = queue.join(client(1), 9).unwrap();
    let second = queue.join(client(2), 9).unwrap();
    let third = queue.join(client(3), 9).unwrap();
    assert!(is_called(&first));
    drop(second);
    drop(first);
    assert!(is_called(&third));
    drop(third);
    assert!(queue.is_empty());
    assert!(queue.line.lock().clients.is_empty() && queue.line.lock().turns.is_empty());
}

#[test]
fn who_was_called_stays_called() {
    let queue = Arc::<Queue>::default();
    let first = queue.join(client(1), 9).unwrap();
    assert!(is_called(&first) && is_called(&first));
}

#[test]
fn a_change_before_the_called_one_waits_is_not_lost() {
    let queue = Arc::<Queue>::default();
    let first = queue.join(client(1), 9).unwrap();
    queue.changed();
    assert!(first.changed().now_or_never().is_some());
    assert!(first.changed().now_or_never().is_none());
}

#[test]
fn an_expected_wait_is_bounded_and_grows_with_the_line() {
    let queue = Arc::<Queue>::default();
    assert_eq!(queue.expected_wait(Duration::from_secs(9)), Duration::from_secs(9));
    assert_eq!(queue.expected_wait(Duration::ZERO), SHORTEST);
    assert_eq!(queue.expected_wait(Duration::from_secs(900)), LONGEST);
    {
        let mut line = queue.line.lock();
        (line.pace_from, line.interval) = (Some(Instant::now()), Some(2.0));
    }
    let places: Vec<_> = (0..4).map(|number| queue.join(client(number), 9).unwrap()).collect();
    assert!(Duration::from_secs(8) <= queue.expected_wait(Duration::ZERO));
    drop(places);
}

/// The order of turns as one would write it down: whoever has any waiting, in the order of their turns,
/// and each one's in the order they came.
#[derive(Default)]
struct Written(Vec<(Client, Vec<usize>)>);

impl Written {
    fn join(&mut self, client: Client, name: usize) {
        match self.0.iter_mut().find(|(of, _)| *of == client) {
            Some((_, names)) => names.push(name),
            None => self.0.push((client, vec![name])),
        }
    }

    fn leave(&mut self, name: usize) {
        self.0.iter_mut().for_each(|(_, names)| names.retain(|other| *other != name));
        self.0.retain(|(_, names)| !names.is_empty());
    }

    fn call(&mut self) -> Option<usize> {
        if self.0.is_empty() {
            return None;
        }
        let (client, mut names) = self.0.remove(0);
        let name = names.remove(0);
        if !names.is_empty() {
            self.0.push((client, names));
        }
        Some(name)
    }
}

proptest! {
    /// Whoever comes and leaves, called or in the middle of the line: the turns are those of the list.
    #[test]
    fn turns_are_kept_whoever_leaves(steps in prop::collection::vec((0..3_u8, any::<u8>()), 0..200)) {
        let queue = Arc::<Queue>::default();
        let (mut written, mut called) = (Written::default(), None);
        let mut places: Vec<(usize, Place)> = Vec::new();
        for (name, (step, number)) in steps.into_iter().enumerate() {
            if step < 2 {
                places.push((name, queue.join(client(number % 4), 300).unwrap()));
                written.join(client(number % 4), name);
            } else if !places.is_empty() {
                let (name, place) = places.swap_remove(usize::from(number) % places.len());
                drop(place);
                written.leave(name);
                called = called.filter(|called| *called != name);
            }
            called = called.or_else(|| written.call());
            let found = places.iter().find(|(_, place)| is_called(place)).map(|(name, _)| *name);
            prop_assert_eq!(found, called);
        }
    }

    /// Whoever comes and leaves in whatever order: while anybody waits, one is called, and nothing
    /// is left of who left.
    #[test]
    fn somebody_is_always_called(steps in prop::collection::vec((any::<bool>(), any::<u8>()), 0..200)) {
        let queue = Arc::<Queue>::default();
        let mut places: Vec<(Place, bool)> = Vec::new();
        for (joins, number) in steps {
            if joins {
                let place = queue.join(client(number % 5), 16);
                prop_assert_eq!(place.is_some(), places.len() < 16);
                places.extend(place.map(|place| (place, false)));
            } else if !places.is_empty() {
                drop(places.swap_remove(usize::from(number) % places.len()));
            }
            for (place, called) in &mut places {
                *called |= is_called(place);
            }
            let called = places.iter().filter(|(_, called)| *called).count();
            prop_assert_eq!(called, usize::from(!places.is_empty()));
            prop_assert_eq!(queue.waiting(), places.len());
        }
        places.clear();
        prop_assert!(queue.line.lock().clients.is_empty() && queue.line.lock().turns.is_empty());
    }
}
