//! `tidegate simulate`: the same answer for the same question, and the right one where it is known.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use tidegate::simulate::arrivals::Shape;
use tidegate::simulate::compare::{Compared, Comparison};
use tidegate::simulate::engine::EngineConfig;
use tidegate::simulate::generate::Generator;
use tidegate::simulate::rule_set::{RuleSet, RuleSets};
use tidegate::simulate::server::LoadEndpoint;
use tidegate::simulate::trace;
use tidegate::simulate::traffic_source::Source;
use tidegate::simulate::world::{self, Outage, Scene, WorldError};

const TRACE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/conversation_trace_1500.jsonl");

fn scene(engines: usize) -> Scene {
    Scene {
        engines: vec![EngineConfig::default(); engines],
        edges: 1,
        reports: LoadEndpoint::GetLoad,
        report_delay: Duration::from_millis(2),
        report_loss: 0.0,
        unstreamed: 0.0,
        bytes_per_token: 4,
        outages: Vec::new(),
    }
}

fn sets(texts: &[&str], engines: u32) -> Vec<RuleSet> {
    let named = RuleSets { engines: NonZeroU32::new(engines), ..RuleSets::default() };
    texts.iter().flat_map(|text| named.named(text).unwrap()).collect()
}

fn source() -> Source {
    Source::Recorded(trace::read_file(Path::new(TRACE)).unwrap())
}

fn compare(scene: &Scene, source: &Source, sets: &[RuleSet], jobs: usize) -> Vec<Compared> {
    let shape = Shape { spread: matches!(source, Source::Recorded(_)), ..Shape::default() };
    let (shape, seeds) = (&shape, &[1, 2]);
    let jobs = NonZeroUsize::new(jobs).unwrap();
    Comparison { scene, source, shape, sets, seeds, jobs }.run(|| {}).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_figures_whatever_runs_beside_it() {
    let mut scene = scene(4);
    scene.edges = 2;
    scene.unstreamed = 0.3;
    scene.report_loss = 0.1;
    scene.outages =
        vec![Outage { engine: 1, at: Duration::from_secs(60), until: Duration::from_secs(75) }];
    let sets = sets(&["cost", "ladder:limit=4,floor=1,min_load_choices=2", "random"], 4);
    let (alone, together) =
        (compare(&scene, &source(), &sets, 1), compare(&scene, &source(), &sets, 3));
    for (alone, together) in alone.iter().zip(&together) {
        assert_eq!(alone.runs, together.runs, "{}", alone.name);
        assert_ne!(alone.runs[0], alone.runs[1], "{}: seeds differ", alone.name);
    }
}

#[test]
fn affinity_finds_prefixes_that_turns_do_not_and_every_request_is_accounted_for() {
    let sets = sets(&["round_robin", "affinity", "cost", "pin"], 8);
    let compared = compare(&scene(8), &source(), &sets, 2);
    for set in &compared {
        for run in &set.runs {
            assert_eq!((run.answered, run.failed, run.shed), (1_500, 0, 0), "{}", set.name);
            assert_eq!(run.decisions.values().sum::<u64>(), 1_500);
            assert!(run.first_token.p50 <= run.first_token.p99 && run.total.p50 <= run.total.p99);
        }
    }
    let hits: Vec<f64> = compared.iter().map(|set| set.median(|run| run.hit_rate)).collect();
    assert!(hits[1..].iter().all(|of| 3.0 * hits[0] <= *of), "{hits:?}");
}

#[test]
fn where_nothing_is_shared_affinity_does_not_hurt() {
    let source = Source::Generated(Generator::named("unique:requests=1500,rate=8").unwrap());
    let compared = compare(&scene(8), &source, &sets(&["least_load", "cost", "pin"], 8), 2);
    let first_tokens: Vec<f64> =
        compared.iter().map(|set| set.median(|run| run.first_token.geometric_mean)).collect();
    assert!(first_tokens.iter().all(|of| *of <= 1.1 * first_tokens[0]), "{first_tokens:?}");
    assert!(compared.iter().all(|set| set.median(|run| run.hit_rate) == 0.0));
}

#[test]
fn an_engine_that_stops_loses_what_it_has_and_the_rest_goes_elsewhere() {
    let mut scene = scene(4);
    scene.outages =
        vec![Outage { engine: 2, at: Duration::from_secs(100), until: Duration::from_secs(130) }];
    let sets = sets(&["cost"], 4);
    let arrivals = source().arrivals(&Shape::default(), 1);
    let run = world::run(&scene, &sets[0].config, &arrivals, 1).unwrap();
    let figures = run.figures();
    assert_eq!(figures.answered + figures.failed, 1_500);
    assert!((1..100).contains(&figures.failed), "{}", figures.failed);
    assert!(run.engines.iter().all(|engine| 0 < engine.computed_tokens));
}

#[test]
fn a_queue_limit_that_sheds_turns_requests_away() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("edge.yaml");
    let yaml = "tidegate:\n  models:\n    - {name: m, shed_queue_limit: 2, workers: [{id: a, url: 'http://10.0.0.1:1'}, {id: b, url: 'http://10.0.0.2:1'}]}\n";
    std::fs::write(&file, yaml).unwrap();
    let sets = RuleSets { file: Some(file), ..RuleSets::default() }.named("file").unwrap();
    let arrivals = source().arrivals(&Shape { rate: 4.0, ..Shape::default() }, 1);
    let figures = world::run(&scene(2), &sets[0].config, &arrivals, 1).unwrap().figures();
    assert_eq!(figures.answered + figures.shed, 1_500);
    assert!(100 < figures.shed);
    let error = world::run(&scene(3), &sets[0].config, &arrivals, 1).unwrap_err();
    assert!(matches!(error, WorldError::Workers { engines: 3, workers: 2 }));
}

#[test]
fn an_edge_that_sees_no_first_bytes_still_tells_when_engines_had_them() {
    let mut scene = scene(8);
    let streamed = compare(&scene, &source(), &sets(&["round_robin"], 8), 2);
    scene.unstreamed = 1.0;
    let whole = compare(&scene, &source(), &sets(&["round_robin"], 8), 2);
    // What goes in turn does not depend on what the edge sees.
    assert_eq!(streamed[0].runs, whole[0].runs);
}

fn simulate(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("simulate").args(args).env_remove("RUST_LOG").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_comparison_prints_a_table_and_writes_json_and_a_picture() {
    let directory = tempfile::tempdir().unwrap();
    let [json, svg] = ["out.json", "out.svg"].map(|name| directory.path().join(name));
    let output = simulate(&[
        "--trace",
        TRACE,
        "--until",
        "60s",
        "--seeds",
        "2",
        "--jobs",
        "1",
        "--json",
        json.to_str().unwrap(),
        "--svg",
        svg.to_str().unwrap(),
        "--compare",
        "cost",
        "ladder:limit=4/8,floor=1",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    assert_eq!(stdout.lines().count(), 5 + 1 + 3, "{stdout}");
    let decisions = stdout.lines().last().unwrap();
    assert!(decisions.starts_with("ladder:limit=8,floor=1: "), "{decisions}");
    assert!(decisions.contains("home ") && decisions.ends_with(" %"), "{decisions}");
    assert!(stdout.lines().nth(4).unwrap().starts_with("| ladder:limit=8,floor=1 |"), "{stdout}");
    let document: serde_json::Value =
        serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let run = &document["rule_sets"][2]["runs"][1];
    assert!(0 < run["answered"].as_u64().unwrap() && run["first_token"]["p99"].is_f64(), "{run}");
    assert!(std::fs::read_to_string(svg).unwrap().starts_with("<svg"));
}

#[test]
fn a_suggestion_names_a_rule_set_and_reasons() {
    let output = simulate(&[
        "--generate",
        "chat:requests=300,rate=20",
        "--engines",
        "2",
        "--suggest",
        "--engine",
        "prefill_tps=4000,max_running=16",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    assert!(stdout.contains("\nSuggested: ") && stdout.contains("seed to seed"), "{stdout}");
}

#[test]
fn what_cannot_be_simulated_is_refused_with_the_reason() {
    for (args, code, part) in [
        (&[][..], 2, "--trace"),
        (&["--trace", TRACE, "--compare", "ladder:floor=3"], 2, "needs `worker_queue_limit`"),
        (&["--trace", TRACE, "--engine", "prefill_tps=0"], 2, "engine.prefill_tps"),
        (&["--trace", TRACE, "--rate", "2", "--load", "1"], 2, "cannot be used with"),
        (&["--trace", TRACE, "--slow", "8:2"], 1, "no engine 8: the last of 8 is 7"),
        (&["--trace", TRACE, "--outage", "9:1s:1s"], 1, "no engine 9"),
        (&["--trace", "/no/such/file"], 1, "No such file"),
        (&["--access-log", TRACE], 1, "no line of an answered request"),
        (&["--fit", TRACE], 1, "no line of an answered request"),
        (&["--generate", "chats"], 2, "no kind of traffic"),
    ] {
        let output = simulate(args);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(part), "{args:?}: {stderr}");
    }
}
