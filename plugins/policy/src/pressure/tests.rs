use super::*;
use crate::testing::{native, queue};

fn estimated(ms: u64) -> Report {
    Report { estimated_prefill_queue_ms: Some(ms), ..native(1, 100) }
}

fn see(report: &Report, local: (u64, u64), since: (u64, u64)) -> Seen<'_> {
    let outstanding = |(requests, uncached_tokens)| Outstanding { requests, uncached_tokens };
    Seen {
        at: 0,
        ranks: 1,
        report: Some(report),
        local: outstanding(local),
        since: outstanding(since),
    }
}

#[test]
fn the_set_is_compared_by_what_its_poorest_worker_reports() {
    let (estimated, native, queue) = (estimated(5), native(1, 1), queue(1, 1));
    let waiting_only = Report { running: None, ..queue.clone() };
    let of = |reports: &[Option<&Report>]| source(reports.iter().copied());
    assert_eq!(of(&[Some(&estimated)]), PressureSource::EstimatedPrefillQueueMs);
    assert_eq!(of(&[Some(&estimated), Some(&native)]), PressureSource::NativeQueueTokens);
    assert_eq!(of(&[Some(&native), Some(&queue)]), PressureSource::ReportedQueue);
    assert_eq!(of(&[Some(&native), Some(&waiting_only)]), PressureSource::RouterLocal);
    assert_eq!(of(&[Some(&native), None]), PressureSource::RouterLocal);
}

#[test]
fn an_empty_set_is_router_local() {
    assert_eq!(source(std::iter::empty()), PressureSource::RouterLocal);
}

#[test]
fn an_estimate_without_native_load_is_no_estimate() {
    let bare = Report { estimated_prefill_queue_ms: Some(1), ..queue(1, 1) };
    assert_eq!(source([Some(&bare)].into_iter()), PressureSource::ReportedQueue);
}

#[test]
fn fields_are_compared_in_the_order_of_the_rules() {
    let source = PressureSource::EstimatedPrefillQueueMs;
    let at = |report: &Report, local| of(source, &see(report, local, (0, 0)));
    let base = at(&estimated(5), (1, 10));
    assert!(base < at(&estimated(6), (0, 0)));
    let more_tokens = Report { waiting_uncached_tokens: Some(101), ..estimated(5) };
    let more_waiting = Report { waiting: Some(2), ..estimated(5) };
    let more_running = Report { running: Some(5), ..estimated(5) };
    let ascending = [
        base,
        at(&estimated(5), (0, 11)),
        at(&more_running, (0, 0)),
        at(&more_waiting, (0, 0)),
        at(&more_tokens, (0, 0)),
    ];
    assert!(ascending.is_sorted_by(|less, more| less < more), "{ascending:?}");
}

#[test]
fn a_source_ignores_what_it_does_not_name() {
    let (calm, busy) = (native(0, 0), native(9, 9_000));
    let local = |report| of(PressureSource::RouterLocal, &see(report, (1, 1), (0, 0)));
    assert_eq!(local(&calm), local(&busy));
    let tokens_only = native(0, 9_000);
    let queued = |report| of(PressureSource::ReportedQueue, &see(report, (1, 1), (0, 0)));
    assert_eq!(queued(&calm), queued(&tokens_only));
}

#[test]
fn what_was_sent_since_is_added_to_waiting_and_its_tokens() {
    let report = native(1, 100);
    let with = of(PressureSource::NativeQueueTokens, &see(&report, (0, 0), (2, 50)));
    let as_if = native(3, 150);
    assert_eq!(with, of(PressureSource::NativeQueueTokens, &see(&as_if, (0, 0), (0, 0))));
}

#[test]
fn extremes_saturate() {
    let report = native(u64::MAX, u64::MAX);
    let pressure = of(PressureSource::NativeQueueTokens, &see(&report, (1, 1), (1, 1)));
    assert_eq!((pressure.waiting, pressure.waiting_uncached_tokens), (u64::MAX, u64::MAX));
}

#[test]
fn a_worker_that_lost_its_report_meanwhile_counts_as_the_most_pressured() {
    let nobody = Seen { report: None, ..see(&Report::default(), (0, 0), (0, 0)) };
    let busy = native(99, 99_999);
    let source = PressureSource::NativeQueueTokens;
    assert!(of(source, &see(&busy, (9, 9), (9, 9))) < of(source, &nobody));
}
