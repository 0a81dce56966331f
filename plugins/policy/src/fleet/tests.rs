use super::*;
use crate::testing::{NOW, alike, fleet, queue, sent, worker};

fn speeds(speeds: &[Option<(u64, SpeedSource)>]) -> Fleet {
    fleet((0..).zip(speeds).map(|(at, speed)| Worker {
        speed: speed.map(|(tokens_per_second, source)| Speed { tokens_per_second, source }),
        ..worker(&format!("w{at}"), None)
    }))
}

const fn measured(tokens_per_second: u64) -> Option<(u64, SpeedSource)> {
    Some((tokens_per_second, SpeedSource::Measured))
}

const fn configured(tokens_per_second: u64) -> Option<(u64, SpeedSource)> {
    Some((tokens_per_second, SpeedSource::Configured))
}

#[test]
fn the_reference_is_the_upper_median_of_known_speeds() {
    assert_eq!(speeds(&[None, None]).vref(), None);
    assert_eq!(speeds(&[measured(7), None]).vref(), Some(7));
    assert_eq!(speeds(&[measured(9), measured(7)]).vref(), Some(9));
    assert_eq!(speeds(&[measured(9), measured(7), measured(8)]).vref(), Some(8));
}

#[test]
fn a_decode_worker_says_nothing_about_prefill_speed() {
    let speed = Some(Speed { tokens_per_second: 9, source: SpeedSource::Configured });
    let decode = Worker { role: Role::Decode, speed, ..worker("a", None) };
    assert_eq!(fleet([decode, worker("b", None)]).vref(), None);
}

#[test]
fn a_measured_speed_within_a_factor_two_is_the_fleets() {
    let of = |own| speeds(&[measured(own), measured(8_000), measured(8_000)]).speed(0);
    assert_eq!(of(4_000), Some(8_000));
    assert_eq!(of(3_999), Some(3_999));
    assert_eq!(speeds(&[measured(8_000), measured(8_000), measured(16_000)]).speed(2), Some(8_000));
    assert_eq!(
        speeds(&[measured(8_000), measured(8_000), measured(16_001)]).speed(2),
        Some(16_001)
    );
}

#[test]
fn a_configured_or_reported_speed_is_taken_as_it_is_and_an_unknown_one_is_the_fleets() {
    let reported = Some((6_000, SpeedSource::Reported));
    let fleet = speeds(&[configured(7_000), reported, None, measured(8_000), measured(8_000)]);
    assert_eq!(fleet.speed(0), Some(7_000));
    assert_eq!(fleet.speed(1), Some(6_000));
    assert_eq!(fleet.speed(2), fleet.vref());
}

#[test]
fn a_speed_of_zero_is_no_division_by_zero() {
    assert_eq!(speeds(&[configured(0)]).speed(0), Some(1));
    assert_eq!(speeds(&[configured(u64::MAX), measured(u64::MAX)]).speed(1), Some(u32::MAX.into()));
}

#[test]
fn a_proof_of_speed_shows_no_worker_to_be_slow() {
    let proven = |own| Some((own, SpeedSource::Proven));
    let fleet = speeds(&[proven(50), proven(8_000), proven(8_000), proven(20_000)]);
    assert_eq!(
        [fleet.speed(0), fleet.speed(1), fleet.speed(3)],
        [Some(8_000), Some(8_000), Some(20_000)]
    );
}

#[test]
fn a_line_uses_the_workers_speed_and_fresh_report() {
    let report = |fresh_until| Report { fresh_until, ..queue(3, 4) };
    let of = |fresh_until| {
        let busy = sent(worker("a", report(fresh_until)), (1, 500), (0, 0));
        fleet([busy]).line(0, NOW, 4_000)
    };
    assert_eq!(of(Millis(NOW.0 + 1)), 12_500);
    assert_eq!(of(NOW), 500);
}

#[test]
fn workers_are_found_by_slot_in_the_order_of_their_ids() {
    let fleet = fleet([worker("b", None), worker("a", None)]);
    assert_eq!(fleet.at(Slot(0)), Some(1));
    assert_eq!(fleet.at(Slot(1)), Some(0));
    assert_eq!(fleet.at(Slot(2)), None);
}

#[test]
fn ranks_agree_with_the_rendezvous_of_ids() {
    let fleet = alike(3, None);
    for (at, worker) in fleet.workers().iter().enumerate() {
        assert_eq!(fleet.home_rank(7, at), home::rank(7, &worker.id, worker.weight));
    }
}

#[test]
fn what_a_decision_reads_of_a_worker_is_one_cache_line() {
    assert_eq!(align_of::<Live>(), 64);
    let read = std::mem::offset_of!(Live, ledger) + Ledger::READ_BYTES;
    assert!(read <= 64, "{read}");
}

#[test]
fn the_foreign_share_is_what_reports_show_beyond_ours_while_they_are_fresh() {
    let reported = |id: &str, own_in_flight| worker(id, Report { own_in_flight, ..queue(3, 7) });
    let share = |workers: Vec<Worker>, now| fleet(workers).foreign_share(now);
    let expected = |value| ForeignShare::new(value).unwrap();
    assert_eq!(share(vec![reported("a", 10), reported("b", 5)], NOW), expected(0.25));
    // More of ours than is shown there is not less than none of theirs.
    assert_eq!(share(vec![reported("a", 99), reported("b", 0)], NOW), expected(0.5));
    assert_eq!(share(vec![reported("a", 0)], Millis(NOW.0 + 1)), ForeignShare::default());
    assert_eq!(share(vec![worker("a", None)], NOW), ForeignShare::default());
    let old = Report { captured_at: Millis(1), fresh_until: NOW, ..queue(9, 9) };
    assert_eq!(share(vec![worker("a", old), reported("b", 5)], NOW), expected(0.5));
    let decode = Worker { role: Role::Decode, ..reported("c", 0) };
    assert_eq!(share(vec![decode, reported("b", 10)], NOW), ForeignShare::default());
}
