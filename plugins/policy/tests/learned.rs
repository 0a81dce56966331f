//! What holds for every choice of a route, whatever the nodes, the samples and the dice.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;
use std::num::NonZeroU32;
use std::sync::Arc;
use tidegate_policy::fleet::{Fleet, Live, Millis, Report, Role, Slot, Worker};
use tidegate_policy::learned::{
    Choice, Draws, Ended, Exponent, Layers, Mode, ModelTable, Node, Pin, Routes, Row, Sample,
    SavedArm, Selection, Settings, Topology,
};
use tidegate_policy::request::Request;
use tidegate_policy::rules::Ratio;

/// Few layers, so that nodes often join, overlap and tie.
const LAST: u32 = 7;

#[derive(Clone, Debug)]
struct NodeCase {
    number: u16,
    first: u32,
    last: u32,
    tps: f64,
    reputation: f64,
    queue: u64,
    routable: bool,
}

#[derive(Clone, Debug)]
struct Case {
    nodes: Vec<NodeCase>,
    /// Which candidate, tokens, seconds, at, epoch.
    samples: Vec<(prop::sample::Index, u64, f64, u64, u64)>,
    /// Foreign signatures too.
    saved: Vec<(f64, f64, u64)>,
    settings: Settings,
    epochs: u64,
    now: u64,
    dice: u64,
}

impl NodeCase {
    fn id(&self) -> String {
        format!("n{:02}", self.number)
    }

    fn label(&self) -> String {
        format!("{}[{}-{}]", self.id(), self.first, self.last)
    }

    fn speed(&self) -> f64 {
        self.tps / (1.0 + self.queue as f64) * self.reputation
    }

    fn node(&self) -> Node {
        Node {
            id: self.id().as_str().into(),
            slot: Slot(self.number),
            layers: Layers::new(self.first, self.last).unwrap(),
            tps: self.tps,
            reputation: self.reputation,
        }
    }

    fn worker(&self) -> Worker {
        let live = Live::default();
        live.set_routable(self.routable);
        let report = Report {
            fresh_until: Millis(u64::MAX),
            waiting: Some(self.queue),
            running: Some(0),
            ..Report::default()
        };
        Worker {
            id: self.id().as_str().into(),
            slot: Slot(self.number),
            role: Role::Plain,
            weight: 1,
            ranks: 1,
            report: Some(report),
            speed: None,
            live: Arc::new(live),
        }
    }
}

impl Case {
    fn topology(&self) -> Topology {
        let nodes = self.nodes.iter().map(NodeCase::node).collect();
        Topology::new("m", Layers::new(0, LAST).unwrap(), nodes).unwrap()
    }

    fn fleet(&self) -> Fleet {
        Fleet::new(1, self.nodes.iter().map(NodeCase::worker).collect())
    }

    fn request(&self) -> Request<'static> {
        let now = Millis(self.now);
        Request {
            now,
            prompt: None,
            excluded: &[],
            dice: 0,
            turn: 0,
            mean_uncached_tokens: 0,
            foreign_share: tidegate_policy::fleet::ForeignShare::default(),
        }
    }

    /// Routes that have learned all samples, built anew.
    fn routes(&self) -> Routes {
        let routes = Routes::new(self.topology());
        for _ in 0..self.epochs {
            routes.change_topology(self.topology());
        }
        let fleet = self.fleet();
        let mut saved = routes.export(Millis(0));
        for (row, &(mean, mass, age_ms)) in self.rows(&routes, &fleet).iter().zip(&self.saved) {
            let signature = row.signature.clone();
            saved.arms.push(SavedArm { signature, mean, mass, age_ms, samples: 1, epoch: 0 });
        }
        routes.import(&saved, Millis(self.now), &self.settings);
        for (which, tokens, seconds, at, epoch) in &self.samples {
            let rows = self.rows(&routes, &fleet);
            if rows.is_empty() {
                break;
            }
            let ended = Ended::Normally { completion_tokens: *tokens, seconds: *seconds };
            let epoch = (*epoch).min(self.epochs);
            let sample = Sample { signature: &which.get(&rows).signature, epoch, ended };
            routes.record(&sample, Millis(*at), &self.settings);
        }
        routes
    }

    fn rows(&self, routes: &Routes, fleet: &Fleet) -> Vec<Row> {
        routes.table(fleet, Millis(self.now), &self.settings).candidates
    }

    fn table(&self) -> ModelTable {
        self.routes().table(&self.fleet(), Millis(self.now), &self.settings)
    }

    fn choose(&self) -> Option<Selection> {
        let draws = Draws::from_dice(self.dice);
        self.routes().choose(&self.fleet(), &self.request(), &self.settings, draws)
    }

    /// The rules of enumeration, written down a second time: signature and prior.
    fn enumerated(&self) -> Vec<(String, f64)> {
        let live: Vec<&NodeCase> = self.nodes.iter().filter(|node| node.routable).collect();
        let mut found = Vec::new();
        for head in live.iter().filter(|node| node.first == 0) {
            let mut route = vec![*head];
            while route.last().unwrap().last < LAST {
                let end = route.last().unwrap().last;
                let joins = |node: &&&NodeCase| node.first <= end + 1 && end < node.last;
                let best = live.iter().filter(joins).max_by(|a, b| {
                    let reach = a.last.cmp(&b.last);
                    let speed = a.speed().total_cmp(&b.speed());
                    reach.then(speed).then_with(|| b.id().cmp(&a.id()))
                });
                match best {
                    Some(node) => route.push(node),
                    None => break,
                }
            }
            if route.last().unwrap().last == LAST {
                let labels: Vec<String> = route.iter().map(|node| node.label()).collect();
                let prior = route.iter().map(|node| node.speed()).fold(f64::INFINITY, f64::min);
                found.push((format!("m | {}", labels.join(" -> ")), prior));
            }
        }
        found.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        found.truncate(self.settings.max_candidates.get() as usize);
        found
    }
}

fn node() -> impl Strategy<Value = NodeCase> {
    let layers = (0..=LAST, 0..=LAST).prop_map(|(a, b)| (a.min(b), a.max(b)));
    let layers = prop_oneof![2 => layers, 1 => (0..=LAST).prop_map(|last| (0, last)), 1 => (0..=LAST).prop_map(|first| (first, LAST))];
    let tps = prop_oneof![Just(10.0), Just(20.0), 1e-9..1e12_f64];
    let reputation = prop_oneof![4 => Just(1.0), 1 => Just(0.0), 1 => 0.0..2.0_f64];
    let queue = prop_oneof![4 => 0..3_u64, 1 => Just(u64::MAX)];
    (layers, tps, reputation, queue, prop::bool::weighted(0.9)).prop_map(
        |((first, last), tps, reputation, queue, routable)| NodeCase {
            number: 0,
            first,
            last,
            tps,
            reputation,
            queue,
            routable,
        },
    )
}

fn odd(usual: std::ops::Range<f64>) -> impl Strategy<Value = f64> {
    prop_oneof![
        8 => usual,
        1 => Just(0.0),
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
        1 => Just(-1.0),
        1 => Just(f64::MIN_POSITIVE),
        1 => Just(f64::MAX),
    ]
}

prop_compose! {
    fn settings()(
        thompson in any::<bool>(),
        share in 0.0..=1.0_f64,
        alpha in prop_oneof![3 => Just(1.0), 1 => 0.0..8.0_f64, 1 => Just(f64::MAX)],
        half_life in prop_oneof![4 => 1_000..1_000_000_u64, 1 => Just(0_u64), 1 => Just(u64::MAX)],
        most in 1..10_u32,
    ) -> Settings {
        Settings {
            choice: if thompson { Choice::Thompson } else { Choice::Proportional },
            explore_share: Ratio::new(share).unwrap(),
            weight_alpha: Exponent::new(alpha).unwrap(),
            stats_half_life: Millis(half_life),
            max_candidates: NonZeroU32::new(most).unwrap(),
            ..Settings::default()
        }
    }
}

prop_compose! {
    fn case()(
        nodes in prop::collection::vec(node(), 0..12),
        samples in prop::collection::vec(
            (any::<prop::sample::Index>(), 0..2_000_u64, odd(0.01..100.0), 0..2_000_000_u64, 0..3_u64),
            0..12,
        ),
        saved in prop::collection::vec((odd(0.1..100.0), odd(0.0..9.0), 0..2_000_000_u64), 0..4),
        settings in settings(),
        epochs in 0..3_u64,
        now in prop_oneof![8 => 0..2_000_000_u64, 1 => Just(u64::MAX - 1)],
        dice in any::<u64>(),
    ) -> Case {
        let nodes = (0..).zip(nodes).map(|(number, node)| NodeCase { number, ..node }).collect();
        Case { nodes, samples, saved, settings, epochs, now, dice }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_candidates_are_those_of_the_rules(case in case()) {
        let found: Vec<(String, f64)> =
            case.table().candidates.into_iter().map(|row| (row.signature, row.prior_tps)).collect();
        prop_assert_eq!(found, case.enumerated());
    }

    #[test]
    fn routes_cover_every_layer_once_and_each_hop_starts_where_the_last_one_ended(case in case()) {
        for row in case.table().candidates {
            let mut next = 0;
            for hop in &row.hops {
                let node = case.nodes.iter().find(|node| node.id() == hop.node).unwrap();
                prop_assert!(node.routable && node.first <= hop.start_layer);
                prop_assert_eq!((hop.start_layer, hop.end_layer), (next, node.last));
                prop_assert!(hop.start_layer <= hop.end_layer);
                next = hop.end_layer + 1;
            }
            prop_assert_eq!(next, LAST + 1);
        }
    }

    #[test]
    fn the_chosen_is_a_live_candidate_and_there_is_one_if_there_are_any(case in case()) {
        let table = case.table();
        let chosen = case.choose();
        prop_assert_eq!(chosen.is_some(), !table.candidates.is_empty());
        let Some(chosen) = chosen else { return Ok(()) };
        let row = table.candidates.iter().find(|row| *row.signature == *chosen.signature).unwrap();
        let nodes: Vec<&str> = row.hops.iter().map(|hop| hop.node.as_str()).collect();
        let taken: Vec<&str> = chosen.hops.iter().map(|hop| hop.node.as_str()).collect();
        prop_assert_eq!(taken, nodes);
        prop_assert_eq!(chosen.epoch, table.topology_epoch);
        let proven = table.candidates.iter().any(|row| row.status == "proven");
        match chosen.mode {
            Mode::Scout => prop_assert!(proven && row.status != "proven"),
            Mode::Exploit => prop_assert_eq!(row.status, "proven"),
            Mode::GreedyFallback => {
                prop_assert!(!proven);
                prop_assert_eq!(&row.signature, &table.candidates[0].signature);
            }
            Mode::Pinned => prop_assert!(false, "nobody pinned it"),
        }
    }

    #[test]
    fn the_same_dice_give_the_same_answer_whatever_the_order_of_nodes(
        (case, shuffled) in case().prop_flat_map(|case| {
            let nodes = Just(case.nodes.clone()).prop_shuffle();
            (Just(case), nodes)
        })
    ) {
        let other = Case { nodes: shuffled, ..case.clone() };
        prop_assert_eq!(case.choose(), other.choose());
        prop_assert_eq!(case.table(), other.table());
    }

    #[test]
    fn the_numbers_of_a_table_are_what_they_claim_to_be(case in case()) {
        let rows = case.table().candidates;
        let total: f64 = rows.iter().map(|row| row.expected_share).sum();
        prop_assert!(rows.is_empty() || (total - 1.0).abs() < 1e-9, "{total}");
        for row in &rows {
            prop_assert!(row.weight.is_finite() && 0.0 <= row.weight, "{row:?}");
            prop_assert!(row.prior_tps.is_finite() && 0.0 <= row.prior_tps, "{row:?}");
            prop_assert!((0.0..=1.0 + 1e-9).contains(&row.expected_share), "{row:?}");
            prop_assert_eq!(row.tps.is_none(), row.status == "unsampled");
            prop_assert!(row.tps.is_none_or(|tps| tps.is_finite() && 0.0 < tps), "{row:?}");
            if row.status == "proven" {
                let coefficient = row.coefficient.unwrap();
                prop_assert!((0.0..=1.0).contains(&coefficient), "{row:?}");
                prop_assert!(0.5 <= row.weight);
            }
        }
    }

    #[test]
    fn every_candidate_can_be_pinned_by_its_nodes_or_their_labels(case in case()) {
        let routes = case.routes();
        for row in case.table().candidates {
            let ids: Vec<&str> = row.hops.iter().map(|hop| hop.node.as_str()).collect();
            let labels: Vec<&str> = row.signature.trim_start_matches("m | ").split(" -> ").collect();
            for names in [ids, labels] {
                let pin = Pin::read(&serde_json::to_string(&names).unwrap()).unwrap().unwrap();
                let pinned = routes.pinned(&case.fleet(), &case.request(), &pin).unwrap();
                prop_assert_eq!(&*pinned.signature, &row.signature);
                prop_assert_eq!(pinned.mode, Mode::Pinned);
            }
        }
    }

    #[test]
    fn anything_may_be_pinned_and_only_routes_are_taken(
        case in case(),
        names in prop::collection::vec(0..12_u16, 0..4),
    ) {
        let names: Vec<String> = names.iter().map(|number| format!("n{number:02}")).collect();
        let Ok(Some(pin)) = Pin::read(&serde_json::to_string(&names).unwrap()) else {
            prop_assert!(names.is_empty());
            return Ok(());
        };
        let Ok(pinned) = case.routes().pinned(&case.fleet(), &case.request(), &pin) else {
            return Ok(());
        };
        let mut next = 0;
        for (hop, name) in pinned.hops.iter().zip(&names) {
            prop_assert_eq!((hop.node.as_str(), hop.start_layer), (name.as_str(), next));
            next = hop.end_layer + 1;
        }
        prop_assert_eq!((next, pinned.hops.len()), (LAST + 1, names.len()));
    }
}
