//! What comes, where to, and how it went.

use super::rules::RULES;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;
use std::time::Duration;
use tidegate::simulate::arrivals::Shape;
use tidegate::simulate::compare::{Compared, Comparison};
use tidegate::simulate::engine::EngineConfig;
use tidegate::simulate::figures::Figures;
use tidegate::simulate::generate::Generator;
use tidegate::simulate::rule_set::{RuleSet, RuleSets};
use tidegate::simulate::server::LoadEndpoint;
use tidegate::simulate::trace;
use tidegate::simulate::traffic_source::Source;
use tidegate::simulate::world;

/// Each is a run; a rule's settings are picked by the first.
pub(crate) const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];
/// Of what the engines could do if nothing were computed twice.
pub(crate) const LOADS: [f64; 6] = [0.5, 0.7, 0.9, 1.0, 1.2, 1.4];
/// The load at which everything else is varied for all kinds of traffic.
const LOAD: f64 = 0.9;
/// Those at which it is for the first kind.
const FEW_LOADS: [f64; 3] = [0.7, LOAD, 1.2];
/// Engines that requests are made for; with more, each has fewer.
const MOST_ENGINES: u32 = 32;

/// Something that comes.
pub(crate) struct Traffic {
    pub(crate) name: &'static str,
    kind: Kind,
    /// Requests for each engine.
    each: u32,
}

enum Kind {
    Trace(Source),
    Generator(&'static str),
}

/// What there is besides the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fleet {
    pub(crate) name: &'static str,
    pub(crate) engines: u32,
    pub(crate) edges: u32,
    pub(crate) interval: &'static str,
    pub(crate) unstreamed: f64,
}

/// What everything else is a change of.
const BASE: Fleet =
    Fleet { name: "as it is", engines: 16, edges: 1, interval: "500ms", unstreamed: 0.0 };

pub(crate) const FLEETS: [Fleet; 11] = [
    BASE,
    Fleet { name: "2 engines", engines: 2, ..BASE },
    Fleet { name: "8 engines", engines: 8, ..BASE },
    Fleet { name: "64 engines", engines: 64, ..BASE },
    Fleet { name: "2 edges", edges: 2, ..BASE },
    Fleet { name: "4 edges", edges: 4, ..BASE },
    Fleet { name: "reports every 0.1 s", interval: "100ms", ..BASE },
    Fleet { name: "every 1 s", interval: "1s", ..BASE },
    Fleet { name: "every 5 s", interval: "5s", ..BASE },
    Fleet { name: "half unstreamed", unstreamed: 0.5, ..BASE },
    Fleet { name: "all unstreamed", unstreamed: 1.0, ..BASE },
];

/// One comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene {
    /// By its place.
    pub(crate) traffic: usize,
    pub(crate) fleet: Fleet,
    pub(crate) load: f64,
}

/// How each rule did with its best settings, in the order of [`RULES`].
pub(crate) struct Played {
    pub(crate) scene: Scene,
    pub(crate) rules: Vec<Compared>,
}

impl Traffic {
    pub(crate) fn all(trace: Option<&Path>) -> Vec<Self> {
        let recorded = trace.map(|file| Self {
            name: "trace",
            kind: Kind::Trace(Source::Recorded(trace::read_file(file).unwrap())),
            each: 125,
        });
        let generated =
            [("chat", 250), ("agents", 125), ("system", 250), ("hot", 250), ("unique", 125)];
        let generated =
            generated.map(|(name, each)| Self { name, kind: Kind::Generator(name), each });
        recorded.into_iter().chain(generated).collect()
    }

    fn requests(&self, engines: u32) -> u32 {
        self.each * engines.min(MOST_ENGINES)
    }

    /// As many requests as make each engine's share.
    fn source(&self, engines: u32) -> (Source, Shape) {
        let requests = self.requests(engines);
        match &self.kind {
            Kind::Trace(source) => {
                (source.clone(), Shape { until: self.until(engines), ..Shape::default() })
            }
            Kind::Generator(kind) => {
                let generator = Generator::named(&format!("{kind}:requests={requests}")).unwrap();
                (Source::Generated(generator), Shape { spread: false, ..Shape::default() })
            }
        }
    }

    /// Up to when a trace has so many, if it is longer.
    fn until(&self, engines: u32) -> Option<Duration> {
        let Kind::Trace(Source::Recorded(requests)) = &self.kind else { return None };
        let next = requests.get(self.requests(engines) as usize)?;
        Some(Duration::from_secs(next.at.as_secs()))
    }

    /// What is said of it to `tidegate simulate`.
    fn options(&self, engines: u32) -> String {
        match (&self.kind, self.until(engines)) {
            (Kind::Trace(_), Some(until)) => format!("--trace TRACE --until {until:?}"),
            (Kind::Trace(_), None) => "--trace TRACE".to_owned(),
            (Kind::Generator(kind), _) => {
                format!("--generate {kind}:requests={}", self.requests(engines))
            }
        }
    }
}

impl Scene {
    /// Every load for every traffic at the base; with each change of the fleet a few loads for the
    /// first traffic and one for the others.
    pub(crate) fn all(traffic: &[Traffic]) -> Vec<Self> {
        let mut scenes = Vec::new();
        for fleet in FLEETS {
            for at in 0..traffic.len() {
                let has = |load: &f64| {
                    fleet == BASE || *load == LOAD || at == 0 && FEW_LOADS.contains(load)
                };
                let loads = LOADS.into_iter().filter(has);
                scenes.extend(loads.map(|load| Self { traffic: at, fleet, load }));
            }
        }
        scenes
    }

    pub(crate) fn is_base(&self) -> bool {
        self.fleet == BASE
    }

    pub(crate) fn play(self, traffic: &[Traffic]) -> Played {
        let picked: Vec<RuleSet> = RULES
            .iter()
            .map(|rule| match rule.settings {
                [only] => self.rule_set(only),
                several => {
                    let sets: Vec<RuleSet> =
                        several.iter().map(|text| self.rule_set(text)).collect();
                    let compared = self.compare(traffic, &sets, &SEEDS[..1]);
                    let by_mean = |at: &usize| mean(&compared[*at].runs[0]);
                    let best = (0..sets.len()).min_by(|a, b| by_mean(a).total_cmp(&by_mean(b)));
                    sets[best.unwrap()].clone()
                }
            })
            .collect();
        Played { scene: self, rules: self.compare(traffic, &picked, &SEEDS) }
    }

    fn rule_set(&self, text: &str) -> RuleSet {
        let engines = NonZeroU32::new(self.fleet.engines);
        let named = RuleSets { engines, ..RuleSets::default() };
        let sets = named.named(&self.with_interval(text)).unwrap();
        RuleSet { name: text.to_owned(), ..sets[0].clone() }
    }

    fn with_interval(&self, text: &str) -> String {
        let then = if text.contains(':') { ',' } else { ':' };
        format!("{text}{then}interval={}", self.fleet.interval)
    }

    fn compare(&self, traffic: &[Traffic], sets: &[RuleSet], seeds: &[u64]) -> Vec<Compared> {
        let (source, mut shape) = traffic[self.traffic].source(self.fleet.engines);
        let scene = world::Scene {
            engines: vec![EngineConfig::default(); self.fleet.engines as usize],
            edges: self.fleet.edges,
            reports: LoadEndpoint::GetLoad,
            report_delay: Duration::ZERO,
            report_loss: 0.0,
            unstreamed: self.fleet.unstreamed,
            bytes_per_token: 4,
            outages: Vec::new(),
        };
        shape.rate = source.rate_for(self.load, &shape, &scene.engines, SEEDS[0]);
        let jobs = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let (scene, source, shape) = (&scene, &source, &shape);
        Comparison { scene, source, shape, sets, seeds, jobs }.run(|| {}).unwrap()
    }

    /// Two rules in this scene again.
    pub(crate) fn command(&self, traffic: &[Traffic], rules: [&str; 2]) -> String {
        let Fleet { engines, edges, unstreamed, .. } = self.fleet;
        let unstreamed =
            if 0.0 < unstreamed { format!(" --unstreamed {unstreamed}") } else { String::new() };
        format!(
            "tidegate simulate {} --load {} --engines {engines} --edges {edges}{unstreamed} --seeds {} --compare {}",
            traffic[self.traffic].options(engines),
            self.load,
            SEEDS.len(),
            rules.map(|text| self.with_interval(text)).join(" "),
        )
    }
}

/// What rules are ranked by.
pub(crate) fn mean(run: &Figures) -> f64 {
    run.first_token.geometric_mean
}
