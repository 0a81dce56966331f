//! Workers that are not in the configuration file.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::json;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use support::client::{chat, post};
use support::edge::{Edge, command};
use support::engine::Engine;
use support::until;
use tidegate::config::{Config, DnsName, Overrides};
use tidegate::fleet::Whose;
use tidegate::state::State;

const CHAT: &str = "/v1/chat/completions";

/// Models `m` and `n`, each with a file of workers in a directory beside the configuration.
const TWO: &str = "  models:
    - {name: m, aliases: [default], policy: round_robin, discovery: {file: workers.d/m.yaml}}
    - name: n
      policy: round_robin
      workers: [{id: fixed, url: 'http://127.0.0.1:9'}]
      discovery: {file: workers.d/n.yaml}
";

fn listed(engines: &[(&str, &Engine)]) -> String {
    let rows =
        engines.iter().map(|(id, engine)| format!("- {{id: {id}, url: '{}'}}\n", engine.url()));
    format!("workers:\n{}", rows.collect::<String>())
}

/// An edge whose files of workers are already there.
async fn edge(m: &str, n: &str) -> Edge {
    let edge = Edge::start_beside("workers.d", &[("m.yaml", m), ("n.yaml", n)], TWO).await;
    edge.is_at(1).await;
    edge
}

async fn ids(edge: &Edge) -> Vec<String> {
    let rows = edge.workers().await;
    rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

async fn becomes(edge: &Edge, expected: &[&str]) {
    until("these workers", || async { (ids(edge).await == expected).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_workers_is_followed_and_a_bad_one_changes_nothing_but_itself() {
    let (one, two) = (Engine::start().await, Engine::start().await);
    let edge = edge(&listed(&[("a", &one)]), "workers: []").await;
    let at = edge.directory.path().join("workers.d");
    let put = |name: &str, text: &str| {
        fs::write(at.join("new"), text).unwrap();
        fs::rename(at.join("new"), at.join(name)).unwrap();
    };
    becomes(&edge, &["a", "fixed"]).await;
    put("m.yaml", &listed(&[("a", &one), ("b", &two)]));
    becomes(&edge, &["a", "b", "fixed"]).await;
    edge.all_routable("m").await;
    let mut went = Vec::new();
    for _ in 0..2 {
        let answer = post(edge.traffic, CHAT, &chat("m", "hello")).await;
        went.push(answer.header("x-tidegate-worker").unwrap().to_owned());
    }
    went.sort();
    assert_eq!(went, ["a", "b"]);

    put("m.yaml", "workers: [{id: a, url: 'ftp://x'}, {id: a b}]");
    let errors = || async { edge.admin("/v1/config").await.json()["last_error"].clone() };
    until("a rejection", || async { errors().await.is_object().then_some(()) }).await;
    let paths = errors().await["errors"].clone();
    let paths: Vec<_> = paths.as_array().unwrap().iter().map(|e| e["path"].clone()).collect();
    assert_eq!(paths[0], "workers.d/m.yaml: workers[0].url");
    assert_eq!(ids(&edge).await, ["a", "b", "fixed"]);

    // Somebody else's file still counts, and the bad one stands for what it was.
    put("n.yaml", &listed(&[("c", &two)]));
    becomes(&edge, &["a", "b", "fixed", "c"]).await;
    let answer = edge.post("/v1/reload").await;
    assert_eq!((answer.status, &answer.json()["errors"][0]["path"]), (422, &paths[0]));
    put("n.yaml", &listed(&[("fixed", &two)]));
    until("the id taken twice", || async {
        errors().await.to_string().contains("is the id of").then_some(())
    })
    .await;
    assert_eq!(ids(&edge).await, ["a", "b", "fixed", "c"]);

    put("n.yaml", "workers: []");
    put("m.yaml", &listed(&[("b", &two)]));
    becomes(&edge, &["b", "fixed"]).await;
    until("no error", || async { errors().await.is_null().then_some(()) }).await;
    let config = edge.admin("/v1/config").await.json();
    let model = &config["config"]["tidegate"]["models"][0];
    assert!(model["discovery"]["file"].as_str().unwrap().ends_with("workers.d/m.yaml"));
    assert_eq!(model["workers"], json!([]), "found workers are not the file's");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edge_does_not_start_with_a_bad_file_of_workers() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("edge.yaml");
    fs::write(&file, format!("tidegate:\n{TWO}")).unwrap();
    fs::create_dir(home.path().join("workers.d")).unwrap();
    fs::write(home.path().join("workers.d/m.yaml"), "engines: []").unwrap();
    let output = command().arg("check").arg("-c").arg(&file).output().unwrap();
    let problems = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    for line in [
        "workers.d/m.yaml: workers: is missing",
        "workers.d/m.yaml: engines: unknown key",
        "workers.d/n.yaml: cannot be read",
    ] {
        assert!(problems.contains(line), "{line} is not in {problems}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_address_of_a_name_is_a_worker() {
    let engine = Engine::start().await;
    let port = engine.address.port();
    let edge = Edge::start(&format!(
        "  dns_interval: 100ms\n  models: [{{name: m, discovery: {{dns: 'localhost:{port}'}}}}]\n"
    ))
    .await;
    let rows = edge.workers().await;
    let row = rows.iter().find(|row| row["id"] == format!("127.0.0.1:{port}")).unwrap();
    assert_eq!((&row["state"], &row["model"]), (&json!("active"), &json!("m")));
    let answer = post(edge.traffic, CHAT, &chat("m", "hello")).await;
    assert_eq!((answer.status, engine.received().len()), (200, 1));
    assert_eq!(edge.generation().await, 1, "the configuration is the same one");
    let elsewhere = "  models: [{name: m, discovery: {dns: 'no-such-host.invalid:1'}}]\n";
    assert_eq!(edge.reload(elsewhere).await.status, 200);
    assert_eq!(edge.admin("/readyz").await.status, 503, "another name has none of its workers");
    becomes(&edge, &[]).await;
}

fn named() -> (Arc<State>, DnsName) {
    let yaml = "tidegate: {health: {enabled: false}, models: [{name: m, upstream_auth: {bearer: k},
        workers: [{id: w, url: 'http://127.0.0.9:80'}], discovery: {dns: 'Engines.svc:80'}}]}";
    let config = Config::from_yaml(yaml, Path::new(""), &Overrides::default()).unwrap();
    let name = DnsName { host: "engines.svc".to_owned(), port: 80 };
    (State::new(Arc::new(config)).unwrap(), name)
}

fn addresses(of: &[&str]) -> Vec<SocketAddr> {
    of.iter().map(|address| address.parse().unwrap()).collect()
}

#[test]
fn workers_found_by_name_keep_their_ids_and_what_is_known_of_them() {
    let (state, name) = named();
    let ids =
        || -> Vec<String> { state.running().fleets.rows().into_iter().map(|row| row.id).collect() };
    assert_eq!(ids(), ["w"]);
    state.found(&name, addresses(&["127.0.0.1:80", "127.0.0.9:80", "[fd00::1]:80"]));
    assert_eq!(ids(), ["w", "127.0.0.1:80", "fd00::1:80"], "the file's worker is there once");
    let worker = Arc::clone(&state.running().fleets.models()[0].workers()[1]);
    assert_eq!(worker.config.upstream_auth.as_ref().unwrap().value.expose(), "Bearer k");
    let request = worker.try_dispatch(Whose::Pinned).unwrap();
    state.found(&name, addresses(&["127.0.0.1:80", "127.0.0.2:80"]));
    assert_eq!(ids(), ["w", "127.0.0.1:80", "127.0.0.2:80"]);
    let kept = Arc::clone(&state.running().fleets.models()[0].workers()[1]);
    assert_eq!((kept.slot, kept.standing().in_flight), (worker.slot, 1));
    assert_eq!(state.running().generation, 1);
    state.found(&name, addresses(&["127.0.0.2:80"]));
    let rows = state.running().fleets.rows();
    assert_eq!((rows.len(), rows[2].state), (3, "removed"));
    drop(request);
    assert_eq!(ids(), ["w", "127.0.0.2:80"]);
}
