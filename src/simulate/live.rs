//! An engine model driven in compressed wall time, and tickets for the requests in it.

use super::clock::Clock;
use super::engine::{
    Engine, EngineConfig, EngineConfigError, EngineLoad, EngineStats, Job, JobId, Progress, TooLong,
};
use super::prompt::Prompt;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// One engine, its clock, and who waits for its tokens.
pub(super) struct LiveEngine {
    clock: Clock,
    /// Readers are woken once for so many tokens, besides the first and the last.
    tokens_per_event: u32,
    state: Mutex<State>,
    wake: Notify,
}

struct State {
    engine: Engine,
    readers: HashMap<JobId, watch::Sender<Progress>>,
    next_id: u64,
}

/// A request at the engine; dropping it before its end aborts the request.
pub(super) struct Ticket {
    live: Arc<LiveEngine>,
    id: JobId,
    progress: watch::Receiver<Progress>,
}

impl LiveEngine {
    pub(super) fn new(
        config: EngineConfig,
        clock: Clock,
        tokens_per_event: u32,
    ) -> Result<Self, EngineConfigError> {
        Ok(Self {
            clock,
            tokens_per_event: tokens_per_event.max(1),
            state: Mutex::new(State {
                engine: Engine::new(config)?,
                readers: HashMap::new(),
                next_id: 0,
            }),
            wake: Notify::new(),
        })
    }

    /// Lets simulated time pass as wall time does. Runs until it is dropped.
    pub(super) async fn drive(self: Arc<Self>) {
        loop {
            let next = self.up_to_now(|_, _, next| next);
            match next {
                Some(at) => tokio::select! {
                    () = self.clock.sleep_until(at) => {}
                    () = self.wake.notified() => {}
                },
                None => self.wake.notified().await,
            }
        }
    }

    pub(super) fn submit(
        self: &Arc<Self>,
        prompt: Prompt,
        output_tokens: u32,
    ) -> Result<Ticket, TooLong> {
        let (sender, progress) = watch::channel(Progress::default());
        let id = self.up_to_now(|state, now, _| {
            state.next_id += 1;
            let id = JobId(state.next_id);
            state.engine.submit(
                now,
                Job { id, prompt_tokens: prompt.tokens, output_tokens, blocks: prompt.blocks },
            )?;
            state.readers.insert(id, sender);
            Ok(id)
        })?;
        self.wake.notify_one();
        let live = Arc::clone(self);
        Ok(Ticket { live, id, progress })
    }

    pub(super) fn load(&self) -> EngineLoad {
        self.up_to_now(|state, _, _| state.engine.load())
    }

    /// Looks at the engine as it is now.
    pub(super) fn inspect<T>(&self, look: impl FnOnce(&Engine, Duration) -> T) -> T {
        self.up_to_now(|state, now, _| look(&state.engine, now))
    }

    pub(super) fn stats(&self) -> EngineStats {
        self.up_to_now(|state, _, _| state.engine.stats())
    }

    pub(super) fn config(&self) -> EngineConfig {
        *self.state.lock().engine.config()
    }

    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    pub(super) fn flush_cache(&self) {
        self.up_to_now(|state, _, _| state.engine.flush_cache());
    }

    fn abort(&self, id: JobId) {
        self.up_to_now(|state, _, _| {
            state.engine.abort(id);
            state.readers.remove(&id);
        });
    }

    /// Does what is due, then `then`: nobody sees the engine in the past.
    fn up_to_now<T>(&self, then: impl FnOnce(&mut State, Duration, Option<Duration>) -> T) -> T {
        let mut state = self.state.lock();
        let State { engine, readers, .. } = &mut *state;
        let now = self.clock.now();
        let next = engine.advance(now, &mut |id, progress| {
            if progress.finished {
                if let Some(reader) = readers.remove(&id) {
                    reader.send_replace(progress);
                }
            } else if let Some(reader) = readers.get(&id) {
                reader.send_if_modified(|seen| {
                    *seen = progress;
                    progress.generated % self.tokens_per_event == 1 % self.tokens_per_event
                });
            }
        });
        then(&mut state, now, next)
    }
}

impl Ticket {
    /// The request's number at this engine.
    pub(super) fn number(&self) -> u64 {
        self.id.0
    }

    /// Waits for more than `seen` tokens, or the last one; `None` if the engine died.
    pub(super) async fn beyond(&mut self, seen: u32) -> Option<Progress> {
        loop {
            let progress = *self.progress.borrow_and_update();
            if seen < progress.generated || progress.finished {
                return Some(progress);
            }
            self.progress.changed().await.ok()?;
        }
    }

    /// Waits for the last token; `None` if the engine died.
    pub(super) async fn finished(&mut self) -> Option<Progress> {
        let done = self.progress.wait_for(|progress| progress.finished).await;
        done.map(|progress| *progress).ok()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.live.abort(self.id);
    }
}
