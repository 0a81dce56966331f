//! A prompt goes to the worker that holds its beginning, whatever it is wrapped in.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use support::client::{Answer, Connection, exchange, post, request, request_with};
use support::edge::{Edge, free_address, workers};
use support::engine::{Engine, Reply, Step, chunk, event, stream_end, stream_head};
use support::until;
use tokio::sync::Notify;

const CHAT: &str = "/v1/chat/completions";

/// Four engines that answer completions and report no load.
struct Scene {
    edge: Edge,
    engines: Vec<Engine>,
}

impl Scene {
    async fn new() -> Self {
        Self::with("").await
    }

    /// With more keys under `cache_aware`.
    async fn with(keys: &str) -> Self {
        let mut engines = Vec::new();
        for _ in 0..4 {
            engines.push(Engine::start().await);
        }
        let urls: Vec<String> = engines.iter().map(Engine::url).collect();
        let edge = Edge::start(&yaml(keys, &urls)).await;
        edge.all_healthy().await;
        Self { edge, engines }
    }

    async fn ask(&self, body: &Value) -> (String, String) {
        went(&post(self.edge.traffic, CHAT, &body.to_string()).await)
    }

    /// Drains or activates every worker but one.
    async fn all_but(&self, id: &str, change: &str) {
        for row in self.edge.workers().await {
            let other = row["id"].as_str().unwrap();
            if other != id {
                let path = format!("/v1/workers/{other}/{change}");
                let answer = exchange(self.edge.admin, &request("POST", &path, b"")).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
            }
        }
    }

    /// Asks for the first time; who is the owner from now on.
    async fn owner_of(&self, body: &Value) -> String {
        let (worker, reason) = self.ask(body).await;
        assert_eq!(reason, "home");
        worker
    }
}

fn yaml(keys: &str, urls: &[String]) -> String {
    format!(
        "  load_reports: {{format: none}}\n  models:\n    - name: m\n      aliases: [nick]\n      \
         cache_aware: {{min_matched_tokens: 256{keys}}}\n      workers:\n{}",
        workers(urls)
    )
}

/// Worker and reason of an answer.
fn went(answer: &Answer) -> (String, String) {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let header = |name: &str| answer.header(name).unwrap_or_default().to_owned();
    (header("x-tidegate-worker"), header("x-tidegate-decision"))
}

/// Some 10 KB that no other `seed` begins with.
fn text(seed: &str) -> String {
    format!("{seed} is where this begins. ").repeat(400)
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn prompt(seed: &str) -> Value {
    json!({"model": "m", "messages": [user(&text(seed))]})
}

fn is_hit(owner: &str) -> (String, String) {
    (owner.to_owned(), "owner".to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_equal_prompt_goes_to_the_owner_of_the_first() {
    let scene = Scene::new().await;
    let mut owners = Vec::new();
    for seed in ["one", "two", "three", "four", "five", "six"] {
        let owner = scene.owner_of(&prompt(seed)).await;
        owners.push((seed, owner));
    }
    for (seed, owner) in &owners {
        assert_eq!(scene.ask(&prompt(seed)).await, is_hit(owner), "{seed}");
    }
    let page = scene.edge.booked(12).await;
    let decisions = |label| page.sum("tidegate_cache_aware_decisions_total", &[label]);
    assert_eq!((decisions("cache_hit"), decisions("cache_miss")), (6.0, 6.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_that_grows_stays_with_its_owner() {
    let scene = Scene::new().await;
    let mut messages = vec![json!({"role": "system", "content": text("talk")}), user("Hello")];
    let body = |messages: &[Value]| json!({"model": "m", "messages": messages});
    let owner = scene.owner_of(&body(&messages)).await;
    for turn in 0..4 {
        messages.push(json!({"role": "assistant", "content": format!("Answer {turn}")}));
        messages.push(user(&format!("And {turn}?")));
        assert_eq!(scene.ask(&body(&messages)).await, is_hit(&owner));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn spelling_and_sampling_do_not_change_the_owner() {
    let scene = Scene::new().await;
    let owner = scene.owner_of(&prompt("spelled")).await;
    let escaped = text("spelled").replace('s', "\\u0073");
    let spelled = format!(
        "{{ \"temperature\": 1e400,\n\"messages\" : [ {{\"content\": \"{escaped}\", \"role\":\"user\"}} ], \"stream\":false, \"model\":\"m\" }}"
    );
    let answer = post(scene.edge.traffic, CHAT, &spelled).await;
    assert_eq!(went(&answer), is_hit(&owner));
    let parts = json!({"model": "m", "max_tokens": 9, "messages": [
        {"role": "user", "content": [{"type": "text", "text": text("spelled")}]}
    ]});
    assert_eq!(scene.ask(&parts).await, is_hit(&owner));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_body_is_routed_by_its_prompt_and_forwarded_compressed() {
    let scene = Scene::new().await;
    let owner = scene.owner_of(&prompt("zipped")).await;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(prompt("zipped").to_string().as_bytes()).unwrap();
    let gzip = encoder.finish().unwrap();
    let zstd = zstd::encode_all(prompt("zipped").to_string().as_bytes(), 3).unwrap();
    for (coding, body) in [("gzip", gzip), ("zstd", zstd)] {
        let header = format!("content-encoding: {coding}\r\n");
        let answer =
            exchange(scene.edge.traffic, &request_with("POST", CHAT, &header, &body)).await;
        assert_eq!(went(&answer), is_hit(&owner), "{coding}");
        let number: usize = owner.trim_start_matches('w').parse().unwrap();
        let received = scene.engines[number].received().pop().unwrap();
        assert_eq!(received.body, body, "{coding}");
        assert_eq!(received.all("content-encoding"), [coding]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_cannot_be_decoded_is_routed_by_load_and_forwarded() {
    let scene = Scene::new().await;
    for coding in ["gzip", "unknown", "gzip, gzip"] {
        let header = format!("content-encoding: {coding}\r\n");
        let bytes = request_with("POST", CHAT, &header, b"no such coding");
        let (_, reason) = went(&exchange(scene.edge.traffic, &bytes).await);
        assert_eq!(reason, "least_load", "{coding}");
    }
    let all: Vec<Vec<u8>> =
        scene.engines.iter().flat_map(|engine| engine.received()).map(|r| r.body).collect();
    assert_eq!(all, vec![b"no such coding".to_vec(); 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_affinity_header_decides_the_home_of_cold_prompts() {
    let scene = Scene::with(", affinity_headers: [x-session]").await;
    for session in ["s1", "s2", "s3"] {
        let header = format!("X-Session: {session}\r\n");
        let mut homes = Vec::new();
        for at in 0..5 {
            let body = prompt(&format!("{session} cold {at}")).to_string();
            let bytes = request_with("POST", CHAT, &header, body.as_bytes());
            let (worker, reason) = went(&exchange(scene.edge.traffic, &bytes).await);
            assert_eq!(reason, "home");
            homes.push(worker);
        }
        assert!(homes.iter().all(|home| *home == homes[0]), "{homes:?}");
    }
    // Without it, fifteen such prompts do not share one home.
    let mut homes = Vec::new();
    for at in 0..15 {
        homes.push(scene.owner_of(&prompt(&format!("no session, cold {at}"))).await);
    }
    assert!(homes.iter().any(|home| *home != homes[0]), "{homes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alias_and_the_name_share_owners() {
    let scene = Scene::new().await;
    let owner = scene.owner_of(&prompt("named")).await;
    let mut nick = prompt("named");
    nick["model"] = json!("nick");
    assert_eq!(scene.ask(&nick).await, is_hit(&owner));
    nick.as_object_mut().unwrap().remove("model");
    assert_eq!(scene.ask(&nick).await, is_hit(&owner), "the only model is the default one");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_gives_the_engine_another_cache_does_not_match() {
    let scene = Scene::new().await;
    let owner = scene.owner_of(&prompt("salted")).await;
    for key in ["cache_salt", "extra_key"] {
        let mut salted = prompt("salted");
        salted[key] = json!("tenant-1");
        let own = scene.owner_of(&salted).await;
        assert_eq!(scene.ask(&salted).await, is_hit(&own), "{key}");
        salted[key] = json!("tenant-2");
        assert_eq!(scene.ask(&salted).await.1, "home", "{key}");
    }
    assert_eq!(scene.ask(&prompt("salted")).await, is_hit(&owner));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_dialect_has_owners() {
    let scene = Scene::new().await;
    let of = text;
    for (path, body) in [
        ("/v1/completions", json!({"model": "m", "prompt": of("completions")})),
        ("/v1/responses", json!({"model": "m", "instructions": of("responses"), "input": "x"})),
        ("/v1/messages", json!({"model": "m", "system": of("messages"), "messages": [user("x")]})),
        ("/generate", json!({"text": of("generate")})),
        ("/generate", json!({"input_ids": (0..4000).collect::<Vec<u32>>()})),
    ] {
        let ask = async || went(&post(scene.edge.traffic, path, &body.to_string()).await);
        let (owner, reason) = ask().await;
        assert_eq!(reason, "home", "{path}");
        assert_eq!(ask().await, is_hit(&owner), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reported_cached_tokens_are_set_against_the_predicted_ones() {
    let scene = Scene::new().await;
    let usage = r#"{"prompt_tokens":2600,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":2000}}"#;
    for engine in &scene.engines {
        let whole = format!(r#"{{"choices":[],"usage":{usage}}}"#);
        engine.answer(move |received| {
            if received.body.windows(13).any(|bytes| bytes == br#""stream":true"#) {
                let last = chunk(&format!("data: {{\"choices\":[],\"usage\":{usage}}}\n\n"));
                Reply::steps(vec![stream_head(), event("a"), last, stream_end()])
            } else {
                Reply::json(200, &whole)
            }
        });
    }
    let booked = async |count| {
        let page = scene.edge.booked(count).await;
        ["predicted", "reported"]
            .map(|kind| page.sum(&format!("tidegate_{kind}_cached_tokens_total"), &["model=\"m\""]))
    };
    scene.owner_of(&prompt("counted")).await;
    let cold = booked(1).await;
    assert_eq!(cold, [0.0, 2000.0], "nobody held it");
    scene.ask(&prompt("counted")).await;
    let warm = booked(2).await;
    // 10 KB held whole: what the estimate makes of it.
    assert!((2000.0..=3000.0).contains(&warm[0]), "{warm:?}");
    assert_eq!(warm[1], 4000.0);
    let mut streamed = prompt("counted");
    streamed["stream"] = json!(true);
    scene.ask(&streamed).await;
    let warm = booked(3).await;
    assert!((4000.0..=6000.0).contains(&warm[0]), "{warm:?}");
    assert_eq!(warm[1], 6000.0);
}

/// Blocks each worker owns.
async fn owned(edge: &Edge) -> Vec<u64> {
    edge.workers().await.iter().map(|row| row["owned_blocks"].as_u64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dispatch_that_found_nobody_leaves_no_ownership_behind() {
    let engine = Engine::start().await;
    // One refuses connections; one takes them and never says a word of TLS.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for bad in
        [format!("http://{}", free_address()), format!("https://{}", silent.local_addr().unwrap())]
    {
        let yaml = format!(
            "  health: {{enabled: false}}\n  breaker: {{threshold: 1000}}\n  timeouts: {{connect: 100ms}}\n{}",
            yaml("", &[bad, engine.url()])
        );
        let edge = Edge::start(&yaml).await;
        // Homes are spread: sooner or later one is the bad worker.
        for at in 0.. {
            let answer = post(edge.traffic, CHAT, &prompt(&format!("cold {at}")).to_string()).await;
            assert_eq!(went(&answer).0, "w1", "the retry's worker is the one that is named");
            if 0.0 < edge.metrics().await.sum("tidegate_retries_total", &["cause=\"connect\""]) {
                break;
            }
        }
        let owned = owned(&edge).await;
        assert!(owned[0] == 0 && 0 < owned[1], "{owned:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_declined_a_prompt_does_not_own_it() {
    for status in [503, 429, 400] {
        let engine = Engine::start().await;
        let edge = Edge::start(&yaml("", &[engine.url()])).await;
        engine.answer(move |_| Reply::json(status, "{}"));
        let answer = post(edge.traffic, CHAT, &prompt("declined").to_string()).await;
        assert_eq!(answer.status, status);
        until("nothing owned", || async { (owned(&edge).await == [0]).then_some(()) }).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_to_no_prompt_and_refusals_prove_nothing_about_the_prompts_before_them() {
    let scene = Scene::new().await;
    let owner = scene.owner_of(&prompt("line")).await;
    let number: usize = owner.trim_start_matches('w').parse().unwrap();
    let go_on = Arc::new(Notify::new());
    let wait = Arc::clone(&go_on);
    scene.engines[number].answer(move |received| {
        let mut reply = Reply::completion();
        match (received.target.as_str(), received.header("x-wait")) {
            (CHAT, Some(_)) => reply.steps.insert(0, Step::Wait(Arc::clone(&wait))),
            (CHAT, None) => return Reply::json(400, "{}"),
            _ => {}
        }
        reply
    });
    let longer = json!({"model": "m", "messages": [user(&text("line")), user(&text("more"))]});
    let mut waiting = Connection::open(scene.edge.traffic).await;
    let bytes = request_with("POST", CHAT, "x-wait: 1\r\n", longer.to_string().as_bytes());
    waiting.send(&bytes).await;
    until("the prompt in the line", || async {
        (scene.engines[number].received().len() == 2).then_some(())
    })
    .await;
    let declined = post(scene.edge.traffic, CHAT, &prompt("line").to_string()).await;
    assert_eq!((declined.status, declined.header("x-tidegate-worker")), (400, Some(&*owner)));
    let ping = async || went(&exchange(scene.edge.traffic, &request("GET", "/ping", b"")).await).0;
    // With everybody else drained the owner answers one.
    scene.all_but(&owner, "drain").await;
    assert_eq!(ping().await, owner);
    scene.all_but(&owner, "activate").await;
    // Were the line taken to be empty now, these would come round to the owner.
    for _ in 0..8 {
        assert_ne!(ping().await, owner);
    }
    go_on.notify_one();
    assert_eq!(waiting.answer().await.status, 200);
    until("an empty line", || async { (ping().await == owner).then_some(()) }).await;
}
