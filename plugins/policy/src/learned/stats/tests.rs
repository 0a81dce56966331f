use super::*;

const EPOCH: u64 = 3;

fn settings() -> Settings {
    Settings::default()
}

fn ended(completion_tokens: u64, seconds: f64) -> Ended {
    Ended::Normally { completion_tokens, seconds }
}

fn record(arms: &mut Arms, ended: Ended, epoch: u64) -> SampleResult {
    arms.record(&Sample { signature: "s", epoch, ended }, Millis(0), &settings())
}

#[test]
fn failed_aborted_short_and_unmeasurable_requests_teach_nothing() {
    let mut arms = Arms::default();
    for (ended, result) in [
        (Ended::Failed, SampleResult::Failed),
        (Ended::Aborted, SampleResult::Aborted),
        (ended(7, 1.0), SampleResult::Short),
        (ended(0, f64::NAN), SampleResult::Short),
        (ended(8, 0.0), SampleResult::Unmeasurable),
        (ended(8, -1.0), SampleResult::Unmeasurable),
        (ended(8, f64::NAN), SampleResult::Unmeasurable),
        (ended(8, f64::INFINITY), SampleResult::Unmeasurable),
        (ended(8, f64::MIN_POSITIVE), SampleResult::Unmeasurable),
        (ended(u64::MAX, 1.0), SampleResult::Unmeasurable),
    ] {
        assert_eq!(record(&mut arms, ended, EPOCH), result, "{ended:?}");
        assert!(arms.arms.is_empty());
    }
    assert_eq!(record(&mut arms, ended(8, 1.0), EPOCH), SampleResult::Accepted);
}

#[test]
fn a_late_sample_of_an_older_topology_is_dropped_and_changes_nothing() {
    let mut arms = Arms::default();
    record(&mut arms, ended(100, 1.0), EPOCH);
    let before = arms.arms["s"];
    assert_eq!(record(&mut arms, ended(900, 1.0), EPOCH - 1), SampleResult::StaleEpoch);
    assert_eq!(arms.arms["s"], before);
    assert_eq!(record(&mut arms, ended(900, 1.0), EPOCH + 1), SampleResult::Accepted);
    let Arm { mean, mass, samples, epoch, .. } = arms.arms["s"];
    assert_eq!((mean, mass, samples, epoch), (900.0, 1.0, 2, EPOCH + 1));
}

#[test]
fn a_clock_that_seems_to_go_back_neither_grows_nor_ages_a_mass() {
    let mut arms = Arms::default();
    let sample = Sample { signature: "s", epoch: 0, ended: ended(100, 1.0) };
    arms.record(&sample, Millis(600_000), &settings());
    arms.record(&sample, Millis(0), &settings());
    let standing = arms.standing("s", 0, Millis(600_000), &settings());
    assert_eq!((standing.weight, standing.mean), (2.0, 100.0));
    let standing = arms.standing("s", 0, Millis(0), &settings());
    assert_eq!(standing.weight, 2.0);
}

#[test]
fn the_arm_whose_last_sample_is_oldest_makes_room_and_is_counted() {
    let mut arms = Arms::default();
    for number in 0..=Arms::MOST {
        let name = format!("{number:03}");
        let sample = Sample { signature: &name, epoch: 0, ended: ended(100, 1.0) };
        // The first one is used again, so that the second is the oldest.
        let first = Sample { signature: "000", ..sample };
        arms.record(&sample, Millis(number as u64), &settings());
        arms.record(&first, Millis(number as u64), &settings());
    }
    assert_eq!((arms.arms.len(), arms.evicted), (Arms::MOST, 1));
    assert!(arms.arms.contains_key("000") && !arms.arms.contains_key("001"));
}

#[test]
fn scouts_are_counted_per_arm_and_forgotten_when_none_is_left() {
    let mut arms = Arms::default();
    let name: Arc<str> = "s".into();
    arms.scout_starts(&name);
    arms.scout_starts(&name);
    let scouts = |arms: &Arms| arms.standing("s", 0, Millis(0), &settings()).scouts;
    assert_eq!(scouts(&arms), 2);
    arms.scout_ends("s");
    arms.scout_ends("s");
    arms.scout_ends("s");
    assert_eq!(scouts(&arms), 0);
    assert!(arms.scouts.is_empty());
}

#[test]
fn pruning_says_how_many_are_gone() {
    let mut arms = Arms::default();
    record(&mut arms, ended(100, 1.0), 0);
    let day = settings().prune_after;
    assert_eq!(arms.prune(day, &settings()), 0);
    assert_eq!(arms.prune(Millis(day.0 + 1), &settings()), 1);
    assert_eq!(arms.prune(Millis(u64::MAX), &settings()), 0);
}

#[test]
fn labels_differ() {
    let labels: std::collections::BTreeSet<&str> =
        SampleResult::ALL.iter().map(|result| result.as_str()).collect();
    assert_eq!(labels.len(), SampleResult::ALL.len());
}
