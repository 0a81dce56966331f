//! A fleet and its edges in virtual time: engines as the demo has them, in front of them the edge's
//! own tables, index, ledgers, report reading and decisions, with a clock that is set by hand.
//!
//! Invariants: events happen in the order of their times, and of their making at one time, so equal
//! inputs and seeds give equal outputs. One world is one thread. Deliberately absent: the network
//! between edge and engine, time the edge itself takes, and health probes: an engine that is down
//! is found out by refused requests, and left alone by the breaker.

mod agenda;
mod edge;
mod engines;
mod open;
mod polls;

use super::arrivals::fraction;
use super::engine::{EngineConfig, EngineConfigError, JobId, Progress};
use super::figures::{Run, Sample};
use super::server::LoadEndpoint;
use super::trace::TraceRequest;
use crate::config::{Config, Policy};
use crate::metrics::Outcome;
use agenda::{Agenda, Event};
use edge::Edge;
use engines::{EngineAt, Engines};
use open::{Open, Sendable};
use polls::Polls;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use thiserror::Error;
use tidegate_policy::ledger::Streaming;

/// What there is besides the rules, and what happens to it.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The engines, one for each worker of the model.
    pub engines: Vec<EngineConfig>,
    /// Edges that share the traffic and know nothing of each other.
    pub edges: u32,
    /// What engines answer to a poll.
    pub reports: LoadEndpoint,
    /// From a poll to its answer, which tells of the moment of the poll.
    pub report_delay: Duration,
    /// Share of the polls without an answer.
    pub report_loss: f64,
    /// Share of the requests that are not streamed.
    pub unstreamed: f64,
    /// Prompt bytes of a token; the edge begins with 4 and learns.
    pub bytes_per_token: u32,
    /// When engines are down.
    pub outages: Vec<Outage>,
}

/// An engine stops with all it has, and starts again empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Counted from 0.
    pub engine: u32,
    /// When it stops.
    pub at: Duration,
    /// When it is there again.
    pub until: Duration,
}

/// Why a world cannot be.
#[derive(Debug, Error)]
pub enum WorldError {
    /// An engine's numbers.
    #[error(transparent)]
    Engine(#[from] EngineConfigError),
    /// Not one engine for each worker.
    #[error("{engines} engines for {workers} workers")]
    Workers {
        /// Engines of the scene.
        engines: usize,
        /// Workers of the model.
        workers: usize,
    },
    /// Something happens to an engine that is not there.
    #[error("there is no engine {engine}: the last of {engines} is {last}", last = engines.saturating_sub(1))]
    NoEngine {
        /// Which, counted from 0.
        engine: u32,
        /// How many there are.
        engines: usize,
    },
    /// Its rules are not simulated.
    #[error("policy `learned` routes over layer shards, which are not simulated")]
    Learned,
    /// A fault of the edge.
    #[error(transparent)]
    Metrics(#[from] prometheus::Error),
}

/// Runs the arrivals under the configuration's only model until every request has its answer.
///
/// # Errors
/// [`WorldError`].
pub fn run(
    scene: &Scene,
    config: &Config,
    arrivals: &[TraceRequest],
    seed: u64,
) -> Result<Run, WorldError> {
    // Dice of decisions are drawn from the thread's generator.
    fastrand::seed(seed);
    let mut world = World::new(scene, config, arrivals, seed)?;
    world.run();
    Ok(world.run_ended())
}

struct World<'a> {
    scene: &'a Scene,
    arrivals: &'a [TraceRequest],
    seed: u64,
    clock: Arc<AtomicU64>,
    now: Duration,
    agenda: Agenda,
    edges: Vec<Edge>,
    engines: Engines,
    polls: Polls,
    /// By arrival.
    open: Vec<Option<Box<Open>>>,
    still_open: usize,
    told: Vec<(JobId, Progress)>,
    run: Run,
}

impl<'a> World<'a> {
    fn new(
        scene: &'a Scene,
        config: &Config,
        arrivals: &'a [TraceRequest],
        seed: u64,
    ) -> Result<Self, WorldError> {
        let clock = Arc::new(AtomicU64::new(0));
        let edge = |_| Edge::new(config, &clock);
        let edges = (0..scene.edges.max(1)).map(edge).collect::<Result<Vec<_>, _>>()?;
        let workers = edges[0].workers();
        if workers != scene.engines.len() {
            return Err(WorldError::Workers { engines: scene.engines.len(), workers });
        }
        let engines = scene.engines.len();
        if let Some(wrong) = scene.outages.iter().find(|outage| engines <= outage.engine as usize) {
            return Err(WorldError::NoEngine { engine: wrong.engine, engines });
        }
        match &edges[0].fleet.config.policy {
            Policy::Learned(_) => return Err(WorldError::Learned),
            Policy::CacheAware(_) | Policy::LeastLoad { .. } | Policy::RoundRobin => {}
        }
        let mut agenda = Agenda::default();
        for outage in &scene.outages {
            agenda.put(outage.at, Event::Down { engine: outage.engine });
            agenda.put(outage.until, Event::Up { engine: outage.engine });
        }
        let polls = Polls::start(scene, &edges[0].fleet.config.load_reports, seed, &mut agenda);
        (0..).zip(&edges).for_each(|(edge, _)| Edge::start(edge, &mut agenda));
        Ok(Self {
            engines: Engines::new(&scene.engines)?,
            open: (0..arrivals.len()).map(|_| None).collect(),
            run: Run::new(arrivals.len()),
            now: Duration::ZERO,
            told: Vec::new(),
            still_open: 0,
            scene,
            arrivals,
            seed,
            clock,
            agenda,
            edges,
            polls,
        })
    }

    fn run(&mut self) {
        let mut next = 0;
        while next < self.arrivals.len() || 0 < self.still_open {
            let due = self.arrivals.get(next).map(|request| request.at);
            match self.agenda.next_before(due) {
                Some((at, event)) => {
                    self.set_time(at);
                    self.happens(event);
                }
                None => {
                    let Some(at) = due else { return };
                    self.set_time(at);
                    self.arrives(next);
                    next += 1;
                }
            }
        }
    }

    fn set_time(&mut self, now: Duration) {
        self.now = now;
        self.clock.store(u64::try_from(now.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Step { engine } => {
                self.engines.step_ended(engine);
                self.advance(engine);
            }
            Event::Poll { edge, engine } => {
                let of = &self.edges[edge as usize];
                let asking = polls::Asking { of, edge, engine, now: self.now, scene: self.scene };
                self.polls.poll(&asking, &self.engines, &mut self.agenda);
            }
            Event::Report { edge, engine } => {
                let of = &mut self.edges[edge as usize];
                self.polls.answered(engine, edge, of);
                of.changed(edge, self.now, &mut self.agenda);
            }
            Event::Publish { edge } => self.edges[edge as usize].publish(self.now),
            Event::Refresh { edge } => {
                self.edges[edge as usize].refresh(edge, self.now, &mut self.agenda);
            }
            Event::Down { engine } => self.goes_down(engine),
            Event::Up { engine } => self.engines.up(engine),
        }
    }

    fn arrives(&mut self, at: usize) {
        const EDGE: u64 = 11;
        const STREAMING: u64 = 12;
        let edges = self.edges.len() as u64;
        let edge = (fraction(self.seed, EDGE, at as u64) * edges as f64) as usize;
        let unstreamed = fraction(self.seed, STREAMING, at as u64) < self.scene.unstreamed;
        let streaming = if unstreamed { Streaming::Unstreamed } else { Streaming::Streamed };
        let request = &self.arrivals[at];
        let edge_of = &self.edges[edge];
        if edge_of.is_shedding() {
            self.run.shed += 1;
            return;
        }
        let query = edge_of.query(request, self.scene.bytes_per_token);
        let job = engines::job(at, request, self.scene.engines[0].block);
        self.send(Sendable { edge, query, streaming, job });
    }

    /// Sends a request to one worker after the other until one takes it.
    fn send(&mut self, mut sendable: Sendable) {
        let edge = &self.edges[sendable.edge];
        let at = sendable.job.id.0 as usize;
        let mut attempts = open::Attempts::new(&edge.fleet);
        while let Some(placed) = attempts.next(edge, &mut sendable) {
            let engine = edge.engine_of(&placed);
            match self.engines.submit(engine, self.now, sendable.job.clone()) {
                EngineAt::Took => {
                    self.run.decided(placed.choice.decision.reason);
                    let sent_at = self.arrivals[at].at;
                    self.open[at] = Some(Box::new(Open::new(placed, sendable, engine, sent_at)));
                    self.still_open += 1;
                    self.advance(engine);
                    return;
                }
                EngineAt::Refused => {
                    placed.booking.finished(Outcome::ClientError);
                    break;
                }
                EngineAt::Gone => attempts.refused(placed),
            }
        }
        self.run.failed += 1;
    }

    /// Tells everybody what an engine has done up to now, and plans the end of its next step.
    fn advance(&mut self, engine: u32) {
        let mut told = std::mem::take(&mut self.told);
        self.engines.advance(engine, self.now, &mut self.agenda, &mut told);
        for (id, progress) in told.drain(..) {
            self.progressed(id.0 as usize, progress);
        }
        self.told = told;
    }

    fn progressed(&mut self, at: usize, progress: Progress) {
        let Some(open) = &mut self.open[at] else { return };
        if progress.generated == 1 {
            open.first_token(progress.at);
        }
        if !progress.finished {
            return;
        }
        let Some(open) = self.open[at].take() else { return };
        self.still_open -= 1;
        let request = &self.arrivals[at];
        self.run.samples.push(Sample {
            first_token: open.first_token_after(),
            total: progress.at.saturating_sub(request.at),
            waited: progress.waited,
            is_streamed: open.is_streamed(),
        });
        let edge = &self.edges[open.edge];
        open.finished(&edge.fleet, progress.cached_tokens);
    }

    fn goes_down(&mut self, engine: u32) {
        self.engines.down(engine);
        for open in &mut self.open {
            if let Some(lost) = open.take_if(|open| open.engine == engine) {
                lost.cut();
                self.still_open -= 1;
                self.run.failed += 1;
            }
        }
    }

    fn run_ended(self) -> Run {
        let mut run = self.run;
        run.ended = self.now;
        run.engines = self.engines.stats();
        run
    }
}
