//! Every worker's line, read once: counters do not change while one decision compares them.
//!
//! This is the loop that all of a large fleet goes through, so lines are kept as floating point
//! numbers, in which so many tokens are exact: rough scores are computed of several at a time.

use crate::request::Prompt;
use crate::scene::Scene;
use smallvec::SmallVec;

/// Workers whose numbers fit the stack; for a larger fleet each list is one allocation. Few, since the
/// lists are moved whatever they hold.
const ON_STACK: usize = 16;
const FULL_ON_STACK: usize = 8;

/// A number for each worker of the snapshot, by position.
pub(super) type Numbers = SmallVec<[f64; ON_STACK]>;

/// The fleet before one request.
#[derive(Debug)]
pub(super) struct Field {
    /// `L`, tokens; infinite at workers the request may not go to.
    pub(super) lines: Numbers,
    /// Workers the request may go to.
    pub(super) members: u64,
    /// Who fails hard admission, unless everybody does: they are not compared.
    pub(super) full: SmallVec<[usize; FULL_ON_STACK]>,
    /// `Lbar`.
    pub(super) mean_line: u64,
    /// The most blocks of the prompt anybody holds.
    pub(super) deepest: u32,
    /// The fewest uncached tokens anywhere.
    pub(super) least_uncached: u64,
    /// The rendezvous home of a prompt whose home block nobody holds.
    pub(super) home: Option<usize>,
}

impl Field {
    /// `None`: nobody is routable.
    pub(super) fn look(scene: Scene<'_>, prompt: &Prompt<'_>) -> Option<Self> {
        let (request, lanes) = (scene.request, scene.fleet.lanes());
        let (now, mean) = (request.now, request.mean_uncached());
        let mut lines = Numbers::from_elem(f64::INFINITY, lanes.len());
        let (mut sum, mut members) = (0, 0_u64);
        for (lane, place) in lanes.iter().zip(&mut lines) {
            if lane.is_open() {
                let line = lane.line(now, mean);
                // Signed, because that is one instruction; it fits.
                *place = line as i64 as f64;
                sum += line;
                members += 1;
            }
        }
        // Seldom anybody is excluded, and then few.
        for at in request.excluded.iter().filter_map(|&slot| scene.fleet.at(slot)) {
            if lines[at] < f64::INFINITY {
                // Exact: see `Numbers`.
                sum -= lines[at] as u64;
                members -= 1;
                lines[at] = f64::INFINITY;
            }
        }
        let mut field = Self {
            lines,
            members,
            full: SmallVec::new(),
            mean_line: sum.checked_div(members)?,
            deepest: 0,
            least_uncached: prompt.input_tokens,
            home: None,
        };
        if scene.fleet.may_be_full() {
            let is_full = |at: &usize| !lanes[*at].has_room(now, prompt.input_tokens);
            let full: SmallVec<_> = field.members().filter(is_full).collect();
            if (full.len() as u64) < members {
                field.full = full;
            }
        }
        for held in prompt.holdings {
            if !field.has(held.at) {
                continue;
            }
            field.deepest = field.deepest.max(held.blocks);
            field.least_uncached = field.least_uncached.min(held.uncached_tokens);
        }
        if prompt.home_blocks.is_some_and(|blocks| field.deepest < blocks) {
            field.home = scene.fleet.home(prompt.home, |at| field.has(at));
        }
        Some(field)
    }

    /// May the request go there?
    pub(super) fn has(&self, at: usize) -> bool {
        self.lines[at] < f64::INFINITY
    }

    /// All workers the request may go to.
    pub(super) fn members(&self) -> impl Iterator<Item = usize> {
        (0..self.lines.len()).filter(|&at| self.has(at))
    }
}
