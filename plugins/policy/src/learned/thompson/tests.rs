use super::super::enumerate::{Candidate, Nodes};
use super::super::stats::Standing;
use super::*;

/// Parts of the traffic of routes with these standings, priors and speeds without a queue.
fn shares(arms: &[(Standing, f64, f64)], best: f64) -> Vec<f64> {
    let candidates: Vec<Candidate> = arms
        .iter()
        .map(|&(_, prior_tps, idle_tps)| Candidate {
            nodes: Nodes::new(),
            signature: String::new(),
            prior_tps,
            idle_tps,
        })
        .collect();
    let contenders: Vec<Contender<'_>> = candidates
        .iter()
        .zip(arms)
        .map(|(candidate, &(standing, _, _))| Contender { candidate, standing })
        .collect();
    let mut expected = vec![0.0; arms.len()];
    estimate(&mut expected, &contenders, best);
    assert!((expected.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    expected
}

fn proven(mean: f64, weight: f64) -> Standing {
    Standing { status: Status::Proven, mean, weight, samples: 9, scouts: 0 }
}

#[test]
fn what_is_well_known_to_be_slower_gets_almost_nothing() {
    let parts = shares(&[(proven(50.0, 40.0), 9.0, 9.0), (proven(25.0, 40.0), 9.0, 9.0)], 50.0);
    assert!(0.97 < parts[0], "{parts:?}");
}

#[test]
fn what_was_forgotten_or_measured_elsewhere_is_tried_whatever_was_known_of_it() {
    for status in [Status::Decayed, Status::Stale] {
        let weight = if status == Status::Stale { 40.0 } else { 0.001 };
        let old = Standing { status, ..proven(1.0, weight) };
        let parts = shares(&[(proven(50.0, 40.0), 9.0, 9.0), (old, 0.1, 0.1)], 50.0);
        assert!(0.2 < parts[1], "{status:?}: {parts:?}");
    }
}

#[test]
fn a_scout_under_way_makes_others_less_eager() {
    let unknown = |scouts| Standing { scouts, ..Standing::default() };
    let part = |scouts| {
        let slow = (proven(50.0, 1_000.0), 9.0, 9.0);
        // Behind a queue, so that it only wins by being uncertain.
        shares(&[slow, (unknown(scouts), 4.0, 9.0)], 50.0)[1]
    };
    assert!(part(8) < part(0) / 2.0, "{} {}", part(8), part(0));
}

#[test]
fn a_queue_repels() {
    let part = |prior| {
        let arms = [(proven(50.0, 20.0), 9.0, 9.0), (proven(50.0, 20.0), prior, 9.0)];
        shares(&arms, 50.0)[1]
    };
    assert!((part(9.0) - 0.5).abs() < 0.1 && part(3.0) < 0.1, "{} {}", part(9.0), part(3.0));
    assert!((part(0.0)).abs() < 1e-9);
}

#[test]
fn a_route_that_is_worth_nothing_idle_is_no_division_by_zero() {
    let parts = shares(&[(proven(50.0, 20.0), 0.0, 0.0), (proven(50.0, 20.0), 9.0, 9.0)], 50.0);
    assert!(parts.iter().all(|part| part.is_finite()), "{parts:?}");
}
