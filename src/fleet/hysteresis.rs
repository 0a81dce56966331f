//! When probes change a worker's health: not at one slow answer, and not at one lucky one.

use crate::config;
use std::num::NonZeroU32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Never seen well; its first good probe suffices.
    New,
    /// The same, but nobody else can serve its model: well until a probe says otherwise.
    Trusted,
    Up {
        failures: u32,
    },
    Down {
        successes: u32,
    },
}

/// What a probe changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing.
    None,
    /// The first good probe of a new worker.
    Started,
    /// It was well and is not.
    WentDown,
    /// It was not well and is again.
    CameBack,
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hysteresis {
    fall: NonZeroU32,
    rise: NonZeroU32,
    state: State,
}

impl Hysteresis {
    /// A new worker; well at once if nobody probes it.
    pub(super) fn new(settings: &config::Health) -> Self {
        let state = if settings.enabled { State::New } else { State::Up { failures: 0 } };
        Self { fall: settings.fall, rise: settings.rise, state }
    }

    /// Other settings from now on. Who is well stays so until probes say otherwise; one that waited
    /// for its first probe is well once nobody probes.
    pub(super) fn set(&mut self, settings: &config::Health) {
        (self.fall, self.rise) = (settings.fall, settings.rise);
        if !settings.enabled {
            self.state = State::Up { failures: 0 };
        }
    }

    /// A new worker counts as well until its first probe.
    pub(super) fn trust(&mut self) {
        match self.state {
            State::New => self.state = State::Trusted,
            State::Trusted | State::Up { .. } | State::Down { .. } => {}
        }
    }

    pub(super) fn is_well(&self) -> bool {
        match self.state {
            State::Up { .. } | State::Trusted => true,
            State::New | State::Down { .. } => false,
        }
    }

    pub(super) fn probed(&mut self, good: bool) -> Change {
        let (state, change) = match (self.state, good) {
            (State::New | State::Trusted, false) => (State::New, Change::None),
            (State::New | State::Trusted, true) => (State::Up { failures: 0 }, Change::Started),
            (State::Up { .. }, true) => (State::Up { failures: 0 }, Change::None),
            (State::Up { failures }, false) if self.fall.get() <= failures + 1 => {
                (State::Down { successes: 0 }, Change::WentDown)
            }
            (State::Up { failures }, false) => (State::Up { failures: failures + 1 }, Change::None),
            (State::Down { .. }, false) => (State::Down { successes: 0 }, Change::None),
            (State::Down { successes }, true) if self.rise.get() <= successes + 1 => {
                (State::Up { failures: 0 }, Change::CameBack)
            }
            (State::Down { successes }, true) => {
                (State::Down { successes: successes + 1 }, Change::None)
            }
        };
        self.state = state;
        change
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    fn settings(enabled: bool) -> config::Health {
        config::Health {
            enabled,
            path: "/health".into(),
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            fall: NonZeroU32::new(3).unwrap(),
            rise: NonZeroU32::new(2).unwrap(),
        }
    }

    #[test]
    fn three_slow_answers_in_a_row_take_it_out_and_two_good_ones_bring_it_back() {
        let mut health = Hysteresis::new(&settings(true));
        let script = [true, false, true, false, false, true, false, false, false, true, true, true];
        let changes: Vec<Change> = script.into_iter().map(|good| health.probed(good)).collect();
        assert_eq!(changes[0], Change::Started);
        assert_eq!(changes[8], Change::WentDown);
        assert_eq!(changes[10], Change::CameBack);
        let others = changes.iter().enumerate().filter(|(at, _)| ![0, 8, 10].contains(at));
        assert!(others.into_iter().all(|(_, change)| *change == Change::None));
    }

    #[test]
    fn a_new_worker_waits_for_its_first_good_probe_only() {
        let mut health = Hysteresis::new(&settings(true));
        for _ in 0..10 {
            assert_eq!(health.probed(false), Change::None);
            assert!(!health.is_well());
        }
        assert_eq!(health.probed(true), Change::Started);
        assert!(health.is_well());
    }

    #[test]
    fn trust_in_a_new_worker_lasts_until_its_first_probe() {
        for good in [false, true] {
            let mut health = Hysteresis::new(&settings(true));
            health.trust();
            assert!(health.is_well());
            assert_eq!(health.probed(good) == Change::Started, good);
            assert_eq!(health.is_well(), good);
        }
    }

    #[test]
    fn a_worker_nobody_probes_is_well() {
        assert!(Hysteresis::new(&settings(false)).is_well());
    }
}
