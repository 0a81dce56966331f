//! What is known of one request between its head and the end of its answer.

use super::attempt::Attempt;
use super::body::RequestBody;
use super::reply::Refusal;
use super::seats::AtWork;
use crate::metrics::Outcome;
use crate::prompt::Dialect;
use crate::prompt::usage::UsageReader;
use crate::routing::{Choice, Query};
use crate::state::{InProgress, Running, ServedModel, State};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidegate_policy::fleet::{Fleet, Slot};
use tidegate_policy::learned::Pin;

/// See the module. One configuration at a time, see [`Running`].
#[derive(Debug)]
pub struct RequestContext {
    pub(super) state: Arc<State>,
    pub(super) running: Arc<Running>,
    pub(super) started: Instant,
    pub(super) request_id: String,
    /// Who sent it; `None`: through a unix socket.
    pub(super) client: Option<Arc<str>>,
    pub(super) dialect: Dialect,
    pub(super) model: Arc<ServedModel>,
    pub(super) body: RequestBody,
    pub(super) query: Option<Query>,
    pub(super) streamed: bool,
    /// The client's own route.
    pub(super) pin: Option<Pin>,
    /// Workers that failed this request.
    pub(super) excluded: SmallVec<[Slot; 4]>,
    /// Its number among the model's requests.
    pub(super) turn: Option<u64>,
    /// How long it waited for a worker that might take it; `None`: not at all.
    pub(super) queued: Option<Duration>,
    pub(super) attempts: u32,
    pub(super) attempt: Option<Attempt>,
    /// Where it was routed, and by which snapshot.
    pub(super) routed: Option<(Arc<Fleet>, Choice)>,
    pub(super) refusal: Option<Refusal>,
    pub(super) answer: Answer,
    pub(super) observed: bool,
    /// Its connection is not idle.
    pub(super) at_work: Option<AtWork>,
    _in_progress: InProgress,
}

/// A worker's answer so far.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Final status; 0 = none yet.
    pub(super) status: u16,
    pub(super) usage: Option<UsageReader>,
    pub(super) first_content: Option<Duration>,
    /// When its last byte came.
    pub(super) complete: Option<Instant>,
    /// What ended it early.
    pub(super) broken: Option<Outcome>,
}

impl RequestContext {
    pub(super) fn new(state: Arc<State>) -> Self {
        let running = state.pin();
        Self {
            started: Instant::now(),
            request_id: String::new(),
            client: None,
            dialect: Dialect::Other,
            model: Arc::clone(running.other()),
            body: RequestBody::Empty,
            query: None,
            streamed: false,
            pin: None,
            excluded: SmallVec::new(),
            turn: None,
            queued: None,
            attempts: 0,
            attempt: None,
            routed: None,
            refusal: None,
            answer: Answer::default(),
            observed: false,
            at_work: None,
            _in_progress: InProgress::enter(Arc::clone(&state)),
            running,
            state,
        }
    }

    /// May another worker be tried?
    pub(super) fn may_retry(&self) -> bool {
        let most =
            self.model.fleet.as_ref().map_or(1, |fleet| fleet.config.retries.max_attempts.get());
        self.attempts < most && self.body.is_replayable()
    }
}
