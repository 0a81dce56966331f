//! The price of the fleet, and what it leaves out where too few hold what everybody asks for.
//!
//! `price_fleet * Lbar * u / ubar` is what a copy costs those who wait; those who wait at its holders
//! are relieved by it instead. Where little of each prompt is new, `u / ubar` exceeds the number of
//! workers, and the holders' own line would make a copy dearer than any wait: it grows, the price grows
//! with it, and everybody else idles. So the holders' part of `Lbar` comes to at most what the longest
//! line costs a mean request, `price_worker` times its length: one that waits there for longer than its
//! whole prompt takes elsewhere leaves. Where several hold it already it is asked for by many, and the
//! lines of others may be another edge's for the same prefix: the shortest of them counts, not the mean.

use super::OWNER_TOKENS;
use super::field::Field;
use crate::ledger::MOST_TOKENS;
use crate::request::Prompt;

/// So many holders are several.
const SEVERAL: u64 = 2;

/// See the module. Prices are thousandths.
#[derive(Clone, Copy, Debug)]
pub(super) struct FleetPrice {
    /// Price times the lines elsewhere, or times all of them where no part is cut.
    elsewhere: u64,
    /// Price times the lines at holders.
    at_holders: u64,
    /// Tokens to which the latter may come.
    most: u64,
}

impl FleetPrice {
    /// `per` is `ubar` in thousandths.
    pub(super) fn new(
        field: &Field,
        prompt: &Prompt<'_>,
        (price_worker, price_fleet): (u64, u64),
        per: u64,
    ) -> Self {
        let whole = Self { elsewhere: price_fleet * field.mean_line, at_holders: 0, most: 0 };
        let near = field.least_uncached.saturating_add(OWNER_TOKENS);
        let holders = || {
            let held = prompt.holdings.iter().filter(|held| held.uncached_tokens <= near);
            held.map(|held| held.at).filter(|&at| field.has(at))
        };
        let (mut count, mut sum, mut longest) = (0_u64, 0.0, 0.0_f64);
        for line in holders().map(|at| field.lines[at]) {
            (count, sum, longest) = (count + 1, sum + line, longest.max(line));
        }
        // Exact: see `Numbers`.
        let waiting = sum as u64 / field.members.max(1);
        let at_holders = price_fleet * waiting;
        let dearest = u128::from(at_holders) * u128::from(prompt.input_tokens.min(MOST_TOKENS));
        let most = |line: f64| line as u64 * price_worker / 1000;
        let is_within = |most: u64| dearest <= u128::from(most) * u128::from(per);
        // Most prompts are not that long, and need no look at all lines.
        if count == field.members || is_within(most(longest)) {
            return whole;
        }
        let lines = || field.members().map(|at| (at, field.lines[at]));
        let most = most(lines().map(|(_, line)| line).fold(0.0, f64::max));
        if is_within(most) {
            return whole;
        }
        let mut elsewhere = field.mean_line - waiting;
        if SEVERAL <= count {
            // Both ascend.
            let mut holders = holders().peekable();
            let others = lines().filter(|(at, _)| holders.next_if_eq(at).is_none());
            let shortest = others.map(|(_, line)| line).fold(f64::INFINITY, f64::min);
            elsewhere = elsewhere.min(shortest as u64);
        }
        Self { elsewhere: price_fleet * elsewhere, at_holders, most }
    }

    /// What the lines of all are priced at together, before anything is cut.
    pub(super) fn whole(&self) -> u64 {
        self.elsewhere + self.at_holders
    }

    /// The price of so many tokens, in `per`ths of a token.
    pub(super) fn exact(&self, uncached_tokens: u64, per: u64) -> u128 {
        let of = |lines: u64| u128::from(lines) * u128::from(uncached_tokens);
        of(self.elsewhere) + of(self.at_holders).min(u128::from(self.most) * u128::from(per))
    }

    /// The same in tokens, roughly; `means` is the tokens over `per`.
    pub(super) fn rough(&self, means: f64) -> f64 {
        self.elsewhere as f64 * means + (self.at_holders as f64 * means).min(self.most as f64)
    }
}
