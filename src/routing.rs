//! From a body to a decision, for the proxy and for `explain`: which model, what the index knows of
//! the prompt, what the fleet looks like now, and what the policy says.

mod ask;
mod booking;
mod place;
mod warmup;

pub use ask::{Asked, Choice, Unroutable, ask, ask_in_detail};
pub use booking::Booking;
pub use place::{Attempted, Placed, Used, learn, place};

use crate::config::Policy;
use crate::fleet::ModelFleet;
use crate::prompt::{self, Dialect, Envelope, PromptKeys, encoding};
use crate::state::{Running, ServedModel};
use std::num::NonZeroU32;
use std::sync::Arc;
use thiserror::Error;
use tidegate_policy::fleet::{Fleet, Millis, Slot};
use tidegate_policy::learned::{Pin, PinError};
use tidegate_policy::prefix::{PrefixKeys, Root};
use tidegate_policy::request::{Holder, Holdings, Prompt, Request, holdings, seeded_dice};
use warmup::{LeftOut, Moment};

/// Whose request it is, and what of it matters for where it goes.
#[derive(Debug)]
pub struct ReadRequest {
    /// Its model.
    pub model: Arc<ServedModel>,
    /// Its prompt; `None` if there is nothing to match.
    pub query: Option<Query>,
    /// Did the client ask for a stream?
    pub streamed: bool,
    /// The route the client wants, under the policy `learned`.
    pub pin: Option<Pin>,
}

/// Why a request cannot be routed, whatever its fleet looks like.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ReadError {
    /// It names one that is not configured.
    #[error("the model `{0}` does not exist")]
    Unknown(String),
    /// It names none, or is not a JSON object, and there is no default model.
    #[error("the request names no model and there is no default model")]
    Unnamed,
    /// Its own route is none.
    #[error(transparent)]
    Route(#[from] PinError),
}

/// Reads a request's body. `header` looks up a request header's value.
///
/// # Errors
/// The request belongs to no configured model, or its `route` is none.
pub fn read<'h>(
    running: &Running,
    dialect: Dialect,
    body: &[u8],
    header: impl Fn(&str) -> Option<&'h [u8]>,
) -> Result<ReadRequest, ReadError> {
    let coding =
        header("content-encoding").map_or("", |value| std::str::from_utf8(value).unwrap_or("?"));
    let limit = usize::try_from(running.config.limits.max_decoded_bytes).unwrap_or(usize::MAX);
    // What cannot be decoded is routed by load, not refused.
    let decoded = encoding::decode(coding, body, limit).unwrap_or_default();
    let envelope = prompt::read(dialect, &decoded);
    let Some(model) = running.model(envelope.model.as_deref()).cloned() else {
        return Err(match envelope.model {
            Some(name) => ReadError::Unknown(name.into_owned()),
            None => ReadError::Unnamed,
        });
    };
    let query = model.fleet.as_deref().and_then(|fleet| {
        let affinity = fleet.config.affinity_headers.iter().find_map(|name| header(name));
        Query::new(fleet, &envelope, running.config.index.block_bytes, affinity)
    });
    let pin = pin(&model, &envelope)?;
    Ok(ReadRequest { query, streamed: envelope.streamed, pin, model })
}

/// What `route` says; to other policies than `learned` it is a word of the engine's.
fn pin(model: &ServedModel, envelope: &Envelope<'_>) -> Result<Option<Pin>, PinError> {
    let is_learned = model.fleet.as_ref().is_some_and(|fleet| fleet.learned().is_some());
    let Some(json) = envelope.route.filter(|_| is_learned) else { return Ok(None) };
    Pin::read(std::str::from_utf8(json).map_err(|_| PinError::NotAList)?)
}

/// What a prompt looks like to the index and the policy.
#[derive(Debug)]
pub struct Query {
    /// Its chain of prefix keys.
    pub keys: PrefixKeys,
    /// Its tokens, exact or estimated.
    pub input_tokens: u64,
    /// Is `input_tokens` an estimate, to be learned from?
    pub is_estimate: bool,
    /// Who holds how much of it, as of the last decision.
    pub holders: Vec<Holder>,
    home: u64,
    home_blocks: Option<u32>,
}

impl Query {
    fn new(
        fleet: &ModelFleet,
        envelope: &Envelope<'_>,
        block_bytes: u32,
        affinity: Option<&[u8]>,
    ) -> Option<Self> {
        let block_bytes = NonZeroU32::new(block_bytes)?;
        Some(Self::of_keys(fleet, envelope.keys(block_bytes, &fleet.config.name)?, affinity))
    }

    /// A prompt whose keys are known; `affinity` takes the place of the home key.
    pub fn of_keys(fleet: &ModelFleet, keys: PromptKeys, affinity: Option<&[u8]>) -> Self {
        let PromptKeys { keys, exact_tokens } = keys;
        let home = match affinity {
            Some(value) => Root::new(&fleet.config.name).extra_key(value).key().0,
            None => keys.at_bytes(home_bytes(fleet)).map_or(0, |key| key.0),
        };
        // Whoever names a home means it for a short prompt too.
        let all = || affinity.and_then(|_| u32::try_from(keys.keys().len()).ok());
        let home_blocks = keys.blocks_to(home_bytes(fleet)).or_else(all);
        Self {
            input_tokens: exact_tokens
                .unwrap_or_else(|| fleet.bytes_per_token.tokens(keys.bytes())),
            is_estimate: exact_tokens.is_none(),
            holders: Vec::new(),
            keys,
            home,
            home_blocks,
        }
    }

    /// Its blocks.
    pub fn blocks(&self) -> u32 {
        u32::try_from(self.keys.keys().len()).unwrap_or(u32::MAX)
    }
}

/// Prompt bytes at which `min_matched_tokens` are reached: where the home key is.
///
/// The running estimate would move the key from one block to another, and with it every cold
/// prefix's home, differently at each edge; so this one counts four bytes a token, always.
fn home_bytes(fleet: &ModelFleet) -> u64 {
    const BYTES_PER_TOKEN: u64 = 4;
    let tokens = fleet.config.policy.cache_aware().and_then(|rules| rules.min_matched_tokens);
    tokens.unwrap_or(0).saturating_mul(BYTES_PER_TOKEN)
}

/// One look at a model for one request. It can be asked more than once and stays the same moment.
#[derive(Debug)]
pub struct Look {
    /// The workers as they were.
    pub fleet: Arc<Fleet>,
    now: Millis,
    prompt: Option<Prompted>,
    mean_uncached_tokens: u64,
    dice: u64,
    turn: u64,
}

#[derive(Debug)]
struct Prompted {
    input_tokens: u64,
    home: u64,
    home_blocks: Option<u32>,
    holdings: Holdings,
}

impl Look {
    /// Looks now. `turn`: [`ModelFleet::turn`] for a request, [`ModelFleet::next_turn`] for a
    /// question about one.
    pub fn new(model: &ModelFleet, query: Option<&mut Query>, turn: u64) -> Self {
        let fleet = Arc::clone(&model.snapshot());
        let prompt = query.map(|query| {
            model.index.holders(query.keys.keys(), &mut query.holders);
            let blocks = query.blocks();
            let holdings = holdings(&fleet, &query.holders, query.input_tokens, blocks);
            Prompted {
                input_tokens: query.input_tokens,
                home: query.home,
                home_blocks: query.home_blocks,
                holdings,
            }
        });
        Self {
            fleet,
            now: model.clock.now(),
            prompt,
            mean_uncached_tokens: model.mean_uncached.get().unwrap_or(0),
            dice: dice(&model.config.policy, turn),
            turn,
        }
    }

    /// Who is left out of the decision because it warms up.
    fn warming_up(&self, model: &ModelFleet, query: Option<&Query>) -> LeftOut {
        let holders = query.map_or(&[][..], |query| &query.holders);
        let moment = Moment { fleet: &self.fleet, now: self.now, dice: self.dice, holders };
        warmup::left_out(model, moment)
    }

    /// What the policy is asked.
    pub fn request<'a>(&'a self, excluded: &'a [Slot]) -> Request<'a> {
        let prompt = self.prompt.as_ref().map(|prompt| Prompt {
            input_tokens: prompt.input_tokens,
            holdings: &prompt.holdings,
            home: prompt.home,
            home_blocks: prompt.home_blocks,
        });
        Request {
            now: self.now,
            prompt,
            mean_uncached_tokens: self.mean_uncached_tokens,
            foreign_share: self.fleet.foreign_share(self.now),
            excluded,
            dice: self.dice,
            turn: self.turn,
        }
    }
}

/// Nobody can tell them beforehand, unless a seed was given.
fn dice(policy: &Policy, turn: u64) -> u64 {
    match policy {
        Policy::Learned(learned) => learned.seed.map(|seed| seeded_dice(seed, turn)),
        Policy::CacheAware(_) | Policy::LeastLoad { .. } | Policy::RoundRobin => None,
    }
    .unwrap_or_else(|| fastrand::u64(..))
}
