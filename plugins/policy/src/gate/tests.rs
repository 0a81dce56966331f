use super::*;
use crate::candidates::{self, Candidates};
use crate::fleet::{Role, Slot, Worker};
use crate::ledger::Outstanding;
use crate::testing::{Ask, NOW, alike, ask, fleet, gate, queue, scene, worker};
use crate::{Fleet, decide};

fn see(report: Option<&Report>, sent_since: u64) -> Seen<'_> {
    let since = Outstanding { requests: sent_since, uncached_tokens: 0 };
    Seen { at: 0, ranks: 1, report, local: since, since }
}

fn split(fleet: &Fleet, ask: &Ask, rules: &Rules) -> (Vec<Verdict>, Trace) {
    let request = ask.request();
    let scene = scene(fleet, &request, rules);
    let mut candidates: Candidates<'_> = candidates::find(scene);
    let trace = apply(scene, &mut candidates);
    (candidates.iter().map(|candidate| candidate.verdict).collect(), trace)
}

#[test]
fn the_gate_is_open_below_the_limit_and_closed_at_it() {
    assert!(admits(Some(3), 4));
    assert!(!admits(Some(4), 4));
    assert!(!admits(Some(u64::MAX), 4));
}

#[test]
fn an_unknown_queue_is_admitted() {
    assert!(admits(None, 1));
    assert_eq!(queue_depth(&see(None, 9)), None);
    let silent = Report { waiting: None, ..queue(0, 4) };
    assert_eq!(queue_depth(&see(Some(&silent), 9)), None);
}

#[test]
fn what_was_sent_since_queues_beyond_the_free_slots_only() {
    let report = Report { max_running: Some(8), ..queue(3, 6) };
    assert_eq!(queue_depth(&see(Some(&report), 2)), Some(3));
    assert_eq!(queue_depth(&see(Some(&report), 3)), Some(4));
}

#[test]
fn a_worker_running_more_than_its_maximum_has_no_free_slot() {
    let report = Report { max_running: Some(8), ..queue(3, 9) };
    assert_eq!(queue_depth(&see(Some(&report), 2)), Some(5));
}

#[test]
fn with_unknown_slots_only_a_worker_that_queues_already_queues_more() {
    assert_eq!(queue_depth(&see(Some(&queue(0, 4)), 5)), Some(0));
    assert_eq!(queue_depth(&see(Some(&queue(1, 4)), 5)), Some(6));
    let running_unknown = Report { max_running: Some(8), running: None, ..queue(1, 0) };
    assert_eq!(queue_depth(&see(Some(&running_unknown), 5)), Some(6));
}

#[test]
fn an_absurd_queue_saturates() {
    assert_eq!(queue_depth(&see(Some(&queue(u64::MAX, 4)), 5)), Some(u64::MAX));
}

#[test]
fn ranks_scale_the_limit_only_if_asked() {
    let eight = NonZeroU64::new(8).unwrap();
    let with_dp = Rules { scale_with_dp: true, ..Rules::default() };
    assert_eq!(scaled(eight, 4, &Rules::default()), 8);
    assert_eq!(scaled(eight, 4, &with_dp), 32);
    assert_eq!(scaled(NonZeroU64::MAX, 4, &with_dp), u64::MAX);
}

#[test]
fn a_worker_of_two_ranks_is_gated_at_twice_the_limit() {
    let rules = Rules { scale_with_dp: true, ..gate(4, Some(1)) };
    let two_ranks = |waiting| fleet([Worker { ranks: 2, ..worker("a", queue(waiting, 4)) }]);
    let ask = ask(4096).held(0, 0);
    assert_eq!(split(&two_ranks(7), &ask, &rules).0, [Verdict::Lost]);
    assert_eq!(split(&two_ranks(8), &ask, &rules).0, [Verdict::Gated]);
}

#[test]
fn a_report_is_stale_from_its_last_instant_on() {
    let stale = Report { fresh_until: NOW, ..queue(9, 4) };
    let ask = ask(4096).held(0, 0);
    assert_eq!(split(&alike(1, stale), &ask, &gate(4, None)).0, [Verdict::Lost]);
    assert_eq!(split(&alike(1, queue(9, 4)), &ask, &gate(4, Some(1))).0, [Verdict::Gated]);
}

#[test]
fn without_a_limit_nothing_is_gated_or_said_about_the_fleet() {
    let (verdicts, trace) =
        split(&alike(2, queue(99, 4)), &ask(4096).held(0, 0), &Rules::default());
    assert_eq!(verdicts, [Verdict::Lost]);
    assert_eq!(trace, Trace::default());
}

#[test]
fn the_deepest_gated_match_is_noted() {
    let ask = ask(4096).held(0, 2048).held(1, 128);
    let (_, trace) = split(&alike(2, queue(9, 4)), &ask, &gate(4, Some(1)));
    assert_eq!((trace.gate_rejected, trace.best_rejected_blocks), (2, 31));
}

#[test]
fn an_empty_fleet_is_not_all_queued() {
    let mut nobody = ask(4096);
    nobody.excluded = vec![Slot(0)];
    assert!(!split(&alike(1, queue(9, 4)), &nobody, &gate(4, None)).1.fleet_all_queued);
    assert!(split(&alike(1, queue(9, 4)), &ask(4096), &gate(4, None)).1.fleet_all_queued);
}

#[test]
fn one_free_worker_makes_all_queued_false_unless_it_already_failed_this_request() {
    let fleet = fleet([worker("a", queue(9, 4)), worker("b", queue(3, 4))]);
    let mut ask = ask(4096).held(0, 0);
    assert!(!split(&fleet, &ask, &gate(4, None)).1.fleet_all_queued);
    ask.excluded = vec![Slot(1)];
    assert!(split(&fleet, &ask, &gate(4, None)).1.fleet_all_queued);
}

#[test]
fn readmission_needs_every_candidate_gated_the_whole_fleet_queued_and_no_floor() {
    let ask = ask(4096).held(0, 0).held(1, 0);
    let queued = alike(3, queue(9, 4));
    let (verdicts, trace) = split(&queued, &ask, &gate(4, None));
    assert!(trace.queue_gate_fell_back);
    assert_eq!(verdicts, [Verdict::Lost, Verdict::Lost]);
    assert!(!split(&queued, &ask, &gate(4, Some(4))).1.queue_gate_fell_back);
    assert!(!split(&queued, &crate::testing::ask(4096), &gate(4, None)).1.queue_gate_fell_back);
    let one_free =
        fleet([worker("a", queue(9, 4)), worker("b", queue(9, 4)), worker("c", queue(0, 4))]);
    assert!(!split(&one_free, &ask, &gate(4, None)).1.queue_gate_fell_back);
}

#[test]
fn a_gate_nobody_reports_to_is_inert() {
    let inert = |fleet: &Fleet| decide(fleet, &ask(4096).request(), &gate(4, None)).unwrap();
    assert!(inert(&alike(2, None)).trace.gate_inert);
    assert!(inert(&alike(2, Report { fresh_until: NOW, ..queue(0, 0) })).trace.gate_inert);
    assert!(inert(&alike(2, Report { waiting: None, ..queue(0, 0) })).trace.gate_inert);
    assert!(!inert(&fleet([worker("a", None), worker("b", queue(0, 0))])).trace.gate_inert);
}

#[test]
fn a_report_of_a_worker_outside_the_fleet_does_not_make_the_gate_live() {
    let decode = Worker { role: Role::Decode, ..worker("b", queue(0, 0)) };
    let drained = worker("c", queue(0, 0));
    drained.live.set_routable(false);
    let fleet = fleet([worker("a", None), decode, drained]);
    assert!(decide(&fleet, &ask(4096).request(), &gate(4, None)).unwrap().trace.gate_inert);
}

#[test]
fn without_dispatch_correction_the_report_is_read_as_it_is() {
    let busy = crate::testing::sent(worker("a", queue(3, 4)), (5, 0), (5, 0));
    let fleet = fleet([busy]);
    let ask = ask(4096).held(0, 0);
    let as_is = Rules { dispatch_correction: false, ..gate(4, Some(1)) };
    assert_eq!(split(&fleet, &ask, &gate(4, Some(1))).0, [Verdict::Gated]);
    assert_eq!(split(&fleet, &ask, &as_is).0, [Verdict::Lost]);
}
