use super::*;
use crate::decision::Cost;
use crate::fleet::{Fleet, ForeignShare, Report, Slot, Speed, SpeedSource, Worker};
use crate::rules::{Bonus, Price, Rules, Selection, TiePercent};
use crate::testing::{Ask, alike, ask, fleet, full, native, queue, sent, worker};

fn rules(cost: CostRules) -> Rules {
    Rules { selection: Selection::Cost(cost), ..Rules::default() }
}

fn placed_by(fleet: &Fleet, ask: &Ask, cost: CostRules) -> Decision {
    crate::decide_in_detail(fleet, &ask.request(), &rules(cost)).unwrap()
}

fn placed(fleet: &Fleet, ask: &Ask) -> Decision {
    placed_by(fleet, ask, CostRules::default())
}

fn costs(decision: &Decision) -> &[Cost] {
    &decision.trace.cost.as_ref().unwrap().costs
}

fn scores(decision: &Decision) -> Vec<u128> {
    costs(decision).iter().map(|cost| cost.score).collect()
}

/// Workers `a`, `b`, ... with so many tokens of this edge ahead, in one request each.
fn lines<const N: usize>(tokens: [u64; N]) -> Fleet {
    let busy = |(at, tokens): (usize, u64)| {
        let id = char::from(b'a' + at as u8).to_string();
        sent(worker(&id, None), (u64::from(0 < tokens), tokens), (0, 0))
    };
    fleet(tokens.into_iter().enumerate().map(busy))
}

/// A cold prompt that has a home.
fn cold(input_tokens: u64) -> Ask {
    Ask { home_blocks: Some(8), ..ask(input_tokens) }
}

/// A key whose home is this position.
fn home_at(fleet: &Fleet, at: usize) -> u64 {
    (0..).find(|&key| fleet.home(key, |_| true) == Some(at)).unwrap()
}

#[test]
fn the_price_is_what_is_ahead_there_and_on_average_per_token_of_a_mean_request() {
    let decision = placed(
        &lines([60_000, 0, 0]),
        &Ask { mean_uncached_tokens: 4_000, ..ask(8_000).held(0, 500) },
    );
    assert_eq!(scores(&decision), [95_500, 88_000, 88_000]);
    assert_eq!(costs(&decision)[0].price, 35_000);
    let cost = decision.trace.cost.as_ref().unwrap();
    assert_eq!((cost.mean_line, cost.token_price, cost.diverted_tokens), (20_000, 10_000, 7_500));
    assert_eq!(decision.reason, Reason::Diverted);
}

#[test]
fn only_who_asks_gets_every_workers_cost() {
    let (fleet, ask) = (lines([1, 2]), ask(100));
    let decision = crate::decide(&fleet, &ask.request(), &rules(CostRules::default())).unwrap();
    assert_eq!(costs(&decision), []);
    let detailed = placed(&fleet, &ask);
    assert_eq!((costs(&detailed).len(), detailed.at), (2, decision.at));
}

#[test]
fn before_the_first_request_a_mean_one_is_this_one() {
    assert_eq!(scores(&placed(&lines([1_000]), &ask(500))), [1_000 + 500 + 4_000 + 2_000]);
}

#[test]
fn fractions_of_a_price_count() {
    let cost = CostRules {
        price_worker: Price::new(0.5).unwrap(),
        price_fleet: Price::new(0.25).unwrap(),
        ..CostRules::default()
    };
    assert_eq!(scores(&placed_by(&lines([1_001]), &ask(10), cost)), [1_001 + 10 + 750]);
}

#[test]
fn ties_go_to_the_least_uncached_in_steps_then_to_the_fewest_requests_then_in_turn() {
    let crowd = |requests| sent(worker("x", None), (requests, 0), (0, 0));
    let named = |id: &str, requests| Worker { id: id.into(), ..crowd(requests) };
    let fleet = fleet([named("a", 2), named("b", 1), named("c", 1), named("d", 1)]);
    // Within 2 % of each other, but `d` is a whole step above.
    let held = ask(100_000).held(0, 25_600).held(1, 25_700).held(2, 25_800).held(3, 26_112);
    let at = |turn| placed(&fleet, &Ask { turn, ..ask_like(&held) }).at;
    assert_eq!([at(0), at(1), at(2)], [1, 2, 1]);
}

fn ask_like(ask: &Ask) -> Ask {
    Ask { holdings: ask.holdings.clone(), ..crate::testing::ask(ask.input_tokens) }
}

#[test]
fn the_tie_takes_its_end_and_no_more() {
    let tie = CostRules {
        tie_percent: TiePercent::new(10).unwrap(),
        price_worker: Price::new(0.0).unwrap(),
        price_fleet: Price::new(0.0).unwrap(),
        ..CostRules::default()
    };
    // Scores 1,000 and 1,100 or 1,101; the second has less to compute.
    let at = |ahead| {
        let fleet = lines([0, ahead]);
        placed_by(&fleet, &ask(4_096).held(0, 1_000).held(1, 400), tie).at
    };
    assert_eq!(at(700), 1);
    assert_eq!(at(701), 0);
}

#[test]
fn the_homes_score_is_less_by_its_bonus_and_by_the_foreign_share() {
    let fleet = lines([1_000, 0]);
    let home = home_at(&fleet, 0);
    let ask = Ask { home, ..cold(8_000) };
    let decision = placed(&fleet, &ask);
    // 9,000 + (4,000 + 1,000) = 14,000, less a fifth; 8,000 + 1,000.
    assert_eq!(scores(&decision), [11_200, 9_000]);
    assert_eq!(decision.reason, Reason::LeastCost);
    let foreign_share = ForeignShare::new(0.8).unwrap();
    let decision = placed(&fleet, &Ask { foreign_share, ..ask });
    assert_eq!(scores(&decision), [5_600, 9_000]);
    assert_eq!((decision.at, decision.reason), (0, Reason::Home));
}

#[test]
fn a_held_home_block_and_a_prompt_without_one_have_no_bonus() {
    let fleet = lines([0, 0]);
    let home = home_at(&fleet, 0);
    let held = Ask { home, ..cold(8_192).held(1, 8_192 - 8 * 128) };
    assert_eq!(scores(&placed(&fleet, &held)), [8_192, 7_168]);
    assert_eq!(scores(&placed(&fleet, &Ask { home, ..ask(8_000) })), [8_000, 8_000]);
    // Its beginning is held, its home block is not: owner or not, the home has its bonus.
    let begun = Ask { home, ..cold(8_192).held(1, 8_192 - 7 * 128) };
    let decision = placed(&fleet, &begun);
    assert_eq!(scores(&decision), [6_553, 7_296]);
    assert_eq!(decision.reason, Reason::Owner);
}

#[test]
fn the_home_is_among_those_the_request_may_go_to() {
    let fleet = lines([0, 0, 0]);
    let home = home_at(&fleet, 1);
    let excluded = vec![Slot(1)];
    let decision = placed(&fleet, &Ask { home, excluded, ..cold(8_000) });
    let home = decision.trace.cost.as_ref().unwrap().home;
    assert!(home.is_some() && home != Some(1));
    assert_eq!((Some(decision.at), decision.reason), (home, Reason::Home));
}

#[test]
fn an_owner_is_within_a_thousand_and_twenty_four_tokens_of_the_least() {
    let reason = |uncached| {
        let fleet = lines([1_000_000, 0]);
        let decision = placed(&fleet, &ask(20_000).held(0, 1_000).held(1, uncached));
        assert_eq!(decision.at, 1);
        (decision.reason, decision.cache.unwrap())
    };
    assert_eq!(reason(2_024), (Reason::Owner, CacheDecision::CacheHit));
    assert_eq!(reason(2_025), (Reason::Diverted, CacheDecision::CacheWorkerQueued));
}

#[test]
fn who_has_no_room_is_left_out_unless_nobody_has() {
    let crowded = fleet([worker("a", full(0)), worker("b", native(90, 90_000))]);
    let decision = placed(&crowded, &ask(8_000).held(0, 100));
    assert_eq!((decision.at, decision.reason), (1, Reason::Diverted));
    let compared: Vec<usize> =
        decision.trace.cost.as_ref().unwrap().compared().map(|cost| cost.at).collect();
    assert_eq!(compared, [1]);
    let everybody = fleet([worker("a", full(0)), worker("b", full(0))]);
    assert_eq!(placed(&everybody, &ask(8_000).held(0, 100)).at, 0);
}

#[test]
fn who_is_full_and_has_a_line_of_ours_is_compared() {
    let busy = sent(worker("a", full(0)), (1, 10), (0, 0));
    let decision =
        placed(&fleet([busy, worker("b", native(90, 90_000))]), &ask(8_000).held(0, 100));
    assert_eq!((decision.at, decision.reason), (0, Reason::Owner));
}

#[test]
fn the_price_of_the_fleet_is_by_what_is_free_of_its_kv_cache() {
    let price = |held| {
        let report = Report { total_tokens: Some(held), ..native(0, 0) };
        let busy = sent(worker("a", report), (1, 1_000), (0, 0));
        costs(&placed(&fleet([busy]), &ask(4_000)))[0].price
    };
    // 4 * 1,000 for the worker, 2 * 1,000 for the fleet, of 100,000 tokens of KV cache.
    assert_eq!(price(0), 6_000);
    assert_eq!(price(50_000), 8_000);
    assert_eq!([price(70_000), price(100_000), price(900_000)], [10_000; 3]);
}

/// A long prompt of which little is new, as most are.
fn popular() -> Ask {
    Ask { mean_uncached_tokens: 250, ..ask(25_000) }
}

#[test]
fn what_everybody_asks_for_is_copied_once_the_holders_line_is_longer_than_it() {
    let decision = placed(&lines([40_000, 0, 0, 0]), &popular().held(0, 250));
    // The holder: 40,250 + 4 * 40,000 + 2 * 10,000. Elsewhere the price would be 2,000,000.
    assert_eq!(scores(&decision), [220_250, 185_000, 185_000, 185_000]);
    assert_eq!(decision.reason, Reason::Diverted);
    let decision = placed(&lines([12_000, 0, 0, 0]), &popular().held(0, 250));
    assert_eq!((decision.at, scores(&decision)[1]), (0, 25_000 + 48_000));
}

#[test]
fn lines_elsewhere_keep_their_price_while_one_holds_it() {
    let decision = placed(&lines([40_000, 4_000, 0, 0]), &popular().held(0, 250));
    // 2 * 1,000 * 100 more.
    assert_eq!((decision.at, scores(&decision)[3]), (0, 25_000 + 160_000 + 200_000));
}

#[test]
fn once_several_hold_it_the_shortest_line_elsewhere_counts() {
    let fleet = lines([40_000, 40_000, 4_000, 400]);
    let decision = placed(&fleet, &popular().held(0, 250).held(1, 1_274));
    // 2 * 400 * 100, and 4 * 400 * 100 for its own line.
    assert_eq!(scores(&decision)[3], 25_400 + 160_000 + 80_000 + 160_000);
    let decision = placed(&fleet, &popular().held(0, 250).held(1, 1_275));
    assert_eq!(scores(&decision)[3], 25_400 + 160_000 + 160_000 + 2 * 11_100 * 100);
}

#[test]
fn room_is_for_the_whole_prompt_and_only_by_a_fresh_report() {
    let room = |report: Report, input_tokens| {
        costs(&placed(&fleet([worker("a", report)]), &ask(input_tokens)))[0].has_room
    };
    assert!(room(native(0, 0), 99_000) && !room(native(0, 0), 99_001));
    assert!(!room(full(0), 1) && room(queue(0, 1 << 20), 1 << 40));
    let stale = Report { fresh_until: crate::testing::NOW, ..full(0) };
    assert!(room(stale, 1));
    // Its line says what a full worker with a queue costs.
    assert!(room(full(1), 1));
    let overfull = Report { total_tokens: Some(100_001), ..native(0, 0) };
    assert!(!room(overfull, 0));
}

#[test]
fn a_slower_worker_costs_more_in_proportion() {
    let at_speed = |id: &str, tokens_per_second| Worker {
        speed: Some(Speed { tokens_per_second, source: SpeedSource::Configured }),
        ..worker(id, None)
    };
    let fleet = fleet([at_speed("a", 3_000), at_speed("b", 8_000), at_speed("c", 16_000)]);
    assert_eq!(scores(&placed(&fleet, &ask(1_000))), [2_666, 1_000, 500]);
}

#[test]
fn a_request_without_a_prompt_goes_to_the_shortest_line_in_turn() {
    let fleet = lines([10, 5, 5]);
    let at = |turn| {
        let ask = Ask { turn, ..ask(0) };
        let decision =
            crate::decide(&fleet, &ask.promptless(), &rules(CostRules::default())).unwrap();
        assert_eq!(decision.reason, Reason::LeastLoad);
        assert_eq!(decision.cache, Some(CacheDecision::CacheMiss));
        decision.at
    };
    assert_eq!([at(0), at(1), at(2)], [1, 2, 1]);
}

#[test]
fn prompts_too_short_for_affinity_take_turns_whoever_holds_them() {
    let fleet = lines([0, 0, 0]);
    let at =
        |input_tokens, turn| placed(&fleet, &Ask { turn, ..ask(input_tokens).held(1, 100) }).at;
    assert_eq!([at(1_023, 0), at(1_023, 1), at(1_023, 2)], [0, 1, 2]);
    assert_eq!([at(1_024, 0), at(1_024, 1), at(1_024, 2)], [1, 1, 1]);
}

#[test]
fn nobody_routable_is_nowhere() {
    let nobody = fleet([]);
    assert_eq!(crate::decide(&nobody, &ask(9).request(), &rules(CostRules::default())), None);
}

#[test]
fn extremes_neither_overflow_nor_lose_the_order() {
    let slow = Speed { tokens_per_second: 1, source: SpeedSource::Configured };
    let fast = Speed { tokens_per_second: u64::MAX, source: SpeedSource::Configured };
    let endless = |id: &str, speed| Worker {
        speed: Some(speed),
        ..sent(worker(id, None), (u64::MAX, u64::MAX), (0, 0))
    };
    let dear = CostRules {
        price_worker: Price::new(64.0).unwrap(),
        price_fleet: Price::new(64.0).unwrap(),
        tie_percent: TiePercent::new(20).unwrap(),
        home_bonus: Bonus::new(0.0).unwrap(),
        ..CostRules::default()
    };
    let fleet = fleet([endless("a", slow), endless("b", fast), endless("c", fast)]);
    let ask = Ask { mean_uncached_tokens: 1, home: home_at(&fleet, 0), ..cold(u64::MAX) };
    let decision = placed_by(&fleet, &ask, dear);
    assert_ne!(decision.at, 0);
    assert!(costs(&decision)[1].score < costs(&decision)[0].score);
}

#[test]
fn an_idle_fleet_is_used_in_turn() {
    let fleet = alike(100, queue(0, 0));
    let at = |turn| placed(&fleet, &Ask { turn, ..ask(1_000) }).at;
    assert_eq!([at(0), at(7), at(99), at(100)], [0, 7, 99, 0]);
}
