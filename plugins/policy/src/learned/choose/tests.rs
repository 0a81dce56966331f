use super::super::enumerate::Nodes;
use super::super::settings::Exponent;
use super::super::stats::Status;
use super::*;
use crate::rules::Ratio;

fn candidate(name: &str, prior_tps: f64) -> Candidate {
    Candidate { nodes: Nodes::new(), signature: name.to_owned(), prior_tps, idle_tps: prior_tps }
}

fn arm(status: Status, mean: f64, weight: f64, scouts: u32) -> Standing {
    Standing { status, mean, weight, samples: 1, scouts }
}

/// Chooses among routes `a`, `b`, … with priors 9, 8, …
fn chosen(standings: &[Standing], settings: &Settings, draws: Draws) -> Option<(usize, Mode)> {
    let names = ["a", "b", "c", "d"];
    let candidates: Vec<Candidate> =
        (0..).zip(standings).map(|(at, _)| candidate(names[at], 9.0 - at as f64)).collect();
    let contenders: Vec<Contender<'_>> = candidates
        .iter()
        .zip(standings)
        .map(|(candidate, &standing)| Contender { candidate, standing })
        .collect();
    let shares = expected_shares(&contenders, settings);
    let total: f64 = shares.iter().sum();
    assert!(standings.is_empty() || (total - 1.0).abs() < 1e-9, "{shares:?}");
    choose(&contenders, settings, draws)
}

const SCOUTING: Draws = Draws { explore: 0.0, pick: 0.0 };
const UNKNOWN: Standing =
    Standing { status: Status::Unsampled, mean: 0.0, weight: 0.0, samples: 0, scouts: 0 };

#[test]
fn a_scout_under_way_counts_as_a_sample_so_that_a_burst_spreads() {
    let settings = Settings::default();
    let mut arms = [arm(Status::Proven, 5.0, 9.0, 0), UNKNOWN, UNKNOWN];
    let mut order = Vec::new();
    for _ in 0..4 {
        let (at, mode) = chosen(&arms, &settings, SCOUTING).unwrap();
        assert_eq!(mode, Mode::Scout);
        arms[at].scouts += 1;
        order.push(at);
    }
    assert_eq!(order, [1, 2, 1, 2]);
}

#[test]
fn the_least_weight_is_scouted_first_then_the_higher_prior() {
    let settings = Settings::default();
    let proven = arm(Status::Proven, 5.0, 9.0, 0);
    let decayed = arm(Status::Decayed, 5.0, 0.4, 0);
    let stale = arm(Status::Stale, 5.0, 0.3, 0);
    let at = |arms: &[Standing]| chosen(arms, &settings, SCOUTING).unwrap().0;
    assert_eq!(at(&[decayed, proven, stale]), 2);
    assert_eq!(at(&[decayed, proven, stale, UNKNOWN]), 3);
    assert_eq!(at(&[decayed, proven, decayed]), 0);
}

#[test]
fn an_explore_share_of_0_never_scouts_and_of_1_always_does() {
    let arms = [arm(Status::Proven, 5.0, 9.0, 0), UNKNOWN];
    let mode = |share, explore| {
        let settings =
            Settings { explore_share: Ratio::new(share).unwrap(), ..Settings::default() };
        chosen(&arms, &settings, Draws { explore, pick: 0.5 }).unwrap().1
    };
    assert_eq!(mode(0.0, 0.0), Mode::Exploit);
    assert_eq!(mode(1.0, 0.999), Mode::Scout);
    assert_eq!(chosen(&arms[..1], &Settings::default(), SCOUTING), Some((0, Mode::Exploit)));
}

#[test]
fn extreme_means_and_powers_stay_finite_and_odd_draws_choose_somebody() {
    let arms = [arm(Status::Proven, 1e9, 1.0, 0), arm(Status::Proven, 1e-9, 1.0, 0)];
    for alpha in [0.0, 1.0, 64.0, f64::MAX] {
        let weight_alpha = Exponent::new(alpha).unwrap();
        for choice in Choice::ALL {
            let settings = Settings { weight_alpha, choice, ..Settings::default() };
            for pick in [0.0, 1.0, -1.0, 7.0, f64::NAN, f64::INFINITY] {
                let (at, mode) = chosen(&arms, &settings, Draws { explore: pick, pick }).unwrap();
                assert!(at < 2 && mode == Mode::Exploit);
            }
        }
    }
    assert_eq!(chosen(&[], &Settings::default(), SCOUTING), None);
}

#[test]
fn alpha_0_shares_alike() {
    let arms = [arm(Status::Proven, 100.0, 1.0, 0), arm(Status::Proven, 1.0, 1.0, 0)];
    let settings = Settings { weight_alpha: Exponent::new(0.0).unwrap(), ..Settings::default() };
    let at = |pick| chosen(&arms, &settings, Draws { explore: 0.9, pick }).unwrap().0;
    assert_eq!((at(0.49), at(0.51)), (0, 1));
}

#[test]
fn draws_from_dice_are_uniform_and_differ() {
    let mut explore = [0; 10];
    let mut pick = [0; 10];
    for dice in 0..10_000 {
        let draws = Draws::from_dice(dice);
        explore[(draws.explore * 10.0) as usize] += 1;
        pick[(draws.pick * 10.0) as usize] += 1;
    }
    for count in explore.iter().chain(&pick) {
        assert!((850..1_150).contains(count), "{explore:?} {pick:?}");
    }
    assert_eq!(Draws::from_dice(7), Draws::from_dice(7));
}
