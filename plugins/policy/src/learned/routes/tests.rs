use super::super::testing::{HYBRID, MIXED, SLOW, fleet, learn, request, routes, topology};
use super::*;

const NOW: Millis = Millis(1_000);
const SCOUTING: Draws = Draws { explore: 0.0, pick: 0.0 };
const EXPLOITING: Draws = Draws { explore: 0.9, pick: 0.9 };

fn choose(routes: &Routes, draws: Draws) -> Selection {
    routes.choose(&fleet(&MIXED), &request(NOW), &Settings::default(), draws).unwrap()
}

#[test]
fn the_request_goes_to_the_routes_own_head_and_the_second_hop_starts_where_the_first_ends() {
    let routes = routes(&MIXED);
    learn(&routes, HYBRID, 12.0, NOW);
    let selection = choose(&routes, EXPLOITING);
    assert_eq!((selection.mode, &*selection.signature), (Mode::Exploit, HYBRID));
    assert_eq!(selection.head().node.as_str(), "gpu-a");
    let hops: Vec<_> = selection
        .hops
        .iter()
        .map(|hop| (hop.node.as_str(), hop.slot, hop.start_layer, hop.end_layer))
        .collect();
    assert_eq!(hops, [("gpu-a", Slot(0), 0, 21), ("cpu-b", Slot(1), 22, 39)]);
}

#[test]
fn choosing_books_nothing_dispatching_does_and_ending_takes_it_back() {
    let routes = routes(&MIXED);
    let settings = Settings::default();
    learn(&routes, SLOW, 8.0, NOW);
    let scouts = || routes.arms.lock().standing(HYBRID, 0, NOW, &settings).scouts;
    let selection = choose(&routes, SCOUTING);
    assert_eq!((selection.mode, scouts()), (Mode::Scout, 0));
    let (one, other) = (routes.dispatched(&selection), routes.dispatched(&selection));
    assert_eq!(scouts(), 2);
    assert_eq!(routes.ended(one, Ended::Failed, NOW, &settings), SampleResult::Failed);
    assert_eq!(scouts(), 1);
    let ended = Ended::Normally { completion_tokens: 120, seconds: 10.0 };
    assert_eq!(routes.ended(other, ended, NOW, &settings), SampleResult::Accepted);
    assert_eq!(scouts(), 0);
    assert!(routes.arms.lock().standing(HYBRID, 0, NOW, &settings).is_proven());
}

#[test]
fn a_flap_leaves_the_epoch_alone_and_takes_the_route_out_at_once() {
    let routes = routes(&MIXED);
    learn(&routes, HYBRID, 12.0, NOW);
    learn(&routes, SLOW, 8.0, NOW);
    let fleet = fleet(&MIXED);
    let gpu = fleet.workers().iter().find(|worker| worker.id.as_str() == "gpu-a").unwrap();
    let settings = Settings::default();
    let ask = || {
        let selection = routes.choose(&fleet, &request(NOW), &settings, EXPLOITING).unwrap();
        (selection.signature.to_string(), selection.epoch)
    };
    assert_eq!(ask(), (HYBRID.to_owned(), 0));
    gpu.live.set_routable(false);
    assert_eq!(ask(), (SLOW.to_owned(), 0));
    gpu.live.set_routable(true);
    assert_eq!(ask(), (HYBRID.to_owned(), 0));
}

#[test]
fn a_worker_that_failed_this_request_is_in_no_route_of_its_retry() {
    let routes = routes(&MIXED);
    let ask = |excluded: &[Slot]| {
        let request = Request { excluded, ..request(NOW) };
        routes.choose(&fleet(&MIXED), &request, &Settings::default(), SCOUTING)
    };
    assert_eq!(&*ask(&[Slot(0)]).unwrap().signature, SLOW);
    assert_eq!(ask(&[Slot(1)]), None);
}

#[test]
fn only_a_join_a_leave_or_another_shard_is_a_new_epoch() {
    let routes = routes(&MIXED);
    let [gpu, cpu] = MIXED;
    assert_eq!(routes.set_topology(topology(&[(gpu.0, 0, 21, 7.0, 3), cpu])), 0);
    assert_eq!(routes.set_topology(topology(&[("gpu-a", 0, 20, 7.0, 3), cpu])), 1);
    assert_eq!(routes.set_topology(topology(&[cpu])), 2);
    assert_eq!(routes.set_topology(topology(&MIXED)), 3);
    assert_eq!(routes.change_topology(topology(&MIXED)), 4);
}

#[test]
fn a_request_dispatched_before_a_change_does_not_prove_the_new_topology() {
    let routes = routes(&MIXED);
    let ticket = routes.dispatched(&choose(&routes, EXPLOITING));
    routes.change_topology(topology(&MIXED));
    let ended = Ended::Normally { completion_tokens: 100, seconds: 1.0 };
    let result = routes.ended(ticket, ended, NOW, &Settings::default());
    assert_eq!(result, SampleResult::Accepted, "there is nothing newer");
    let table = routes.table(&fleet(&MIXED), NOW, &Settings::default());
    assert_eq!(table.candidates[0].status, "stale");
    assert_eq!(choose(&routes, EXPLOITING).mode, Mode::GreedyFallback);
}

#[test]
fn of_four_thousand_draws_the_routes_get_what_their_speeds_are_worth() {
    let routes = routes(&MIXED);
    learn(&routes, SLOW, 8.0, NOW);
    learn(&routes, HYBRID, 12.0, NOW);
    let picked = |dice| &*choose(&routes, Draws::from_dice(dice)).signature == HYBRID;
    let share = (0..4_000).filter(|&dice| picked(dice)).count() as f64 / 4_000.0;
    assert!((share - 0.6).abs() <= 0.02, "{share}");
}

#[test]
fn of_four_thousand_draws_the_explore_share_scouts() {
    let routes = routes(&MIXED);
    learn(&routes, SLOW, 8.0, NOW);
    let scouts = |dice| choose(&routes, Draws::from_dice(dice)).mode == Mode::Scout;
    let share = (0..4_000).filter(|&dice| scouts(dice)).count() as f64 / 4_000.0;
    assert!((share - 0.3).abs() <= 0.02, "{share}");
}

#[test]
fn many_threads_leave_no_scout_behind() {
    let routes = routes(&MIXED);
    let settings = Settings::default();
    learn(&routes, SLOW, 8.0, NOW);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for dice in 0..500 {
                    let ticket = routes.dispatched(&choose(&routes, Draws::from_dice(dice)));
                    routes.ended(ticket, Ended::Aborted, NOW, &settings);
                }
            });
        }
    });
    assert_eq!(routes.arms.lock().standing(HYBRID, 0, NOW, &settings).scouts, 0);
}

#[test]
fn there_is_a_route_while_one_can_be_completed_from_its_first_layer_on() {
    let routes = routes(&MIXED);
    let alone = |said| routes.has_route(&fleet(said), NOW);
    assert!(alone(&MIXED));
    assert!(!alone(&MIXED[..1]), "a head that nobody completes");
    let tail = [("gpu-a", 0, 21, 120.0, 0), ("cpu-b", 22, 39, 6.0, 0)];
    let routes = super::super::testing::routes(&tail);
    assert!(routes.has_route(&fleet(&tail), NOW));
    let other = [("gpu-x", 0, 21, 120.0, 0), ("cpu-b", 22, 39, 6.0, 0)];
    assert!(!routes.has_route(&fleet(&other), NOW), "nobody can tokenize");
}
