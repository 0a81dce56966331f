//! What holds for every decision, whatever the fleet, the request and the rules.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use tidegate_policy::decide;
use tidegate_policy::decision::{CacheDecision, Decision, Reason, Verdict};
use tidegate_policy::fleet::{
    Fleet, ForeignShare, Live, Millis, Report, Role, Slot, Speed, SpeedSource, Worker,
};
use tidegate_policy::ledger::Streaming;
use tidegate_policy::request::{Holder, Prompt, Request, holdings};
use tidegate_policy::rules::{PinOrder, Ratio, Rules};
use tidegate_policy::{least_load, round_robin};

const NOW: Millis = Millis(1_000);
const BLOCKS: u32 = 64;

/// A fleet and a request as plain data, so that a test can change one thing and ask again.
#[derive(Clone, Debug)]
struct Case {
    workers: Vec<WorkerCase>,
    input_tokens: Option<u64>,
    excluded: Vec<Slot>,
    home: u64,
    dice: u64,
    turn: u64,
    rules: Rules,
}

#[derive(Clone, Debug)]
struct WorkerCase {
    slot: u16,
    role: Role,
    routable: bool,
    ranks: u32,
    report: Option<Report>,
    speed: Option<Speed>,
    sent_before: Vec<u64>,
    sent_since: Vec<u64>,
    /// Matched blocks.
    blocks: u32,
}

impl WorkerCase {
    fn id(&self) -> String {
        format!("w{:02}", self.slot)
    }

    fn worker(&self) -> Worker {
        let live = Live::default();
        live.set_routable(self.routable);
        for &tokens in &self.sent_before {
            let _outstanding = live.ledger.dispatch(tokens, Streaming::Streamed, Millis(500));
        }
        let mark = live.ledger.mark();
        live.ledger.report_published(&mark);
        for &tokens in &self.sent_since {
            let _outstanding = live.ledger.dispatch(tokens, Streaming::Unstreamed, Millis(900));
        }
        let own_then = mark.outstanding;
        Worker {
            id: self.id().as_str().into(),
            slot: Slot(self.slot),
            role: self.role,
            weight: 1 + u32::from(self.slot) % 3,
            ranks: self.ranks,
            report: self.report.clone().map(|report| Report { own_then, ..report }),
            speed: self.speed,
            live: Arc::new(live),
        }
    }
}

impl Case {
    fn fleet(&self) -> Fleet {
        Fleet::new(1, self.workers.iter().map(WorkerCase::worker).collect())
    }

    /// Asks with everything built anew.
    fn decide(&self) -> Option<(String, Decision)> {
        self.with_request(|fleet, request| decide(fleet, request, &self.rules))
    }

    fn with_request(
        &self,
        ask: impl FnOnce(&Fleet, &Request<'_>) -> Option<Decision>,
    ) -> Option<(String, Decision)> {
        let fleet = self.fleet();
        let tokens = self.input_tokens.unwrap_or(0);
        let holders: Vec<Holder> = self
            .workers
            .iter()
            .map(|worker| Holder { slot: Slot(worker.slot), blocks: worker.blocks })
            .collect();
        let held = holdings(&fleet, &holders, tokens, BLOCKS);
        let prompt = self.input_tokens.map(|input_tokens| Prompt {
            input_tokens,
            holdings: &held,
            home: self.home,
            home_blocks: Some(BLOCKS),
        });
        let request = Request {
            now: NOW,
            prompt,
            excluded: &self.excluded,
            dice: self.dice,
            turn: self.turn,
            mean_uncached_tokens: 0,
            foreign_share: ForeignShare::default(),
        };
        let decision = ask(&fleet, &request)?;
        Some((fleet.workers()[decision.at].id.to_string(), decision))
    }

    fn members(&self) -> impl Iterator<Item = &WorkerCase> {
        self.workers.iter().filter(|worker| {
            worker.routable
                && worker.role != Role::Decode
                && !self.excluded.contains(&Slot(worker.slot))
        })
    }

    fn member(&self, id: &str) -> Option<&WorkerCase> {
        self.members().find(|worker| worker.id() == id)
    }

    /// Section 5, written down a second time.
    fn queue(&self, worker: &WorkerCase) -> Option<u64> {
        let report = worker.report.as_ref().filter(|report| NOW < report.fresh_until)?;
        let waiting = report.waiting?;
        if !self.rules.dispatch_correction {
            return Some(waiting);
        }
        let sent = worker.sent_since.len() as u64;
        let free = match (report.max_running, report.running) {
            (Some(most), Some(running)) => most.saturating_sub(running),
            _ if waiting == 0 => u64::MAX,
            _ => 0,
        };
        Some(waiting.saturating_add(sent.saturating_sub(free)))
    }

    fn scaled(&self, bound: NonZeroU64, worker: &WorkerCase) -> u64 {
        let ranks = if self.rules.scale_with_dp { u64::from(worker.ranks) } else { 1 };
        bound.get().saturating_mul(ranks)
    }

    fn is_gated(&self, worker: &WorkerCase) -> bool {
        let limit = self.rules.worker_queue_limit;
        limit.is_some_and(|limit| {
            self.queue(worker).is_some_and(|queue| self.scaled(limit, worker) <= queue)
        })
    }

    fn is_all_queued(&self) -> bool {
        self.members().next().is_some() && self.members().all(|worker| self.is_gated(worker))
    }

    fn is_below_floor(&self, worker: &WorkerCase) -> bool {
        let floor = self.rules.saturation_queue_floor;
        floor.is_some_and(|floor| {
            self.queue(worker).is_some_and(|queue| queue < self.scaled(floor, worker))
        })
    }
}

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..12_u64, 4 => 0..40_000_u64, 1 => Just(u64::MAX)]
}

fn known(values: impl Strategy<Value = u64>) -> impl Strategy<Value = Option<u64>> {
    prop::option::weighted(0.8, values)
}

fn report() -> impl Strategy<Value = Report> {
    let queue = (known(count()), known(0..12_u64), known(0..12_u64));
    let room = (known(count()), known(prop_oneof![Just(0_u64), Just(1 << 20)]));
    let pending = (known(count()), known(count()));
    (queue, room, pending, 0..10_u8).prop_map(|(queue, room, pending, age)| Report {
        captured_at: Millis(900),
        fresh_until: Millis(if age == 0 { NOW.0 } else { NOW.0 + 1 }),
        waiting: queue.0,
        running: queue.1,
        max_running: queue.2,
        total_tokens: room.0,
        max_total_tokens: room.1,
        waiting_uncached_tokens: pending.0,
        estimated_prefill_queue_ms: pending.1,
        own_then: Default::default(),
        own_in_flight: 0,
    })
}

fn worker() -> impl Strategy<Value = WorkerCase> {
    let role =
        prop_oneof![6 => Just(Role::Plain), 2 => Just(Role::Prefill), 1 => Just(Role::Decode)];
    let sent = || prop::collection::vec(count(), 0..4);
    let blocks = prop_oneof![Just(0), 0..=BLOCKS, 30..34_u32];
    let speed = prop::option::of((count(), any::<bool>()).prop_map(|(speed, measured)| Speed {
        tokens_per_second: speed,
        source: if measured { SpeedSource::Measured } else { SpeedSource::Reported },
    }));
    let state = (prop::bool::weighted(0.9), 1..3_u32, prop::option::weighted(0.8, report()));
    (role, state, speed, sent(), sent(), blocks).prop_map(
        |(role, (routable, ranks, report), speed, sent_before, sent_since, blocks)| WorkerCase {
            slot: 0,
            role,
            routable,
            ranks,
            report,
            speed,
            sent_before,
            sent_since,
            blocks,
        },
    )
}

prop_compose! {
    fn gate()(
        limit in prop::option::weighted(0.8, 1..8_u64),
        floor in prop::option::of(1..8_u64),
    ) -> (Option<NonZeroU64>, Option<NonZeroU64>) {
        let floor = limit.and_then(|limit| floor.map(|floor| floor.min(limit)));
        (limit.and_then(NonZeroU64::new), floor.and_then(NonZeroU64::new))
    }
}

prop_compose! {
    fn rules()(
        (worker_queue_limit, saturation_queue_floor) in gate(),
        min_matched_tokens in prop::option::of(0..3_000_u64),
        min_match_ratio in prop::option::of(0.0..=1.0),
        switch_margin_tokens in count(),
        (pressure_guard, by_depth, dispatch_correction, scale_with_dp) in any::<(bool, bool, bool, bool)>(),
        (pressure_abs_tokens, pressure_abs_ms) in (count(), prop::option::of(count())),
        (max_pending_prefill_tokens, pin_max_queue) in prop::option::of(count()).prop_flat_map(|most| (Just(most), prop::option::of(0..20_u64))),
        choices in prop::option::of(1..5_u32),
    ) -> Rules {
        Rules {
            worker_queue_limit,
            saturation_queue_floor,
            min_matched_tokens,
            min_match_ratio: min_match_ratio.and_then(Ratio::new),
            switch_margin_tokens,
            pressure_guard,
            pressure_abs_tokens,
            pressure_abs_ms,
            max_pending_prefill_tokens,
            min_load_choices: choices.and_then(NonZeroU32::new),
            pin_order: if by_depth { PinOrder::Locality } else { PinOrder::Pressure },
            pin_max_queue,
            dispatch_correction,
            scale_with_dp,
            ..Rules::default()
        }
    }
}

prop_compose! {
    fn case()(
        workers in prop::collection::vec(worker(), 0..12),
        input_tokens in prop::option::weighted(0.9, prop_oneof![4 => 0..9_000_u64, 1 => Just(u64::MAX)]),
        excluded in prop::collection::vec((0..12_u16).prop_map(Slot), 0..2),
        (home, dice, turn) in any::<(u64, u64, u64)>(),
        rules in rules(),
    ) -> Case {
        let workers = (0..).zip(workers).map(|(slot, worker)| WorkerCase { slot, ..worker }).collect();
        Case { workers, input_tokens, excluded, home, dice, turn, rules }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_chosen_is_a_live_member_and_there_is_one_if_anybody_is(case in case()) {
        let chosen = case.decide().map(|(id, _)| id);
        prop_assert_eq!(chosen.is_some(), case.members().next().is_some());
        if let Some(id) = chosen {
            prop_assert!(case.member(&id).is_some());
        }
    }

    #[test]
    fn the_order_of_workers_is_irrelevant(
        (case, shuffled) in case().prop_flat_map(|case| {
            let workers = Just(case.workers.clone()).prop_shuffle();
            (Just(case), workers)
        })
    ) {
        let other = Case { workers: shuffled, ..case.clone() };
        prop_assert_eq!(case.decide(), other.decide());
    }

    #[test]
    fn the_same_dice_give_the_same_answer(case in case()) {
        prop_assert_eq!(case.decide(), case.decide());
    }

    #[test]
    fn a_longer_queue_never_attracts(case in case(), which: prop::sample::Index, more in 1..100_u64) {
        // A random draw may fall on anybody once the set it is drawn from changes.
        let mut case = case;
        case.rules.min_load_choices = None;
        let Some((chosen, _)) = case.decide() else { return Ok(()) };
        let mut longer = case.clone();
        let at = which.index(longer.workers.len());
        let Some(report) = &mut longer.workers[at].report else { return Ok(()) };
        let Some(waiting) = &mut report.waiting else { return Ok(()) };
        *waiting = waiting.saturating_add(more);
        if let Some(tokens) = &mut report.waiting_uncached_tokens {
            *tokens = tokens.saturating_add(more * 100);
        }
        let raised = longer.workers[at].id();
        if raised != chosen {
            prop_assert_ne!(longer.decide().map(|(id, _)| id), Some(raised));
        }
    }

    #[test]
    fn a_pin_is_made_only_where_nobody_is_below_the_floor(case in case()) {
        let Some((id, decision)) = case.decide() else { return Ok(()) };
        prop_assert_eq!(decision.trace.pin_pressure_source.is_some(), decision.reason == Reason::SaturationPin);
        if decision.reason == Reason::SaturationPin {
            prop_assert!(case.rules.saturation_queue_floor.is_some());
            prop_assert!(!case.members().any(|worker| case.is_below_floor(worker)));
            prop_assert!(case.is_gated(case.member(&id).unwrap()));
            prop_assert_eq!(decision.cache, Some(CacheDecision::AllQueued));
        }
    }

    #[test]
    fn a_gated_worker_is_reached_only_by_pin_readmission_or_fallback(case in case()) {
        let Some((id, decision)) = case.decide() else { return Ok(()) };
        if decision.reason == Reason::CacheCandidate && case.is_gated(case.member(&id).unwrap()) {
            prop_assert!(decision.trace.queue_gate_fell_back);
            prop_assert!(case.is_all_queued());
            prop_assert!(case.rules.saturation_queue_floor.is_none());
        }
    }

    #[test]
    fn reason_label_and_trace_agree(case in case()) {
        let Some((_, decision)) = case.decide() else { return Ok(()) };
        let trace = &decision.trace;
        let count = |verdict| trace.considered.iter().filter(|c| c.verdict == verdict).count();
        let chosen = trace.considered.iter().find(|c| c.verdict == Verdict::Chosen);
        prop_assert!(count(Verdict::Chosen) <= 1);
        match decision.reason {
            Reason::CacheCandidate | Reason::SaturationPin => {
                let chosen = chosen.unwrap();
                prop_assert_eq!((chosen.at, chosen.uncached_tokens), (decision.at, decision.uncached_tokens));
            }
            Reason::Diverted => prop_assert!(chosen.is_none() && !trace.considered.is_empty()),
            Reason::Home | Reason::LeastLoad => prop_assert!(trace.considered.is_empty()),
            Reason::Owner
            | Reason::LeastCost
            | Reason::RoundRobin
            | Reason::Scout
            | Reason::Exploit
            | Reason::Pinned
            | Reason::GreedyFallback => prop_assert!(false, "not the ladder's"),
        }
        match decision.cache.unwrap() {
            CacheDecision::CacheHit => {
                prop_assert_eq!(decision.reason, Reason::CacheCandidate);
                prop_assert!(!trace.queue_gate_fell_back);
            }
            CacheDecision::AllQueued => prop_assert!(
                decision.reason == Reason::SaturationPin || (trace.fleet_all_queued && 0 < trace.gate_rejected)
            ),
            CacheDecision::CacheMiss => prop_assert!(trace.gate_rejected == 0 || 0 < trace.admission_evaluated),
            CacheDecision::CacheWorkerQueued => {
                prop_assert_eq!(trace.gate_rejected as usize, trace.considered.len());
                prop_assert!(!trace.fleet_all_queued);
            }
        }
        let evaluated = trace.considered.len()
            - if trace.queue_gate_fell_back { 0 } else { trace.gate_rejected as usize };
        prop_assert_eq!(trace.admission_evaluated as usize, evaluated);
        prop_assert_eq!(trace.admission_evaluated == trace.admission_rejected, decision.reason != Reason::CacheCandidate);
        prop_assert!(trace.guard_overrides <= trace.guard_compared);
    }

    #[test]
    fn what_is_said_about_the_fleet_is_true(case in case()) {
        let Some((id, decision)) = case.decide() else { return Ok(()) };
        let limited = case.rules.worker_queue_limit.is_some();
        prop_assert_eq!(decision.trace.fleet_all_queued, case.is_all_queued());
        let known = case.members().any(|worker| case.queue(worker).is_some());
        prop_assert_eq!(decision.trace.gate_inert, limited && !known);
        if decision.trace.affinity_lost {
            prop_assert!(case.is_all_queued());
            prop_assert!(decision.trace.considered.iter().all(|owner| owner.at != decision.at), "{id}");
        }
        for owner in &decision.trace.considered {
            let worker = case.member(&format!("w{:02}", owner.at)).unwrap();
            prop_assert_eq!(owner.queue, case.queue(worker));
        }
    }

    #[test]
    fn the_other_policies_choose_live_members_too(case in case(), choices in prop::option::of(1..6_u32)) {
        let choices = choices.and_then(NonZeroU32::new);
        let anybody = case.members().next().is_some();
        for chosen in [
            case.with_request(|fleet, request| least_load(fleet, request, choices)),
            case.with_request(round_robin),
        ] {
            prop_assert_eq!(chosen.is_some(), anybody);
            if let Some((id, decision)) = chosen {
                prop_assert!(case.member(&id).is_some());
                prop_assert_eq!(decision.cache, None);
            }
        }
    }
}
