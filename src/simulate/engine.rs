//! One simulated inference engine: FIFO queue, chunked prefill mixed with decode, paged KV cache.
//!
//! Pure: time comes in as data (simulated time since the start), nothing is drawn at random, and
//! [`Engine::advance`] says when something happens next. A step's length is
//! `prompt tokens / prefill_tps + decode_base + decoding sequences * decode_seq`, and it ends at
//! exactly that instant however late `advance` is called, so throughput does not depend on timers.
//! Absent on purpose: preemption (a sequence's whole KV need is taken at admission) and reuse of
//! generated tokens.

pub use super::engine_config::{EngineConfig, EngineConfigError};
use super::kv::{BlockHash, KvCache, Lease};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Names a request at one engine; chosen by the caller, unique among those not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// One request.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its name.
    pub id: JobId,
    /// Length of the prompt; an empty prompt counts as one token.
    pub prompt_tokens: u32,
    /// Tokens it will generate, at least one.
    pub output_tokens: u32,
    /// The prompt's full blocks.
    pub blocks: Arc<[BlockHash]>,
}

/// How far a request is, told at the end of each step that moved it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Simulated time of the latest token.
    pub at: Duration,
    /// Prompt tokens that were reused.
    pub cached_tokens: u32,
    /// Time from its submission to its admission.
    pub waited: Duration,
    /// Tokens generated up to now.
    pub generated: u32,
    /// Whether that was the last one.
    pub finished: bool,
}

/// The request can never be run here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the request needs {needed} tokens of KV cache, the engine has {capacity}")]
pub struct TooLong {
    /// Prompt and output.
    pub needed: u64,
    /// All there is.
    pub capacity: u64,
}

/// What an engine reports about its load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineLoad {
    /// Running sequences.
    pub running: usize,
    /// Requests in the queue.
    pub waiting: usize,
    /// KV tokens that running sequences hold.
    pub used_tokens: u64,
    /// Prompt tokens in the queue.
    pub waiting_tokens: u64,
}

/// What an engine has done since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Requests accepted into the queue.
    pub requests: u64,
    /// Requests answered to the end.
    pub finished: u64,
    /// Requests whose client left.
    pub aborted: u64,
    /// Prompt tokens of the requests admitted.
    pub prompt_tokens: u64,
    /// Those of them that were reused.
    pub cached_tokens: u64,
    /// Prompt tokens computed.
    pub computed_tokens: u64,
    /// Time spent computing prompts.
    pub prefill_busy: Duration,
    /// Tokens generated.
    pub output_tokens: u64,
    /// The longest queue.
    pub peak_waiting: usize,
}

impl EngineStats {
    /// Of two engines, one after the other.
    pub fn and(self, later: Self) -> Self {
        Self {
            requests: self.requests + later.requests,
            finished: self.finished + later.finished,
            aborted: self.aborted + later.aborted,
            prompt_tokens: self.prompt_tokens + later.prompt_tokens,
            cached_tokens: self.cached_tokens + later.cached_tokens,
            computed_tokens: self.computed_tokens + later.computed_tokens,
            prefill_busy: self.prefill_busy + later.prefill_busy,
            output_tokens: self.output_tokens + later.output_tokens,
            peak_waiting: self.peak_waiting.max(later.peak_waiting),
        }
    }
}

/// The engine's state.
#[derive(Debug)]
pub struct Engine {
    config: EngineConfig,
    cache: KvCache,
    queue: VecDeque<Queued>,
    running: Vec<Sequence>,
    step: Option<Step>,
    stats: EngineStats,
}

#[derive(Debug)]
struct Queued {
    job: Job,
    since: Duration,
}

#[derive(Debug)]
struct Step {
    ends: Duration,
    prompt_tokens: u32,
}

#[derive(Debug)]
struct Sequence {
    job: Job,
    lease: Lease,
    waited: Duration,
    cached: u32,
    prefilled: u32,
    generated: u32,
    work: Work,
}

/// A sequence's part in the present step.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// The chunk was used up by those before it.
    None,
    Prefill(u32),
    Decode,
}

impl Engine {
    /// An idle engine with an empty cache.
    ///
    /// # Errors
    /// As [`EngineConfig::check`].
    pub fn new(config: EngineConfig) -> Result<Self, EngineConfigError> {
        config.check()?;
        let blocks = config.kv_tokens / u64::from(config.block);
        Ok(Self {
            config,
            cache: KvCache::new(usize::try_from(blocks).unwrap_or(usize::MAX)),
            queue: VecDeque::new(),
            running: Vec::new(),
            step: None,
            stats: EngineStats::default(),
        })
    }

    /// Its numbers.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Puts a request at the end of the queue; a step begins at once if the engine was idle.
    ///
    /// `now` is not before the latest [`Self::advance`], which must have been called for `now`.
    ///
    /// # Errors
    /// [`TooLong`] if it could not even run alone.
    pub fn submit(&mut self, now: Duration, mut job: Job) -> Result<(), TooLong> {
        job.prompt_tokens = job.prompt_tokens.max(1);
        job.output_tokens = job.output_tokens.max(1);
        if self.cache.capacity() < self.blocks_needed(&job) {
            return Err(TooLong {
                needed: u64::from(job.prompt_tokens) + u64::from(job.output_tokens),
                capacity: self.config.kv_tokens,
            });
        }
        self.stats.requests += 1;
        self.queue.push_back(Queued { job, since: now });
        if self.step.is_none() {
            self.begin_step(now);
        }
        self.stats.peak_waiting = self.stats.peak_waiting.max(self.queue.len());
        Ok(())
    }

    /// Forgets a request whose client left; its blocks are free at once, the step under way keeps
    /// its length. An unknown or finished one is ignored.
    pub fn abort(&mut self, id: JobId) {
        if let Some(at) = self.queue.iter().position(|queued| queued.job.id == id) {
            self.queue.remove(at);
        } else if let Some(at) = self.running.iter().position(|s| s.job.id == id) {
            let sequence = self.running.remove(at);
            self.cache.release(sequence.lease);
        } else {
            return;
        }
        self.stats.aborted += 1;
    }

    /// When the step under way ends; `None` if the engine is idle.
    pub fn step_ends(&self) -> Option<Duration> {
        self.step.as_ref().map(|step| step.ends)
    }

    /// Does everything due up to and including `now`, telling `sink` of each token, and returns
    /// when the next step ends; `None` if the engine is idle.
    pub fn advance(
        &mut self,
        now: Duration,
        sink: &mut impl FnMut(JobId, Progress),
    ) -> Option<Duration> {
        while let Some(step) = &self.step {
            if now < step.ends {
                return Some(step.ends);
            }
            let (ends, prompt_tokens) = (step.ends, step.prompt_tokens);
            self.finish_step(ends, prompt_tokens, sink);
            self.begin_step(ends);
        }
        None
    }

    /// The load as of the latest step.
    pub fn load(&self) -> EngineLoad {
        let tokens = |queued: &Queued| u64::from(queued.job.prompt_tokens);
        EngineLoad {
            running: self.running.len(),
            waiting: self.queue.len(),
            used_tokens: self.cache.used() as u64 * u64::from(self.config.block),
            waiting_tokens: self.queue.iter().map(tokens).sum(),
        }
    }

    /// Those of the prompt tokens in the queue that are not cached now.
    pub fn waiting_uncached_tokens(&self) -> u64 {
        let block = u64::from(self.config.block);
        let uncached = |queued: &Queued| {
            let cached = self.cache.matched(self.reusable(&queued.job)) as u64 * block;
            u64::from(queued.job.prompt_tokens).saturating_sub(cached)
        };
        self.queue.iter().map(uncached).sum()
    }

    /// What it has done.
    pub fn stats(&self) -> EngineStats {
        self.stats
    }

    /// Empties the cache but for what running sequences hold.
    pub fn flush_cache(&mut self) {
        self.cache.flush();
    }

    fn blocks_needed(&self, job: &Job) -> usize {
        let tokens = u64::from(job.prompt_tokens) + u64::from(job.output_tokens);
        usize::try_from(tokens.div_ceil(u64::from(self.config.block))).unwrap_or(usize::MAX)
    }

    /// The blocks that may be reused: the last token is computed even if all of it is cached,
    /// because it yields the first token of the answer.
    fn reusable<'a>(&self, job: &'a Job) -> &'a [BlockHash] {
        let most = (job.prompt_tokens - 1) / self.config.block;
        &job.blocks[..job.blocks.len().min(most as usize)]
    }

    /// Takes requests from the queue while the next step has prompt tokens to spare: one that
    /// could not even begin is left waiting, as engines with chunked prefill do.
    fn admit(&mut self, now: Duration) {
        let missing =
            |sequence: &Sequence| u64::from(sequence.job.prompt_tokens - sequence.prefilled);
        let mut claimed: u64 = self.running.iter().map(missing).sum();
        while self.running.len() < self.config.max_running && claimed < u64::from(self.config.chunk)
        {
            let Some(Queued { job, .. }) = self.queue.front() else {
                return;
            };
            let total = self.blocks_needed(job);
            // First come, first served: nobody overtakes one that does not fit yet.
            let Some(lease) = self.cache.lease(self.reusable(job), total) else {
                return;
            };
            let Some(Queued { job, since }) = self.queue.pop_front() else {
                return;
            };
            let cached = lease.shared_blocks() as u32 * self.config.block;
            self.stats.prompt_tokens += u64::from(job.prompt_tokens);
            self.stats.cached_tokens += u64::from(cached);
            claimed += u64::from(job.prompt_tokens - cached);
            self.running.push(Sequence {
                job,
                lease,
                waited: now.saturating_sub(since),
                cached,
                prefilled: cached,
                generated: 0,
                work: Work::None,
            });
        }
    }

    fn begin_step(&mut self, now: Duration) {
        self.admit(now);
        let mut budget = self.config.chunk;
        let mut decoding = 0;
        for sequence in &mut self.running {
            let missing = sequence.job.prompt_tokens - sequence.prefilled;
            sequence.work = if missing == 0 {
                decoding += 1;
                Work::Decode
            } else if budget == 0 {
                Work::None
            } else {
                let tokens = missing.min(budget);
                budget -= tokens;
                Work::Prefill(tokens)
            };
        }
        let prompt_tokens = self.config.chunk - budget;
        self.step = (!self.running.is_empty()).then(|| Step {
            ends: now.saturating_add(self.config.step_time(prompt_tokens, decoding)),
            prompt_tokens,
        });
    }

    fn finish_step(
        &mut self,
        at: Duration,
        prompt_tokens: u32,
        sink: &mut impl FnMut(JobId, Progress),
    ) {
        self.stats.computed_tokens += u64::from(prompt_tokens);
        let seconds = f64::from(prompt_tokens) / self.config.prefill_tps;
        self.stats.prefill_busy += Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let mut still_running = Vec::with_capacity(self.running.len());
        for mut sequence in std::mem::take(&mut self.running) {
            if sequence.work_done(&mut self.cache, self.config.block) {
                self.stats.output_tokens += 1;
                sink(sequence.job.id, sequence.progress(at));
            }
            if sequence.generated < sequence.job.output_tokens {
                still_running.push(sequence);
            } else {
                self.stats.finished += 1;
                self.cache.release(sequence.lease);
            }
        }
        self.running = still_running;
    }
}

impl Sequence {
    /// Books this step's part; true if it yielded a token.
    fn work_done(&mut self, cache: &mut KvCache, block: u32) -> bool {
        match self.work {
            Work::None => false,
            Work::Prefill(tokens) => {
                self.prefilled += tokens;
                let full = self.job.blocks.len().min((self.prefilled / block) as usize);
                for &hash in &self.job.blocks[self.lease.shared_blocks()..full] {
                    cache.share(&mut self.lease, hash);
                }
                let complete = self.prefilled == self.job.prompt_tokens;
                self.generated += u32::from(complete);
                complete
            }
            Work::Decode => {
                self.generated += 1;
                true
            }
        }
    }

    fn progress(&self, at: Duration) -> Progress {
        Progress {
            at,
            cached_tokens: self.cached,
            waited: self.waited,
            generated: self.generated,
            finished: self.generated == self.job.output_tokens,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// 1,000 tokens/s, steps of 10 ms and 1 ms a sequence: times can be worked out by hand.
    const CONFIG: EngineConfig = EngineConfig {
        prefill_tps: 1_000.0,
        decode_base_ms: 10.0,
        decode_seq_ms: 1.0,
        max_running: 8,
        kv_tokens: 1_000,
        block: 10,
        chunk: 100,
    };
    const FOREVER: Duration = Duration::from_secs(1_000_000);

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn engine(config: EngineConfig) -> Engine {
        Engine::new(config).unwrap()
    }

    /// A prompt all of its own unless `prefix` is shared with another one.
    fn job(id: u64, prefix: u64, prompt_tokens: u32, output_tokens: u32) -> Job {
        let block = |at: u32| BlockHash(prefix * 1_000 + u64::from(at));
        Job {
            id: JobId(id),
            prompt_tokens,
            output_tokens,
            blocks: (0..prompt_tokens / CONFIG.block).map(block).collect(),
        }
    }

    /// Advances to `until`; every token in order.
    fn tokens(engine: &mut Engine, until: Duration) -> Vec<(u64, Progress)> {
        let mut seen = Vec::new();
        engine.advance(until, &mut |id, progress| seen.push((id.0, progress)));
        seen
    }

    fn first_tokens(seen: &[(u64, Progress)]) -> Vec<(u64, Duration)> {
        let first = seen.iter().filter(|(_, progress)| progress.generated == 1);
        first.map(|(id, progress)| (*id, progress.at)).collect()
    }

    #[test]
    fn a_lone_request_takes_exactly_the_time_of_the_formula() {
        let mut engine = engine(CONFIG);
        engine.submit(ms(5), job(1, 1, 250, 3)).unwrap();
        let seen = tokens(&mut engine, FOREVER);
        // Chunks of 100, 100 and 50 tokens with 10 ms each, then two decode steps of 11 ms.
        let at: Vec<Duration> = seen.iter().map(|(_, progress)| progress.at).collect();
        assert_eq!(at, [ms(285), ms(296), ms(307)]);
        assert!(seen[2].1.finished && !seen[1].1.finished);
        assert_eq!(engine.load(), EngineLoad::default());
    }

    #[test]
    fn lateness_of_the_caller_does_not_move_a_step() {
        let mut punctual = engine(CONFIG);
        let mut late = engine(CONFIG);
        for engine in [&mut punctual, &mut late] {
            for id in 0..5 {
                engine.submit(ms(0), job(id, id, 70, 4)).unwrap();
            }
        }
        let mut by_steps = Vec::new();
        let mut next = Some(ms(0));
        while let Some(now) = next {
            next = punctual.advance(now, &mut |id, progress| by_steps.push((id.0, progress)));
        }
        assert_eq!(by_steps.len(), 20);
        assert_eq!(by_steps, tokens(&mut late, FOREVER));
    }

    #[test]
    fn requests_are_served_in_the_order_they_came() {
        let mut engine = engine(EngineConfig { max_running: 1, ..CONFIG });
        for id in [7, 3, 5] {
            engine.submit(ms(0), job(id, id, 20, 2)).unwrap();
        }
        let order: Vec<u64> =
            first_tokens(&tokens(&mut engine, FOREVER)).iter().map(|first| first.0).collect();
        assert_eq!(order, [7, 3, 5]);
        assert_eq!(engine.stats().peak_waiting, 2);
    }

    #[test]
    fn no_more_sequences_run_than_max_running() {
        let mut engine = engine(EngineConfig { max_running: 2, ..CONFIG });
        for id in 0..5 {
            engine.submit(ms(0), job(id, id, 20, 50)).unwrap();
        }
        tokens(&mut engine, ms(100));
        let load = engine.load();
        assert_eq!((load.running, load.waiting), (2, 3));
        assert_eq!((load.waiting_tokens, engine.waiting_uncached_tokens()), (60, 60));
    }

    #[test]
    fn a_prompt_that_could_not_begin_waits() {
        let mut engine = engine(CONFIG);
        engine.submit(ms(0), job(1, 1, 250, 1)).unwrap();
        engine.submit(ms(0), job(2, 2, 300, 1)).unwrap();
        tokens(&mut engine, ms(1));
        assert_eq!((engine.load().running, engine.load().waiting), (1, 1));
        // The first one's last step leaves half of its prompt tokens to the second.
        tokens(&mut engine, ms(230));
        assert_eq!((engine.load().running, engine.load().waiting), (2, 0));
    }

    #[test]
    fn prefill_and_decode_share_a_step() {
        let mut engine = engine(CONFIG);
        engine.submit(ms(0), job(1, 1, 10, 100)).unwrap();
        tokens(&mut engine, ms(20));
        engine.submit(ms(20), job(2, 2, 50, 1)).unwrap();
        // The step from 20 to 31 ms decodes alone, the next one decodes and computes 50 tokens.
        let seen = tokens(&mut engine, ms(92));
        assert_eq!(first_tokens(&seen), [(2, ms(92))]);
        assert_eq!(seen.iter().filter(|(id, _)| *id == 1).count(), 2);
    }

    #[test]
    fn a_repeated_prompt_computes_only_its_last_block() {
        let mut engine = engine(CONFIG);
        for id in 1..=2 {
            let now = ms(1_000 * id);
            engine.submit(now, job(id, 1, 200, 1)).unwrap();
            let seen = tokens(&mut engine, now + ms(900));
            assert_eq!(seen[0].1.cached_tokens, if id == 1 { 0 } else { 190 });
        }
        let stats = engine.stats();
        assert_eq!((stats.prompt_tokens, stats.cached_tokens), (400, 190));
        assert_eq!((stats.computed_tokens, stats.prefill_busy), (210, ms(210)));
    }

    #[test]
    fn blocks_are_reusable_as_soon_as_their_chunk_is_computed() {
        let mut engine = engine(CONFIG);
        engine.submit(ms(0), job(1, 1, 150, 1)).unwrap();
        engine.submit(ms(50), job(2, 1, 200, 1)).unwrap();
        // The second is admitted at 110 ms, when 100 tokens of the first are computed.
        let seen = tokens(&mut engine, FOREVER);
        let second = seen.iter().find(|(id, _)| *id == 2).unwrap();
        assert_eq!(second.1.cached_tokens, 100);
    }

    #[test]
    fn a_request_waits_while_its_blocks_do_not_fit_and_nobody_overtakes_it() {
        let mut engine = engine(CONFIG);
        engine.submit(ms(0), job(1, 1, 600, 10)).unwrap();
        engine.submit(ms(0), job(2, 2, 500, 10)).unwrap();
        engine.submit(ms(0), job(3, 3, 10, 10)).unwrap();
        let seen = tokens(&mut engine, ms(700));
        assert_eq!((engine.load().running, engine.load().waiting), (1, 2));
        assert!(seen.iter().all(|(id, _)| *id == 1));
        let order: Vec<u64> =
            first_tokens(&tokens(&mut engine, FOREVER)).iter().map(|first| first.0).collect();
        assert_eq!(order, [2, 3], "the first had its first token before");
        assert_eq!(engine.stats().finished, 3);
    }

    #[test]
    fn a_request_larger_than_the_cache_is_refused() {
        let mut engine = engine(CONFIG);
        let refused = engine.submit(ms(0), job(1, 1, 990, 11));
        assert_eq!(refused, Err(TooLong { needed: 1_001, capacity: 1_000 }));
        assert!(engine.submit(ms(0), job(2, 1, 990, 10)).is_ok());
    }

    #[test]
    fn an_abort_frees_the_place_in_the_queue_and_the_blocks() {
        let mut engine = engine(CONFIG);
        engine.submit(ms(0), job(1, 1, 600, 100)).unwrap();
        engine.submit(ms(0), job(2, 2, 600, 1)).unwrap();
        engine.submit(ms(0), job(3, 3, 600, 1)).unwrap();
        tokens(&mut engine, ms(200));
        engine.abort(JobId(2));
        assert_eq!(engine.load().waiting, 1);
        engine.abort(JobId(1));
        assert_eq!(engine.load().used_tokens, 0);
        let seen = tokens(&mut engine, FOREVER);
        assert_eq!(seen.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [3]);
        engine.abort(JobId(3));
        assert_eq!((engine.stats().aborted, engine.stats().finished), (2, 1));
    }

    #[test]
    fn an_engine_that_cannot_be_is_not_built() {
        let config = EngineConfig { block: 0, ..CONFIG };
        assert_eq!(Engine::new(config).err(), Some(EngineConfigError::Zero("block")));
    }

    #[test]
    fn the_same_arrivals_give_the_same_tokens_at_the_same_times() {
        let run = || {
            let mut engine = engine(EngineConfig { kv_tokens: 2_000, ..CONFIG });
            let mut seen = Vec::new();
            for id in 0..200_u64 {
                let now = ms(id * 37);
                seen.extend(tokens(&mut engine, now));
                let length = 20 + (id as u32 * 31) % 400;
                engine.submit(now, job(id, id % 7, length, 1 + id as u32 % 20)).unwrap();
                if id % 11 == 0 {
                    engine.abort(JobId(id.saturating_sub(3)));
                }
            }
            seen.extend(tokens(&mut engine, FOREVER));
            (seen, engine.stats())
        };
        let (seen, stats) = run();
        assert_eq!((seen, stats), run());
        assert_eq!(stats.finished + stats.aborted, 200);
        assert!(0 < stats.cached_tokens, "prefixes repeat");
    }
}
