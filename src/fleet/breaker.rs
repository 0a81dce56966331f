//! When a failing worker is left alone.
//!
//! A pure state machine; time is data. Requests dispatched before a transition have no say after
//! it: each [`Ticket`] carries the period it was taken in, so that a stream that began in better
//! days neither closes nor opens anything.

use super::clock::after;
use crate::config;
use std::time::Duration;
use tidegate_policy::fleet::Millis;

/// What is shown of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Lets everything through.
    Closed,
    /// Lets nothing through.
    Open,
    /// Lets one request through, whose outcome decides.
    HalfOpen,
}

impl BreakerState {
    /// The word of `/v1/workers`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }

    /// The number of `tidegate_breaker_state`.
    pub const fn number(self) -> i64 {
        match self {
            Self::Closed => 0,
            Self::Open => 1,
            Self::HalfOpen => 2,
        }
    }
}

/// What one request says about its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It served.
    Success,
    /// It is broken: transport error, timeout, 5xx other than 503 and 529.
    Failure,
    /// It answered 503; neutral, unless it never answers anything else.
    Unavailable,
    /// It answered something that says neither: 4xx, 529.
    Answered,
    /// It had no chance to answer: the client left.
    Nothing,
}

/// Permission for one request, to be handed back to [`Breaker::book`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    period: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed { failures: u32 },
    Open { until: Millis, good_probes: u32 },
    HalfOpen { probing: bool },
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Breaker {
    settings: config::Breaker,
    /// Good health probes in a row that end the cool-down.
    rise: u32,
    state: State,
    /// Counts transitions.
    period: u64,
    /// First of a row of 503s with no other answer between; outlives transitions, so that a probe
    /// that meets the same 503 opens again at once.
    wedged_since: Option<Millis>,
}

impl Breaker {
    /// Closed.
    pub fn new(settings: config::Breaker, rise: u32) -> Self {
        let state = State::Closed { failures: 0 };
        Self { settings, rise, state, period: 0, wedged_since: None }
    }

    /// Other settings from now on; a cool-down that runs ends when it would have.
    pub fn set(&mut self, settings: config::Breaker, rise: u32) {
        (self.settings, self.rise) = (settings, rise);
    }

    /// The state at `now`; an open breaker whose cool-down is over counts as half-open.
    pub fn state(&self, now: Millis) -> BreakerState {
        match self.state {
            State::Closed { .. } => BreakerState::Closed,
            State::Open { until, .. } if now < until => BreakerState::Open,
            State::Open { .. } | State::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// Would a request be let through?
    pub fn admits(&self, now: Millis) -> bool {
        match self.state {
            State::Closed { .. } => true,
            State::Open { until, .. } => until <= now,
            State::HalfOpen { probing } => !probing,
        }
    }

    /// How long it lets nobody through; `None`: it does now, or that depends on a request.
    pub fn admits_in(&self, now: Millis) -> Option<Duration> {
        match self.state {
            State::Open { until, .. } if now < until => {
                Some(Duration::from_millis(until.0 - now.0))
            }
            State::Closed { .. } | State::Open { .. } | State::HalfOpen { .. } => None,
        }
    }

    /// Lets a request through, or not. Half-open, this takes the only probe.
    pub fn take(&mut self, now: Millis) -> Option<Ticket> {
        if !self.admits(now) {
            return None;
        }
        match self.state {
            State::Closed { .. } => {}
            State::Open { .. } => self.enter(State::HalfOpen { probing: true }),
            State::HalfOpen { .. } => self.state = State::HalfOpen { probing: true },
        }
        Some(Ticket { period: self.period })
    }

    /// Books how a request ended. A half-open probe that says nothing frees the probe again.
    pub fn book(&mut self, now: Millis, ticket: Ticket, verdict: Verdict) {
        let wedged = self.watch_503(now, verdict);
        if ticket.period != self.period {
            return;
        }
        match (self.state, verdict) {
            (State::Open { .. }, _) => {}
            (_, Verdict::Success) => self.close(),
            (_, Verdict::Unavailable) if wedged => self.open(now),
            (State::Closed { failures }, Verdict::Failure) => {
                let failures = failures.saturating_add(1);
                self.state = State::Closed { failures };
                if self.settings.threshold.get() <= failures {
                    self.open(now);
                }
            }
            (State::HalfOpen { .. }, Verdict::Failure) => self.open(now),
            (State::Closed { .. }, Verdict::Unavailable | Verdict::Answered | Verdict::Nothing) => {
            }
            (
                State::HalfOpen { .. },
                Verdict::Unavailable | Verdict::Answered | Verdict::Nothing,
            ) => {
                self.state = State::HalfOpen { probing: false };
            }
        }
    }

    /// Books a health probe; enough good ones in a row end the cool-down early.
    pub fn probed(&mut self, now: Millis, good: bool) {
        let State::Open { until, good_probes } = self.state else {
            return;
        };
        if until <= now {
            return;
        }
        let good_probes = if good { good_probes.saturating_add(1) } else { 0 };
        self.state = State::Open { until, good_probes };
        if self.rise <= good_probes {
            self.enter(State::HalfOpen { probing: false });
        }
    }

    /// Keeps the start of the present row of 503s; true when that row is long enough.
    fn watch_503(&mut self, now: Millis, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Unavailable => {
                let since = *self.wedged_since.get_or_insert(now);
                after(since, self.settings.wedged_after) <= now
            }
            Verdict::Nothing => false,
            Verdict::Success | Verdict::Failure | Verdict::Answered => {
                self.wedged_since = None;
                false
            }
        }
    }

    fn close(&mut self) {
        match self.state {
            State::Closed { .. } => self.state = State::Closed { failures: 0 },
            State::Open { .. } | State::HalfOpen { .. } => {
                self.enter(State::Closed { failures: 0 })
            }
        }
    }

    fn open(&mut self, now: Millis) {
        let until = after(now, self.settings.cool_down);
        self.enter(State::Open { until, good_probes: 0 });
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.period += 1;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use proptest::prelude::*;
    use std::num::NonZeroU32;

    const COOL_DOWN: u64 = 30_000;
    const WEDGED: u64 = 60_000;

    fn breaker() -> Breaker {
        let settings = config::Breaker {
            threshold: NonZeroU32::new(3).unwrap(),
            cool_down: Duration::from_millis(COOL_DOWN),
            wedged_after: Duration::from_millis(WEDGED),
        };
        Breaker::new(settings, 2)
    }

    fn request(breaker: &mut Breaker, at: u64, verdict: Verdict) {
        let ticket = breaker.take(Millis(at)).expect("lets a request through");
        breaker.book(Millis(at), ticket, verdict);
    }

    fn opened() -> Breaker {
        let mut breaker = breaker();
        for _ in 0..3 {
            request(&mut breaker, 0, Verdict::Failure);
        }
        breaker
    }

    #[test]
    fn it_opens_at_the_threshold_and_not_one_failure_earlier() {
        let mut breaker = breaker();
        request(&mut breaker, 0, Verdict::Failure);
        request(&mut breaker, 0, Verdict::Failure);
        assert_eq!(breaker.state(Millis(0)), BreakerState::Closed);
        request(&mut breaker, 0, Verdict::Failure);
        assert_eq!(breaker.state(Millis(0)), BreakerState::Open);
        assert!(breaker.take(Millis(COOL_DOWN - 1)).is_none());
    }

    #[test]
    fn a_success_resets_the_streak_and_an_answer_does_not() {
        let mut breaker = breaker();
        for verdict in [Verdict::Failure, Verdict::Failure, Verdict::Success, Verdict::Failure] {
            request(&mut breaker, 0, verdict);
        }
        for verdict in [Verdict::Answered, Verdict::Unavailable, Verdict::Nothing, Verdict::Failure]
        {
            request(&mut breaker, 0, verdict);
        }
        assert_eq!(breaker.state(Millis(0)), BreakerState::Closed);
        request(&mut breaker, 0, Verdict::Failure);
        assert_eq!(breaker.state(Millis(0)), BreakerState::Open);
    }

    #[test]
    fn after_the_cool_down_one_probe_passes_and_its_success_closes() {
        let mut breaker = opened();
        let probe = breaker.take(Millis(COOL_DOWN)).expect("the cool-down is over");
        assert!(breaker.take(Millis(COOL_DOWN)).is_none());
        assert!(!breaker.admits(Millis(10 * COOL_DOWN)));
        breaker.book(Millis(COOL_DOWN), probe, Verdict::Success);
        assert_eq!(breaker.state(Millis(COOL_DOWN)), BreakerState::Closed);
    }

    #[test]
    fn a_failed_probe_opens_for_another_cool_down() {
        let mut breaker = opened();
        request(&mut breaker, COOL_DOWN, Verdict::Failure);
        assert!(!breaker.admits(Millis(2 * COOL_DOWN - 1)));
        assert!(breaker.admits(Millis(2 * COOL_DOWN)));
    }

    #[test]
    fn a_neutral_probe_frees_the_probe_and_leaves_it_half_open() {
        for verdict in [Verdict::Answered, Verdict::Unavailable, Verdict::Nothing] {
            let mut breaker = opened();
            request(&mut breaker, COOL_DOWN, verdict);
            assert_eq!(breaker.state(Millis(COOL_DOWN)), BreakerState::HalfOpen);
            assert!(breaker.admits(Millis(COOL_DOWN)));
        }
    }

    #[test]
    fn requests_from_before_a_transition_have_no_say_after_it() {
        let mut breaker = breaker();
        let old = breaker.take(Millis(0)).unwrap();
        for _ in 0..3 {
            request(&mut breaker, 0, Verdict::Failure);
        }
        breaker.book(Millis(1), old, Verdict::Success);
        assert_eq!(breaker.state(Millis(1)), BreakerState::Open);
        let probe = breaker.take(Millis(COOL_DOWN)).unwrap();
        breaker.book(Millis(COOL_DOWN), old, Verdict::Failure);
        breaker.book(Millis(COOL_DOWN), old, Verdict::Nothing);
        assert!(!breaker.admits(Millis(COOL_DOWN)), "the probe is still out");
        breaker.book(Millis(COOL_DOWN), probe, Verdict::Success);
        assert_eq!(breaker.state(Millis(COOL_DOWN)), BreakerState::Closed);
    }

    #[test]
    fn enough_good_health_probes_in_a_row_end_the_cool_down() {
        let mut breaker = opened();
        for good in [true, false, true] {
            breaker.probed(Millis(1), good);
        }
        assert_eq!(breaker.state(Millis(1)), BreakerState::Open);
        breaker.probed(Millis(1), true);
        assert_eq!(breaker.state(Millis(1)), BreakerState::HalfOpen);
    }

    #[test]
    fn only_503_for_long_enough_opens_and_keeps_opening() {
        let mut breaker = breaker();
        request(&mut breaker, 0, Verdict::Unavailable);
        request(&mut breaker, WEDGED - 1, Verdict::Unavailable);
        assert_eq!(breaker.state(Millis(WEDGED - 1)), BreakerState::Closed);
        request(&mut breaker, WEDGED, Verdict::Unavailable);
        assert_eq!(breaker.state(Millis(WEDGED)), BreakerState::Open);
        request(&mut breaker, WEDGED + COOL_DOWN, Verdict::Unavailable);
        assert_eq!(breaker.state(Millis(WEDGED + COOL_DOWN)), BreakerState::Open);
    }

    #[test]
    fn any_other_answer_starts_the_row_of_503s_again() {
        for verdict in [Verdict::Success, Verdict::Answered, Verdict::Failure] {
            let mut breaker = breaker();
            request(&mut breaker, 0, Verdict::Unavailable);
            request(&mut breaker, 10, verdict);
            request(&mut breaker, WEDGED, Verdict::Unavailable);
            assert_eq!(breaker.state(Millis(WEDGED)), BreakerState::Closed);
        }
        let mut breaker = breaker();
        request(&mut breaker, 0, Verdict::Unavailable);
        request(&mut breaker, 10, Verdict::Nothing);
        request(&mut breaker, WEDGED, Verdict::Unavailable);
        assert_eq!(
            breaker.state(Millis(WEDGED)),
            BreakerState::Open,
            "a client that left is no answer"
        );
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Take,
        Book(usize, Verdict),
        Probe(bool),
        Wait(u64),
    }

    fn verdict() -> impl Strategy<Value = Verdict> {
        prop_oneof![
            Just(Verdict::Success),
            Just(Verdict::Failure),
            Just(Verdict::Unavailable),
            Just(Verdict::Answered),
            Just(Verdict::Nothing),
        ]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => Just(Step::Take),
            3 => (any::<usize>(), verdict()).prop_map(|(at, verdict)| Step::Book(at, verdict)),
            1 => any::<bool>().prop_map(Step::Probe),
            1 => (0..20_000u64).prop_map(Step::Wait),
        ]
    }

    proptest! {
        /// Whatever happens: half-open lets one through at a time, it never stays shut once
        /// nothing is in flight and the cool-down is over.
        #[test]
        fn it_never_locks_a_worker_out_for_good(steps in prop::collection::vec(step(), 0..200)) {
            let mut breaker = breaker();
            let mut now = 0;
            let mut out: Vec<Ticket> = Vec::new();
            for step in steps {
                match step {
                    Step::Take => {
                        let half_open = breaker.state(Millis(now)) == BreakerState::HalfOpen;
                        if let Some(ticket) = breaker.take(Millis(now)) {
                            prop_assert!(!half_open || !out.contains(&ticket), "two probes at once");
                            out.push(ticket);
                        }
                    }
                    Step::Book(at, verdict) if !out.is_empty() => {
                        let ticket = out.swap_remove(at % out.len());
                        breaker.book(Millis(now), ticket, verdict);
                    }
                    Step::Book(..) => {}
                    Step::Probe(good) => breaker.probed(Millis(now), good),
                    Step::Wait(ms) => now += ms,
                }
            }
            for ticket in out.drain(..) {
                breaker.book(Millis(now), ticket, Verdict::Nothing);
            }
            prop_assert!(breaker.admits(Millis(now + COOL_DOWN)));
        }

        /// Client errors and busy engines alone never change anything.
        #[test]
        fn neutral_answers_never_open_it(count in 1..300u64) {
            let mut breaker = breaker();
            for at in 0..count {
                request(&mut breaker, at * 1_000, Verdict::Answered);
            }
            prop_assert_eq!(breaker.state(Millis(count * 1_000)), BreakerState::Closed);
        }
    }
}
