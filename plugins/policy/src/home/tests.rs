use super::*;

fn ids(count: usize) -> Vec<WorkerId> {
    (0..count).map(|at| WorkerId::from(format!("worker-{at}").as_str())).collect()
}

fn home_of(home: u64, workers: &[(WorkerId, u32)]) -> usize {
    let best = (0..workers.len()).max_by_key(|&at| rank(home, &workers[at].0, workers[at].1));
    best.unwrap()
}

fn shares(workers: &[(WorkerId, u32)], keys: u64) -> Vec<u64> {
    let mut shares = vec![0; workers.len()];
    for home in 0..keys {
        shares[home_of(home, workers)] += 1;
    }
    shares
}

/// Edges of different versions must agree: a change here moves every cold prefix of a fleet.
#[test]
fn ranks_are_the_same_in_every_version() {
    let ranks = [rank(0, &"w1".into(), 1), rank(u64::MAX, &"w2".into(), 3)];
    assert_eq!(ranks, [18_423_030_968_800_586_216, 18_420_970_515_777_387_359]);
}

#[test]
fn the_logarithm_is_right_within_a_hundredth_and_monotone() {
    let exact = |bits: u64| 64.0 - (bits as f64).log2();
    let scale = (1_u64 << FRACTION_BITS) as f64;
    let mut last = u64::MAX;
    for bits in (0..64).flat_map(|shift| [1, 5, 7].map(|odd| (odd << 61) >> shift)) {
        if bits == 0 {
            continue;
        }
        let (got, want) = (minus_log2(bits) as f64 / scale, exact(bits));
        assert!((got - want).abs() <= want * 0.01 + 1e-12, "{bits}: {got} for {want}");
    }
    for bits in (0..10_000_u64).map(|step| 1 + step * (u64::MAX / 10_000)) {
        let now = minus_log2(bits);
        assert!(now < last);
        last = now;
    }
    assert_eq!(minus_log2(1), 64 << FRACTION_BITS);
}

#[test]
fn equal_workers_share_keys_evenly() {
    let workers: Vec<_> = ids(8).into_iter().map(|id| (id, 1)).collect();
    for share in shares(&workers, 16_000) {
        assert!((1_800..=2_200).contains(&share), "{share} of 2,000");
    }
}

#[test]
fn a_weight_is_a_share() {
    let workers: Vec<_> = ids(4).into_iter().zip([1, 2, 4, 1]).collect();
    let shares = shares(&workers, 16_000);
    for (share, want) in shares.into_iter().zip([2_000, 4_000, 8_000, 2_000]) {
        assert!(share.abs_diff(want) <= want / 10, "{share} of {want}");
    }
}

#[test]
fn a_worker_that_leaves_moves_its_own_keys_only() {
    let all: Vec<_> = ids(9).into_iter().map(|id| (id, 2)).collect();
    let rest = &all[..8];
    for home in 0..2_000 {
        let before = home_of(home, &all);
        let after = home_of(home, rest);
        assert!(before == 8 || before == after);
    }
}

#[test]
fn no_weight_at_all_counts_as_one() {
    assert_eq!(rank(7, &"a".into(), 0), rank(7, &"a".into(), 1));
}

#[test]
fn the_first_is_the_highest_rank_whatever_the_weights_and_whoever_is_missing() {
    let workers: Vec<_> = ids(40).into_iter().zip([1, 1, 3, 2].into_iter().cycle()).collect();
    let stakes: Vec<_> = workers.iter().map(|(id, weight)| Stake::new(id, *weight)).collect();
    for key in 0..2_000 {
        let is_member = |at: usize| !(at as u64 + key).is_multiple_of(3);
        let ranked = (0..stakes.len()).rev().filter(|&at| is_member(at));
        let highest = ranked.max_by_key(|&at| stakes[at].rank(key));
        assert_eq!(first(key, &stakes, is_member), highest, "{key}");
    }
    assert_eq!(first(1, &stakes, |_| false), None);
}
