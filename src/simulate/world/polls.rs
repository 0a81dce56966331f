//! Each edge asks each engine for its load, again and again.

use super::super::arrivals::fraction;
use super::super::server::LoadEndpoint;
use super::Scene;
use super::agenda::{Agenda, Event};
use super::edge::Edge;
use super::engines::Engines;
use crate::config::{LoadReports, ReportChoice};
use crate::fleet::Sent;
use crate::fleet::scrape::PollOutcome;
use std::time::Duration;
use tidegate_reports::parse;

/// See the module.
pub(super) struct Polls {
    engines: usize,
    interval: Duration,
    timeout: Duration,
    /// By edge, then engine: the poll under way.
    under_way: Vec<Option<(Sent, PollOutcome)>>,
    seed: u64,
    polls: u64,
}

/// Who asks whom, and when.
pub(super) struct Asking<'a> {
    pub(super) of: &'a Edge,
    pub(super) edge: u32,
    pub(super) engine: u32,
    pub(super) now: Duration,
    pub(super) scene: &'a Scene,
}

impl Polls {
    /// The first polls come within one interval.
    pub(super) fn start(
        scene: &Scene,
        rules: &LoadReports,
        seed: u64,
        agenda: &mut Agenda,
    ) -> Self {
        const SALT: u64 = 21;
        let engines = scene.engines.len();
        let all = scene.edges.max(1) as usize * engines;
        let is_asked = scene.reports != LoadEndpoint::Absent && rules.format != ReportChoice::None;
        for (number, (edge, engine)) in (0..).zip(pairs(scene)).filter(|_| is_asked) {
            let at = rules.interval.mul_f64(fraction(seed, SALT, number));
            agenda.put(at, Event::Poll { edge, engine });
        }
        Self {
            engines,
            interval: rules.interval,
            timeout: rules.timeout,
            under_way: (0..all).map(|_| None).collect(),
            seed,
            polls: 0,
        }
    }

    /// A poll is sent, and its successor planned.
    pub(super) fn poll(&mut self, asking: &Asking<'_>, engines: &Engines, agenda: &mut Agenda) {
        const LOSS: u64 = 22;
        const JITTER: u64 = 23;
        let Asking { edge, engine, now, scene, .. } = *asking;
        self.polls += 1;
        let sent = asking.of.fleet.workers()[engine as usize].asked();
        let is_lost = fraction(self.seed, LOSS, self.polls) < scene.report_loss;
        let (outcome, delay) = if is_lost || self.timeout < scene.report_delay {
            (PollOutcome::Timeout, self.timeout)
        } else {
            let outcome = match engines.page(engine, scene.reports, now) {
                Some(page) => {
                    parse(&page, None).map_or_else(PollOutcome::Unreadable, PollOutcome::Report)
                }
                None => PollOutcome::Unreachable("connection refused".to_owned()),
            };
            (outcome, scene.report_delay)
        };
        let place = self.place(edge, engine);
        self.under_way[place] = Some((sent, outcome));
        agenda.put(now + delay, Event::Report { edge, engine });
        // As the edge does it: an interval from the sending, a tenth shorter or longer.
        let pause = self.interval.mul_f64(0.9 + 0.2 * fraction(self.seed, JITTER, self.polls));
        agenda.put(now + pause.max(delay), Event::Poll { edge, engine });
    }

    /// A poll's answer is there.
    pub(super) fn answered(&mut self, engine: u32, edge: u32, of: &Edge) {
        let place = self.place(edge, engine);
        if let Some((sent, outcome)) = self.under_way[place].take() {
            of.fleet.workers()[engine as usize].answered(sent, outcome);
        }
    }

    fn place(&self, edge: u32, engine: u32) -> usize {
        edge as usize * self.engines + engine as usize
    }
}

fn pairs(scene: &Scene) -> impl Iterator<Item = (u32, u32)> {
    let engines = 0..u32::try_from(scene.engines.len()).unwrap_or(u32::MAX);
    (0..scene.edges.max(1)).flat_map(move |edge| engines.clone().map(move |engine| (edge, engine)))
}
