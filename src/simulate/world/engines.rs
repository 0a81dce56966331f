//! The engines of a world, each with the end of its step on the agenda.

use super::super::engine::{
    Engine, EngineConfig, EngineConfigError, EngineStats, Job, JobId, Progress,
};
use super::super::load_page;
use super::super::prompt_keys::block_hashes;
use super::super::server::LoadEndpoint;
use super::super::trace::TraceRequest;
use super::agenda::{Agenda, Event};
use std::time::Duration;

/// See the module.
pub(super) struct Engines(Vec<Host>);

struct Host {
    engine: Engine,
    /// What engines that ran here before have done.
    before: EngineStats,
    is_down: bool,
    is_planned: bool,
}

/// What became of a request that was sent to an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EngineAt {
    /// It is in the queue.
    Took,
    /// It can never be run there.
    Refused,
    /// Nobody listens.
    Gone,
}

/// The work a request is to an engine.
pub(super) fn job(at: usize, request: &TraceRequest, block: u32) -> Job {
    Job {
        id: JobId(at as u64),
        prompt_tokens: request.input_tokens,
        output_tokens: request.output_tokens,
        blocks: block_hashes(request, block),
    }
}

impl Engines {
    pub(super) fn new(configs: &[EngineConfig]) -> Result<Self, EngineConfigError> {
        let host = |config: &EngineConfig| {
            let engine = Engine::new(*config)?;
            let before = EngineStats::default();
            Ok(Host { engine, before, is_down: false, is_planned: false })
        };
        configs.iter().map(host).collect::<Result<_, _>>().map(Self)
    }

    fn host(&mut self, engine: u32) -> &mut Host {
        &mut self.0[engine as usize]
    }

    /// Sends a request; [`Self::advance`] must follow.
    pub(super) fn submit(&mut self, engine: u32, now: Duration, job: Job) -> EngineAt {
        let host = self.host(engine);
        if host.is_down {
            return EngineAt::Gone;
        }
        match host.engine.submit(now, job) {
            Ok(()) => EngineAt::Took,
            Err(_) => EngineAt::Refused,
        }
    }

    /// The planned end of a step has come.
    pub(super) fn step_ended(&mut self, engine: u32) {
        self.host(engine).is_planned = false;
    }

    /// Lets an engine do what is due, and gathers first and last tokens.
    pub(super) fn advance(
        &mut self,
        engine: u32,
        now: Duration,
        agenda: &mut Agenda,
        told: &mut Vec<(JobId, Progress)>,
    ) {
        let host = self.host(engine);
        if host.is_down {
            return;
        }
        let next = host.engine.advance(now, &mut |id, progress| {
            if progress.generated == 1 || progress.finished {
                told.push((id, progress));
            }
        });
        if let Some(at) = next.filter(|_| !host.is_planned) {
            host.is_planned = true;
            agenda.put(at, Event::Step { engine });
        }
    }

    /// What it answers to a poll; `None` if nobody listens.
    pub(super) fn page(&self, engine: u32, form: LoadEndpoint, now: Duration) -> Option<Vec<u8>> {
        let host = &self.0[engine as usize];
        let page = match form {
            LoadEndpoint::GetLoad => load_page::get_load(&host.engine, now),
            LoadEndpoint::V1Loads => load_page::v1_loads(&host.engine, now),
            LoadEndpoint::Absent => return None,
        };
        (!host.is_down).then(|| page.to_string().into_bytes())
    }

    /// It stops with all it has.
    pub(super) fn down(&mut self, engine: u32) {
        let host = self.host(engine);
        host.is_down = true;
        host.before = host.all_stats();
        // The configuration was good before.
        if let Ok(empty) = Engine::new(*host.engine.config()) {
            host.engine = empty;
        }
    }

    pub(super) fn up(&mut self, engine: u32) {
        self.host(engine).is_down = false;
    }

    pub(super) fn stats(&self) -> Vec<EngineStats> {
        self.0.iter().map(Host::all_stats).collect()
    }
}

impl Host {
    fn all_stats(&self) -> EngineStats {
        self.before.and(self.engine.stats())
    }
}
