//! A request is sent again only when no worker can have begun to work on it, and a worker that
//! fails is left alone for a while.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;
use std::time::Duration;
use support::client::{Answer, Connection, chat, post, request};
use support::edge::{Edge, free_address, model};
use support::engine::{Engine, Received, Reply, Step, chunk, event, stream_head};
use support::until;
use tokio::sync::Notify;

const CHAT: &str = "/v1/chat/completions";
/// Health off: what is learned is learned from requests.
const UNPROBED: &str = "  health: {enabled: false}\n";

/// One worker of model `m` behind an edge with these settings.
async fn edge_of(settings: &str, engine: &Engine) -> Edge {
    Edge::start(&format!("{settings}{}", model(&[], &[engine.url()]))).await
}

async fn ask(edge: &Edge) -> Answer {
    post(edge.traffic, CHAT, &chat("m", "hello")).await
}

async fn is_refused(answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status, answer.error_code().as_str()), (status, code));
}

/// Answers as `reply` says on connections before `new`, properly on others.
fn old_connections(engine: &Engine, new: u64, reply: impl Fn() -> Reply + Send + Sync + 'static) {
    engine.answer(
        move |received| {
            if received.connection < new { reply() } else { Reply::completion() }
        },
    );
}

/// One more than the highest connection seen.
fn next_connection(engine: &Engine) -> u64 {
    engine.received().iter().map(|received| received.connection).max().unwrap() + 1
}

fn same_request(one: &Received, other: &Received) {
    assert_eq!(one.body, other.body);
    assert_eq!(one.headers, other.headers);
    assert_eq!(one.target, other.target);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_connection_is_replaced_by_a_new_one_and_the_same_bytes_sent() {
    let engine = Engine::start().await;
    let edge = edge_of("", &engine).await;
    assert_eq!(ask(&edge).await.status, 200);
    let first = engine.received()[0].clone();
    // All the edge can see: it was closed as soon as it was used again.
    old_connections(&engine, first.connection + 1, Reply::close);
    assert_eq!(ask(&edge).await.status, 200);
    let received = engine.received();
    assert_eq!(received.len(), 3);
    assert_eq!(received[1].connection, first.connection, "the pooled connection was used");
    assert_ne!(received[2].connection, first.connection);
    same_request(&received[1], &received[2]);
    let page = edge.booked(2).await;
    assert_eq!(page.sum("tidegate_retries_total", &["cause=\"stale_connection\""]), 1.0);
    assert_eq!(page.sum("tidegate_retries_total", &[]), 1.0);
    assert_eq!(page.sum("tidegate_in_flight", &[]), 0.0);
    let newest = &edge.admin("/v1/decisions").await.json()["decisions"][0];
    assert_eq!(newest["attempts"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn however_many_pooled_connections_are_stale_one_retry_suffices() {
    let engine = Engine::start().await;
    let edge = edge_of("", &engine).await;
    let go_on = Arc::new(Notify::new());
    let wait = Arc::clone(&go_on);
    engine.answer(move |_| {
        let mut reply = Reply::completion();
        reply.steps.insert(0, Step::Wait(Arc::clone(&wait)));
        reply
    });
    let mut clients = Vec::new();
    for at in 1..=6 {
        let mut client = Connection::open(edge.traffic).await;
        client.send(&request("POST", CHAT, chat("m", "hello").as_bytes())).await;
        until("the request", || async { (engine.received().len() == at).then_some(()) }).await;
        clients.push(client);
    }
    for mut client in clients {
        go_on.notify_one();
        // Whichever is released, all six are in the end.
        tokio::spawn(async move { client.answer().await });
    }
    edge.booked(6).await;
    old_connections(&engine, next_connection(&engine), Reply::close);
    assert_eq!(ask(&edge).await.status, 200);
    assert_eq!(engine.received().len(), 8, "once on an old connection, once on a new one");
    assert_eq!(ask(&edge).await.status, 200);
    assert_eq!(engine.received().len(), 9, "and no other old one is tried");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_connection_closed_after_the_head_is_not_retried() {
    let engine = Engine::start().await;
    engine.answer(|_| Reply::close());
    let edge = edge_of("", &engine).await;
    is_refused(&ask(&edge).await, 502, "worker_closed").await;
    assert_eq!(engine.received().len(), 1);
    let page = edge.booked(1).await;
    assert_eq!(page.sum("tidegate_requests_total", &["outcome=\"worker_error\""]), 1.0);
    assert_eq!(page.sum("tidegate_retries_total", &[]), 0.0);
}

/// A pooled connection on which the worker does this is not taken for a stale one.
async fn not_stale(settings: &str, steps: Vec<Step>) {
    let engine = Engine::start().await;
    let edge = edge_of(settings, &engine).await;
    assert_eq!(ask(&edge).await.status, 200);
    old_connections(&engine, next_connection(&engine), move || Reply::steps(steps.clone()));
    is_refused(&ask(&edge).await, 502, "worker_closed").await;
    assert_eq!(engine.received().len(), 2, "never asked twice");
    assert_eq!(edge.metrics().await.sum("tidegate_retries_total", &[]), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooled_connection_that_gave_a_byte_is_not_stale() {
    not_stale("", vec![Step::Write(b"H".to_vec()), Step::Close]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooled_connection_that_gave_an_interim_answer_is_not_stale() {
    not_stale("", vec![Step::Write(b"HTTP/1.1 102 P\r\n\r\n".to_vec()), Step::Close]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooled_connection_that_gave_no_http_is_not_stale() {
    not_stale("", vec![Step::Write(b"SSH-2.0-x\r\n\r\n".to_vec()), Step::Close]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooled_connection_closed_after_the_window_is_not_stale() {
    let engine = Engine::start().await;
    let edge = edge_of("  retries: {stale_window: 10ms}\n", &engine).await;
    assert_eq!(ask(&edge).await.status, 200);
    let close = Arc::new(Notify::new());
    let wait = Arc::clone(&close);
    engine.answer(move |_| Reply::steps(vec![Step::Wait(Arc::clone(&wait)), Step::Close]));
    let mut client = Connection::open(edge.traffic).await;
    client.send(&request("POST", CHAT, chat("m", "hello").as_bytes())).await;
    until("the request", || async { (engine.received().len() == 2).then_some(()) }).await;
    // The window is a length of time; longer than it is what is to be shown.
    tokio::time::sleep(Duration::from_millis(50)).await;
    close.notify_one();
    is_refused(&client.answer().await, 502, "worker_closed").await;
    assert_eq!(engine.received().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_status_is_retried_and_headers_of_busy_engines_pass() {
    let engines = [Engine::start().await, Engine::start().await];
    for engine in &engines {
        engine.answer(|_| {
            Reply::raw(
                b"HTTP/1.1 503 Busy\r\nretry-after: 7\r\nx-queue: 9\r\ncontent-length: 4\r\n\r\nbusy",
            )
        });
    }
    let urls: Vec<String> = engines.iter().map(Engine::url).collect();
    let edge = Edge::start(&model(&[], &urls)).await;
    let answer = ask(&edge).await;
    assert_eq!((answer.status, answer.text().as_str()), (503, "busy"));
    assert_eq!(answer.all("retry-after"), ["7"]);
    assert_eq!(answer.header("x-queue"), Some("9"));
    assert_eq!(engines.iter().map(|engine| engine.received().len()).sum::<usize>(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn at_most_max_attempts_workers_are_tried() {
    let urls: Vec<String> = (0..4).map(|_| format!("http://{}", free_address())).collect();
    for attempts in [1, 3] {
        let yaml = format!(
            "{UNPROBED}  retries: {{max_attempts: {attempts}}}\n{}",
            model(&["policy: round_robin"], &urls)
        );
        let edge = Edge::start(&yaml).await;
        is_refused(&ask(&edge).await, 502, "worker_unreachable").await;
        let page = edge.booked(1).await;
        assert_eq!(page.sum("tidegate_requests_total", &["outcome=\"unreachable\""]), 1.0);
        let tried = page.sum("tidegate_worker_requests_total", &["outcome=\"unreachable\""]);
        assert_eq!(tried, f64::from(attempts));
        assert_eq!(page.sum("tidegate_retries_total", &["connect"]), f64::from(attempts - 1));
        for row in edge.workers().await {
            let series = format!("worker=\"{}\"", row["id"].as_str().unwrap());
            let mine = page.sum("tidegate_worker_requests_total", &[&series, "unreachable"]);
            assert!(mine <= 1.0, "the failed one is not asked again");
        }
    }
}

async fn breaker_is(edge: &Edge, state: &str) {
    until(state, || async { (edge.workers().await[0]["breaker"] == state).then_some(()) }).await;
}

const BREAKER: &str = "  health: {enabled: false}\n  breaker: {threshold: 3, cool_down: 200ms}\n";

#[tokio::test(flavor = "multi_thread")]
async fn the_breaker_opens_at_its_threshold_and_one_probe_closes_it() {
    let engine = Engine::start().await;
    let edge = edge_of(BREAKER, &engine).await;
    engine.answer(|_| Reply::json(500, "{}"));
    for _ in 0..3 {
        assert_eq!(ask(&edge).await.status, 500);
    }
    // A failure counts when its answer is over, which may be a moment after the client has it.
    until("an open breaker", || async {
        (edge.metrics().await.sum("tidegate_breaker_state", &[]) != 0.0).then_some(())
    })
    .await;
    breaker_is(&edge, "half_open").await;
    until("readiness", || async { (edge.admin("/readyz").await.status == 200).then_some(()) })
        .await;
    // One probe, which takes its time; meanwhile nobody else is let through.
    let go_on = Arc::new(Notify::new());
    let wait = Arc::clone(&go_on);
    engine.answer(move |_| {
        let mut reply = Reply::completion();
        reply.steps.insert(0, Step::Wait(Arc::clone(&wait)));
        reply
    });
    let mut probe = Connection::open(edge.traffic).await;
    probe.send(&request("POST", CHAT, chat("m", "hello").as_bytes())).await;
    until("the probe", || async { (engine.received().len() == 4).then_some(()) }).await;
    for _ in 0..3 {
        is_refused(&ask(&edge).await, 503, "no_routable_worker").await;
    }
    assert_eq!(engine.received().len(), 4);
    go_on.notify_one();
    assert_eq!(probe.answer().await.status, 200);
    breaker_is(&edge, "closed").await;
    engine.answer(|_| Reply::completion());
    assert_eq!(ask(&edge).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_breaker_lets_nothing_through() {
    let engine = Engine::start().await;
    let settings = "  health: {enabled: false}\n  breaker: {threshold: 2, cool_down: 600s}\n";
    let edge = edge_of(settings, &engine).await;
    engine.answer(|_| Reply::close());
    for _ in 0..2 {
        is_refused(&ask(&edge).await, 502, "worker_closed").await;
    }
    breaker_is(&edge, "open").await;
    assert_eq!(edge.metrics().await.sum("tidegate_breaker_state", &["worker=\"w0\""]), 1.0);
    let answer = ask(&edge).await;
    is_refused(&answer, 503, "no_routable_worker").await;
    assert!(answer.header("retry-after").is_some());
    assert_eq!(engine.received().len(), 2);
    assert_eq!(edge.admin("/readyz").await.status, 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn good_health_probes_end_the_cool_down_early() {
    let engine = Engine::start().await;
    let settings =
        "  health: {interval: 20ms, rise: 2}\n  breaker: {threshold: 1, cool_down: 600s}\n";
    let edge = edge_of(settings, &engine).await;
    engine.answer(|_| Reply::json(500, "{}"));
    assert_eq!(ask(&edge).await.status, 500);
    breaker_is(&edge, "half_open").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_errors_and_busy_answers_are_neutral() {
    let engine = Engine::start().await;
    let settings = "  health: {enabled: false}\n  breaker: {threshold: 2, cool_down: 600s}\n";
    let edge = edge_of(settings, &engine).await;
    let mut asked = 0;
    for status in [400, 422, 429, 503, 529, 404] {
        engine.answer(move |_| Reply::json(status, "{}"));
        for _ in 0..3 {
            assert_eq!(ask(&edge).await.status, status);
            asked += 1;
        }
    }
    // And they do not reset a streak either.
    for status in [500, 400, 503, 502] {
        engine.answer(move |_| Reply::json(status, "{}"));
        assert_eq!(ask(&edge).await.status, status);
        asked += 1;
        edge.booked(asked).await;
    }
    breaker_is(&edge, "open").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_counts_against_its_worker_at_its_end() {
    let engine = Engine::start().await;
    let settings = "  health: {enabled: false}\n  breaker: {threshold: 1, cool_down: 600s}\n";
    let edge = edge_of(settings, &engine).await;
    let go_on = Arc::new(Notify::new());
    let wait = Arc::clone(&go_on);
    engine.answer(move |_| {
        Reply::steps(vec![
            stream_head(),
            event("a"),
            Step::Wait(Arc::clone(&wait)),
            chunk("data: half"),
            Step::Close,
        ])
    });
    let mut client = Connection::open(edge.traffic).await;
    client.send(&request("POST", CHAT, chat("m", "hello").as_bytes())).await;
    assert_eq!(client.head().await.status, 200);
    client.chunk().await;
    breaker_is(&edge, "closed").await;
    go_on.notify_one();
    while client.try_chunk().await.is_ok() {}
    breaker_is(&edge, "open").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_probes_fail_is_left_out_until_they_pass() {
    let engines = [Engine::start().await, Engine::start().await];
    let urls: Vec<String> = engines.iter().map(Engine::url).collect();
    let yaml = format!(
        "  health: {{interval: 20ms, timeout: 2s, fall: 2, rise: 2}}\n{}",
        model(&["policy: round_robin"], &urls)
    );
    let edge = Edge::start(&yaml).await;
    let healthy = async |one: bool| {
        until("health", || async {
            let rows = edge.workers().await;
            (rows[0]["healthy"] == one && rows[1]["healthy"] == true).then_some(())
        })
        .await;
    };
    healthy(true).await;
    engines[0].set_healthy(false);
    healthy(false).await;
    for _ in 0..4 {
        assert_eq!(ask(&edge).await.header("x-tidegate-worker"), Some("w1"));
    }
    assert_eq!(edge.admin("/readyz").await.status, 200, "somebody is left");
    engines[0].set_healthy(true);
    healthy(true).await;
    let answers = [ask(&edge).await, ask(&edge).await];
    let mut ids: Vec<&str> =
        answers.iter().filter_map(|answer| answer.header("x-tidegate-worker")).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["w0", "w1"]);
    assert!(engines[0].received().len() == 1, "probes are no requests");
}

async fn owned_blocks(edge: &Edge) -> u64 {
    edge.workers().await[0]["owned_blocks"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_comes_back_after_refusing_owns_nothing() {
    let address = free_address().to_string();
    let engine = Engine::at(&address).await;
    let settings =
        format!("{UNPROBED}  breaker: {{threshold: 1000}}\n  load_reports: {{format: none}}\n");
    let yaml = format!(
        "{settings}{}",
        model(&["cache_aware: {min_matched_tokens: 256}"], &[engine.url()])
    );
    let edge = Edge::start(&yaml).await;
    let prompt = chat("m", &"a prompt that is long enough to be owned ".repeat(200));
    let reason = async || {
        let answer = post(edge.traffic, CHAT, &prompt).await;
        answer.header("x-tidegate-decision").map(str::to_owned)
    };
    assert_eq!(reason().await.as_deref(), Some("home"));
    assert_eq!(reason().await.as_deref(), Some("owner"));
    assert!(0 < owned_blocks(&edge).await);
    drop(engine);
    until("a refused connection", || async {
        let answer = post(edge.traffic, CHAT, &prompt).await;
        (answer.error_code() == "worker_unreachable").then_some(())
    })
    .await;
    assert_eq!(owned_blocks(&edge).await, 0);
    let _engine = Engine::at(&address).await;
    assert_eq!(reason().await.as_deref(), Some("home"));
    assert_eq!(reason().await.as_deref(), Some("owner"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_was_unhealthy_and_came_back_owns_nothing() {
    let engine = Engine::start().await;
    let yaml = format!(
        "  health: {{interval: 20ms, fall: 1, rise: 1}}\n{}",
        model(&["cache_aware: {min_matched_tokens: 256}"], &[engine.url()])
    );
    let edge = Edge::start(&yaml).await;
    let prompt = chat("m", &"a prompt that is long enough to be owned ".repeat(200));
    assert_eq!(post(edge.traffic, CHAT, &prompt).await.status, 200);
    assert!(0 < owned_blocks(&edge).await);
    for healthy in [false, true] {
        engine.set_healthy(healthy);
        until("health", || async { (edge.workers().await[0]["healthy"] == healthy).then_some(()) })
            .await;
    }
    assert_eq!(owned_blocks(&edge).await, 0);
}
