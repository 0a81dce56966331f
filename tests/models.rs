//! Which fleet a request belongs to, who of it may be chosen, and by which policy.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use support::client::{Answer, Connection, chat, exchange, get, post, request};
use support::edge::{Edge, model, workers};
use support::engine::{Engine, Reply, Step};
use support::until;
use tokio::sync::Notify;

const CHAT: &str = "/v1/chat/completions";

/// Models `a` (aliases `default`, `short`) and `org/b` over an engine each.
async fn two_models() -> (Edge, Engine, Engine) {
    let (a, b) = (Engine::start().await, Engine::start().await);
    let yaml = format!(
        "  models:\n    - name: a\n      aliases: [default, short]\n      workers:\n{}    - name: org/b\n      workers:\n{}",
        workers(&[a.url()]),
        workers(&[b.url()])
    );
    (Edge::start(&yaml).await, a, b)
}

async fn ask(edge: &Edge, name: &str) -> u16 {
    post(edge.traffic, CHAT, &chat(name, "hello")).await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_goes_to_the_fleet_of_the_model_it_names() {
    let (edge, a, b) = two_models().await;
    for name in ["a", "short", "default"] {
        assert_eq!(ask(&edge, name).await, 200, "{name}");
    }
    assert_eq!((a.received().len(), b.received().len()), (3, 0));
    assert_eq!(ask(&edge, "org/b").await, 200);
    assert_eq!((a.received().len(), b.received().len()), (3, 1));
    assert_eq!(ask(&edge, "B").await, 404);
    // No model, and no JSON: the default model's.
    assert_eq!(post(edge.traffic, CHAT, r#"{"messages":[]}"#).await.status, 200);
    assert_eq!(post(edge.traffic, "/v1/embeddings", "no json").await.status, 200);
    assert_eq!((a.received().len(), b.received().len()), (5, 1));
    let page = edge.booked(7).await;
    for (model, count) in [("a", 5.0), ("org/b", 1.0), ("other", 1.0)] {
        let label = format!("model=\"{model}\"");
        assert_eq!(page.sum("tidegate_requests_total", &[&label]), count, "{model}");
    }
    assert!(!page.0.contains("model=\"short\""), "counted by its configured name");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_of_two_model_keys_wins() {
    let (edge, a, b) = two_models().await;
    let body = r#"{"model":"a","messages":[],"model":"org/b"}"#;
    assert_eq!(post(edge.traffic, CHAT, body).await.status, 200);
    assert_eq!((a.received().len(), b.received().len()), (0, 1));
    assert_eq!(b.received()[0].body, body.as_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_star_takes_every_name() {
    let engine = Engine::start().await;
    let yaml =
        format!("  models:\n    - name: \"*\"\n      workers:\n{}", workers(&[engine.url()]));
    let edge = Edge::start(&yaml).await;
    assert_eq!(ask(&edge, "whatever").await, 200);
    assert_eq!(ask(&edge, "*").await, 200);
    assert_eq!(post(edge.traffic, CHAT, "{}").await.status, 200);
    let body = engine.received()[0].body.clone();
    assert_eq!(body, chat("whatever", "hello").as_bytes(), "the name is the engine's to judge");
    let row = get(edge.traffic, "/v1/models/whatever").await;
    assert_eq!((row.status, &row.json()["id"]), (200, &"whatever".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn models_are_listed_from_the_configuration() {
    let (edge, a, b) = two_models().await;
    let list = get(edge.traffic, "/v1/models").await;
    assert_eq!((list.status, list.header("content-type")), (200, Some("application/json")));
    assert_eq!(list.json()["object"], "list");
    let ids: Vec<String> = list.json()["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            assert_eq!(row["object"], "model");
            row["id"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(ids, ["a", "org/b"]);
    for (path, id) in [
        ("/v1/models/a", "a"),
        ("/v1/models/short", "a"),
        ("/v1/models/org/b", "org/b"),
        ("/v1/models/org%2Fb", "org/b"),
        ("/v1/models/a?x=1", "a"),
    ] {
        let row = get(edge.traffic, path).await;
        assert_eq!((row.status, &row.json()["id"]), (200, &id.into()), "{path}");
        assert_eq!(row.header("x-tidegate-worker"), None);
    }
    let missing = get(edge.traffic, "/v1/models/org/c").await;
    assert_eq!((missing.status, missing.error_code().as_str()), (404, "model_not_found"));
    // Another method is no question about models.
    assert_eq!(exchange(edge.traffic, &request("DELETE", "/v1/models/a", b"")).await.status, 200);
    let targets: Vec<String> =
        a.received().into_iter().map(|r| r.method + " " + &r.target).collect();
    assert_eq!(targets, ["DELETE /v1/models/a"]);
    assert!(b.received().is_empty());
}

/// Rows of workers with a role each.
fn with_roles(rows: &[(&Engine, &str)]) -> String {
    let row = |(i, (engine, role)): (usize, &(&Engine, &str))| {
        format!("        - {{id: w{i}, url: \"{}\", role: {role}}}\n", engine.url())
    };
    rows.iter().enumerate().map(row).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decode_peer_is_never_routed_to_under_any_policy() {
    let (decode, prefill) = (Engine::start().await, Engine::start().await);
    for policy in ["cache_aware", "least_load", "round_robin"] {
        let rows = with_roles(&[(&decode, "decode"), (&prefill, "prefill")]);
        let edge = Edge::start(&format!(
            "  models:\n    - name: m\n      policy: {policy}\n      workers:\n{rows}"
        ))
        .await;
        for at in 0..4 {
            let answer = post(edge.traffic, CHAT, &chat("m", &format!("hello {at}"))).await;
            assert_eq!(answer.header("x-tidegate-worker"), Some("w1"), "{policy}");
        }
        let answer = get(edge.traffic, "/anything").await;
        assert_eq!(answer.header("x-tidegate-worker"), Some("w1"), "{policy}");
    }
    assert!(decode.received().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decode_peer_alone_is_nobody_to_prefill() {
    let (decode, prefill) = (Engine::start().await, Engine::start().await);
    prefill.set_healthy(false);
    let rows = with_roles(&[(&decode, "decode"), (&prefill, "prefill")]);
    let edge =
        Edge::start_unready(&format!("  models:\n    - name: m\n      workers:\n{rows}")).await;
    let healthy = || async { (edge.workers().await[0]["healthy"] == true).then_some(()) };
    until("a healthy decode peer", healthy).await;
    assert_eq!(edge.admin("/readyz").await.status, 503);
    let answer = post(edge.traffic, CHAT, &chat("m", "hello")).await;
    assert_eq!((answer.status, answer.error_code().as_str()), (503, "no_routable_worker"));
    assert!(answer.header("retry-after").is_some());
}

/// A prompt that is long enough to be owned.
fn long_prompt() -> String {
    chat("m", &"the quick brown fox jumps over the lazy dog ".repeat(300))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_decode_peer_vetoes_no_pin() {
    let engines = [Engine::start().await, Engine::start().await, Engine::start().await];
    for engine in &engines {
        engine.set_queue(0, 0);
    }
    let rows =
        with_roles(&[(&engines[0], "plain"), (&engines[1], "prefill"), (&engines[2], "decode")]);
    let edge = Edge::start(&format!(
        "  load_reports: {{interval: 20ms, format: get_load}}\n  models:\n    - name: m\n      \
         cache_aware: {{worker_queue_limit: 4, saturation_queue_floor: 2, min_matched_tokens: 256}}\n      workers:\n{rows}"
    ))
    .await;
    edge.reports_are("fresh").await;
    let first = post(edge.traffic, CHAT, &long_prompt()).await;
    let owner = first.header("x-tidegate-worker").unwrap().to_owned();
    // Everybody who can prefill queues; only the decode peer is idle.
    engines[0].set_queue(6, 8);
    engines[1].set_queue(6, 8);
    until("the queues at the edge", || async {
        let rows = edge.workers().await;
        rows[..2].iter().all(|row| row["report"]["waiting"] == 6).then_some(())
    })
    .await;
    let pinned = post(edge.traffic, CHAT, &long_prompt()).await;
    assert_eq!(pinned.header("x-tidegate-decision"), Some("saturation_pin"));
    assert_eq!(pinned.header("x-tidegate-worker"), Some(owner.as_str()));
    assert!(engines[2].received().is_empty());
}

/// Sends `count` different chats; how many each worker got, and in which order.
async fn turns(edge: &Edge, count: usize) -> (BTreeMap<String, usize>, Vec<String>) {
    let mut order = Vec::new();
    for at in 0..count {
        let answer = post(edge.traffic, CHAT, &chat("m", &format!("{at} hello"))).await;
        assert_eq!(answer.header("x-tidegate-decision"), Some("round_robin"));
        order.push(answer.header("x-tidegate-worker").unwrap().to_owned());
    }
    let mut counts = BTreeMap::new();
    for id in &order {
        *counts.entry(id.clone()).or_default() += 1;
    }
    (counts, order)
}

#[tokio::test(flavor = "multi_thread")]
async fn round_robin_takes_turns() {
    let engines = [Engine::start().await, Engine::start().await, Engine::start().await];
    let urls: Vec<String> = engines.iter().map(Engine::url).collect();
    let edge = Edge::start(&model(&["policy: round_robin"], &urls)).await;
    // Until every probe passed, turns are taken among fewer.
    edge.all_healthy().await;
    let (_, order) = turns(&edge, 9).await;
    for pair in order.windows(4) {
        assert_eq!(pair[0], pair[3], "{order:?}");
        assert!(pair[0] != pair[1] && pair[1] != pair[2] && pair[0] != pair[2], "{order:?}");
    }
    let page = edge.booked(9).await;
    let labels = ["policy=\"round_robin\"", "reason=\"round_robin\""];
    assert_eq!(page.sum("tidegate_policy_decisions_total", &labels), 9.0);
    assert_eq!(page.sum("tidegate_cache_aware_decisions_total", &[]), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn round_robin_goes_by_weight() {
    let engines = [Engine::start().await, Engine::start().await];
    let edge = Edge::start(&format!(
        "  models:\n    - name: m\n      policy: round_robin\n      workers:\n        \
         - {{id: heavy, url: \"{}\", weight: 3}}\n        - {{id: light, url: \"{}\"}}\n",
        engines[0].url(),
        engines[1].url()
    ))
    .await;
    edge.all_healthy().await;
    let (counts, order) = turns(&edge, 40).await;
    assert!((28..=32).contains(&counts["heavy"]), "{counts:?}");
    let light: Vec<usize> = (0..40).filter(|at| order[*at] == "light").collect();
    assert!(light.windows(2).all(|pair| pair[1] - pair[0] <= 8), "spread, not in a row: {order:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn least_load_avoids_the_longer_queue() {
    let engines = [Engine::start().await, Engine::start().await];
    engines[0].set_queue(9, 8);
    engines[1].set_queue(2, 8);
    let urls: Vec<String> = engines.iter().map(Engine::url).collect();
    let yaml = format!(
        "  load_reports: {{interval: 20ms, format: get_load}}\n{}",
        model(&["policy: least_load"], &urls)
    );
    let edge = Edge::start(&yaml).await;
    edge.reports_are("fresh").await;
    for at in 0..3 {
        let answer = post(edge.traffic, CHAT, &chat("m", &format!("{at} hello"))).await;
        assert_eq!(answer.header("x-tidegate-worker"), Some("w1"));
        assert_eq!(answer.header("x-tidegate-decision"), Some("least_load"));
    }
    engines[1].set_queue(20, 8);
    until("the longer queue at the edge", || async {
        (edge.workers().await[1]["report"]["waiting"] == 20).then_some(())
    })
    .await;
    let answer = post(edge.traffic, CHAT, &chat("m", "hello")).await;
    assert_eq!(answer.header("x-tidegate-worker"), Some("w0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_a_prompt_go_by_least_load_under_every_policy() {
    let engine = Engine::start().await;
    let body = r#"{"model":"m","input":"text"}"#;
    let asked: [(&str, &str, &str); 7] = [
        ("POST", "/v1/embeddings", body),
        ("POST", "/v1/rerank", body),
        ("POST", "/v1/score", body),
        ("POST", "/v1/classify", body),
        ("GET", "/some/path?q=%20x", ""),
        ("DELETE", "/v1/files/1", ""),
        ("PUT", "/v1/chat/completions", "any\0bytes"),
    ];
    for policy in ["cache_aware", "least_load", "round_robin"] {
        let edge = Edge::start(&model(&[&format!("policy: {policy}")], &[engine.url()])).await;
        for (method, path, body) in asked {
            let answer = exchange(edge.traffic, &request(method, path, body.as_bytes())).await;
            let decision = answer.header("x-tidegate-decision");
            assert_eq!((answer.status, decision), (200, Some("least_load")), "{policy} {path}");
            let received = engine.received().pop().unwrap();
            assert_eq!((received.method.as_str(), received.target.as_str()), (method, path));
            assert_eq!(received.body, body.as_bytes());
        }
        let count = asked.len() as f64;
        let page = edge.booked(asked.len()).await;
        let policy_label = format!("policy=\"{policy}\"");
        let labels = [policy_label.as_str(), "reason=\"least_load\""];
        assert_eq!(page.sum("tidegate_policy_decisions_total", &labels), count);
        let cache_aware = page.sum("tidegate_cache_aware_decisions_total", &[]);
        assert_eq!(cache_aware, if policy == "cache_aware" { count } else { 0.0 });
        assert_eq!(page.sum("tidegate_cache_aware_decisions_total", &["cache_miss"]), cache_aware);
        assert_eq!(page.sum("tidegate_requests_total", &["path=\"no_prompt\""]), 4.0);
        assert_eq!(page.sum("tidegate_requests_total", &["path=\"other\""]), 3.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_a_prompt_avoids_the_worker_that_prefills() {
    let engines = [Engine::start().await, Engine::start().await];
    let urls: Vec<String> = engines.iter().map(Engine::url).collect();
    let edge = Edge::start(&model(&["policy: cache_aware"], &urls)).await;
    edge.all_healthy().await;
    let go_on = Arc::new(Notify::new());
    for engine in &engines {
        let wait = Arc::clone(&go_on);
        engine.answer(move |received| {
            let steps = match received.target.as_str() {
                CHAT => vec![Step::Wait(Arc::clone(&wait))],
                _ => Vec::new(),
            };
            Reply::steps(steps.into_iter().chain(Reply::completion().steps).collect())
        });
    }
    let mut busy = Connection::open(edge.traffic).await;
    busy.send(&request("POST", CHAT, long_prompt().as_bytes())).await;
    let prefilling = until("the prompt at a worker", || async {
        engines.iter().position(|engine| engine.received().len() == 1)
    })
    .await;
    for _ in 0..4 {
        let answer: Answer = post(edge.traffic, "/v1/embeddings", r#"{"model":"m"}"#).await;
        let other = format!("w{}", 1 - prefilling);
        assert_eq!(answer.header("x-tidegate-worker"), Some(other.as_str()));
    }
    go_on.notify_one();
    assert_eq!(busy.answer().await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn health_of_the_traffic_listener_is_the_workers() {
    let engine = Engine::start().await;
    let edge = Edge::start(&model(&[], &[engine.url()])).await;
    let answer = get(edge.traffic, "/health").await;
    assert_eq!((answer.status, answer.header("x-tidegate-worker")), (200, Some("w0")));
    let answer = get(edge.traffic, "/readyz").await;
    assert_eq!(answer.header("x-tidegate-worker"), Some("w0"), "the edge's own is elsewhere");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_passes_bytes_both_ways() {
    let engine = Engine::start().await;
    engine.answer(|received| {
        assert_eq!(received.header("sec-websocket-key"), Some("dGhlIHNhbXBsZSBub25jZQ=="));
        let head =
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
                     sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
        Reply::steps(vec![Step::Write(head.to_vec()), Step::Echo])
    });
    let edge = Edge::start(&model(&[], &[engine.url()])).await;
    let mut client = Connection::open(edge.traffic).await;
    client
        .send(
            b"GET /v1/realtime HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
              sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )
        .await;
    let head = client.head().await;
    assert_eq!(head.status, 101);
    assert_eq!(head.header("upgrade"), Some("websocket"));
    assert_eq!(head.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    for frame in [&b"\x81\x85abcdefghi"[..], b"\0\r\n\r\n0\r\n\r\n", &[0xff; 100_000]] {
        client.send(frame).await;
        assert_eq!(client.bytes(frame.len()).await, frame);
    }
    drop(client);
    let page = edge.booked(1).await;
    assert_eq!(page.sum("tidegate_in_flight", &[]), 0.0);
    assert_eq!(page.sum("tidegate_breaker_state", &[]), 0.0);
}
