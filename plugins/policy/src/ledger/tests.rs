use super::*;
use crate::fleet::Report;
use crate::testing::{native, queue};
use Streaming::{Streamed, Unstreamed};

mod model;

fn outstanding(requests: u64, uncached_tokens: u64) -> Outstanding {
    Outstanding { requests, uncached_tokens }
}

/// `L` without a report.
fn own_line(ledger: &Ledger, now: u64, speed: u32) -> u64 {
    ledger.line(Millis(now), speed, None, 0)
}

#[test]
fn a_dispatch_is_outstanding_until_its_first_byte_and_in_flight_until_its_end() {
    let ledger = Ledger::default();
    let ticket = ledger.dispatch(100, Streamed, Millis(0));
    assert_eq!(ledger.outstanding(), outstanding(1, 100));
    ledger.first_byte(&ticket, Millis(10));
    assert_eq!(ledger.outstanding(), outstanding(0, 0));
    assert_eq!(ledger.in_flight(), 1);
    ledger.finish(ticket, Millis(20));
    assert_eq!((ledger.in_flight(), ledger.events()), (0, 2));
}

#[test]
fn a_first_byte_clears_what_was_sent_before_and_nothing_after() {
    let ledger = Ledger::default();
    let first = ledger.dispatch(1, Streamed, Millis(0));
    let second = ledger.dispatch(20, Streamed, Millis(0));
    let third = ledger.dispatch(300, Streamed, Millis(0));
    ledger.first_byte(&second, Millis(1));
    assert_eq!(ledger.outstanding(), outstanding(1, 300));
    ledger.first_byte(&first, Millis(2));
    assert_eq!(ledger.outstanding(), outstanding(1, 300));
    ledger.cancel(first);
    ledger.cancel(second);
    assert_eq!(ledger.outstanding(), outstanding(1, 300));
    ledger.cancel(third);
    assert_eq!(ledger.outstanding(), outstanding(0, 0));
}

#[test]
fn a_completion_without_a_first_byte_clears_like_one() {
    let ledger = Ledger::default();
    let _first = ledger.dispatch(1, Unstreamed, Millis(0));
    let second = ledger.dispatch(20, Unstreamed, Millis(0));
    let _third = ledger.dispatch(300, Streamed, Millis(0));
    ledger.finish(second, Millis(100));
    assert_eq!(ledger.outstanding(), outstanding(1, 300));
    // And it is when the worker came to the next one.
    assert_eq!(own_line(&ledger, 110, 1_000), 290);
}

#[test]
fn a_completion_after_the_first_byte_says_nothing_more() {
    let ledger = Ledger::default();
    let first = ledger.dispatch(1, Streamed, Millis(0));
    let _second = ledger.dispatch(300, Streamed, Millis(0));
    ledger.first_byte(&first, Millis(10));
    ledger.finish(first, Millis(100));
    assert_eq!(own_line(&ledger, 110, 1_000), 200);
}

#[test]
fn a_cancel_in_the_middle_takes_back_itself_only() {
    let ledger = Ledger::default();
    let _first = ledger.dispatch(1, Streamed, Millis(0));
    let second = ledger.dispatch(20, Streamed, Millis(0));
    let _third = ledger.dispatch(300, Streamed, Millis(0));
    ledger.cancel(second);
    assert_eq!(ledger.outstanding(), outstanding(2, 301));
}

#[test]
fn since_report_is_what_was_sent_after_the_poll_and_not_before_it_was_published() {
    let ledger = Ledger::default();
    let _before = ledger.dispatch(1, Streamed, Millis(0));
    assert_eq!(ledger.since_report(), outstanding(1, 1));
    let mark = ledger.mark();
    assert_eq!(mark.outstanding, outstanding(1, 1));
    let after = ledger.dispatch(20, Streamed, Millis(5));
    assert_eq!(ledger.since_report(), outstanding(2, 21));
    ledger.report_published(&mark);
    assert_eq!(ledger.since_report(), outstanding(1, 20));
    ledger.first_byte(&after, Millis(9));
    assert_eq!(ledger.since_report(), outstanding(0, 0));
}

#[test]
fn the_head_progresses_from_its_dispatch_and_no_further_than_itself() {
    let ledger = Ledger::default();
    let _head = ledger.dispatch(6_000, Streamed, Millis(1_000));
    let _next = ledger.dispatch(3_000, Streamed, Millis(1_000));
    assert_eq!(own_line(&ledger, 1_500, 8_000), 5_000);
    assert_eq!(own_line(&ledger, 9_000, 8_000), 3_000);
    assert_eq!(own_line(&ledger, 9_000, 0), 9_000);
    assert_eq!(own_line(&ledger, 0, 8_000), 9_000);
}

#[test]
fn the_next_head_progresses_from_the_last_first_byte() {
    let ledger = Ledger::default();
    let head = ledger.dispatch(100, Streamed, Millis(0));
    let _next = ledger.dispatch(3_000, Streamed, Millis(0));
    ledger.first_byte(&head, Millis(1_000));
    assert_eq!(own_line(&ledger, 1_100, 1_000), 2_900);
}

#[test]
fn a_late_first_byte_shows_what_the_worker_was_busy_with() {
    let ledger = Ledger::default();
    let slow = ledger.dispatch(100, Streamed, Millis(0));
    let fast = ledger.dispatch(100, Streamed, Millis(0));
    ledger.first_byte(&fast, Millis(10));
    let _next = ledger.dispatch(3_000, Streamed, Millis(20));
    ledger.first_byte(&slow, Millis(500));
    assert_eq!(own_line(&ledger, 600, 1_000), 2_900);
}

#[test]
fn foreign_work_is_what_the_report_shows_beyond_ours() {
    let ledger = Ledger::default();
    let _own = ledger.dispatch(2_000, Streamed, Millis(0));
    let line = |report: &Report| ledger.line(Millis(0), 0, Some(&ReportedWork::of(report)), 4_000);
    let then = outstanding(1, 2_000);
    assert_eq!(line(&Report { own_then: then, ..native(9, 42_000) }), 42_000);
    assert_eq!(line(&Report { own_then: then, ..native(9, 2_000) }), 2_000);
    assert_eq!(line(&Report { own_then: then, ..native(9, 0) }), 2_000);
    assert_eq!(line(&Report { own_then: then, ..queue(3, 4) }), 10_000);
    assert_eq!(line(&Report { own_then: then, waiting: None, ..queue(3, 4) }), 2_000);
}

#[test]
fn while_unstreamed_requests_are_outstanding_the_report_bounds_the_line() {
    let ledger = Ledger::default();
    let unstreamed = ledger.dispatch(50_000, Unstreamed, Millis(0));
    let mark = ledger.mark();
    ledger.report_published(&mark);
    let _since = ledger.dispatch(700, Streamed, Millis(0));
    let report = Report { own_then: mark.outstanding, ..native(0, 10) };
    let line = |report: &Report| ledger.line(Millis(0), 0, Some(&ReportedWork::of(report)), 4_000);
    assert_eq!(line(&report), 4_710);
    assert_eq!(line(&Report { waiting_uncached_tokens: None, ..report.clone() }), 50_700);
    assert_eq!(own_line(&ledger, 0, 0), 50_700);
    ledger.cancel(unstreamed);
    assert_eq!(line(&report), 700);
}

#[test]
fn unstreamed_heads_are_taken_as_prefilled_when_their_time_is_over() {
    let ledger = Ledger::default();
    let first = ledger.dispatch(1_000, Unstreamed, Millis(0));
    let second = ledger.dispatch(3_000, Unstreamed, Millis(500));
    let _third = ledger.dispatch(6_000, Streamed, Millis(500));
    ledger.expect(1_000, Millis(999));
    assert_eq!(ledger.outstanding(), outstanding(3, 10_000));
    ledger.expect(1_000, Millis(1_500));
    assert_eq!(ledger.outstanding(), outstanding(2, 9_000));
    // The second has been at it since the first was done.
    assert_eq!(own_line(&ledger, 1_500, 1_000), 8_500);
    ledger.expect(1_000, Millis(90_000));
    // A streamed one says itself when it is done.
    assert_eq!(ledger.outstanding(), outstanding(1, 6_000));
    assert_eq!(own_line(&ledger, 4_500, 1_000), 5_500);
    // Their own bytes, with the whole answer, say nothing of who is computed now.
    ledger.first_byte(&first, Millis(4_500));
    assert_eq!(own_line(&ledger, 4_500, 1_000), 5_500);
    ledger.finish(first, Millis(91_000));
    ledger.cancel(second);
    assert_eq!((ledger.outstanding(), ledger.in_flight()), (outstanding(1, 6_000), 1));
}

#[test]
fn time_in_which_nothing_was_sent_prefills_nothing() {
    let ledger = Ledger::default();
    let _long_done = ledger.dispatch(1_000, Unstreamed, Millis(0));
    let _new = ledger.dispatch(5_000, Unstreamed, Millis(60_000));
    ledger.expect(1_000, Millis(61_000));
    assert_eq!(own_line(&ledger, 61_000, 1_000), 4_000);
}

#[test]
fn without_a_speed_nothing_is_expected() {
    let ledger = Ledger::default();
    let _sent = ledger.dispatch(1_000, Unstreamed, Millis(0));
    ledger.expect(0, Millis(u64::MAX));
    assert_eq!(ledger.outstanding(), outstanding(1, 1_000));
}

#[test]
fn extremes_saturate_and_come_off_again() {
    let ledger = Ledger::default();
    let huge = ledger.dispatch(u64::MAX, Streamed, Millis(0));
    let _small = ledger.dispatch(5, Streamed, Millis(0));
    assert_eq!(ledger.outstanding(), outstanding(2, MOST_TOKENS));
    let report = native(u64::MAX, u64::MAX);
    assert_eq!(
        ledger.line(Millis(u64::MAX), 0, Some(&ReportedWork::of(&report)), u64::MAX),
        2 * MOST_TOKENS
    );
    ledger.cancel(huge);
    assert_eq!(ledger.outstanding(), outstanding(1, 5));
    assert_eq!(own_line(&ledger, u64::MAX, u32::MAX), 0);
}

/// Sends so many requests, one at a time from `start` on, each answered after `ms` milliseconds.
fn answer(ledger: &Ledger, start: u64, tokens: u64, streaming: Streaming, count: u64, ms: u64) {
    for sent in (0..count).map(|at| start + at * ms) {
        let ticket = ledger.dispatch(tokens, streaming, Millis(sent));
        ledger.first_byte(&ticket, Millis(sent + ms));
        ledger.finish(ticket, Millis(sent + ms));
    }
}

#[test]
fn speed_is_tokens_over_time_once_there_are_enough_first_bytes() {
    let ledger = Ledger::default();
    answer(&ledger, 0, 4_000, Streamed, 3, 500);
    assert_eq!(ledger.measured_speed(Millis(120_000)), None);
    answer(&ledger, 9_000, 4_000, Streamed, 1, 500);
    assert_eq!(ledger.measured_speed(Millis(120_000)), Some(8_000));
}

#[test]
fn speed_follows_the_worker() {
    let ledger = Ledger::default();
    answer(&ledger, 0, 4_000, Streamed, 10, 500);
    answer(&ledger, 9_000, 4_000, Streamed, 100, 1_000);
    let speed = ledger.measured_speed(Millis(120_000)).unwrap();
    assert!((4_000..4_100).contains(&speed), "{speed}");
}

#[test]
fn a_speed_that_nothing_confirms_is_forgotten_with_its_samples() {
    let ledger = Ledger::default();
    answer(&ledger, 0, 4_000, Streamed, 4, 500);
    assert_eq!(ledger.measured_speed(Millis(302_000)), Some(8_000));
    assert_eq!(ledger.measured_speed(Millis(302_001)), None);
    // It needs as many samples as at first, and none of the old ones is among them.
    answer(&ledger, 400_000, 4_000, Streamed, 3, 100);
    assert_eq!(ledger.measured_speed(Millis(400_300)), None);
    answer(&ledger, 400_300, 4_000, Streamed, 1, 100);
    assert_eq!(ledger.measured_speed(Millis(400_400)), Some(40_000));
}

#[test]
fn prompts_that_answer_in_one_batch_took_their_time_together() {
    let ledger = Ledger::default();
    for round in 0..10 {
        let now = round * 1_000;
        let both = [(); 2].map(|()| ledger.dispatch(4_000, Streamed, Millis(now)));
        for ticket in both {
            ledger.first_byte(&ticket, Millis(now + 1_000));
            ledger.finish(ticket, Millis(now + 1_000));
        }
    }
    let speed = ledger.measured_speed(Millis(120_000)).unwrap();
    assert!((7_500..8_500).contains(&speed), "{speed}");
}

#[test]
fn waiting_behind_others_is_not_prefill_time() {
    let ledger = Ledger::default();
    for round in 0..10 {
        let now = round * 1_000;
        let first = ledger.dispatch(4_000, Streamed, Millis(now));
        let second = ledger.dispatch(4_000, Streamed, Millis(now));
        ledger.first_byte(&first, Millis(now + 500));
        ledger.first_byte(&second, Millis(now + 1_000));
        ledger.finish(first, Millis(now + 1_000));
        ledger.finish(second, Millis(now + 1_000));
    }
    assert_eq!(ledger.measured_speed(Millis(120_000)), Some(8_000));
}

#[test]
fn short_and_overtaking_requests_measure_nothing() {
    let ledger = Ledger::default();
    answer(&ledger, 0, 1_023, Streamed, 10, 500);
    whole(&ledger, 10_000, 1_023, [500; 20].into_iter());
    for sent in (20_000..30_000).step_by(1_000) {
        let _overtaken = ledger.dispatch(4_000, Streamed, Millis(sent));
        answer(&ledger, sent, 4_000, Streamed, 1, 500);
    }
    assert_eq!(ledger.measured_speed(Millis(120_000)), None);
}

/// Whole answers that take so many milliseconds each.
fn whole(ledger: &Ledger, start: u64, tokens: u64, times: impl Iterator<Item = u64>) {
    for ms in times {
        let ticket = ledger.dispatch(tokens, Unstreamed, Millis(start));
        ledger.finish(ticket, Millis(start + ms));
    }
}

#[test]
fn whole_answers_prove_the_speed_of_the_fastest() {
    let ledger = Ledger::default();
    whole(&ledger, 0, 4_000, (1_000..16_000).step_by(1_000));
    assert_eq!(ledger.proven_speed(), None);
    whole(&ledger, 0, 4_000, [9_000].into_iter());
    let speed = ledger.proven_speed().unwrap();
    assert!((3_900..=4_000).contains(&speed), "{speed}");
    assert_eq!(ledger.measured_speed(Millis(120_000)), None);
    // A worker that became slower is believed to be, in time.
    whole(&ledger, 0, 4_000, [20_000; 2_000].into_iter());
    assert!(ledger.proven_speed().unwrap() < 2_000);
}

#[test]
fn an_instant_answer_gives_no_speed() {
    let ledger = Ledger::default();
    answer(&ledger, 0, 4_000, Streamed, 10, 0);
    assert_eq!(ledger.measured_speed(Millis(120_000)), None);
}
