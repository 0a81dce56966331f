//! Cost selection against its own definition: every worker scored, in the order of the formula.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;
use std::sync::Arc;
use tidegate_policy::decision::{CacheDecision, CostTrace, Decision, Reason};
use tidegate_policy::fleet::{
    Fleet, ForeignShare, Live, Millis, Report, Role, Slot, Speed, SpeedSource, Worker,
};
use tidegate_policy::ledger::Streaming;
use tidegate_policy::request::{Holder, Holdings, Prompt, Request, holdings};
use tidegate_policy::rules::{Bonus, CostRules, Price, Rules, Selection, SpeedSnap, TiePercent};
use tidegate_policy::{decide, decide_in_detail};

const NOW: Millis = Millis(10_000);
const BLOCKS: u32 = 64;

#[derive(Clone, Debug)]
struct WorkerCase {
    role: Role,
    routable: bool,
    weight: u32,
    report: Option<Report>,
    speed: Option<Speed>,
    sent: Vec<(u64, bool, u64)>,
    blocks: u32,
}

#[derive(Clone, Debug)]
struct Case {
    workers: Vec<WorkerCase>,
    excluded: Vec<Slot>,
    input_tokens: u64,
    mean: u64,
    home: u64,
    home_blocks: Option<u32>,
    foreign: u32,
    turn: u64,
    cost: CostNumbers,
}

/// Thousandths, percent and hundredths, so that the definition can use whole numbers.
#[derive(Clone, Copy, Debug)]
struct CostNumbers {
    price_worker: u32,
    price_fleet: u32,
    tie: u8,
    bonus: u32,
    bonus_foreign: u32,
}

impl CostNumbers {
    fn rules(self) -> Rules {
        let price = |thousandths: u32| Price::new(f64::from(thousandths) / 1000.0).unwrap();
        let bonus = |hundredths: u32| Bonus::new(f64::from(hundredths) / 100.0).unwrap();
        let cost = CostRules {
            price_worker: price(self.price_worker),
            price_fleet: price(self.price_fleet),
            tie_percent: TiePercent::new(self.tie).unwrap(),
            speed_snap: SpeedSnap::new(2.0).unwrap(),
            home_bonus: bonus(self.bonus),
            home_bonus_foreign: bonus(self.bonus_foreign),
        };
        Rules { selection: Selection::Cost(cost), ..Rules::default() }
    }
}

impl Case {
    fn fleet(&self) -> Fleet {
        Fleet::new(1, (0..).zip(&self.workers).map(|(slot, case)| case.worker(slot)).collect())
    }

    fn ask<T>(&self, fleet: &Fleet, ask: impl FnOnce(&Request<'_>, &Rules) -> T) -> T {
        let held = self.held(fleet);
        let prompt = Prompt {
            input_tokens: self.input_tokens,
            holdings: &held,
            home: self.home,
            home_blocks: self.home_blocks,
        };
        let request = Request {
            now: NOW,
            prompt: Some(prompt),
            excluded: &self.excluded,
            dice: 0,
            turn: self.turn,
            mean_uncached_tokens: self.mean,
            foreign_share: ForeignShare::new(f64::from(self.foreign) / 100.0).unwrap(),
        };
        ask(&request, &self.cost.rules())
    }

    fn held(&self, fleet: &Fleet) -> Holdings {
        let holder =
            |(slot, worker): (u16, &WorkerCase)| Holder { slot: Slot(slot), blocks: worker.blocks };
        let holders: Vec<Holder> = (0..).zip(&self.workers).map(holder).collect();
        holdings(fleet, &holders, self.input_tokens, BLOCKS)
    }

    fn members(&self, fleet: &Fleet) -> Vec<usize> {
        let is_member = |&at: &usize| {
            let worker = &fleet.workers()[at];
            worker.role != Role::Decode
                && worker.live.is_routable()
                && !self.excluded.contains(&worker.slot)
        };
        (0..fleet.workers().len()).filter(is_member).collect()
    }

    /// Section 10, word for word, and what is left out beyond it.
    fn defined(&self, fleet: &Fleet) -> Option<Defined> {
        let members = self.members(fleet);
        let is_short = self.input_tokens < Rules::default().min_matched_tokens?;
        let held = if is_short { Holdings::new() } else { self.held(fleet) };
        let uncached = |at: usize| {
            let held = held.iter().find(|held| held.at == at);
            held.map_or(self.input_tokens, |held| held.uncached_tokens)
        };
        let ubar = if self.mean == 0 { self.input_tokens } else { self.mean }.max(1);
        let line = |at: usize| u128::from(fleet.line(at, NOW, ubar));
        let lbar = members.iter().map(|&at| line(at)).sum::<u128>()
            / u128::try_from(members.len().max(1)).unwrap();
        let owners = || held.iter().filter(|held| members.contains(&held.at));
        let is_cold =
            self.home_blocks.is_some_and(|blocks| owners().all(|held| held.blocks < blocks));
        let home = members.iter().copied().rev().max_by_key(|&at| fleet.home_rank(self.home, at));
        let home = home.filter(|_| is_cold);
        let pw = self.cost.price_worker;
        // By the part of the fleet's KV cache that is free, a third at least.
        let free = (1_000_000 - self.kv_share(fleet)).max(333_333);
        let pf = u64::from(self.cost.price_fleet) * 1_000_000 / free;
        let fewest = members.iter().map(|&at| uncached(at)).min()?;
        let (pw, pf, per) = (u128::from(pw), u128::from(pf), u128::from(1000 * ubar));
        // Beyond section 10: a holders' line that prices more than any wait.
        let (holders, others): (Vec<usize>, Vec<usize>) = members
            .iter()
            .partition(|&&at| held.iter().any(|h| h.at == at) && uncached(at) <= fewest + 1024);
        let waiting = holders.iter().map(|&at| line(at)).sum::<u128>() / members.len() as u128;
        let most = members.iter().map(|&at| line(at)).max()? * pw / 1000 * per;
        let is_cut = !others.is_empty() && most < pf * waiting * u128::from(self.input_tokens);
        let shortest = others.iter().map(|&at| line(at)).min().unwrap_or(0);
        let elsewhere = match holders.len() {
            0 | 1 => lbar - waiting,
            _ => shortest.min(lbar - waiting),
        };
        let fleet_price = |u: u128| match is_cut {
            true => pf * elsewhere * u + most.min(pf * waiting * u),
            false => pf * lbar * u,
        };
        let score = |at: usize| {
            let (l, u) = (line(at), u128::from(uncached(at)));
            let price = (pw * l * u + fleet_price(u)) / per;
            let vref = u128::from(fleet.vref().unwrap_or(1));
            let score = (l + u + price) * vref / u128::from(fleet.speed(at).unwrap_or(1));
            // Ten thousandths.
            let bonus = 100 * self.cost.bonus + self.cost.bonus_foreign * self.foreign;
            if home == Some(at) { score * u128::from(10_000 - bonus) / 10_000 } else { score }
        };
        let roomy: Vec<usize> =
            members.iter().copied().filter(|&at| self.has_room(&fleet.workers()[at])).collect();
        let compared = if roomy.is_empty() { members.clone() } else { roomy };
        let best = compared.iter().map(|&at| score(at)).min()?;
        let key = |&at: &usize| {
            (uncached(at) / 512, fleet.workers()[at].live.ledger.outstanding().requests)
        };
        let ties = compared
            .iter()
            .copied()
            .filter(|&at| 100 * score(at) <= u128::from(100 + self.cost.tie) * best);
        let ties: Vec<usize> = ties.collect();
        let least = ties.iter().map(key).min()?;
        let last: Vec<usize> = ties.into_iter().filter(|at| key(at) == least).collect();
        let at = last[(self.turn % last.len() as u64) as usize];
        let reason = match owners().next() {
            None if home == Some(at) => Reason::Home,
            None => Reason::LeastCost,
            Some(_) if uncached(at) <= fewest + 1024 => Reason::Owner,
            Some(_) => Reason::Diverted,
        };
        let scores = members.iter().map(|&at| (at, line(at), score(at))).collect();
        Some(Defined { at, reason, mean_line: lbar, scores })
    }

    /// Millionths.
    fn kv_share(&self, fleet: &Fleet) -> u64 {
        let prefilling = fleet.workers().iter().filter(|worker| worker.role != Role::Decode);
        let reports: Vec<&Report> = prefilling.filter_map(|w| w.report.as_ref()).collect();
        if !reports.iter().any(|report| report.waiting.is_some() && NOW < report.fresh_until) {
            return 0;
        }
        let newest = reports.iter().map(|report| report.captured_at).max().unwrap_or_default();
        let fresh = reports.iter().filter(|report| newest < report.fresh_until);
        let known = fresh.filter_map(|report| report.total_tokens.zip(report.max_total_tokens));
        let (held, all) =
            known.fold((0, 0), |sum, (held, all)| (sum.0 + held.min(all), sum.1 + all));
        (held * 1_000_000).checked_div(all).unwrap_or(0)
    }

    fn has_room(&self, worker: &Worker) -> bool {
        let Some(report) = worker.fresh(NOW) else { return true };
        // What waits of ours is in the line already.
        if 0 < worker.live.ledger.outstanding().requests {
            return true;
        }
        let known = (
            report.waiting,
            report.waiting_uncached_tokens,
            report.running,
            report.max_running.filter(|&most| 0 < most),
            report.total_tokens,
            report.max_total_tokens.filter(|&most| 0 < most),
        );
        // A queue is in the line already, so only a worker without one is judged by its room.
        let (Some(0), Some(_), Some(running), Some(slots), Some(used), Some(kv)) = known else {
            return true;
        };
        running < slots && used + self.input_tokens <= kv
    }
}

struct Defined {
    at: usize,
    reason: Reason,
    mean_line: u128,
    scores: Vec<(usize, u128, u128)>,
}

impl WorkerCase {
    fn worker(&self, slot: u16) -> Worker {
        let live = Live::default();
        live.set_routable(self.routable);
        for &(tokens, streamed, sent) in &self.sent {
            let streaming = if streamed { Streaming::Streamed } else { Streaming::Unstreamed };
            let _outstanding = live.ledger.dispatch(tokens, streaming, Millis(sent));
        }
        Worker {
            id: format!("w{slot:03}").as_str().into(),
            slot: Slot(slot),
            role: self.role,
            weight: self.weight,
            ranks: 1,
            report: self.report.clone(),
            speed: self.speed,
            live: Arc::new(live),
        }
    }
}

/// Few different numbers, so that scores are often equal or nearly so.
fn tokens() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => Just(0),
        3 => (0..8_u64).prop_map(|steps| steps * 4_000),
        3 => 0..200_u64,
        3 => 0..100_000_u64,
        1 => 0..1_000_000_000_u64,
    ]
}

fn report() -> impl Strategy<Value = Report> {
    let some = |values: BoxedStrategy<u64>| prop::option::weighted(0.9, values);
    let queue = (some((0..9_u64).boxed()), some((0..9_u64).boxed()), some((1..9_u64).boxed()));
    let kv = (some((0..300_000_u64).boxed()), some(Just(300_000_u64).boxed()));
    (queue, kv, some(tokens().boxed()), prop::bool::weighted(0.9)).prop_map(
        |(queue, kv, waiting_uncached_tokens, is_fresh)| Report {
            captured_at: Millis(9_000),
            fresh_until: Millis(if is_fresh { NOW.0 + 1 } else { NOW.0 }),
            waiting: queue.0,
            running: queue.1,
            max_running: queue.2,
            total_tokens: kv.0,
            max_total_tokens: kv.1,
            waiting_uncached_tokens,
            ..Report::default()
        },
    )
}

fn speed() -> impl Strategy<Value = Option<Speed>> {
    let source = prop_oneof![
        1 => Just(SpeedSource::Configured),
        1 => Just(SpeedSource::Reported),
        4 => Just(SpeedSource::Measured),
    ];
    let speed = prop_oneof![4 => Just(8_000), 2 => 1_000..40_000_u64, 1 => 1..1_000_000_u64];
    prop::option::weighted(
        0.7,
        (speed, source).prop_map(|(tokens_per_second, source)| Speed { tokens_per_second, source }),
    )
}

fn worker() -> impl Strategy<Value = WorkerCase> {
    let role =
        prop_oneof![8 => Just(Role::Plain), 2 => Just(Role::Prefill), 1 => Just(Role::Decode)];
    let sent = prop::collection::vec((tokens(), any::<bool>(), 9_000..10_000_u64), 0..3);
    let blocks = prop_oneof![6 => Just(0), 1 => 1..=BLOCKS, 1 => 30..33_u32];
    let report = prop::option::weighted(0.3, report());
    (role, prop::bool::weighted(0.95), 1..3_u32, report, speed(), sent, blocks).prop_map(
        |(role, routable, weight, report, speed, sent, blocks)| WorkerCase {
            role,
            routable,
            weight,
            report,
            speed,
            sent,
            blocks,
        },
    )
}

/// All alike but a few, or all different.
fn workers() -> impl Strategy<Value = Vec<WorkerCase>> {
    let alike = (worker(), 0..90_usize, prop::collection::vec(worker(), 0..6))
        .prop_map(|(one, count, others)| [vec![one; count], others].concat());
    prop_oneof![alike, prop::collection::vec(worker(), 0..90)]
}

fn numbers() -> impl Strategy<Value = CostNumbers> {
    let prices = prop_oneof![Just((4_000, 2_000)), Just((0, 0)), (1..64_001_u32, 0..64_001_u32)];
    (prices, 0..21_u8, 0..50_u32, 0..50_u32).prop_map(
        |((price_worker, price_fleet), tie, bonus, bonus_foreign)| CostNumbers {
            price_worker,
            price_fleet,
            tie,
            bonus,
            bonus_foreign,
        },
    )
}

prop_compose! {
    fn case()(
        workers in workers(),
        excluded in prop::collection::vec((0..90_u16).prop_map(Slot), 0..3),
        (input_tokens, mean) in (tokens(), tokens()),
        home in any::<u64>(),
        home_blocks in prop::option::of(1..=BLOCKS),
        (foreign, turn) in (0..101_u32, any::<u64>()),
        cost in numbers(),
    ) -> Case {
        Case { workers, excluded, input_tokens, mean, home, home_blocks, foreign, turn, cost }
    }
}

fn audit(decision: &Decision) -> &CostTrace {
    decision.trace.cost.as_ref().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn the_choice_is_that_of_scoring_everybody(case in case()) {
        let fleet = case.fleet();
        let chosen = case.ask(&fleet, |request, rules| decide(&fleet, request, rules));
        let Some(defined) = case.defined(&fleet) else {
            prop_assert!(chosen.is_none());
            return Ok(());
        };
        let chosen = chosen.unwrap();
        prop_assert_eq!((chosen.at, chosen.reason), (defined.at, defined.reason));
        let cache = match defined.reason {
            Reason::Owner => CacheDecision::CacheHit,
            Reason::Diverted => CacheDecision::CacheWorkerQueued,
            _ => CacheDecision::CacheMiss,
        };
        prop_assert_eq!(chosen.cache, Some(cache));
    }

    #[test]
    fn the_audit_is_the_formula_for_every_worker(case in case()) {
        let fleet = case.fleet();
        let detailed = case.ask(&fleet, |request, rules| decide_in_detail(&fleet, request, rules));
        let Some(defined) = case.defined(&fleet) else { return Ok(()) };
        let detailed = detailed.unwrap();
        let audit = audit(&detailed);
        prop_assert_eq!(u128::from(audit.mean_line), defined.mean_line);
        let scores: Vec<_> =
            audit.costs.iter().map(|cost| (cost.at, u128::from(cost.line), cost.score)).collect();
        prop_assert_eq!(scores, defined.scores);
        prop_assert!(audit.costs.contains(&audit.chosen));
        prop_assert_eq!(audit.chosen.at, detailed.at);
        let fewest = audit.costs.iter().map(|cost| cost.uncached_tokens).min().unwrap();
        prop_assert_eq!(audit.diverted_tokens, audit.chosen.uncached_tokens - fewest);
    }
}
