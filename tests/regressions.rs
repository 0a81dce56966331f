//! Twelve faults other edges have shipped, each with the test that keeps it out of this one.
//!
//! | Fault | Test |
//! |---|---|
//! | Aborted requests leak their place | `streams::a_client_that_leaves_before_the_first_token_frees_the_worker`, `soak::what_bad_engines_and_bad_clients_do_is_counted_and_leaves_nothing_behind` |
//! | Probes touch the counters that route | `regressions::probes_and_polls_touch_no_counter_of_requests` |
//! | A stale report of an idle worker attracts | `regressions::a_worker_whose_reports_stopped_while_it_was_idle_is_not_idle` |
//! | A mark of overload never clears | `regressions::a_worker_that_was_overloaded_gets_its_prompts_back` |
//! | 400s open breakers | `retries::client_errors_and_busy_answers_are_neutral` |
//! | 429s and 503s open breakers | `retries::client_errors_and_busy_answers_are_neutral`, `dispatch::only_503_counts_for_a_wedged_worker` |
//! | A retry generates twice | `retries::a_new_connection_closed_after_the_head_is_not_retried`, `soak::while_workers_are_killed_only_requests_they_had_taken_fail` |
//! | A stale pooled connection fails a request | `retries::a_stale_connection_is_replaced_by_a_new_one_and_the_same_bytes_sent` |
//! | A retry returns to the dead owner | `regressions::a_retry_does_not_return_to_the_dead_owner` |
//! | Labels that clients choose explode | `regressions::what_clients_invent_makes_no_series` |
//! | A secret in a log | `headers::secrets_are_nowhere_but_at_the_worker` |
//! | Events of a stream are buffered | `streams::the_first_event_does_not_wait_for_the_second` |

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use support::client::{Answer, chat, exchange, post, request};
use support::edge::{Edge, model};
use support::engine::{Engine, engines};
use support::until;

const CHAT: &str = "/v1/chat/completions";
const REPORTED: &str = "load_reports: {interval: 20ms, max_age: 300ms, format: get_load}";
const LADDER: &str = "cache_aware: {selection: ladder, worker_queue_limit: 4, saturation_queue_floor: 2, min_matched_tokens: 256}";

fn long_prompt(at: usize) -> String {
    let words = format!("ledger {at} lists every crate by number. ").repeat(300);
    chat("m", &words)
}

async fn ask(edge: &Edge, at: usize) -> Answer {
    let answer = post(edge.traffic, CHAT, &long_prompt(at)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer
}

/// Two reporting engines, idle at first, of which one owns two prompts.
struct Scene {
    edge: Edge,
    owner: Engine,
    other: Engine,
    owner_id: String,
    prompts: [usize; 2],
}

impl Scene {
    async fn new() -> Self {
        let (mut engines, urls) = engines(2).await;
        engines.iter().for_each(|engine| engine.set_queue(0, 0));
        let edge = Edge::start(&model(&[REPORTED, LADDER], &urls)).await;
        edge.all_healthy().await;
        edge.reports_are("fresh").await;
        let owner_of =
            async |at| ask(&edge, at).await.header("x-tidegate-worker").unwrap().to_owned();
        let owner_id = owner_of(0).await;
        let mut second = 1;
        while owner_of(second).await != owner_id {
            second += 1;
        }
        edge.booked(second + 1).await;
        let other = engines.remove(if owner_id == "w0" { 1 } else { 0 });
        let owner = engines.remove(0);
        Self { edge, owner, other, owner_id, prompts: [0, second] }
    }

    /// Sets both queues and waits until the edge has read them.
    async fn queues(&self, owner: u64, other: u64) {
        self.owner.set_queue(owner, 10);
        self.other.set_queue(other, 10);
        until("the queues", || async {
            let rows = self.edge.workers().await;
            let is_read = |row: &serde_json::Value| {
                let queue = if row["id"] == self.owner_id.as_str() { owner } else { other };
                row["report"]["waiting"] == queue
            };
            rows.iter().all(is_read).then_some(())
        })
        .await;
    }

    /// Sends a prompt ten times; how often it came to its owner.
    async fn to_owner(&self, at: usize) -> usize {
        let before = self.owner.received().len();
        for _ in 0..10 {
            ask(&self.edge, at).await;
        }
        self.owner.received().len() - before
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_and_polls_touch_no_counter_of_requests() {
    let (engines, urls) = engines(2).await;
    engines.iter().for_each(|engine| engine.set_queue(0, 0));
    let keys = [REPORTED, "health: {interval: 20ms}"];
    let edge = Edge::start(&model(&keys, &urls)).await;
    edge.all_healthy().await;
    until("twenty polls", || async {
        let page = edge.metrics().await;
        (20.0 < page.sum("tidegate_report_polls_total", &["outcome=\"ok\""])).then_some(())
    })
    .await;
    let page = edge.metrics().await;
    for name in [
        "tidegate_requests_total",
        "tidegate_worker_requests_total",
        "tidegate_policy_decisions_total",
        "tidegate_in_flight",
        "tidegate_requests_in_progress",
        "tidegate_request_seconds_count",
    ] {
        assert_eq!(page.sum(name, &[]), 0.0, "{name}");
    }
    for row in edge.workers().await {
        assert_eq!((&row["in_flight"], &row["owned_blocks"]), (&0.into(), &0.into()), "{row}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_reports_stopped_while_it_was_idle_is_not_idle() {
    let scene = Scene::new().await;
    let [one, two] = scene.prompts;
    scene.queues(50, 0).await;
    assert_eq!(scene.to_owner(one).await, 0, "the other one is idle");
    // Its last word is that it is idle; nobody hears from it again.
    scene.other.hang_reports();
    until("the report to age", || async {
        let rows = scene.edge.workers().await;
        rows.iter().any(|row| row["report"]["state"] == "stale").then_some(())
    })
    .await;
    assert_eq!(scene.to_owner(two).await, 10, "nobody is known to be below the floor");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_was_overloaded_gets_its_prompts_back() {
    let scene = Scene::new().await;
    let [one, two] = scene.prompts;
    scene.queues(50, 0).await;
    assert_eq!(scene.to_owner(one).await, 0, "the gate is closed");
    scene.queues(0, 0).await;
    assert_eq!(scene.to_owner(two).await, 10, "and opens again");
    // The first prompt has two owners by now; the one that queues is not asked.
    scene.queues(0, 50).await;
    assert_eq!(scene.to_owner(one).await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_does_not_return_to_the_dead_owner() {
    let (mut engines, urls) = engines(3).await;
    // Nothing tells of the death but the requests themselves; three failures in a row do not
    // open the breaker.
    let keys = [
        "health: {enabled: false}",
        "load_reports: {format: none}",
        "breaker: {threshold: 1000}",
        "retries: {max_attempts: 2}",
        LADDER_WITHOUT_GATE,
    ];
    let edge = Edge::start(&model(&keys, &urls)).await;
    let owner = ask(&edge, 0).await.header("x-tidegate-worker").unwrap().to_owned();
    let at: usize = owner[1..].parse().unwrap();
    drop(engines.remove(at));
    until("the port to be closed", || async {
        let address = urls[at].trim_start_matches("http://");
        tokio::net::TcpStream::connect(address).await.is_err().then_some(())
    })
    .await;
    for _ in 0..10 {
        let answer = ask(&edge, 0).await;
        assert_ne!(answer.header("x-tidegate-worker"), Some(owner.as_str()));
    }
    let page = edge.booked(11).await;
    let label = format!("worker=\"{owner}\"");
    let tried = page.sum("tidegate_worker_requests_total", &[&label, "outcome=\"unreachable\""]);
    let retries = page.sum("tidegate_retries_total", &[]);
    assert!(1.0 <= retries && tried <= retries, "{tried} tries at the dead, {retries} retries");
}

const LADDER_WITHOUT_GATE: &str = "cache_aware: {selection: ladder, min_matched_tokens: 256}";

#[tokio::test(flavor = "multi_thread")]
async fn what_clients_invent_makes_no_series() {
    let engine = Engine::start().await;
    let edge = Edge::start(&model(&[], &[engine.url()])).await;
    let lines = async || edge.metrics().await.0.lines().count();
    let invented = async |at: usize| {
        let method = ["GET", "PUT", "BREW", "POST"][at % 4];
        let path = format!("/p/{at}/q?x={at}");
        exchange(edge.traffic, &request(method, &path, b"")).await;
        let model = format!("junk-{at}");
        let answer = post(edge.traffic, CHAT, &chat(&model, "x")).await;
        assert_eq!(answer.error_code(), "model_not_found");
        let host = format!(
            "GET /v1/models HTTP/1.1\r\nhost: h{at}.test\r\nx-request-id: {at}\r\nuser-agent: {at}\r\n\r\n"
        );
        assert_eq!(exchange(edge.traffic, host.as_bytes()).await.status, 200);
        let model = format!("/v1/models/{at}");
        assert_eq!(support::client::get(edge.traffic, &model).await.status, 404);
    };
    for at in 0..4 {
        invented(at).await;
    }
    edge.booked(16).await;
    let before = lines().await;
    for at in 4..104 {
        invented(at).await;
    }
    until("the booking", || async {
        let page = edge.metrics().await;
        (page.sum("tidegate_requests_total", &[]) == 416.0).then_some(())
    })
    .await;
    assert_eq!(lines().await, before);
    let page = edge.metrics().await.0;
    assert!(!page.contains("junk") && !page.contains("BREW") && !page.contains("h99"));
}

#[test]
fn the_list_above_is_true() {
    support::lists::is_true("regressions.rs", 12);
}
