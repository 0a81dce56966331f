//! TLS on both sides: certificates that change, protocols that are offered, workers that are believed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::fs;
use std::path::Path;
use support::client::{Connection, chat, get, post, request};
use support::edge::{Edge, model};
use support::engine::Engine;
use support::relay::{from_tls, pem, shake_hands, to_tls};
use support::{until, within};

const CHAT: &str = "/v1/chat/completions";

fn put(edge: &Edge, file: &str, as_name: &str) {
    fs::copy(pem(file), edge.directory.path().join(as_name)).unwrap();
}

async fn is_served(edge: &Edge, pair: &str) -> bool {
    shake_hands(edge.traffic, pair, "http/1.1").await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_certificate_is_served_without_a_restart_and_old_connections_stay() {
    let engine = Engine::start().await;
    let edge = Edge::start_tls(&model(&[], &[engine.url()])).await;
    let mut old = Connection::open(to_tls(edge.traffic).await).await;
    old.send(&request("POST", CHAT, chat("m", "hello").as_bytes())).await;
    assert_eq!(old.answer().await.status, 200);
    assert!(is_served(&edge, "one").await && !is_served(&edge, "two").await);
    put(&edge, "two.pem", "edge.pem");
    put(&edge, "two.key", "edge.key");
    until("the new certificate", || async { is_served(&edge, "two").await.then_some(()) }).await;
    assert!(!is_served(&edge, "one").await);
    let config = edge.admin("/v1/config").await.json();
    assert_eq!(config["needs_upgrade"], serde_json::json!([]), "{config}");
    old.send(&request("POST", CHAT, chat("m", "hello").as_bytes())).await;
    assert_eq!(old.answer().await.status, 200, "on the connection of the old certificate");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pair_that_does_not_fit_is_rejected_and_the_old_one_stays() {
    let engine = Engine::start().await;
    let edge = Edge::start_tls(&model(&[], &[engine.url()])).await;
    put(&edge, "two.key", "edge.key");
    edge.logs("configuration rejected").await;
    let answer = edge.post("/v1/reload").await;
    assert_eq!(answer.status, 422, "{}", answer.text());
    assert_eq!(answer.json()["errors"][0]["path"], "tidegate.listeners[0].tls");
    assert!(answer.text().contains("cannot be used together"), "{}", answer.text());
    let page = edge.metrics().await;
    assert!(1.0 <= page.sum("tidegate_config_reloads_total", &["result=\"rejected\""]));
    assert!(edge.admin("/v1/config").await.text().contains("cannot be used together"));
    assert!(is_served(&edge, "one").await);
    fs::remove_file(edge.directory.path().join("edge.key")).unwrap();
    edge.signal("HUP");
    edge.logs("tls.key").await;
    assert!(is_served(&edge, "one").await);
    put(&edge, "two.pem", "edge.pem");
    put(&edge, "two.key", "edge.key");
    until("the new certificate", || async { is_served(&edge, "two").await.then_some(()) }).await;
    assert_eq!(edge.post("/v1/reload").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_and_http1_are_offered_by_alpn() {
    let engine = Engine::start().await;
    let edge = Edge::start_tls(&model(&[], &[engine.url()])).await;
    let stream = shake_hands(edge.traffic, "one", "h2").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let ask = http::Request::post(format!("https://edge.test{CHAT}"));
    let ask = ask.body(Full::new(Bytes::from(chat("m", "hello")))).unwrap();
    let answer = within("h2", sender.send_request(ask)).await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    within("its body", answer.into_body().collect()).await.unwrap();
    let answer = post(to_tls(edge.traffic).await, CHAT, &chat("m", "hello")).await;
    assert_eq!(answer.status, 200);
    let proto =
        engine.received().into_iter().map(|of| of.header("x-forwarded-proto").unwrap().to_owned());
    assert_eq!(proto.collect::<Vec<_>>(), ["https", "https"]);
}

/// A model whose one worker, a TLS listener of the pair `one`, is believed by these terms.
async fn with_worker(engine: &Engine, keys: &str, terms: &str) -> Edge {
    let worker = from_tls(engine.address, "one").await;
    Edge::start_unready(&format!(
        "{keys}  models:\n    - name: m\n      workers:\n        - {{id: w0, url: \"https://{worker}\", tls: {{{terms}}}}}\n"
    ))
    .await
}

fn authority(pair: &str) -> String {
    format!("ca: \"{}\"", pem(&format!("{pair}-ca.pem")).display())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_of_an_own_authority_is_probed_asked_and_used_by_its_name() {
    let engine = Engine::start().await;
    engine.set_queue(3, 1);
    let keys = "  load_reports: {interval: 20ms}\n";
    let terms = format!("sni: one.test, {}", authority("one"));
    let edge = with_worker(&engine, keys, &terms).await;
    edge.all_healthy().await;
    edge.reports_are("fresh").await;
    let answer = post(edge.traffic, CHAT, &chat("m", "hello")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_under_another_name_or_authority_gets_no_request() {
    let engine = Engine::start().await;
    for terms in [
        format!("sni: two.test, {}", authority("one")),
        format!("sni: one.test, {}", authority("two")),
        "sni: one.test".to_owned(),
    ] {
        let edge = with_worker(&engine, "  health: {enabled: false}\n", &terms).await;
        let answer = post(edge.traffic, CHAT, &chat("m", "hello")).await;
        assert_eq!((answer.status, answer.error_code().as_str()), (502, "worker_unreachable"));
        assert!(engine.received().is_empty(), "{terms}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workers_authority_that_changes_is_read_again() {
    let engine = Engine::start().await;
    let worker = from_tls(engine.address, "one").await;
    let row = format!(
        "  health: {{interval: 100ms}}\n  models:\n    - name: m\n      workers:\n        - {{id: w0, url: \"https://{worker}\", tls: {{sni: one.test, ca: home/ca.pem}}}}\n"
    );
    let two = fs::read_to_string(pem("two-ca.pem")).unwrap();
    let edge = Edge::start_beside("home", &[("ca.pem", &two)], &row).await;
    assert_eq!(get(edge.admin, "/readyz").await.status, 503, "nobody vouches for it");
    put(&edge, "one-ca.pem", "home/ca.pem");
    edge.all_healthy().await;
    assert_eq!(post(edge.traffic, CHAT, &chat("m", "hello")).await.status, 200);
    fs::write(edge.directory.path().join("home/ca.pem"), "nothing").unwrap();
    edge.logs("must hold a certificate of an authority").await;
    assert_eq!(get(edge.admin, "/readyz").await.status, 200, "the old one stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_somebody_vouched_for_who_is_trusted_no_more_takes_no_request() {
    let engine = Engine::start().await;
    let worker = from_tls(engine.address, "one").await;
    let row = format!(
        "  health: {{enabled: false}}\n  timeouts: {{worker_idle: 60s}}\n  models:\n    - name: m\n      workers:\n        - {{id: w0, url: \"https://{worker}\", tls: {{sni: one.test, ca: home/ca.pem}}}}\n"
    );
    let one = fs::read_to_string(pem("one-ca.pem")).unwrap();
    let edge = Edge::start_beside("home", &[("ca.pem", &one)], &row).await;
    for _ in 0..2 {
        assert_eq!(post(edge.traffic, CHAT, &chat("m", "hello")).await.status, 200);
    }
    let connections: Vec<u64> = engine.received().iter().map(|of| of.connection).collect();
    assert_eq!(connections, [connections[0]; 2], "it is kept");
    put(&edge, "two-ca.pem", "home/ca.pem");
    assert_eq!(edge.post("/v1/reload").await.status, 200);
    let answer = post(edge.traffic, CHAT, &chat("m", "hello")).await;
    assert_eq!((answer.status, answer.error_code().as_str()), (502, "worker_unreachable"));
    assert_eq!(engine.received().len(), 2);
}

#[test]
fn what_is_no_key_pair_is_named_by_the_check() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("edge.yaml");
    let cases = [
        (pem("one.key"), pem("one.key"), "must hold a certificate"),
        (pem("one.pem"), pem("one.pem"), "must hold a private key"),
        (pem("one.pem"), pem("two.key"), "cannot be used together"),
        (Path::new("/dev/null").to_owned(), pem("one.key"), "it is no file"),
    ];
    for (cert, key, words) in cases {
        let tls = format!("tls: {{cert: \"{}\", key: \"{}\"}}", cert.display(), key.display());
        let text = format!(
            "tidegate:\n  listeners: [{{address: '127.0.0.1:1', {tls}}}]\n{}",
            model(&[], &["http://127.0.0.1:2".to_owned()])
        );
        fs::write(&file, text).unwrap();
        let output = support::edge::command().arg("check").arg("-c").arg(&file).output().unwrap();
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(words) && said.contains("listeners[0].tls"), "{said}");
    }
}
