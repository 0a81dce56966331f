//! One configuration follows another while requests run, and nothing is lost by it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};
use support::client::{Connection, chat, exchange, post, request};
use support::edge::{Edge, THREADS, free_address, model, workers};
use support::engine::{Engine, Reply, Step, engines, event, stream_end, stream_head};
use support::until;
use tidegate::config::{Overrides, Source};
use tidegate::simulate::client::{Chat, ChatClient, Message};
use tidegate::simulate::server::{FleetConfig, SimulatedFleet};
use tidegate::state::State;
use tidegate_policy::prefix::PrefixKey;
use tokio::net::TcpStream;
use tokio::sync::Notify;

const CHAT: &str = "/v1/chat/completions";

/// One model `m` whose `worker_queue_limit` tells configurations apart.
fn limited(limit: u32, urls: &[String]) -> String {
    model(&[&format!("cache_aware: {{worker_queue_limit: {limit}}}")], urls)
}

async fn limit(edge: &Edge) -> Value {
    let config = edge.admin("/v1/config").await.json();
    config["config"]["tidegate"]["models"][0]["cache_aware"]["worker_queue_limit"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_noticed_however_it_is_changed() {
    let (_engines, urls) = engines(1).await;
    let edge = Edge::start(&limited(1, &urls)).await;
    let file = edge.file();
    for generation in 2..=7 {
        let text = edge.yaml(&limited(generation, &urls));
        if generation % 2 == 0 {
            fs::write(&file, text).unwrap();
        } else {
            let beside = edge.directory.path().join("new");
            fs::write(&beside, text).unwrap();
            fs::rename(&beside, &file).unwrap();
        }
        edge.is_at(u64::from(generation)).await;
        assert_eq!(limit(&edge).await, generation);
        let written = fs::metadata(&file).unwrap().modified().unwrap();
        let written = written.duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let in_force =
            edge.metrics().await.sum("tidegate_config_last_reload_timestamp_seconds", &[]);
        println!("in force {:.0} ms after it was written", 1e3 * (in_force - written));
    }
    // Written again without a change: nothing to read.
    fs::write(&file, fs::read(&file).unwrap()).unwrap();
    fs::write(&file, edge.yaml(&limited(8, &urls))).unwrap();
    edge.is_at(8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_swapped_by_a_symlink_is_noticed_again_and_again() {
    let (_engines, urls) = engines(1).await;
    let edge = Edge::start_mounted(&limited(1, &urls)).await;
    let at = edge.directory.path();
    for generation in 2..=5_u32 {
        let (old, new) = (format!("..{}", generation - 1), format!("..{generation}"));
        fs::create_dir(at.join(&new)).unwrap();
        let text = edge.yaml(&limited(generation, &urls));
        fs::write(at.join(&new).join("edge.yaml"), text).unwrap();
        symlink(&new, at.join("..tmp")).unwrap();
        fs::rename(at.join("..tmp"), at.join("..data")).unwrap();
        fs::remove_dir_all(at.join(old)).unwrap();
        edge.is_at(generation.into()).await;
        assert_eq!(limit(&edge).await, generation);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_and_the_admin_listener_read_it_again() {
    let (_engines, urls) = engines(1).await;
    let edge = Edge::start(&limited(1, &urls)).await;
    edge.signal("HUP");
    edge.is_at(2).await;
    let answer = edge.post("/v1/reload").await;
    assert_eq!((answer.status, answer.json()), (200, json!({"generation": 3})));
    assert_eq!(exchange(edge.admin, &request("GET", "/v1/reload", b"")).await.status, 405);
    let page = edge.metrics().await;
    assert_eq!(page.sum("tidegate_config_reloads_total", &["result=\"applied\""]), 2.0);
    assert_eq!(page.sum("tidegate_config_generation", &[]), 3.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_told_everywhere_and_changes_nothing() {
    let (_engines, urls) = engines(1).await;
    let edge = Edge::start(&limited(1, &urls)).await;
    let wrong =
        format!("{}  dns_intervall: 5s\n  retries: {{max_attempts: 0}}\n", limited(9, &urls));
    let answer = edge.reload(&wrong).await;
    assert_eq!(answer.status, 422);
    let errors = answer.json()["errors"].clone();
    let paths: Vec<&str> =
        errors.as_array().unwrap().iter().map(|error| error["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["tidegate.retries.max_attempts", "tidegate.dns_intervall"]);
    assert!(errors[1]["message"].as_str().unwrap().contains("dns_interval"), "{errors}");
    assert_eq!(errors[0]["value"], "0");
    assert_eq!(limit(&edge).await, 1);
    let config = edge.admin("/v1/config").await.json();
    assert_eq!((&config["generation"], &config["last_error"]["errors"]), (&json!(1), &errors));
    let page = edge.metrics().await;
    assert_eq!(page.sum("tidegate_config_generation", &[]), 1.0);
    assert!(0.0 < page.sum("tidegate_config_reloads_total", &["result=\"rejected\""]));
    let log = edge.log();
    let line = log.lines().find(|line| line.contains("rejected")).unwrap();
    assert!(line.contains("max_attempts") && line.contains("dns_intervall"), "{line}");

    assert_eq!(edge.reload(&limited(2, &urls)).await.status, 200);
    assert_eq!(limit(&edge).await, 2);
    assert!(edge.admin("/v1/config").await.json()["last_error"].is_null());
    fs::remove_file(edge.file()).unwrap();
    assert_eq!(edge.post("/v1/reload").await.status, 422);
    assert_eq!(limit(&edge).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_stay_on_top() {
    let (_engines, urls) = engines(1).await;
    let edge = Edge::start_with_flags(&limited(1, &urls), &["--worker-queue-limit", "7"]).await;
    assert_eq!(limit(&edge).await, 7);
    assert_eq!(edge.reload(&limited(2, &urls)).await.status, 200);
    assert_eq!(limit(&edge).await, 7);
    let answer = edge.reload(&model(&["policy: round_robin"], &urls)).await;
    assert_eq!(answer.status, 422, "the flag would do nothing: {}", answer.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_are_read_at_boot_wait_for_an_upgrade_and_say_so() {
    let (_engines, urls) = engines(1).await;
    let edge = Edge::start(&limited(1, &urls)).await;
    let elsewhere = free_address().to_string();
    let text =
        edge.yaml(&limited(2, &urls)).replace(&edge.traffic.to_string(), &elsewhere).replace(
            &format!("threads: {THREADS}"),
            &format!("threads: 3\nwork_stealing: {}", 1 < THREADS),
        );
    fs::write(edge.file(), text).unwrap();
    assert_eq!(edge.post("/v1/reload").await.status, 200);
    let config = edge.admin("/v1/config").await.json();
    assert_eq!(config["needs_upgrade"], json!(["threads", "tidegate.listeners"]));
    assert_eq!(config["config"]["threads"], THREADS, "what is in force");
    assert_eq!(limit(&edge).await, 2, "all else holds");
    assert!(edge.log().contains("needs an upgrade: threads, tidegate.listeners"), "{}", edge.log());
    assert_eq!(post(edge.traffic, CHAT, &chat("m", "hello")).await.status, 200);
    assert_eq!(edge.reload(&limited(3, &urls)).await.status, 200);
    assert_eq!(edge.admin("/v1/config").await.json()["needs_upgrade"], json!([]));
}

/// Answers streams in two halves, the second when `go` says so; everything else at once.
fn in_halves(engine: &Engine, go: &Arc<Notify>) {
    let go = Arc::clone(go);
    engine.answer(move |received| {
        if !String::from_utf8_lossy(&received.body).contains("slowly") {
            return Reply::completion();
        }
        Reply::steps(vec![
            stream_head(),
            event("one"),
            Step::Wait(Arc::clone(&go)),
            event("two"),
            stream_end(),
        ])
    });
}

async fn stream(edge: &Edge) -> Connection {
    let mut client = Connection::open(edge.traffic).await;
    client.send(&request("POST", CHAT, chat("m", "slowly").as_bytes())).await;
    assert_eq!(client.head().await.status, 200);
    client.chunk().await.unwrap();
    client
}

async fn ends_well(mut client: Connection) {
    let mut rest = String::new();
    while let Some(chunk) = client.chunk().await {
        rest.push_str(&String::from_utf8(chunk).unwrap());
    }
    assert!(rest.contains("two") && rest.ends_with("data: [DONE]\n\n"), "{rest}");
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_reloads_half_of_them_wrong_cut_no_stream_and_fail_no_request() {
    let (engines, urls) = engines(3).await;
    let go = Arc::new(Notify::new());
    engines.iter().for_each(|engine| in_halves(engine, &go));
    let policy = "policy: round_robin";
    let all = model(&[policy], &urls);
    let edge = Arc::new(Edge::start(&all).await);
    edge.all_healthy().await;
    let mut streams = Vec::new();
    for _ in 0..24 {
        streams.push(stream(&edge).await);
    }
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let short: Vec<_> = (0..4)
        .map(|_| {
            let (edge, stopped) = (Arc::clone(&edge), stopped.clone());
            tokio::spawn(async move {
                let mut kept = Connection::open(edge.traffic).await;
                let mut took = Vec::new();
                while !*stopped.borrow() {
                    let begun = Instant::now();
                    assert_eq!(post(edge.traffic, CHAT, &chat("m", "hello")).await.status, 200);
                    took.push(begun.elapsed());
                    let begun = Instant::now();
                    kept.send(&request("POST", CHAT, chat("m", "again").as_bytes())).await;
                    assert_eq!(kept.answer().await.status, 200);
                    took.push(begun.elapsed());
                }
                took
            })
        })
        .collect();
    for round in 0..10 {
        let body = match round % 3 {
            0 => model(&[policy], &urls[..2]),
            1 => model(&[policy, "aliases: [more]"], &urls),
            // Other URLs under the same ids: none of the workers is known.
            _ => model(&["policy: least_load"], &urls[1..]),
        };
        assert_eq!(edge.reload(&body).await.status, 200);
        assert_eq!(edge.reload(&body.replace("workers", "wrokers")).await.status, 422);
    }
    stop.send(true).unwrap();
    let mut took = Vec::new();
    for sender in short {
        took.extend(sender.await.unwrap());
    }
    took.sort();
    let requests = streams.len() + took.len();
    go.notify_waiters();
    for client in streams {
        ends_well(client).await;
    }
    let ok = || async {
        let page = edge.metrics().await;
        let ok = page.sum("tidegate_requests_total", &["outcome=\"ok\""]);
        assert_eq!(page.sum("tidegate_requests_total", &[]), ok, "{}", page.0);
        (ok as usize == requests).then_some(())
    };
    until("all requests booked", ok).await;
    let [half, most] = [took.len() / 2, took.len() * 99 / 100].map(|at| took[at]);
    println!("{requests} requests, none failed; short ones took {half:?} (p50), {most:?} (p99)");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_worker_finishes_its_stream_and_is_gone() {
    let (engines, urls) = engines(2).await;
    let go = Arc::new(Notify::new());
    engines.iter().for_each(|engine| in_halves(engine, &go));
    let policy = "policy: round_robin";
    let edge = Edge::start(&model(&[policy], &urls)).await;
    edge.all_healthy().await;
    let streams = [stream(&edge).await, stream(&edge).await];
    let one = model(&[policy], &urls[..1]);
    assert_eq!(edge.reload(&one).await.status, 200);
    let rows = edge.workers().await;
    assert_eq!((&rows[1]["id"], &rows[1]["state"]), (&json!("w1"), &json!("removed")));
    assert_eq!(rows[1]["in_flight"], 1);
    for _ in 0..4 {
        let answer = post(edge.traffic, CHAT, &chat("m", "hello")).await;
        assert_eq!(answer.header("x-tidegate-worker"), Some("w0"));
    }
    go.notify_waiters();
    for client in streams {
        ends_well(client).await;
    }
    until("its end", || async { (edge.workers().await.len() == 1).then_some(()) }).await;
    assert!(!edge.metrics().await.0.contains("w1"));
}

/// A client whose request the edge has begun to read, and the rest of it.
async fn half_sent(edge: &Edge) -> (Connection, Vec<u8>) {
    let mut ask = request("POST", CHAT, chat("m", &"x".repeat(2_000)).as_bytes());
    let rest = ask.split_off(1_000);
    let mut slow = Connection::open(edge.traffic).await;
    slow.send(&ask).await;
    until("its head", || async {
        let page = edge.metrics().await;
        (page.sum("tidegate_requests_in_progress", &[]) == 1.0).then_some(())
    })
    .await;
    (slow, rest)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_sees_one_configuration_from_start_to_end() {
    let (engines, urls) = engines(2).await;
    let keyed = |key: &str, urls: &[String]| {
        model(&[&format!("upstream_auth: {{bearer: {key}}}"), "policy: round_robin"], urls)
    };
    let edge = Edge::start(&keyed("old", &urls[..1])).await;
    let (mut slow, rest) = half_sent(&edge).await;
    // Another key, another policy's rules, and its only worker is somebody else now.
    assert_eq!(edge.reload(&keyed("new", &urls[1..])).await.status, 200);
    slow.send(&rest).await;
    let answer = slow.answer().await;
    assert_eq!((answer.status, answer.header("x-tidegate-worker")), (200, Some("w0")));
    assert_eq!(engines[0].received()[0].header("authorization"), Some("Bearer old"));
    edge.all_healthy().await;
    assert_eq!(post(edge.traffic, CHAT, &chat("m", "hello")).await.status, 200);
    assert_eq!(engines[1].received()[0].header("authorization"), Some("Bearer new"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_nobody_of_its_own_configuration_can_take_goes_over_to_the_one_in_force() {
    let (mut engines, urls) = engines(2).await;
    let edge = Edge::start(&model(&["policy: round_robin"], &urls[..1])).await;
    let (mut slow, rest) = half_sent(&edge).await;
    assert_eq!(edge.reload(&model(&["policy: least_load"], &urls[1..])).await.status, 200);
    edge.all_healthy().await;
    // As it goes where a worker is first taken out of the file and then stopped.
    drop(engines.remove(0));
    let address = urls[0].trim_start_matches("http://");
    until("its end", || async { TcpStream::connect(address).await.is_err().then_some(()) }).await;
    slow.send(&rest).await;
    assert_eq!(slow.answer().await.status, 200);
    assert_eq!(engines[0].received().len(), 1);
    let page = edge.booked(1).await;
    assert_eq!(page.sum("tidegate_retries_total", &["cause=\"connect\""]), 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_worker_stays_drained_until_the_file_says_otherwise() {
    let (_engines, urls) = engines(2).await;
    let file = |state: &str| {
        let rows = workers(&urls[..1]);
        let w1 = format!("        - {{id: w1, url: \"{}\", state: {state}}}\n", urls[1]);
        format!("  models:\n    - name: m\n      policy: round_robin\n      workers:\n{rows}{w1}")
    };
    let edge = Edge::start(&file("active")).await;
    edge.all_healthy().await;
    let state = || async { edge.workers().await[1]["state"].as_str().unwrap().to_owned() };
    assert_eq!(edge.post("/v1/workers/w1/drain").await.json()["state"], "draining");
    edge.reload(&file("active")).await;
    assert_eq!(state().await, "draining");
    for _ in 0..4 {
        let answer = post(edge.traffic, CHAT, &chat("m", "hello")).await;
        assert_eq!(answer.header("x-tidegate-worker"), Some("w0"));
    }
    edge.reload(&file("draining")).await;
    edge.reload(&file("active")).await;
    assert_eq!(state().await, "active");
}

/// Prompts long enough to have an owner.
fn workload() -> Vec<Chat> {
    let chat = |at| Chat {
        model: "m".to_owned(),
        messages: vec![Message {
            role: "user",
            text: format!("conversation {at} begins here. ").repeat(250),
        }],
        output_tokens: 2,
    };
    (0..24).map(chat).collect()
}

/// Cached share of the workload's prompt tokens.
async fn hit_rate(edge: &Edge, fleet: &SimulatedFleet) -> f64 {
    let client = ChatClient::new(edge.traffic, fleet.clock(), Duration::from_secs(20));
    let (mut cached, mut prompt) = (0, 0);
    for chat in workload() {
        let outcome = client.send(&chat).await;
        assert_eq!(outcome.failure, None);
        cached += outcome.cached_tokens;
        prompt += outcome.prompt_tokens;
    }
    cached as f64 / prompt as f64
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hit_rate_after_a_reload_is_that_of_before() {
    let config = FleetConfig { model: "m".to_owned(), ..FleetConfig::default() };
    let fleet = SimulatedFleet::start(4, config).await.unwrap();
    let urls: Vec<String> = fleet.addresses().iter().map(|at| format!("http://{at}")).collect();
    let edge = Edge::start(&limited(8, &urls)).await;
    edge.all_healthy().await;
    // All prompts get the same owner, whatever their homes are: nobody could guess it.
    for id in ["w1", "w2", "w3"] {
        edge.post(&format!("/v1/workers/{id}/drain")).await;
    }
    hit_rate(&edge, &fleet).await;
    for id in ["w1", "w2", "w3"] {
        edge.post(&format!("/v1/workers/{id}/activate")).await;
    }
    let before = hit_rate(&edge, &fleet).await;
    assert_eq!(edge.reload(&limited(9, &urls)).await.status, 200);
    let after = hit_rate(&edge, &fleet).await;
    let knows_nothing = Edge::start(&limited(9, &urls)).await;
    knows_nothing.all_healthy().await;
    let without = hit_rate(&knows_nothing, &fleet).await;
    println!("hit rate {before:.3}, after a reload {after:.3}, of a new edge {without:.3}");
    assert!(0.9 < before && 0.98 * before <= after, "{before} {after}");
    assert!(without < 0.6, "{without}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_reloads_leave_nothing_behind() {
    // Nothing is asked of workers meanwhile, so that only reloads open or keep anything.
    let quiet = [
        "load_reports: {format: none}",
        "health: {enabled: false}",
        "timeouts: {worker_idle: 100ms}",
    ];
    let (_engines, urls) = engines(3).await;
    let edge = Edge::start(&model(&quiet, &urls)).await;
    let cycle = async |rounds: usize| {
        for round in 0..rounds {
            let urls = if round % 2 == 0 { &urls[..1] } else { &urls[..] };
            assert_eq!(edge.reload(&model(&quiet, urls)).await.status, 200);
            assert_eq!(post(edge.traffic, CHAT, &chat("m", "hello")).await.status, 200);
        }
        edge.size(edge.pid()).await
    };
    let early = cycle(40).await;
    let late = cycle(200).await;
    println!("files and KiB after 40 reloads {early:?}, after 240 {late:?}");
    assert_eq!(early.0, late.0, "open files");
    assert!(late.1 < early.1 + 8 * 1024, "{early:?} {late:?}");
}

#[test]
fn a_model_that_is_gone_leaves_no_estimate_and_its_evictions_stay_counted() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("edge.yaml");
    let model = |name: &str| {
        format!(
            "tidegate: {{health: {{enabled: false}}, models: [{{name: {name}, workers: [{{id: w, url: 'http://127.0.0.1:9'}}]}}]}}"
        )
    };
    fs::write(&file, model("m")).unwrap();
    let mut source = Source::file(file.clone(), Overrides::default());
    let config = Arc::new(source.load().unwrap().config);
    let state = State::with_source(config, source).unwrap();
    let evictions = || {
        let running = state.running();
        let indexes: Vec<_> = running.fleets.models().iter().map(|m| m.index.stats()).collect();
        state.metrics.process.show_indexes(&indexes);
        let page = state.metrics.page().unwrap();
        let line = page.lines().find(|line| line.contains(r#"cause="forgotten""#)).unwrap();
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    let fill = |blocks: u64| {
        let running = state.running();
        let fleet = &running.fleets.models()[0];
        let keys: Vec<PrefixKey> = (1..=blocks).map(PrefixKey).collect();
        fleet.index.credit(fleet.workers()[0].slot, &keys).completed();
        fleet.index.forget(fleet.workers()[0].slot);
    };
    fill(5);
    assert_eq!(evictions(), 5.0);
    fs::write(&file, model("n")).unwrap();
    assert_eq!(state.reload(), Ok(2));
    assert_eq!(evictions(), 5.0);
    fill(3);
    assert_eq!(evictions(), 8.0);
    let page = state.metrics.page().unwrap();
    assert!(page.contains(r#"tidegate_bytes_per_token{model="n"}"#));
    assert!(!page.contains(r#"tidegate_bytes_per_token{model="m"}"#), "{page}");
}
