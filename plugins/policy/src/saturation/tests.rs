use crate::decide;
use crate::decision::{CacheDecision, Decision, PressureSource, Reason, Verdict};
use crate::fleet::{Report, Worker};
use crate::rules::{PinOrder, Rules};
use crate::testing::{Ask, ask, fleet, full, gate, native, queue, verdicts, worker};
use std::num::NonZeroU64;

fn run(workers: Vec<Worker>, ask: &Ask, rules: &Rules) -> Decision {
    decide(&fleet(workers), &ask.request(), rules).unwrap()
}

/// An owner that queues beside another worker.
fn beside(other: impl Into<Option<Report>>, rules: &Rules) -> Reason {
    let workers = vec![worker("owner", queue(9, 4)), worker("other", other)];
    let owner_last = ask(4_096).held(1, 0);
    run(workers, &owner_last, rules).reason
}

#[test]
fn a_worker_one_below_the_floor_vetoes_and_one_at_it_does_not() {
    assert_eq!(beside(queue(1, 4), &gate(4, Some(2))), Reason::Diverted);
    assert_eq!(beside(queue(2, 4), &gate(4, Some(2))), Reason::SaturationPin);
}

#[test]
fn an_unknown_worker_cannot_veto() {
    assert_eq!(beside(None, &gate(4, Some(2))), Reason::SaturationPin);
}

#[test]
fn without_a_floor_nothing_is_pinned() {
    assert_eq!(beside(queue(3, 4), &gate(4, None)), Reason::Diverted);
}

#[test]
fn ranks_scale_the_floor_if_asked() {
    let rules = Rules { scale_with_dp: true, ..gate(4, Some(2)) };
    let other = |waiting| Worker { ranks: 2, ..worker("other", queue(waiting, 4)) };
    let run = |waiting| {
        run(vec![worker("owner", queue(9, 4)), other(waiting)], &ask(4_096).held(1, 0), &rules)
    };
    assert_eq!(run(3).reason, Reason::Diverted);
    assert_eq!(run(4).reason, Reason::SaturationPin);
}

#[test]
fn a_floor_above_the_limit_still_looks_at_every_worker() {
    let floor = NonZeroU64::new(7);
    let rules = Rules { saturation_queue_floor: floor, ..gate(4, None) };
    assert_eq!(beside(queue(6, 4), &rules), Reason::Diverted);
    assert_eq!(beside(queue(7, 4), &rules), Reason::SaturationPin);
}

#[test]
fn the_calmer_owner_is_pinned_unless_locality_is_asked_for() {
    let workers = || vec![worker("busy", queue(9, 4)), worker("calm", queue(5, 4))];
    let ask = ask(8_192).held(0, 0).held(1, 4_000);
    let by_pressure = run(workers(), &ask, &gate(4, Some(2)));
    assert_eq!(by_pressure.at, 1);
    assert_eq!(by_pressure.cache, Some(CacheDecision::AllQueued));
    assert_eq!(by_pressure.trace.pin_pressure_source, Some(PressureSource::ReportedQueue));
    assert_eq!(verdicts(&by_pressure), [Verdict::Lost, Verdict::Chosen]);
    let rules = Rules { pin_order: PinOrder::Locality, ..gate(4, Some(2)) };
    assert_eq!(run(workers(), &ask, &rules).at, 0);
}

#[test]
fn locality_breaks_its_ties_by_pressure() {
    let workers = vec![worker("a", queue(9, 4)), worker("b", queue(5, 4))];
    let rules = Rules { pin_order: PinOrder::Locality, ..gate(4, Some(2)) };
    assert_eq!(run(workers, &ask(8_192).held(0, 7).held(1, 7), &rules).at, 1);
}

#[test]
fn an_owner_with_a_longer_queue_than_allowed_is_not_pinned() {
    let limited = |most| Rules { pin_max_queue: Some(most), ..gate(4, Some(2)) };
    assert_eq!(beside(queue(3, 4), &limited(9)), Reason::SaturationPin);
    assert_eq!(beside(queue(3, 4), &limited(8)), Reason::Diverted);
}

#[test]
fn an_owner_without_room_is_passed_over_and_said_so() {
    let workers = vec![worker("full", full(5)), worker("ok", native(9, 10))];
    let ask = ask(8_192).held(0, 0).held(1, 4_000);
    let decision = run(workers, &ask, &gate(4, Some(2)));
    assert_eq!((decision.at, decision.reason), (1, Reason::SaturationPin));
    assert_eq!(verdicts(&decision), [Verdict::NoRoom, Verdict::Chosen]);
}

#[test]
fn the_pin_compares_gated_owners_by_what_they_all_report() {
    let workers = vec![
        worker("full_but_open", full(1)),
        worker("counts", queue(6, 4)),
        worker("native", native(5, 90_000)),
    ];
    let ask = ask(8_192).held(0, 0).held(1, 0).held(2, 0);
    let decision = run(workers, &ask, &gate(4, Some(1)));
    assert_eq!(decision.trace.pin_pressure_source, Some(PressureSource::ReportedQueue));
    assert_eq!((decision.at, decision.reason), (2, Reason::SaturationPin));
}

#[test]
fn an_owner_without_room_never_pins_by_itself() {
    let workers = vec![worker("a", full(3)), worker("b", queue(5, 4))];
    let decision = run(workers, &ask(8_192).held(0, 0), &gate(4, Some(2)));
    assert_eq!(decision.reason, Reason::Diverted);
    assert_eq!(decision.cache, Some(CacheDecision::CacheMiss));
}
