//! Learned routes over sockets: what the head of a route is told, what is learned from an answer and
//! what is not, and where traffic goes when a route gets slow, dies or joins.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use futures_util::StreamExt;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;
use support::client::{Answer, Connection, chat, exchange, post, request, request_with};
use support::edge::{Edge, is_listening};
use support::engine::{Engine, Reply, Step, chunk, event, sha256, stream_end, stream_head};
use support::{until, within};
use tidegate::simulate::client::{Chat, ChatClient, Message};
use tidegate::simulate::nodes::Nodes;
use tidegate::simulate::server::{FleetConfig, SimulatedFleet};

const CHAT: &str = "/v1/chat/completions";
const SLOW: &str = "m | cpu[0-39]";
const HYBRID: &str = "m | gpu[0-21] -> cpu[0-39]";

/// A fast node with the first layers and a slow one with all, and an edge in front.
struct Mixed {
    gpu: Engine,
    cpu: Engine,
    edge: Edge,
}

impl Mixed {
    async fn start(learned: &str) -> Self {
        let (gpu, cpu) = (Engine::start().await, Engine::start().await);
        for engine in [&gpu, &cpu] {
            engine.answer(|_| tokens(20));
        }
        let edge = Edge::start(&mixed(learned, &gpu, &cpu, "")).await;
        edge.all_healthy().await;
        Self { gpu, cpu, edge }
    }

    async fn pinned(&self, route: Value) -> Answer {
        let mut body: Value = serde_json::from_str(&chat("m", "hello")).unwrap();
        body["route"] = route;
        post(self.edge.traffic, CHAT, &body.to_string()).await
    }
}

/// The two nodes, and `more` lines of workers.
fn mixed(learned: &str, gpu: &Engine, cpu: &Engine, more: &str) -> String {
    let (gpu, cpu) = (gpu.url(), cpu.url());
    format!(
        "  models:\n    - name: m\n      policy: learned\n      layers: 40\n      \
         learned: {{{learned}}}\n      workers:\n        \
         - {{id: gpu, url: \"{gpu}\", first_layer: 0, last_layer: 21, tps: 120}}\n        \
         - {{id: cpu, url: \"{cpu}\", first_layer: 0, last_layer: 39, tps: 6}}\n{more}"
    )
}

/// A whole answer of so many tokens.
fn tokens(count: u64) -> Reply {
    let answer = json!({
        "choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": count},
    });
    Reply::json(200, &answer.to_string())
}

async fn routing(edge: &Edge) -> Value {
    edge.admin("/v1/routing?model=m").await.json()
}

/// The candidates' rows by signature.
async fn table(edge: &Edge) -> BTreeMap<String, Value> {
    let routing = routing(edge).await;
    let rows = routing["models"][0]["candidates"].as_array().unwrap();
    rows.iter().map(|row| (row["signature"].as_str().unwrap().to_owned(), row.clone())).collect()
}

async fn epoch(edge: &Edge) -> u64 {
    routing(edge).await["models"][0]["topology_epoch"].as_u64().unwrap()
}

async fn ask(edge: &Edge) -> Answer {
    post(edge.traffic, CHAT, &chat("m", "hello")).await
}

fn decision(answer: &Answer) -> &str {
    answer.header("x-tidegate-decision").unwrap_or_default()
}

fn worker(answer: &Answer) -> &str {
    answer.header("x-tidegate-worker").unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_head_is_told_the_route_and_the_second_hop_starts_where_the_first_ends() {
    let fleet = Mixed::start("seed: 1").await;
    let body = br#"{ "model":"m","route" : ["gpu" ,"cpu[0-39]"],"messages":[{"role":"user","content":"\u00e9"}]  }"#;
    let spoofed = "x-tidegate-route: [\"mine\"]\r\nx-tidegate-route-signature: mine\r\n";
    let sent = request_with("POST", CHAT, spoofed, body);
    let answer = exchange(fleet.edge.traffic, &sent).await;
    assert_eq!((answer.status, decision(&answer), worker(&answer)), (200, "pinned", "gpu"));
    let received = &fleet.gpu.received()[0];
    assert_eq!((received.body_len, &received.body_sha256), (body.len(), &sha256(body)));
    assert_eq!(received.all("x-tidegate-route-signature"), [HYBRID]);
    let [route] = received.all("x-tidegate-route")[..] else { panic!("{received:?}") };
    let expected = json!([
        {"node": "gpu", "url": fleet.gpu.url(), "start_layer": 0, "end_layer": 21},
        {"node": "cpu", "url": fleet.cpu.url(), "start_layer": 22, "end_layer": 39},
    ]);
    assert_eq!(serde_json::from_str::<Value>(route).unwrap(), expected);
    assert!(fleet.cpu.received().is_empty(), "nodes pass the request on themselves");

    let page = fleet.edge.booked(1).await;
    let selected = ["model=\"m\"", "mode=\"pinned\""];
    assert_eq!(page.sum("tidegate_route_selections_total", &selected), 1.0);
    assert_eq!(page.sum("tidegate_route_samples_total", &["result=\"accepted\""]), 1.0);
    let decisions = ["policy=\"learned\"", "reason=\"pinned\""];
    assert_eq!(page.sum("tidegate_policy_decisions_total", &decisions), 1.0);
    assert_eq!(page.sum("tidegate_topology_epoch", &["model=\"m\""]), 0.0);
    assert!(0.0 < page.sum("tidegate_route_tps", &[&format!("signature=\"{HYBRID}\"")]));
    let record = fleet.edge.admin("/v1/decisions").await.json()["decisions"][0].clone();
    let event = json!({"event": "route selected", "mode": "pinned", "signature": HYBRID});
    assert_eq!((&record["route"], &record["decision"]), (&event, &json!("pinned")));
    fleet.edge.logs(&event.to_string()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_that_is_none_is_the_clients_mistake_and_says_which() {
    let fleet = Mixed::start("").await;
    for (route, words) in [
        (json!(["gpu", "tpu"]), "no node `tpu`"),
        (json!(["gpu"]), "ends at layer 21"),
        (json!(["cpu", "gpu"]), "layer 40 comes next"),
        (json!(["gpu[0-39]", "cpu"]), "has layers 0-21"),
        (json!([]), "names no node"),
        (json!("gpu"), "must be a list"),
        (json!(["gpu", 7]), "route[1]"),
    ] {
        let answer = fleet.pinned(route.clone()).await;
        assert_eq!(
            (answer.status, answer.error_code().as_str()),
            (400, "invalid_route"),
            "{route}"
        );
        assert!(answer.text().contains(words), "{route}: {}", answer.text());
    }
    let tail = "        - {id: tail, url: \"http://127.0.0.1:1\", first_layer: 30, tps: 5}\n";
    let answer = fleet.edge.reload(&mixed("", &fleet.gpu, &fleet.cpu, tail)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let gap = fleet.pinned(json!(["gpu", "tail"])).await;
    assert!(gap.status == 400 && gap.text().contains("layer 22 comes next"), "{}", gap.text());
    let head = fleet.pinned(json!(["tail"])).await;
    assert!(head.status == 400 && head.text().contains("cannot be the first"), "{}", head.text());
    assert!(fleet.gpu.received().is_empty() && fleet.cpu.received().is_empty());
    assert_eq!(fleet.pinned(Value::Null).await.status, 200, "null is no pin");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_node_takes_its_routes_out_at_once_and_is_no_change_of_topology() {
    let fleet = Mixed::start("").await;
    assert_eq!(fleet.pinned(json!(["gpu", "cpu"])).await.status, 200);
    fleet.edge.booked(1).await;
    assert_eq!(table(&fleet.edge).await.len(), 2);
    fleet.edge.post("/v1/workers/gpu/drain").await;
    assert_eq!(table(&fleet.edge).await.keys().collect::<Vec<_>>(), [SLOW]);
    assert!(!fleet.edge.metrics().await.has("tidegate_route_tps"), "no live candidate has any");
    let answer = fleet.pinned(json!(["gpu", "cpu"])).await;
    assert_eq!((answer.status, answer.error_code().as_str()), (503, "no_route"));
    assert!(answer.header("retry-after").is_some());
    fleet.edge.post("/v1/workers/cpu/drain").await;
    let answer = ask(&fleet.edge).await;
    assert_eq!((answer.status, answer.error_code().as_str()), (503, "no_route"));
    assert_eq!(fleet.edge.admin("/readyz").await.status, 503);
    fleet.edge.post("/v1/workers/gpu/activate").await;
    assert_eq!(fleet.edge.admin("/readyz").await.status, 503, "a head alone is no route");
    fleet.edge.post("/v1/workers/cpu/activate").await;
    assert_eq!(fleet.edge.admin("/readyz").await.status, 200);
    assert_eq!(table(&fleet.edge).await[HYBRID]["status"], "proven");
    assert_eq!(epoch(&fleet.edge).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_a_leave_and_another_shard_are_epochs_and_nothing_else_is() {
    let fleet = Mixed::start("explore_share: 0.2").await;
    let (gpu, cpu, edge) = (&fleet.gpu, &fleet.cpu, &fleet.edge);
    assert_eq!(fleet.pinned(json!(["gpu", "cpu"])).await.status, 200);
    edge.booked(1).await;
    let before = table(edge).await;
    assert_eq!(before[HYBRID]["status"], "proven");
    let same = mixed("explore_share: 0.5", gpu, cpu, "").replace("tps: 6", "tps: 7");
    assert_eq!(edge.reload(&same).await.status, 200);
    assert_eq!(epoch(edge).await, 0, "settings and benchmarks are no topology");
    assert_eq!(routing(edge).await["config"]["explore_share"], 0.5);
    let after = table(edge).await;
    for field in ["tps", "samples", "status", "hops"] {
        assert_eq!(after[HYBRID][field], before[HYBRID][field], "{field}");
    }
    assert_eq!(after[SLOW]["prior_tps"], 7.0);

    let third = Engine::start().await;
    third.answer(|_| tokens(20));
    let row =
        format!("        - {{id: npu, url: \"{}\", first_layer: 22, tps: 90}}\n", third.url());
    assert_eq!(edge.reload(&mixed("", gpu, cpu, &row)).await.status, 200);
    assert_eq!(epoch(edge).await, 1);
    edge.all_healthy().await;
    let joined = "m | gpu[0-21] -> npu[22-39]";
    let rows = table(edge).await;
    assert_eq!((rows.len(), &rows[joined]["status"]), (2, &json!("unsampled")));
    let answer = fleet.pinned(json!(["gpu", "npu"])).await;
    assert_eq!((answer.status, worker(&answer)), (200, "gpu"));
    let moved = row.replace("first_layer: 22", "first_layer: 20");
    assert_eq!(edge.reload(&mixed("", gpu, cpu, &moved)).await.status, 200);
    assert_eq!(epoch(edge).await, 2);
    assert_eq!(edge.reload(&mixed("", gpu, cpu, "")).await.status, 200);
    assert_eq!(epoch(edge).await, 3);
    let rows = table(edge).await;
    assert_eq!((&rows[HYBRID]["status"], &rows[HYBRID]["samples"]), (&json!("stale"), &json!(1)));
    let uncovered = mixed("", gpu, cpu, "").replace("last_layer: 39", "last_layer: 30");
    let answer = edge.reload(&uncovered).await;
    assert_eq!(answer.status, 422);
    assert!(answer.text().contains("nobody goes on at layer 31"), "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_learned_is_the_successors() {
    let fleet = Mixed::start("").await;
    assert_eq!(fleet.pinned(json!(["gpu", "cpu"])).await.status, 200);
    fleet.edge.booked(1).await;
    let before = table(&fleet.edge).await;
    fleet.edge.upgraded().await;
    let after = table(&fleet.edge).await;
    assert_eq!(after.len(), before.len());
    for field in ["samples", "status", "hops"] {
        assert_eq!(after[HYBRID][field], before[HYBRID][field], "{field}");
    }
    let number = |row: &Value, field: &str| row[field].as_f64().unwrap();
    let [then, now] = [&before, &after].map(|rows| number(&rows[HYBRID], "tps"));
    assert!((then - now).abs() <= 1e-6 * then, "{then} {now}");
    let [then, now] = [&before, &after].map(|rows| number(&rows[HYBRID], "weight"));
    // Seconds of a half-life of ten minutes.
    assert!(0.9 * then < now && now <= then, "{then} {now}");
    assert_eq!(epoch(&fleet.edge).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_a_cut_stream_a_failure_and_a_client_that_leaves_teach_nothing() {
    let fleet = Mixed::start("").await;
    let hybrid = || fleet.pinned(json!(["gpu", "cpu"]));
    fleet.gpu.answer(|_| tokens(1));
    assert_eq!(hybrid().await.status, 200);
    fleet.gpu.answer(|_| {
        let mut steps = vec![stream_head()];
        steps.extend((0..20).map(|_| event("x")));
        steps.push(Step::Close);
        Reply::steps(steps)
    });
    let body = r#"{"model":"m","stream":true,"route":["gpu","cpu"],"messages":[]}"#;
    let mut client = Connection::open(fleet.edge.traffic).await;
    client.send(&request("POST", CHAT, body.as_bytes())).await;
    assert_eq!(client.head().await.status, 200);
    while let Ok(Some(_)) = client.try_chunk().await {}
    fleet.gpu.answer(|_| {
        let mut steps = vec![stream_head()];
        steps.extend((0..20).map(|_| event("x")));
        steps.push(chunk("data: {\"error\":{\"message\":\"out of memory\"}}\n\n"));
        steps.push(stream_end());
        Reply::steps(steps)
    });
    assert_eq!(post(fleet.edge.traffic, CHAT, body).await.status, 200);
    fleet.gpu.answer(|_| Reply::json(500, "{}"));
    assert_eq!(hybrid().await.status, 500);
    fleet.gpu.answer(|_| {
        let mut steps = vec![stream_head()];
        steps.extend((0..20).map(|_| event("x")));
        steps.push(Step::Hang);
        Reply::steps(steps)
    });
    let mut client = Connection::open(fleet.edge.traffic).await;
    client.send(&request("POST", CHAT, body.as_bytes())).await;
    assert_eq!(client.head().await.status, 200);
    drop(client);
    let page = fleet.edge.booked(5).await;
    let counted =
        |result: &str| page.sum("tidegate_route_samples_total", &[&format!("result=\"{result}\"")]);
    let results = ["accepted", "short", "failed", "aborted"].map(counted);
    assert_eq!(results, [0.0, 1.0, 3.0, 1.0]);
    let row = &table(&fleet.edge).await[HYBRID];
    let known = (&row["status"], &row["samples"], &row["tps"]);
    assert_eq!(known, (&json!("unsampled"), &json!(0), &Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_every_dialect_are_samples_by_usage_or_else_by_counted_events() {
    let fleet = Mixed::start("").await;
    let plain = |body: &'static str| Reply::json(200, body);
    let counted = || {
        let mut steps = vec![stream_head()];
        steps.extend((0..9).map(|_| event("x")));
        steps.push(stream_end());
        Reply::steps(steps)
    };
    let replies = [
        (CHAT, counted()),
        (
            CHAT,
            plain(r#"{"choices":[{"message":{"content":"a"}}],"usage":{"completion_tokens":9}}"#),
        ),
        ("/v1/completions", plain(r#"{"choices":[{"text":"a"}],"usage":{"completion_tokens":9}}"#)),
        ("/v1/messages", plain(r#"{"content":[{"text":"a"}],"usage":{"output_tokens":9}}"#)),
        ("/v1/responses", plain(r#"{"status":"completed","usage":{"output_tokens":9}}"#)),
        ("/generate", plain(r#"{"text":"a","meta_info":{"completion_tokens":9}}"#)),
    ];
    for (count, (path, reply)) in (1..).zip(replies) {
        fleet.gpu.answer(move |_| reply.clone());
        let body = r#"{"model":"m","route":["gpu","cpu"],"messages":[],"prompt":"a","text":"a"}"#;
        assert_eq!(post(fleet.edge.traffic, path, body).await.status, 200, "{path}");
        let page = fleet.edge.booked(count).await;
        let accepted = page.sum("tidegate_route_samples_total", &["result=\"accepted\""]);
        assert_eq!(accepted, count as f64, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_behind_the_head_has_the_request_in_its_queue() {
    let fleet = Mixed::start("").await;
    fleet.gpu.answer(|_| Reply::hang());
    let body = r#"{"model":"m","route":["gpu","cpu"],"messages":[]}"#;
    let mut client = Connection::open(fleet.edge.traffic).await;
    client.send(&request("POST", CHAT, body.as_bytes())).await;
    until("the request at the head", || async { (!fleet.gpu.received().is_empty()).then_some(()) })
        .await;
    assert_eq!(table(&fleet.edge).await[SLOW]["prior_tps"], 3.0);
    drop(client);
    fleet.edge.booked(1).await;
    assert_eq!(table(&fleet.edge).await[SLOW]["prior_tps"], 6.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_explained_is_what_happens_next_with_a_seed() {
    let fleet = Mixed::start("seed: 11").await;
    for _ in 0..20 {
        let asked = request("POST", "/v1/explain", chat("m", "hello").as_bytes());
        let explained = exchange(fleet.edge.admin, &asked).await.json();
        let count = fleet.edge.ended().await;
        let answer = ask(&fleet.edge).await;
        fleet.edge.booked(count + 1).await;
        assert_eq!(explained["winner"]["worker"], worker(&answer), "{explained}");
        assert_eq!(explained["winner"]["reason"], decision(&answer), "{explained}");
        let chosen = explained["routes"].as_array().unwrap().iter().filter(|r| r["chosen"] == true);
        assert_eq!(chosen.count(), 1, "{explained}");
    }
    let body = br#"{"model":"m","route":["gpu"]}"#;
    let explained = exchange(fleet.edge.admin, &request("POST", "/v1/explain", body)).await.json();
    assert_eq!(
        (&explained["winner"], &explained["refusal"]),
        (&Value::Null, &json!("invalid_route"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_stay_over_the_file_after_a_reload() {
    let (gpu, cpu) = (Engine::start().await, Engine::start().await);
    let flags = ["--route-explore-share", "0.4", "--route-min-sample-tokens", "3"];
    let edge = Edge::start_with_flags(&mixed("explore_share: 0.1", &gpu, &cpu, ""), &flags).await;
    let config = routing(&edge).await["config"].clone();
    assert_eq!((&config["explore_share"], &config["min_sample_tokens"]), (&json!(0.4), &json!(3)));
    let other = mixed("explore_share: 0.2, weight_alpha: 2, stats_half_life: 1m", &gpu, &cpu, "");
    assert_eq!(edge.reload(&other).await.status, 200);
    let expected = json!({
        "explore_share": 0.4, "weight_alpha": 2.0, "stats_half_life_s": 60.0, "min_sample_tokens": 3,
    });
    assert_eq!(routing(&edge).await["config"], expected);
    assert_eq!(edge.admin("/v1/routing?model=x").await.status, 404);
}

/// Whole-model workers, without probes: what is learned is learned from requests.
fn whole(learned: &str, urls: &[String]) -> String {
    let rows: String = ["a", "b"]
        .iter()
        .zip(urls)
        .map(|(id, url)| format!("        - {{id: {id}, url: \"{url}\"}}\n"))
        .collect();
    format!(
        "  health: {{enabled: false}}\n  breaker: {{threshold: 3, cool_down: 2s}}\n  models:\n    \
         - name: m\n      policy: learned\n      learned: {{{learned}}}\n      workers:\n{rows}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_that_dies_loses_all_traffic_and_is_scouted_after_the_cool_down() {
    let (a, b) = (Engine::start().await, Engine::start().await);
    for engine in [&a, &b] {
        engine.answer(|_| tokens(20));
    }
    let learned = "explore_share: 0.5, stats_half_life: 300ms";
    let edge = Edge::start(&whole(learned, &[a.url(), b.url()])).await;
    until("both proven", || async {
        ask(&edge).await;
        table(&edge).await.values().all(|row| row["status"] == "proven").then_some(())
    })
    .await;
    let address = a.address;
    drop(a);
    // It ends a moment later, and until then it answers.
    until("a refusal", || async { (!is_listening(address).await).then_some(()) }).await;
    // Refused connections are tried again along another route: no client notices.
    until("the breaker", || async {
        let answer = ask(&edge).await;
        assert_eq!((answer.status, worker(&answer)), (200, "b"));
        (edge.workers().await[0]["breaker"] == "open").then_some(())
    })
    .await;
    let retries = edge.metrics().await.sum("tidegate_retries_total", &["cause=\"connect\""]);
    assert_eq!(retries, 3.0, "the breaker's threshold");
    assert_eq!(table(&edge).await.keys().collect::<Vec<_>>(), ["m | b[0-0]"]);
    let a = Engine::at(&address.to_string()).await;
    a.answer(|_| tokens(20));
    let scout = until("a scout", || async {
        let answer = ask(&edge).await;
        assert_eq!(answer.status, 200);
        (worker(&answer) == "a").then_some(answer)
    })
    .await;
    assert_eq!(decision(&scout), "scout");
    until("its sample", || async {
        let rows = table(&edge).await;
        rows.get("m | a[0-0]").is_some_and(|row| row["status"] == "proven").then_some(())
    })
    .await;
    assert_eq!(epoch(&edge).await, 0);
}

/// A node of 40 layers that alone makes 500 tokens per second, and one of the first 20 with which it
/// makes 1,000.
struct Simulated {
    fleet: SimulatedFleet,
    nodes: Nodes,
    edge: Edge,
}

impl Simulated {
    /// Layers per second of each node.
    const FAST: f64 = 20_000.0;
    const SLOW: f64 = 20_000.0;

    async fn start(learned: &str) -> Self {
        let nodes = Nodes::default();
        nodes.set("gpu", Self::FAST);
        nodes.set("cpu", Self::SLOW);
        let mut config = FleetConfig { nodes: nodes.clone(), ..FleetConfig::default() };
        config.model = "m".to_owned();
        config.tokens_per_event = 5;
        config.engine.decode_base_ms = 0.01;
        config.engine.decode_seq_ms = 0.0;
        let fleet = SimulatedFleet::start(2, config).await.unwrap();
        let [gpu, cpu] = fleet.addresses()[..] else { panic!("two nodes") };
        let edge = Edge::start(&format!(
            "  access_log: {{enabled: false}}\n  models:\n    - name: m\n      policy: learned\n      \
             layers: 40\n      load_reports: {{format: none}}\n      learned: {{{learned}}}\n      workers:\n        \
             - {{id: gpu, url: \"http://{gpu}\", first_layer: 0, last_layer: 19, tps: 1000}}\n        \
             - {{id: cpu, url: \"http://{cpu}\", first_layer: 0, last_layer: 39, tps: 500}}\n"
        ))
        .await;
        edge.all_healthy().await;
        Self { fleet, nodes, edge }
    }

    fn client(&self) -> ChatClient {
        ChatClient::new(self.edge.traffic, self.fleet.clock(), support::PATIENCE)
    }

    fn chat() -> Chat {
        let message = Message { role: "user", text: "hello".to_owned() };
        Chat { model: "m".to_owned(), messages: vec![message], output_tokens: 20 }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn proven_routes_share_the_traffic_as_their_measured_speeds_do() {
    const REQUESTS: usize = 400;
    let simulated = Simulated::start("seed: 3, stats_half_life: 1h").await;
    let client = simulated.client();
    let mut modes = BTreeMap::<String, usize>::new();
    let mut heads = BTreeMap::<String, usize>::new();
    let all = vec![Simulated::chat(); REQUESTS];
    let mut answers =
        futures_util::stream::iter(all.iter().map(|chat| client.send(chat))).buffer_unordered(4);
    while let Some(outcome) = answers.next().await {
        assert_eq!(outcome.failure, None);
        *modes.entry(outcome.decision.unwrap()).or_default() += 1;
        *heads.entry(outcome.worker.unwrap()).or_default() += 1;
    }
    let rows = table(&simulated.edge).await;
    let tps = |signature: &str| rows[signature]["tps"].as_f64().unwrap();
    let (fast, slow) = (tps("m | gpu[0-19] -> cpu[0-39]"), tps("m | cpu[0-39]"));
    let share = heads["gpu"] as f64 / REQUESTS as f64;
    println!("{modes:?} {heads:?}; {fast:.0} and {slow:.0} tokens/s, share {share:.3}");
    // Four standard deviations of so many draws, and a few requests before both were proven.
    let expected = fast / (fast + slow);
    assert!((share - expected).abs() < 0.1, "{share} of {expected}");
    assert!(modes["exploit"] + 20 > REQUESTS, "nothing needs scouting any more: {modes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn traffic_leaves_a_route_that_is_throttled_and_comes_back_when_it_recovers() {
    const HALF_LIFE: f64 = 2.0;
    let simulated = Simulated::start("stats_half_life: 2s").await;
    let (tell, mut heads) = tokio::sync::mpsc::unbounded_channel();
    // Four clients, each sending its next request when it has the answer to the last one.
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (client, tell) = (simulated.client(), tell.clone());
        clients.spawn(async move {
            loop {
                let outcome = client.send(&Simulated::chat()).await;
                assert_eq!(outcome.failure, None);
                tell.send(outcome.worker.unwrap() == "gpu").unwrap();
            }
        });
    }
    let begun = Instant::now();
    let mut line = Vec::new();
    // Sent to the fast route, of the last so many.
    let mut window = VecDeque::new();
    for (phase, factor, enough) in [
        ("normal", 1.0, 0.6..1.0),
        ("throttled 5x", 0.2, 0.0..0.5),
        ("settled", 0.2, 0.0..0.35),
        ("recovered", 1.0, 0.5..1.0),
    ] {
        simulated.nodes.set("gpu", Simulated::FAST * factor);
        let since = Instant::now();
        window.clear();
        within(phase, async {
            loop {
                window.push_back(heads.recv().await.unwrap());
                if window.len() <= 100 {
                    continue;
                }
                window.pop_front();
                let share = window.iter().filter(|fast| **fast).count() as f64 / 100.0;
                if window.len() == 100 && enough.contains(&share) {
                    let tps = |row: &Value| row["tps"].as_f64().unwrap_or(0.0);
                    let rows = table(&simulated.edge).await;
                    line.push(format!(
                        "{:>5.1} s  {phase:<13} after {:.2} half-lives: {:>2.0} % to the fast \
                         route; {:>4.0} and {:>4.0} tokens/s",
                        begun.elapsed().as_secs_f64(),
                        since.elapsed().as_secs_f64() / HALF_LIFE,
                        100.0 * share,
                        tps(&rows["m | gpu[0-19] -> cpu[0-39]"]),
                        tps(&rows["m | cpu[0-39]"]),
                    ));
                    return;
                }
            }
        })
        .await;
    }
    clients.shutdown().await;
    println!("{}", line.join("\n"));
}
