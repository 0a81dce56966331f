use crate::decide;
use crate::decision::{Reason, Verdict};
use crate::fleet::Report;
use crate::rules::Rules;
use crate::testing::{ask, fleet, gate, native, queue, sent, verdicts, worker};

/// Does an owner with this report and 100 of 2,000 tokens to compute pass?
fn passes(report: Report, rules: &Rules) -> bool {
    let fleet = fleet([sent(worker("a", report), (1, 10), (1, 10))]);
    let decision = decide(&fleet, &ask(2_000).held(0, 100).request(), rules).unwrap();
    assert_eq!(decision.trace.admission_evaluated, 1);
    decision.reason == Reason::CacheCandidate
}

#[test]
fn the_last_slot_is_room_and_none_is_not() {
    let running = |running| Report { running: Some(running), ..native(0, 0) };
    assert!(passes(running(63), &Rules::default()));
    assert!(!passes(running(64), &Rules::default()));
    assert!(!passes(running(u64::MAX), &Rules::default()));
}

#[test]
fn a_gate_says_how_many_may_wait_for_a_slot() {
    let busy = |waiting| Report { running: Some(64), ..native(waiting, 0) };
    assert!(passes(busy(6), &gate(8, None)));
    assert!(passes(busy(6), &gate(8, Some(1))));
    assert!(!passes(busy(6), &Rules::default()));
}

#[test]
fn the_whole_prompt_must_fit_into_the_kv_cache() {
    let used = |used| Report { total_tokens: Some(used), ..native(0, 0) };
    assert!(passes(used(98_000), &Rules::default()));
    assert!(!passes(used(98_001), &Rules::default()));
    assert!(!passes(used(u64::MAX), &Rules::default()));
}

#[test]
fn pending_prefill_counts_what_was_sent_since_and_this_request() {
    let rules = Rules { max_pending_prefill_tokens: Some(1_000), ..Rules::default() };
    assert!(passes(native(0, 890), &rules));
    assert!(!passes(native(0, 891), &rules));
    let as_is = Rules { dispatch_correction: false, ..rules };
    assert!(passes(native(0, 900), &as_is));
    assert!(!passes(native(0, 901), &as_is));
}

#[test]
fn a_worker_without_native_load_is_admitted() {
    assert!(passes(queue(999, 999), &Rules::default()));
    for blind in [
        Report { waiting: None, ..native(0, 0) },
        Report { running: None, ..native(0, 0) },
        Report { total_tokens: None, ..native(0, 0) },
        Report { waiting_uncached_tokens: None, ..native(0, 0) },
        Report { max_running: None, ..native(0, 0) },
        Report { max_total_tokens: None, ..native(0, 0) },
        Report { max_running: Some(0), ..native(0, 0) },
        Report { max_total_tokens: Some(0), ..native(0, 0) },
    ] {
        let full = Report {
            running: blind.running.map(|_| 999),
            total_tokens: blind.total_tokens.map(|_| 999_999),
            ..blind
        };
        assert!(passes(full.clone(), &Rules::default()), "{full:?}");
    }
}

#[test]
fn a_full_owner_is_counted_and_marked() {
    let fleet = fleet([worker("a", crate::testing::full(0)), worker("b", native(0, 0))]);
    let ask = ask(2_000).held(0, 100).held(1, 200);
    let decision = decide(&fleet, &ask.request(), &Rules::default()).unwrap();
    assert_eq!(decision.at, 1);
    assert_eq!((decision.trace.admission_evaluated, decision.trace.admission_rejected), (2, 1));
    assert_eq!(verdicts(&decision), [Verdict::NoRoom, Verdict::Chosen]);
}
