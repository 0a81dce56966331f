//! What is going to happen, by time; at one time, in the order it was put.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Something that happens at a time of its own; what it is about is looked up then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// An engine's step ends.
    Step { engine: u32 },
    /// An edge asks an engine for its load.
    Poll { edge: u32, engine: u32 },
    /// The answer is there, or is given up.
    Report { edge: u32, engine: u32 },
    /// An edge builds a snapshot.
    Publish { edge: u32 },
    /// An edge looks at what no event tells.
    Refresh { edge: u32 },
    /// An engine stops.
    Down { engine: u32 },
    /// It is there again.
    Up { engine: u32 },
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    put: u64,
}

impl Agenda {
    pub(super) fn put(&mut self, at: Duration, event: Event) {
        self.events.push(Reverse((at, self.put, event)));
        self.put += 1;
    }

    /// Takes the next event that is due by `limit`; any, without a limit.
    pub(super) fn next_before(&mut self, limit: Option<Duration>) -> Option<(Duration, Event)> {
        let Reverse((at, _, event)) = self.events.peek()?;
        if limit.is_some_and(|limit| limit < *at) {
            return None;
        }
        let next = (*at, *event);
        self.events.pop();
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_in_the_order_they_were_put() {
        let mut agenda = Agenda::default();
        let at = Duration::from_millis;
        for (time, engine) in [(5, 9), (3, 8), (5, 1), (3, 2)] {
            agenda.put(at(time), Event::Step { engine });
        }
        let mut seen = Vec::new();
        while let Some((time, event)) = agenda.next_before(Some(at(4))) {
            seen.push((time, event));
        }
        assert_eq!(seen, [(at(3), Event::Step { engine: 8 }), (at(3), Event::Step { engine: 2 })]);
        assert_eq!(agenda.next_before(None), Some((at(5), Event::Step { engine: 9 })));
    }
}
