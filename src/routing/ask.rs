//! One question to one policy.

use crate::config::Policy;
use thiserror::Error;
use tidegate_policy::decision::{Decision, Reason, Trace};
use tidegate_policy::fleet::Fleet;
use tidegate_policy::learned::{Draws, Pin, PinError, Routes, Selection, Settings};
use tidegate_policy::request::Request;

/// The question.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Who chooses.
    pub policy: &'a Policy,
    /// What the policy `learned` knows.
    pub routes: Option<&'a Routes>,
    /// Among whom.
    pub fleet: &'a Fleet,
    /// For what.
    pub request: Request<'a>,
    /// The client's own route.
    pub pin: Option<&'a Pin>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Where the request is sent, and why.
    pub decision: Decision,
    /// Under the policy `learned`: the way it takes from there.
    pub route: Option<Box<Selection>>,
}

/// Why a request can go nowhere now.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Unroutable {
    /// No worker may be used.
    #[error("no worker of this model is routable")]
    NoWorker,
    /// Policy `learned`: no route is complete.
    #[error("no route through this model is complete now")]
    NoRoute,
    /// The client's own route is none, or not now.
    #[error(transparent)]
    Pin(#[from] PinError),
}

impl Unroutable {
    /// The code of the error a client gets.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoWorker => "no_routable_worker",
            Self::Pin(error) if error.is_invalid() => "invalid_route",
            Self::NoRoute | Self::Pin(_) => "no_route",
        }
    }
}

/// Asks, and books nothing.
///
/// # Errors
/// Nobody can take the request.
pub fn ask(asked: &Asked<'_>) -> Result<Choice, Unroutable> {
    let (fleet, request) = (asked.fleet, &asked.request);
    let decision = match asked.policy {
        Policy::CacheAware(rules) => tidegate_policy::decide(fleet, request, rules),
        Policy::LeastLoad { choices } => tidegate_policy::least_load(fleet, request, *choices),
        Policy::RoundRobin => tidegate_policy::round_robin(fleet, request),
        Policy::Learned(learned) => return along_a_route(asked, &learned.settings),
    };
    let decision = decision.ok_or(Unroutable::NoWorker)?;
    Ok(Choice { decision, route: None })
}

/// The same with every worker's cost, for whoever explains the decision.
///
/// # Errors
/// As [`ask`].
pub fn ask_in_detail(asked: &Asked<'_>) -> Result<Choice, Unroutable> {
    let Some(rules) = asked.policy.cache_aware() else {
        return ask(asked);
    };
    let decision = tidegate_policy::decide_in_detail(asked.fleet, &asked.request, rules);
    Ok(Choice { decision: decision.ok_or(Unroutable::NoWorker)?, route: None })
}

fn along_a_route(asked: &Asked<'_>, settings: &Settings) -> Result<Choice, Unroutable> {
    let (fleet, request) = (asked.fleet, &asked.request);
    let routes = asked.routes.ok_or(Unroutable::NoRoute)?;
    let route = match asked.pin {
        Some(pin) => routes.pinned(fleet, request, pin)?,
        None => {
            let draws = Draws::from_dice(request.dice);
            routes.choose(fleet, request, settings, draws).ok_or(Unroutable::NoRoute)?
        }
    };
    // A node is used only if the snapshot has it.
    let at = fleet.at(route.head().slot).ok_or(Unroutable::NoRoute)?;
    let decision = Decision {
        at,
        reason: Reason::from(route.mode),
        cache: None,
        uncached_tokens: request.uncached_tokens(at),
        trace: Trace::default(),
    };
    Ok(Choice { decision, route: Some(Box::new(route)) })
}
