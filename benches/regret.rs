//! How much is lost by not knowing which route is fast: tokens per second of a simulated fleet, as a
//! share of what an oracle makes of the same fleet.
//!
//! Virtual time and fixed seeds: the machine's speed and load do not matter. Each client sends one
//! request after the other. A node computes four at once and divides itself among more; a route is
//! as fast as its slowest hop, times what its network leaves of it, which no benchmark shows, times
//! noise of 25 %. Nodes are 0.15 to 1.5 times as fast as their benchmarks say. The oracle knows all
//! but the noise; it is the better of two: take what is fastest for this request, or what adds most
//! to the fleet. Neither looks ahead, so a lucky guess can come out above 100 %.

use std::sync::Arc;
use tidegate_policy::fleet::{Fleet, Live, Millis, Report, Role, Slot, Worker};
use tidegate_policy::learned::{
    Choice, Draws, Ended, Exponent, Layers, Node, Routes, Row, Settings, Ticket, Topology,
};
use tidegate_policy::request::Request;

/// Not those that the constants of Thompson sampling were tried with.
const SEEDS: [u64; 10] = [11, 12, 13, 14, 15, 16, 17, 18, 19, 20];
const CLIENTS: [usize; 3] = [1, 8, 24];
const LAST: u32 = 39;
/// Virtual milliseconds of a run.
const END: f64 = 3_600_000.0;
/// Requests a node computes at once without any being slower.
const SLOTS: u32 = 4;
/// Virtual milliseconds between two changes of a fleet that changes.
const CHANGE: f64 = 300_000.0;
/// First layer, last layer, benchmark.
const NODES: [(u32, u32, f64); 9] = [
    (0, 39, 30.0),
    (0, 21, 120.0),
    (0, 19, 90.0),
    (0, 39, 60.0),
    (0, 39, 20.0),
    (0, 25, 70.0),
    (20, 39, 100.0),
    (22, 39, 80.0),
    (18, 39, 60.0),
];

/// How a fleet behaves.
#[derive(Clone, Copy)]
enum Story {
    Stable,
    /// Every five minutes all speeds move a little, and another node is throttled five times.
    Drifting,
    /// Every five minutes a node leaves or comes back.
    Churn,
}

/// How routes are chosen.
#[derive(Clone, Copy)]
enum Way {
    /// What is fastest for this request.
    Fastest,
    /// What adds most to the fleet.
    MostAdded,
    BestPrior,
    RoundRobin,
    Learned(Choice, f64),
}

/// splitmix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let bits = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn within(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.roll() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Log-uniform.
    fn factor(&mut self, low: f64, high: f64) -> f64 {
        self.within(low.ln(), high.ln()).exp()
    }

    /// Log-normal around 1 (Box and Muller).
    fn noise(&mut self, spread: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.within(0.0, 1.0)).ln()).sqrt();
        (spread * radius * (std::f64::consts::TAU * self.within(0.0, 1.0)).cos()).exp()
    }
}

/// A node as it really is.
struct Real {
    node: Node,
    /// Over its benchmark.
    truth: f64,
    throttle: f64,
    /// What the network leaves of routes that start here.
    network: f64,
    is_here: bool,
    in_flight: u32,
}

impl Real {
    /// Tokens per second of each request that is here.
    fn speed(&self) -> f64 {
        let share = f64::from(SLOTS) / f64::from(SLOTS.max(self.in_flight));
        self.node.tps * self.truth / self.throttle * share
    }

    fn worker(&self) -> Worker {
        let live = Live::default();
        live.set_routable(true);
        let report = Report {
            fresh_until: Millis(u64::MAX),
            waiting: Some(u64::from(self.in_flight.saturating_sub(SLOTS))),
            running: Some(u64::from(self.in_flight.min(SLOTS))),
            ..Report::default()
        };
        Worker {
            id: self.node.id.clone(),
            slot: self.node.slot,
            role: Role::Plain,
            weight: 1,
            ranks: 1,
            report: Some(report),
            speed: None,
            live: Arc::new(live),
        }
    }
}

/// A request under way.
struct Running {
    started: f64,
    tokens: u64,
    left: f64,
    noise: f64,
    nodes: Vec<usize>,
    ticket: Option<Ticket>,
}

struct World {
    story: Story,
    nodes: Vec<Real>,
    running: Vec<Running>,
    routes: Routes,
    settings: Settings,
    way: Way,
    dice: Dice,
    /// Of the choices, so that every way meets the same world.
    choices: Dice,
    turn: usize,
    now: f64,
    next_change: f64,
}

fn topology(nodes: &[Real]) -> Option<Topology> {
    let here = nodes.iter().filter(|real| real.is_here).map(|real| real.node.clone()).collect();
    Topology::new("m", Layers::new(0, LAST)?, here).ok()
}

impl World {
    fn new(story: Story, way: Way, seed: u64) -> Option<Self> {
        let mut dice = Dice(seed);
        let mut nodes = Vec::new();
        for (slot, (first, last, tps)) in (0..).zip(NODES) {
            let id = slot.to_string().as_str().into();
            let layers = Layers::new(first, last)?;
            nodes.push(Real {
                node: Node { id, slot: Slot(slot), layers, tps, reputation: 1.0 },
                truth: dice.factor(0.15, 1.5),
                throttle: 1.0,
                network: dice.within(0.4, 1.0),
                is_here: true,
                in_flight: 0,
            });
        }
        let mut settings = Settings::default();
        if let Way::Learned(choice, alpha) = way {
            settings.choice = choice;
            settings.weight_alpha = Exponent::new(alpha)?;
        }
        Some(Self {
            story,
            routes: Routes::new(topology(&nodes)?),
            nodes,
            running: Vec::new(),
            settings,
            way,
            dice,
            choices: Dice(!seed),
            turn: 0,
            now: 0.0,
            next_change: CHANGE,
        })
    }

    fn time(&self) -> Millis {
        Millis(self.now as u64)
    }

    /// Tokens per second of a route as its nodes are shared now, noise left out.
    fn speed(&self, nodes: &[usize]) -> f64 {
        let slowest = nodes.iter().map(|&at| self.nodes[at].speed()).fold(f64::INFINITY, f64::min);
        slowest * nodes.first().map_or(0.0, |&head| self.nodes[head].network)
    }

    /// The same of one more request, and of the whole fleet with it.
    fn with_one_more(&mut self, nodes: &[usize]) -> (f64, f64) {
        nodes.iter().for_each(|&at| self.nodes[at].in_flight += 1);
        let own = self.speed(nodes);
        let all: f64 = self.running.iter().map(|one| self.speed(&one.nodes)).sum();
        nodes.iter().for_each(|&at| self.nodes[at].in_flight -= 1);
        // Of routes that add as little the faster one.
        (own, all + own * (1.0 + 1e-6))
    }

    fn change(&mut self) {
        while self.next_change <= self.now {
            self.next_change += CHANGE;
            let at = (self.dice.roll() % self.nodes.len() as u64) as usize;
            match self.story {
                Story::Stable => {}
                Story::Drifting => {
                    for real in &mut self.nodes {
                        let moved = real.truth * self.dice.factor(0.85, 1.0 / 0.85);
                        (real.truth, real.throttle) = (moved.clamp(0.1, 2.0), 1.0);
                    }
                    self.nodes[at].throttle = 5.0;
                }
                Story::Churn => {
                    // The first one stays, so that there is always a route.
                    self.nodes[at].is_here = at == 0 || !self.nodes[at].is_here;
                    topology(&self.nodes).map(|topology| self.routes.set_topology(topology));
                }
            }
        }
    }

    /// A client's next request.
    fn dispatch(&mut self) -> Option<()> {
        self.change();
        let here = self.nodes.iter().filter(|real| real.is_here).map(Real::worker).collect();
        let fleet = Fleet::new(0, here);
        let (nodes, ticket) = match self.way {
            Way::Learned(_, _) => self.learned(&fleet)?,
            Way::Fastest | Way::MostAdded | Way::BestPrior | Way::RoundRobin => {
                (self.unlearned(&fleet)?, None)
            }
        };
        let tokens = 50 + self.dice.roll() % 350;
        let noise = self.dice.noise(0.25);
        nodes.iter().for_each(|&at| self.nodes[at].in_flight += 1);
        let (started, left) = (self.now, tokens as f64);
        self.running.push(Running { started, tokens, left, noise, nodes, ticket });
        Some(())
    }

    fn learned(&mut self, fleet: &Fleet) -> Option<(Vec<usize>, Option<Ticket>)> {
        let draws = Draws::from_dice(self.choices.roll());
        let request = Request {
            now: self.time(),
            prompt: None,
            excluded: &[],
            dice: 0,
            turn: 0,
            mean_uncached_tokens: 0,
            foreign_share: tidegate_policy::fleet::ForeignShare::default(),
        };
        let selection = self.routes.choose(fleet, &request, &self.settings, draws)?;
        let nodes = selection.hops.iter().map(|hop| usize::from(hop.slot.0)).collect();
        Some((nodes, Some(self.routes.dispatched(&selection))))
    }

    fn unlearned(&mut self, fleet: &Fleet) -> Option<Vec<usize>> {
        let rows = self.routes.table(fleet, self.time(), &self.settings).candidates;
        let mut routes: Vec<Vec<usize>> = rows.iter().filter_map(members).collect();
        routes.sort_unstable();
        self.turn += 1;
        let score = |world: &mut Self, at: usize, nodes: &[usize]| match world.way {
            Way::Fastest => world.with_one_more(nodes).0,
            Way::MostAdded => world.with_one_more(nodes).1,
            Way::BestPrior => {
                let benchmarks = nodes.iter().map(|&at| world.nodes[at].node.tps);
                benchmarks.fold(f64::INFINITY, f64::min)
            }
            Way::RoundRobin | Way::Learned(_, _) => {
                f64::from(u8::from(at == world.turn % rows.len()))
            }
        };
        let mut best: Option<(f64, Vec<usize>)> = None;
        for (at, nodes) in routes.into_iter().enumerate() {
            let score = score(self, at, &nodes);
            if best.as_ref().is_none_or(|(other, _)| *other < score) {
                best = Some((score, nodes));
            }
        }
        best.map(|(_, nodes)| nodes)
    }

    /// Goes on to the end of the request that ends next; says how many tokens came meanwhile.
    fn advance(&mut self) -> Option<f64> {
        let rates: Vec<f64> =
            self.running.iter().map(|one| self.speed(&one.nodes) * one.noise).collect();
        let ends = self.running.iter().zip(&rates).map(|(one, rate)| one.left / rate);
        let (next, seconds) = ends.enumerate().min_by(|a, b| a.1.total_cmp(&b.1))?;
        self.now += seconds * 1000.0;
        for (one, rate) in self.running.iter_mut().zip(&rates) {
            one.left -= rate * seconds;
        }
        let over = self.running.swap_remove(next);
        over.nodes.iter().for_each(|&at| self.nodes[at].in_flight -= 1);
        let took = (self.now - over.started) / 1000.0;
        let ended = Ended::Normally { completion_tokens: over.tokens, seconds: took };
        if let Some(ticket) = over.ticket {
            self.routes.ended(ticket, ended, self.time(), &self.settings);
        }
        Some(rates.iter().sum::<f64>() * seconds)
    }
}

/// A route's nodes, which are named by their numbers.
fn members(row: &Row) -> Option<Vec<usize>> {
    row.hops.iter().map(|hop| hop.node.parse().ok()).collect()
}

/// Tokens per second.
fn throughput(story: Story, clients: usize, way: Way, seed: u64) -> Option<f64> {
    let mut world = World::new(story, way, seed)?;
    let mut tokens = 0.0;
    while world.now < END {
        while world.running.len() < clients {
            world.dispatch()?;
        }
        tokens += world.advance()?;
    }
    Some(tokens / (world.now / 1000.0))
}

/// Mean and least share of the oracle's throughput over the seeds.
fn share(story: Story, clients: usize, way: Way) -> Option<(f64, f64)> {
    let mut shares = Vec::new();
    for seed in SEEDS {
        let of = |way| throughput(story, clients, way, seed);
        let oracle = of(Way::Fastest)?.max(of(Way::MostAdded)?);
        shares.push(of(way)? / oracle);
    }
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    Some((mean, shares.into_iter().fold(f64::INFINITY, f64::min)))
}

fn main() {
    let ways = [
        ("proportional", Way::Learned(Choice::Proportional, 1.0)),
        ("proportional, alpha 4", Way::Learned(Choice::Proportional, 4.0)),
        ("thompson", Way::Learned(Choice::Thompson, 1.0)),
        ("fixed best prior", Way::BestPrior),
        ("round robin", Way::RoundRobin),
    ];
    println!("Throughput as a share of the oracle's, mean (least) of seeds {SEEDS:?}:\n");
    let names: Vec<&str> = ways.iter().map(|(name, _)| *name).collect();
    println!("| Fleet, clients | {} |", names.join(" | "));
    println!("|---|{}", "---|".repeat(ways.len()));
    for (name, story) in
        [("stable", Story::Stable), ("drifting", Story::Drifting), ("churn", Story::Churn)]
    {
        for clients in CLIENTS {
            let cells = ways.map(|(_, way)| match share(story, clients, way) {
                Some((mean, least)) => format!("{:.0} % ({:.0})", mean * 100.0, least * 100.0),
                None => "no route".to_owned(),
            });
            println!("| {name}, {clients} | {} |", cells.join(" | "));
        }
    }
}
