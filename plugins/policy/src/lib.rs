//! Where a prompt goes and why.
//!
//! Pure: no I/O, no clock, no randomness, no logging. Time and dice come in as data.

pub mod decision;
pub mod fleet;
pub mod gate;
pub mod home;
pub mod index;
pub mod learned;
pub mod ledger;
pub mod prefix;
pub mod request;
pub mod rules;
pub mod scenario;

mod admission;
mod candidates;
mod cost;
mod fallback;
mod least_load;
mod pressure;
mod round_robin;
mod saturation;
mod scene;
#[cfg(test)]
mod testing;
mod tournament;

pub use least_load::least_load;
pub use round_robin::round_robin;

use cost::Detail;
use decision::Decision;
use fleet::Fleet;
use request::Request;
use rules::{Rules, Selection};
use scene::Scene;

/// Where a request goes under the cache-aware policy, and why. `None`: nobody is routable.
pub fn decide(fleet: &Fleet, request: &Request<'_>, rules: &Rules) -> Option<Decision> {
    select(Scene { fleet, request, rules }, Detail::Chosen)
}

/// The same with [`decision::CostTrace::costs`], for whoever explains a decision.
pub fn decide_in_detail(fleet: &Fleet, request: &Request<'_>, rules: &Rules) -> Option<Decision> {
    select(Scene { fleet, request, rules }, Detail::Everybody)
}

fn select(scene: Scene<'_>, detail: Detail) -> Option<Decision> {
    match &scene.rules.selection {
        Selection::Ladder => climb(scene),
        Selection::Cost(rules) => cost::place(scene, rules, detail),
    }
}

/// The ladder, rung by rung.
fn climb(scene: Scene<'_>) -> Option<Decision> {
    let mut candidates = candidates::find(scene);
    let mut trace = gate::apply(scene, &mut candidates);
    admission::apply(scene, &mut candidates, &mut trace);
    let choice = tournament::play(scene, &mut candidates, &mut trace)
        .or_else(|| saturation::pin(scene, &mut candidates, &mut trace))
        .or_else(|| fallback::place(scene, &candidates, &mut trace))?;
    trace.considered = candidates.iter().map(candidates::Candidate::considered).collect();
    Some(scene.decision(choice, trace))
}
