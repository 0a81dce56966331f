//! Each worker gets its own credential and nobody else's, with whatever is sent to it, and nobody else
//! gets to see one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use support::client::{chat, exchange, request, request_with};
use support::edge::{Edge, free_address};
use support::engine::{Engine, Received, Reply, engines};
use support::{until, within};
use tokio::net::TcpStream;

const CHAT: &str = "/v1/chat/completions";
/// What clients' libraries send.
const OF_CLIENTS: [(&str, &str); 3] = [
    ("authorization", "Bearer s3cret-client"),
    ("x-api-key", "s3cret-client"),
    ("api-key", "s3cret-client"),
];

fn ask() -> Vec<u8> {
    let lines: String =
        OF_CLIENTS.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    request_with("POST", CHAT, &lines, chat("m", "hello").as_bytes())
}

/// Workers `w0` and so on in turns, each with what stands beside its URL.
fn fleet(keys: &str, workers: &[(String, &str)]) -> String {
    let row = |(at, (url, auth)): (usize, &(String, &str))| {
        format!("        - {{id: w{at}, url: \"{url}\"{auth}}}\n")
    };
    let rows: String = workers.iter().enumerate().map(row).collect();
    format!("{keys}  models:\n    - name: m\n      policy: round_robin\n      workers:\n{rows}")
}

const ZERO: &str = ", upstream_auth: {bearer: s3cret-zero}";
const ONE: &str = ", upstream_auth: {header: {name: X-Engine-Key, value: s3cret-one}}";
const TWO: &str = "";

/// Every header line with a secret in it, lower case, sorted.
fn secrets(received: &Received) -> Vec<String> {
    let lines = received.head.lines().filter(|line| line.contains("s3cret"));
    let mut lines: Vec<String> = lines.map(str::to_ascii_lowercase).collect();
    lines.sort();
    lines
}

/// What a request to `w0`, `w1` and `w2` has.
fn expected() -> [Vec<String>; 3] {
    let mut clients: Vec<String> =
        OF_CLIENTS.iter().map(|(name, value)| format!("{name}: {value}").to_lowercase()).collect();
    clients.sort();
    [
        vec!["authorization: bearer s3cret-zero".to_owned()],
        vec!["x-engine-key: s3cret-one".to_owned()],
        clients,
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn each_worker_gets_its_own_with_requests_of_http_1_and_of_http_2() {
    let (engines, urls) = engines(3).await;
    let auth = [ZERO, ONE, TWO];
    let workers: Vec<_> = urls.into_iter().zip(auth).collect();
    let edge = Edge::start_h2c(&fleet("", &workers)).await;
    edge.all_healthy().await;
    for _ in 0..6 {
        assert_eq!(exchange(edge.traffic, &ask()).await.status, 200);
    }
    let stream = TcpStream::connect(edge.traffic).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    for _ in 0..6 {
        let mut ask = http::Request::post(format!("http://{}{CHAT}", edge.traffic));
        for (name, value) in OF_CLIENTS {
            ask = ask.header(name, value);
        }
        let ask = ask.body(Full::new(Bytes::from(chat("m", "hello")))).unwrap();
        let answer = within("h2", sender.send_request(ask)).await.unwrap();
        assert_eq!(answer.status().as_u16(), 200);
        within("its body", answer.into_body().collect()).await.unwrap();
    }
    for (engine, expected) in engines.iter().zip(expected()) {
        let received = engine.received();
        assert_eq!(received.len(), 4);
        for one in &received {
            assert_eq!(secrets(one), expected, "{}", one.head);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_worker_gets_its_own_with_probes_and_polls() {
    let (engines, urls) = engines(3).await;
    engines.iter().for_each(|engine| engine.set_queue(0, 0));
    let workers: Vec<_> = urls.into_iter().zip([ZERO, ONE, TWO]).collect();
    let keys = "  health: {interval: 20ms}\n  load_reports: {interval: 20ms, format: get_load}\n";
    let edge = Edge::start(&fleet(keys, &workers)).await;
    edge.reports_are("fresh").await;
    let [zero, one, _] = expected();
    for (engine, expected) in engines.iter().zip([zero, one, Vec::new()]) {
        let monitored = until("both kinds", || async {
            let monitored = engine.monitored();
            let is_there = |path: &str| monitored.iter().any(|of| of.target == path);
            (is_there("/health") && is_there("/get_load")).then_some(monitored)
        })
        .await;
        for of in &monitored {
            assert_eq!(secrets(of), expected, "{}", of.head);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_may_have_another_which_is_for_them_alone() {
    let engine = Engine::start().await;
    engine.set_queue(0, 0);
    let keys = "  health: {interval: 20ms}\n  load_reports: {interval: 20ms, format: get_load, auth: {bearer: s3cret-report}}\n";
    let edge = Edge::start(&fleet(keys, &[(engine.url(), ZERO)])).await;
    edge.reports_are("fresh").await;
    assert_eq!(exchange(edge.traffic, &ask()).await.status, 200);
    let [zero, ..] = expected();
    assert_eq!(secrets(&engine.received()[0]), zero);
    for of in engine.monitored() {
        let expected = match of.target.as_str() {
            "/health" => zero[0].as_str(),
            _ => "authorization: bearer s3cret-report",
        };
        assert_eq!(secrets(&of), [expected], "{}", of.target);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_tried_again_has_nothing_of_the_worker_before() {
    let (engines, urls) = engines(3).await;
    let dead = |auth| (format!("http://{}", free_address()), auth);
    for (auth, at) in [(ZERO, 0), (ONE, 1), (TWO, 2)] {
        let keys = "  health: {enabled: false}\n  breaker: {threshold: 1000}\n";
        let workers = [
            dead(", upstream_auth: {bearer: s3cret-dead}"),
            dead(", upstream_auth: {header: {name: x-dead-key, value: s3cret-dead}}"),
            (urls[at].clone(), auth),
        ];
        let edge = Edge::start(&fleet(keys, &workers)).await;
        for _ in 0..6 {
            assert_eq!(exchange(edge.traffic, &ask()).await.status, 200);
        }
        let page = edge.booked(6).await;
        assert!(1.0 <= page.sum("tidegate_retries_total", &["cause=\"connect\""]));
        for one in engines[at].received() {
            assert_eq!(secrets(&one), expected()[at], "{}", one.head);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_engine_could_take_for_a_credential_is_the_edges() {
    let engine = Engine::start().await;
    for auth in [ZERO, ONE] {
        let edge = Edge::start(&fleet("", &[(engine.url(), auth)])).await;
        let lines = "Authorization: Basic s3cret-a\r\nauthorization: Bearer s3cret-b\r\nx_api_key: s3cret-c\r\n\
                     X-Engine-Key: s3cret-d\r\nx_engine_key: s3cret-e\r\nconnection: x-engine-key, x-request-id\r\n";
        let ask = request_with("POST", CHAT, lines, chat("m", "hello").as_bytes());
        assert_eq!(exchange(edge.traffic, &ask).await.status, 200);
        let received = engine.received().pop().unwrap();
        let expected = if auth == ZERO { &expected()[0] } else { &expected()[1] };
        let own = secrets(&received);
        let foreign = own.iter().filter(|line| !expected.contains(line));
        // A header that is no credential to anybody here passes, but not in the place of one.
        assert!(
            foreign.clone().all(|line| auth == ZERO && line.starts_with("x_engine_key")),
            "{own:?}"
        );
        assert!(own.contains(&expected[0]), "{own:?}");
        assert!(
            received.header("x-request-id").is_some(),
            "what the edge adds is not the client's to remove"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_can_be_asked_for_or_read_has_one() {
    let engine = Engine::start().await;
    engine.set_queue(0, 0);
    engine.answer(|_| Reply::json(500, "{}"));
    let keys = "  health: {enabled: false}\n  load_reports: {interval: 20ms, format: get_load, auth: {header: {name: x-key, value: s3cret-report}}}\n";
    // One that fails and one that is not there: what is said of both is looked at.
    let workers = [(engine.url(), ZERO), (format!("http://{}", free_address()), ONE)];
    let edge = Edge::start_made(&fleet(keys, &workers), |command| {
        // Libraries would print whole requests.
        command.env("RUST_LOG", "trace");
    })
    .await;
    until("a report", || async {
        let rows = edge.workers().await;
        rows.iter().any(|row| row["report"]["state"] == "fresh").then_some(())
    })
    .await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        let answer = exchange(edge.traffic, &ask()).await;
        seen.push(format!("{:?} {}", answer.headers, answer.text()));
    }
    edge.booked(4).await;
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "hello"}]});
    let explained =
        exchange(edge.admin, &request("POST", "/v1/explain", body.to_string().as_bytes())).await;
    assert_eq!(explained.status, 200, "{}", explained.text());
    seen.push(explained.text());
    for path in ["/v1/config", "/v1/decisions", "/v1/workers", "/v1/routing", "/metrics", "/"] {
        let answer = edge.admin(path).await;
        assert_eq!(answer.status, 200, "{path}");
        seen.push(answer.text());
    }
    // A file with a mistake in each secret's neighbourhood.
    for wrong in [
        fleet("", &[(engine.url(), ", upstream_auth: {bearer: 's3cret zero'}")]),
        fleet(
            "",
            &[(
                engine.url(),
                ", upstream_auth: {bearer: s3cret, header: {name: a, value: s3cret}}",
            )],
        ),
        fleet("", &[(engine.url(), ", upstream_auth: {header: {name: host, value: s3cret}}")]),
        fleet("", &[("http://user:s3cret@h:1".to_owned(), "")]),
    ] {
        let answer = edge.reload(&wrong).await;
        assert_eq!(answer.status, 422, "{}", answer.text());
        seen.push(answer.text());
        seen.push(edge.admin("/v1/config").await.text());
    }
    let all_lines = async || {
        let log = edge.log();
        (log.matches("\"request_id\"").count() == 4).then_some(log)
    };
    seen.push(until("the access log's four lines", all_lines).await);
    for text in &seen {
        let at = text
            .find("s3cret")
            .map(|at| text[at.saturating_sub(200)..].chars().take(300).collect::<String>());
        assert_eq!(at, None);
    }
}
