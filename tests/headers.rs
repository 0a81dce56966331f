//! Which headers pass, which end at the edge, which it adds, and that secrets are only where they
//! belong.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use support::client::{Answer, Connection, chat, exchange, get, post, request_with};
use support::edge::{Edge, free_address, model};
use support::engine::{Engine, Received, Reply};
use support::until;

const CHAT: &str = "/v1/chat/completions";

/// One request with these header lines, and what the worker got of it.
async fn pass(edge: &Edge, engine: &Engine, headers: &str) -> (Answer, Received) {
    let body = chat("m", "hello");
    let answer =
        exchange(edge.traffic, &request_with("POST", CHAT, headers, body.as_bytes())).await;
    (answer, engine.received().pop().expect("the worker got the request"))
}

#[tokio::test(flavor = "multi_thread")]
async fn hop_by_hop_and_nominated_headers_end_at_the_edge_both_ways() {
    let engine = Engine::start().await;
    engine.answer(|_| {
        Reply::raw(
            b"HTTP/1.1 200 OK\r\nconnection: keep-alive, x-inner, Content-Length\r\nkeep-alive: timeout=5\r\n\
              proxy-authenticate: Basic\r\nproxy-connection: keep-alive\r\nte: trailers\r\ntrailer: x-t\r\n\
              upgrade: h2c\r\nx-inner: 1\r\nx-end: kept\r\ncontent-length: 2\r\n\r\n{}",
        )
    });
    let edge = Edge::start(&model(&[], &[engine.url()])).await;
    let headers = "connection: keep-alive, X-Inner\r\nx-inner: 1\r\nkeep-alive: timeout=5\r\nproxy-connection: keep-alive\r\n\
                   proxy-authorization: Basic eA==\r\nte: trailers\r\ntrailer: x-t\r\nupgrade: h2c\r\nx-end: kept\r\n";
    let (answer, received) = pass(&edge, &engine, headers).await;
    for name in ["x-inner", "keep-alive", "proxy-connection", "te", "trailer", "upgrade"] {
        assert_eq!(received.header(name), None, "{name} at the worker");
        assert_eq!(answer.header(name), None, "{name} at the client");
    }
    assert_eq!(received.header("proxy-authorization"), None);
    assert_eq!(answer.header("proxy-authenticate"), None);
    assert_eq!((received.header("x-end"), answer.header("x-end")), (Some("kept"), Some("kept")));
    assert_eq!((answer.header("content-length"), answer.text().as_str()), (Some("2"), "{}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_end_to_end_headers_pass_unchanged_and_in_order() {
    let engine = Engine::start().await;
    engine.answer(|_| {
        Reply::raw(
            b"HTTP/1.1 200 OK\r\nset-cookie: b=2; Path=/\r\nvary: a\r\nset-cookie: a=1, x\r\nset-cookie: b=2; Path=/\r\n\
              content-type: text/Plain ;q=1\r\ncontent-length: 2\r\n\r\n{}",
        )
    });
    let edge = Edge::start(&model(&[], &[engine.url()])).await;
    let headers = "x-tag: two\r\naccept: a/b\r\nx-tag: one, more\r\nx-tag: two\r\n";
    let (answer, received) = pass(&edge, &engine, headers).await;
    assert_eq!(received.all("x-tag"), ["two", "one, more", "two"]);
    assert_eq!(received.all("accept"), ["a/b"]);
    assert_eq!(answer.all("set-cookie"), ["b=2; Path=/", "a=1, x", "b=2; Path=/"]);
    assert_eq!(answer.all("vary"), ["a"]);
    assert_eq!(answer.all("content-type"), ["text/Plain ;q=1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_keep_their_spelling_both_ways() {
    let engine = Engine::start().await;
    let head = b"HTTP/1.1 200 OK\r\nX-rAtElImIt: 9\r\nCONTENT-length: 2\r\n\r\n{}";
    engine.answer(|_| Reply::raw(head));
    let edge = Edge::start(&model(&[], &[engine.url()])).await;
    let (answer, received) = pass(&edge, &engine, "X-tAG: 1\r\nauthorizatION: k\r\n").await;
    for line in ["\r\nX-tAG: 1\r\n", "\r\nauthorizatION: k\r\n"] {
        assert!(received.head.contains(line), "{line:?} in {}", received.head);
    }
    let is_there = |name: &str| answer.headers.iter().any(|(one, _)| one == name);
    assert!(is_there("X-rAtElImIt") && is_there("CONTENT-length"), "{:?}", answer.headers);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_id_is_kept_or_made_and_never_doubled() {
    let engine = Engine::start().await;
    let edge = Edge::start(&model(&[], &[engine.url()])).await;
    let (answer, received) = pass(&edge, &engine, "x-request-id: mine-1\r\n").await;
    assert_eq!(received.all("x-request-id"), ["mine-1"]);
    assert_eq!(answer.all("x-request-id"), ["mine-1"]);
    let (answer, received) = pass(&edge, &engine, "").await;
    let made = received.header("x-request-id").unwrap().to_owned();
    assert!(!made.is_empty());
    assert_eq!(answer.all("x-request-id"), [made.as_str()]);
    let (_, other) = pass(&edge, &engine, "").await;
    assert_ne!(other.header("x-request-id"), Some(made.as_str()), "each request has its own");
    engine.answer(|_| {
        Reply::raw(b"HTTP/1.1 200 OK\r\nX-Request-ID: engines\r\ncontent-length: 2\r\n\r\n{}")
    });
    let (answer, _) = pass(&edge, &engine, "x-request-id: mine-2\r\n").await;
    assert_eq!(answer.all("x-request-id"), ["engines"]);
    let refused = request_with("POST", CHAT, "x-request-id: mine-3\r\n", chat("no", "").as_bytes());
    assert_eq!(exchange(edge.traffic, &refused).await.all("x-request-id"), ["mine-3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_edges_own_headers_are_not_taken_from_clients() {
    let engine = Engine::start().await;
    let edge = Edge::start(&model(&["policy: round_robin"], &[engine.url()])).await;
    let headers = "X-Tidegate-Worker: evil\r\nx-tidegate-decision: evil\r\nx-tidegate-any: evil\r\nx-tidegat: passes\r\n";
    let (answer, received) = pass(&edge, &engine, headers).await;
    let own = received
        .headers
        .iter()
        .filter(|(name, _)| name.to_ascii_lowercase().starts_with("x-tidegate-"));
    assert_eq!(own.count(), 0, "{:?}", received.headers);
    assert_eq!(received.header("x-tidegat"), Some("passes"));
    assert_eq!(answer.all("x-tidegate-worker"), ["w0"]);
    assert_eq!(answer.all("x-tidegate-decision"), ["round_robin"]);
    assert!(!answer.headers.iter().any(|(_, value)| value.contains("127.0.0.1")));
}

#[tokio::test(flavor = "multi_thread")]
async fn response_headers_can_be_turned_off() {
    let engine = Engine::start().await;
    let yaml = format!("  http: {{response_headers: false}}\n{}", model(&[], &[engine.url()]));
    let edge = Edge::start(&yaml).await;
    let (answer, _) = pass(&edge, &engine, "").await;
    assert_eq!(answer.status, 200);
    assert!(!answer.headers.iter().any(|(name, _)| name.to_ascii_lowercase().contains("tidegate")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_addressed_by_its_own_name() {
    let engine = Engine::start().await;
    let edge = Edge::start(&model(&[], &[engine.url()])).await;
    let (_, received) = pass(&edge, &engine, "").await;
    let own = engine.url().trim_start_matches("http://").to_owned();
    assert_eq!(received.all("host"), [own.as_str()]);
}

/// `x-forwarded-for`, `-proto`, `-host` at the worker when the client sent some or none of them.
async fn forwarded(mode: &str, sent: &str) -> [Vec<String>; 3] {
    let engine = Engine::start().await;
    let yaml = format!("  http: {{forwarded: {mode}}}\n{}", model(&[], &[engine.url()]));
    let edge = Edge::start(&yaml).await;
    let (_, received) = pass(&edge, &engine, sent).await;
    ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"]
        .map(|name| received.all(name).into_iter().map(str::to_owned).collect())
}

const CHAIN: &str = "x-forwarded-for: 1.1.1.1\r\nx-forwarded-for: 2.2.2.2\r\nx-forwarded-proto: https\r\nx-forwarded-host: outer\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn forwarded_append_adds_to_what_the_client_sent() {
    assert_eq!(forwarded("append", "").await, [["127.0.0.1"], ["http"], ["localhost"]]);
    let chain = "1.1.1.1, 2.2.2.2, 127.0.0.1";
    assert_eq!(forwarded("append", CHAIN).await, [[chain], ["https"], ["outer"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn forwarded_set_replaces_what_the_client_sent() {
    assert_eq!(forwarded("set", CHAIN).await, [["127.0.0.1"], ["http"], ["localhost"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn forwarded_off_leaves_it_alone() {
    let nothing: [Vec<String>; 3] = Default::default();
    assert_eq!(forwarded("off", "").await, nothing);
    let [chain, proto, host] = forwarded("off", CHAIN).await;
    assert_eq!(chain, ["1.1.1.1", "2.2.2.2"]);
    assert_eq!((proto, host), (vec!["https".to_owned()], vec!["outer".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn trace_context_and_credentials_pass() {
    let engine = Engine::start().await;
    let edge = Edge::start(&model(&[], &[engine.url()])).await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers =
        format!("traceparent: {trace}\r\ntracestate: a=b\r\nauthorization: Bearer mine\r\n");
    let (_, received) = pass(&edge, &engine, &headers).await;
    assert_eq!(received.all("traceparent"), [trace]);
    assert_eq!(received.all("tracestate"), ["a=b"]);
    assert_eq!(received.all("authorization"), ["Bearer mine"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn upstream_auth_replaces_the_clients_credentials() {
    let engine = Engine::start().await;
    for (auth, name, sent) in [
        ("upstream_auth: {bearer: own}", "authorization", "Bearer own"),
        ("upstream_auth: {header: {name: X-Api-Key, value: own}}", "x-api-key", "own"),
    ] {
        let edge = Edge::start(&model(&[auth], &[engine.url()])).await;
        let headers = "authorization: Bearer clients\r\nx-api-key: clients\r\n";
        let (_, received) = pass(&edge, &engine, headers).await;
        assert_eq!(received.all(name), [sent]);
        let authorization = received.all("authorization");
        assert!(!authorization.contains(&"Bearer clients"), "{authorization:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_nowhere_but_at_the_worker() {
    let engine = Engine::start().await;
    let yaml = format!(
        "  load_reports: {{auth: {{bearer: s3cret-report}}}}\n  health: {{enabled: false}}\n  retries: {{max_attempts: 1}}\n{}",
        model(
            &["policy: round_robin", "upstream_auth: {bearer: s3cret-worker}"],
            &[engine.url(), format!("http://{}", free_address())]
        )
    );
    let edge = Edge::start(&yaml).await;
    let headers = "authorization: Bearer s3cret-client\r\ncookie: s3cret-cookie\r\n";
    let request = request_with("POST", CHAT, headers, chat("m", "s3cret-prompt").as_bytes());
    let mut seen = Vec::new();
    let mut statuses = Vec::new();
    for _ in 0..2 {
        let answer = exchange(edge.traffic, &request).await;
        statuses.push(answer.status);
        seen.push(format!("{:?} {}", answer.headers, answer.text()));
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 502]);
    until("both in the log", || async {
        (edge.log().matches("\"request_id\"").count() == 2).then_some(())
    })
    .await;
    for path in ["/v1/config", "/v1/decisions", "/v1/workers", "/metrics"] {
        seen.push(edge.admin(path).await.text());
    }
    seen.push(edge.log());
    for text in &seen {
        assert!(!text.contains("s3cret"), "{text}");
    }
    assert!(seen[2].contains("***"), "masked, not left out: {}", seen[2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn interim_answers_of_workers_are_not_passed_on() {
    let engine = Engine::start().await;
    engine.answer(|_| {
        Reply::raw(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
        )
    });
    let edge = Edge::start(&model(&[], &[engine.url()])).await;
    let mut client = Connection::open(edge.traffic).await;
    client.send(&request_with("POST", CHAT, "", chat("m", "hello").as_bytes())).await;
    assert_eq!(client.head().await.status, 200);
    assert_eq!(client.bytes(2).await, b"{}");
    // A client that waits for a 100 gets one, the edge's.
    let body = chat("m", "hello");
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    client.send(head.as_bytes()).await;
    assert_eq!(client.head().await.status, 100);
    client.send(body.as_bytes()).await;
    assert_eq!(client.head().await.status, 200);
    assert_eq!(engine.received()[1].header("expect"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_would_be_refused_is_not_asked_for() {
    let engine = Engine::start().await;
    let yaml = format!("  limits: {{max_body_bytes: 1KiB}}\n{}", model(&[], &[engine.url()]));
    let edge = Edge::start(&yaml).await;
    let mut client = Connection::open(edge.traffic).await;
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: e\r\nexpect: 100-continue\r\ncontent-length: 2000\r\n\r\n"
    );
    client.send(head.as_bytes()).await;
    assert_eq!(client.head().await.status, 413);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_http_1_0_gets_no_interim_answer_and_no_chunks() {
    let engine = Engine::start().await;
    engine.answer(|_| {
        Reply::raw(
            b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        )
    });
    let edge = Edge::start(&model(&[], &[engine.url()])).await;
    let body = chat("m", "hello");
    let mut client = Connection::open(edge.traffic).await;
    let head = format!(
        "POST {CHAT} HTTP/1.0\r\nhost: localhost\r\nconnection: keep-alive\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    client.send(head.as_bytes()).await;
    let answer = client.head().await;
    assert_eq!((answer.status, answer.header("transfer-encoding")), (200, None));
    assert_eq!(client.rest().await, b"abcde");
    assert_eq!(engine.received()[0].body, body.as_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_http_1_0_is_told_errors_too() {
    let edge = Edge::start_unready(&model(&[], &[format!("http://{}", free_address())])).await;
    let mut client = Connection::open(edge.traffic).await;
    client.send(b"GET /anything HTTP/1.0\r\nhost: localhost\r\n\r\n").await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.error_code().as_str()), (503, "no_routable_worker"));
    assert!(client.rest().await.is_empty(), "and the connection is closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_used_again_by_http_1_1() {
    let engine = Engine::start().await;
    let edge = Edge::start(&model(&[], &[engine.url()])).await;
    let mut client = Connection::open(edge.traffic).await;
    for _ in 0..3 {
        client.send(&request_with("POST", CHAT, "", chat("m", "hello").as_bytes())).await;
        assert_eq!(client.answer().await.status, 200);
    }
    let connections: Vec<u64> = engine.received().iter().map(|r| r.connection).collect();
    assert_eq!(connections, [connections[0]; 3], "and so is the worker's");
    assert_eq!(get(edge.traffic, "/v1/models").await.status, 200);
    assert_eq!(post(edge.traffic, CHAT, &chat("m", "hello")).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_engine_could_take_for_a_header_of_the_edge_does_not_reach_it() {
    let engine = Engine::start().await;
    let edge = Edge::start(&model(&[], &[engine.url()])).await;
    let headers = "x_tidegate_route: evil\r\nX-Tidegate_Worker: evil\r\nx_forwarded_for: evil\r\n\
                   X_Forwarded-Proto: evil\r\ncontent_length: 9\r\ntransfer_encoding: evil\r\n\
                   x_request_id: evil\r\nx_own_thing: passes\r\nx_forwarded: passes\r\n";
    let (answer, received) = pass(&edge, &engine, headers).await;
    assert_eq!(answer.status, 200);
    assert!(!received.head.contains("evil"), "{}", received.head);
    assert_eq!(received.header("content_length"), None);
    assert_eq!(received.header("x_own_thing"), Some("passes"));
    assert_eq!(received.header("x_forwarded"), Some("passes"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_cannot_nominate_away_what_the_edge_adds() {
    let engine = Engine::start().await;
    let edge = Edge::start(&model(&["upstream_auth: {bearer: own}"], &[engine.url()])).await;
    for upgrade in ["", ", upgrade"] {
        let headers = format!(
            "connection: close, x-request-id, authorization, content-length, forwarded{upgrade}\r\n\
             upgrade: websocket\r\nx-request-id: mine\r\nforwarded: for=a\r\nproxy-authorization: Basic eA==\r\n"
        );
        let (answer, received) = pass(&edge, &engine, &headers).await;
        assert_eq!(answer.status, 200);
        assert_eq!(received.all("authorization"), ["Bearer own"]);
        assert_eq!(received.all("x-request-id"), ["mine"]);
        assert_eq!(received.all("x-forwarded-for"), ["127.0.0.1"]);
        assert_eq!(received.header("forwarded"), None);
        assert_eq!(received.header("proxy-authorization"), None);
        let nominated = received.header("connection").unwrap_or_default().to_ascii_lowercase();
        assert!(
            ["", "keep-alive", "close", "upgrade"].contains(&nominated.as_str()),
            "{nominated}"
        );
    }
}

/// Targets two servers might read in two ways.
const TARGETS: [&str; 18] = [
    "//v1/chat/completions",
    "/v1//chat/completions",
    "/v1/chat/completions/",
    "/v1/../admin",
    "/./v1/x",
    "/..",
    "/%2e%2e/admin",
    "/v1%2fchat%2Fcompletions",
    "/v1/%6dodels",
    "/v1//models",
    "/V1/Models",
    "/v1/models;x",
    "/x;p=1?q=//../",
    "/x?",
    "/x?a=b&c=%20+;&d&a=%",
    "/x?a?b=http://e/",
    "/x/%00%ff",
    "/~!$&'()*+,;=:@x",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_target_reaches_the_worker_as_it_is_and_is_taken_for_no_other() {
    let engine = Engine::start().await;
    let edge = Edge::start(&model(&["aliases: [default]"], &[engine.url()])).await;
    for target in TARGETS {
        let answer = get(edge.traffic, target).await;
        assert_eq!(answer.status, 200, "{target}: {}", answer.text());
        let received = engine.received().pop().unwrap();
        assert_eq!(received.target, target);
    }
    let page = edge.booked(TARGETS.len()).await;
    let others = page.sum("tidegate_requests_total", &["path=\"other\""]);
    assert_eq!(others, TARGETS.len() as f64);
    let known = format!("{CHAT}?api-version=1&x=%2F");
    assert_eq!(post(edge.traffic, &known, &chat("m", "hello")).await.status, 200);
    assert_eq!(engine.received().pop().unwrap().target, known);
    assert_eq!(get(edge.traffic, "/v1/models?x=1").await.json()["object"], "list");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_target_passes_up_to_the_limit_of_heads_and_is_refused_beyond() {
    let engine = Engine::start().await;
    let edge = Edge::start(&model(&["aliases: [default]"], &[engine.url()])).await;
    let long = format!("/x?{}", "a".repeat(60_000));
    assert_eq!(get(edge.traffic, &long).await.status, 200);
    assert_eq!(engine.received().pop().unwrap().target, long);
    let longer = format!("/x?{}", "a".repeat(65_600));
    let answer = get(edge.traffic, &longer).await;
    assert!([400, 431].contains(&answer.status), "{}", answer.status);
    assert!(!answer.error_code().is_empty());
    assert_eq!(engine.received().len(), 1);
}
