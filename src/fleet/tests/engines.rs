//! Workers with engines behind real sockets.

use super::support::*;
use crate::config::{ReportChoice, Secret, UpstreamAuth};
use crate::fleet::{ModelFleet, clock};
use parking_lot::Mutex;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tidegate_policy::fleet::{Millis, Report, Speed, SpeedSource};
use tidegate_policy::ledger::Streaming;
use tidegate_policy::prefix::PrefixKey;
use tokio::net::TcpListener;

fn fresh(model: &ModelFleet, id: &str) -> Option<Report> {
    let snapshot = model.snapshot();
    let worker = snapshot.workers().iter().find(|worker| worker.id.as_str() == id)?;
    worker.fresh(clock::now()).cloned()
}

fn waiting(model: &ModelFleet, id: &str) -> Option<u64> {
    fresh(model, id)?.waiting
}

#[tokio::test]
async fn a_report_becomes_a_row_and_a_worker_that_hangs_delays_nobody() {
    let queue = Arc::new(AtomicU64::new(3));
    let seen = Arc::clone(&queue);
    let (good, _good) = engine(move |_| Does::ok(&get_load(seen.load(Ordering::Relaxed)))).await;
    let (bad, _bad) = engine(|_| Does::Hang).await;
    let mut config = model("m", vec![at("bad", bad), at("good", good)]);
    config.load_reports.timeout = Duration::from_secs(60);
    let running = Running::start(vec![config]);
    eventually("3 waiting", || waiting(running.model(), "good") == Some(3)).await;
    queue.store(9, Ordering::Relaxed);
    eventually("9 waiting", || waiting(running.model(), "good") == Some(9)).await;
    assert_eq!(waiting(running.model(), "bad"), None);
    let report = fresh(running.model(), "good").unwrap();
    assert_eq!((report.running, report.total_tokens), (Some(1), Some(77)));
    let row = &running.fleets.rows()[1];
    assert_eq!((row.report.state, row.report.waiting), ("fresh", Some(9)));
}

#[tokio::test]
async fn what_is_sent_after_a_poll_counts_until_the_next_report() {
    let (address, _engine) = engine(|_| Does::ok(&get_load(0))).await;
    let running = Running::start(vec![model("m", vec![at("w0", address)])]);
    let ledger = &running.model().workers()[0].live.ledger;
    eventually("a report", || waiting(running.model(), "w0") == Some(0)).await;
    let ticket = ledger.dispatch(500, Streaming::Streamed, clock::now());
    let own = |report: Option<Report>| report.map(|report| report.own_then.uncached_tokens);
    eventually("a report that knows of it", || {
        own(fresh(running.model(), "w0")) == Some(500) && ledger.since_report().requests == 0
    })
    .await;
    assert_eq!(ledger.outstanding().uncached_tokens, 500);
    ledger.cancel(ticket);
}

#[tokio::test]
async fn an_engine_that_wants_a_key_gets_it_and_a_wrong_one_is_told_apart() {
    let (address, _engine) = engine(|head| {
        if head.to_ascii_lowercase().contains("authorization: bearer k1\r\n") {
            Does::ok(&get_load(0))
        } else {
            Does::Answer(401, String::new())
        }
    })
    .await;
    let key = |key: &str| UpstreamAuth {
        name: "authorization".to_owned(),
        value: Secret::new(format!("Bearer {key}")),
    };
    let (mut right, mut wrong) = (at("right", address), at("wrong", address));
    right.upstream_auth = Some(key("k1"));
    wrong.upstream_auth = Some(key("k2"));
    let running = Running::start(vec![probed("m", vec![right, wrong])]);
    eventually("reports", || waiting(running.model(), "right") == Some(0)).await;
    eventually("refusal", || running.fleets.rows()[1].report.state == "unauthorized").await;
    // 401 is somebody's answer: it is alive.
    eventually("alive", || running.model().workers().iter().all(|w| w.live.is_routable())).await;
}

#[tokio::test]
async fn a_report_that_turns_unreadable_is_unknown_at_once() {
    let broken = Arc::new(AtomicBool::new(false));
    let is_broken = Arc::clone(&broken);
    let (address, _engine) = engine(move |_| {
        let body = if is_broken.load(Ordering::Relaxed) { "[]".to_owned() } else { get_load(0) };
        Does::ok(&body)
    })
    .await;
    let running = Running::start(vec![model("m", vec![at("w0", address)])]);
    eventually("a report", || waiting(running.model(), "w0") == Some(0)).await;
    broken.store(true, Ordering::Relaxed);
    eventually("unknown", || waiting(running.model(), "w0").is_none()).await;
    assert_eq!(running.fleets.rows()[0].report.state, "unreadable");
}

#[tokio::test]
async fn a_worker_that_stops_answering_grows_stale_without_any_event() {
    let silent = Arc::new(AtomicBool::new(false));
    let is_silent = Arc::clone(&silent);
    let (address, _engine) = engine(move |_| match is_silent.load(Ordering::Relaxed) {
        true => Does::Hang,
        false => Does::ok(&get_load(0)),
    })
    .await;
    let mut config = model("m", vec![at("w0", address)]);
    config.load_reports.max_age = Duration::from_millis(300);
    let running = Running::start(vec![config]);
    eventually("a report", || waiting(running.model(), "w0") == Some(0)).await;
    silent.store(true, Ordering::Relaxed);
    eventually("stale", || waiting(running.model(), "w0").is_none()).await;
    let row = &running.fleets.rows()[0];
    assert_eq!(row.report.state, "stale");
    assert!(300 <= row.report.age_ms.unwrap());
}

#[tokio::test]
async fn a_worker_whose_reports_are_off_is_never_asked() {
    let asked = Arc::new(AtomicBool::new(false));
    let was_asked = Arc::clone(&asked);
    let (address, _engine) = engine(move |head| {
        was_asked.fetch_or(!head.starts_with("GET /health "), Ordering::Relaxed);
        Does::ok("")
    })
    .await;
    let mut config = probed("m", vec![at("w0", address)]);
    config.load_reports.format = ReportChoice::None;
    let running = Running::start(vec![config]);
    eventually("healthy", || running.fleets.is_ready()).await;
    assert_eq!(running.fleets.rows()[0].report.state, "absent");
    assert!(!asked.load(Ordering::Relaxed));
}

#[tokio::test]
async fn a_probe_says_who_it_asks_and_a_new_worker_waits_for_its_first_good_one() {
    let status = Arc::new(AtomicU64::new(503));
    let heads = Arc::new(Mutex::new(Vec::new()));
    let (answer, probes) = (Arc::clone(&status), Arc::clone(&heads));
    let (address, _engine) = engine(move |head| {
        probes.lock().push(head.to_owned());
        Does::Answer(answer.load(Ordering::Relaxed) as u16, "x".to_owned())
    })
    .await;
    let mut config = probed("m", vec![at("w0", address)]);
    config.load_reports.format = ReportChoice::None;
    let running = Running::start(vec![config]);
    eventually("five probes", || 5 <= heads.lock().len()).await;
    assert!(!running.fleets.is_ready());
    status.store(204, Ordering::Relaxed);
    eventually("routable", || running.fleets.is_ready()).await;
    let head = heads.lock()[0].to_ascii_lowercase();
    assert!(head.starts_with("get /health http/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("host: {address}\r\n")), "{head}");
}

#[tokio::test]
async fn a_redirect_is_no_good_answer_and_nobody_goes_there() {
    let followed = Arc::new(AtomicBool::new(false));
    let was_followed = Arc::clone(&followed);
    let (other, _other) = engine(move |_| {
        was_followed.store(true, Ordering::Relaxed);
        Does::ok("")
    })
    .await;
    let probes = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&probes);
    let (address, _engine) = engine(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Does::Redirect(format!("http://{other}/health"))
    })
    .await;
    let mut config = probed("m", vec![at("w0", address)]);
    config.load_reports.format = ReportChoice::None;
    let running = Running::start(vec![config]);
    eventually("three probes", || 3 <= probes.load(Ordering::Relaxed)).await;
    assert!(!running.fleets.is_ready());
    assert!(!followed.load(Ordering::Relaxed));
}

#[tokio::test]
async fn a_worker_that_swallows_connections_goes_down_and_others_do_not_wait_for_it() {
    let swallow = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (good, _good) = engine(|_| Does::ok("")).await;
    let workers = vec![at("bad", swallow.local_addr().unwrap()), at("good", good)];
    let mut config = probed("m", workers);
    config.load_reports.format = ReportChoice::None;
    config.health.timeout = Duration::from_secs(30);
    let running = Running::start(vec![config]);
    let routable = |at: usize| running.model().workers()[at].live.is_routable();
    eventually("the good one", || routable(1)).await;
    assert!(!routable(0));
}

fn own_a_block(model: &ModelFleet) {
    let slot = model.workers()[0].slot;
    let mut credit = model.index.credit(slot, &[PrefixKey(1)]);
    credit.first_byte();
    credit.completed();
    assert_eq!(model.owned_blocks(&model.workers()[0]), 1);
}

#[tokio::test]
async fn a_worker_that_was_down_owns_nothing_when_it_is_back() {
    let ill = Arc::new(AtomicBool::new(false));
    let is_ill = Arc::clone(&ill);
    let (address, _engine) = engine(move |_| match is_ill.load(Ordering::Relaxed) {
        true => Does::Answer(500, String::new()),
        false => Does::ok(""),
    })
    .await;
    let mut config = probed("m", vec![at("w0", address)]);
    config.load_reports.format = ReportChoice::None;
    let running = Running::start(vec![config]);
    let (model, worker) = (running.model(), &running.model().workers()[0]);
    eventually("healthy", || worker.live.is_routable()).await;
    own_a_block(model);
    ill.store(true, Ordering::Relaxed);
    eventually("down", || !worker.live.is_routable()).await;
    assert_eq!(model.owned_blocks(worker), 1, "it may just be busy");
    ill.store(false, Ordering::Relaxed);
    eventually("back", || worker.live.is_routable()).await;
    assert_eq!(model.owned_blocks(worker), 0);
}

#[tokio::test]
async fn a_worker_that_refuses_connections_owns_nothing_and_its_load_is_unknown() {
    let (address, engine) = engine(|_| Does::ok(&get_load(0))).await;
    let running = Running::start(vec![probed("m", vec![at("w0", address)])]);
    let (model, worker) = (running.model(), &running.model().workers()[0]);
    eventually("healthy", || worker.live.is_routable()).await;
    eventually("a report", || waiting(model, "w0") == Some(0)).await;
    own_a_block(model);
    engine.abort();
    eventually("forgotten", || model.owned_blocks(worker) == 0).await;
    eventually("unknown", || waiting(model, "w0").is_none()).await;
    eventually("down", || !worker.live.is_routable()).await;
    let _engine = engine_at(address, |_| Does::ok(&get_load(5))).await;
    eventually("back", || worker.live.is_routable() && waiting(model, "w0") == Some(5)).await;
}

#[tokio::test]
async fn counters_that_go_back_mean_that_the_engine_restarted() {
    let tokens = Arc::new(AtomicU64::new(1_000));
    let counted = Arc::clone(&tokens);
    let (address, _engine) = engine(move |_| {
        let tokens = counted.load(Ordering::Relaxed);
        Does::ok(&format!(
            r#"{{"loads":[{{"dp_rank":0,"num_running_reqs":1,"num_waiting_reqs":2,
                "num_used_tokens":5,"max_total_num_tokens":2048,"token_usage":0.5,
                "max_running_requests":8,"num_waiting_uncached_tokens":700,
                "total_prefill_uncached_tokens":{tokens},"total_prefill_busy_us":{tokens}}}]}}"#
        ))
    })
    .await;
    let mut config = model("m", vec![at("w0", address)]);
    config.load_reports.format = ReportChoice::V1Loads;
    let running = Running::start(vec![config]);
    let (model, worker) = (running.model(), &running.model().workers()[0]);
    eventually("a report", || waiting(model, "w0") == Some(2)).await;
    assert_eq!(model.index.capacity(worker.slot), Some(2048 * 4 / 512));
    own_a_block(model);
    tokens.store(2_000, Ordering::Relaxed);
    let estimate = || fresh(model, "w0").and_then(|report| report.estimated_prefill_queue_ms);
    eventually("a speed", || estimate() == Some(0)).await;
    let speed = model.snapshot().workers()[0].speed.unwrap();
    assert_eq!(speed.tokens_per_second, 1_000_000);
    assert_eq!(model.owned_blocks(worker), 1);
    tokens.store(10, Ordering::Relaxed);
    eventually("forgotten", || model.owned_blocks(worker) == 0).await;
    eventually("no speed", || estimate().is_none()).await;
}

#[tokio::test]
async fn a_speed_measured_by_own_first_bytes_is_published_without_any_report() {
    let mut config = model("m", vec![nowhere("w0")]);
    config.load_reports.format = ReportChoice::None;
    let running = Running::start(vec![config]);
    let ledger = &running.model().workers()[0].live.ledger;
    for start in (0..10).map(|at| at * 1_000) {
        let ticket = ledger.dispatch(2_000, Streaming::Streamed, Millis(start));
        ledger.first_byte(&ticket, Millis(start + 500));
        ledger.finish(ticket, Millis(start + 500));
    }
    let measured = Speed { tokens_per_second: 4_000, source: SpeedSource::Measured };
    let speed = || running.model().snapshot().workers()[0].speed;
    eventually("4,000 tokens a second", || speed() == Some(measured)).await;
}

#[test]
fn a_large_fleet_is_published_less_often_and_often_enough() {
    let coalesce = |workers: usize| {
        let workers = (0..workers).map(|at| nowhere(&format!("w{at}"))).collect();
        still(model("m", workers)).coalesce().as_millis()
    };
    assert_eq!([0, 1, 200, 201, 1_000, 2_000].map(coalesce), [10, 10, 10, 20, 50, 50]);
}

#[test]
fn a_configured_capacity_and_speed_hold_from_the_start() {
    let mut config = nowhere("w0");
    config.kv_capacity_tokens = NonZeroU64::new(1_024);
    config.prefill_tps = NonZeroU64::new(7);
    let model = still(model("m", vec![config]));
    let worker = &model.workers()[0];
    assert_eq!(model.index.capacity(worker.slot), Some(1_024 * 4 / 512));
    let configured = Speed { tokens_per_second: 7, source: SpeedSource::Configured };
    assert_eq!(model.snapshot().workers()[0].speed, Some(configured));
}

#[test]
fn a_drifting_token_estimate_does_not_restart_what_responses_corrected() {
    let mut config = nowhere("w0");
    config.kv_capacity_tokens = NonZeroU64::new(102_400);
    let model = still(model("m", vec![config]));
    let slot = model.workers()[0].slot;
    model.index.reported(slot, 0, 1_000, 1_000);
    let corrected = model.index.capacity(slot);
    assert_eq!(corrected, Some(880));
    model.bytes_per_token.observed(3_000, 1_000);
    model.publish();
    assert_eq!(model.index.capacity(slot), corrected, "3.95 bytes are not news");
    (0..100).for_each(|_| model.bytes_per_token.observed(3_000, 1_000));
    model.publish();
    assert!(model.index.capacity(slot) < Some(620));
}

#[tokio::test]
async fn ages_and_unknown_numbers_are_right_when_the_page_is_read() {
    let (address, _engine) = engine(|_| Does::ok(&get_load(4))).await;
    let metrics = crate::metrics::Metrics::new().unwrap();
    let config = config(vec![model("m", vec![at("w0", address), nowhere("w1")])]);
    let fleets = Arc::new(crate::fleet::Fleets::new(&config, &metrics));
    let (in_force, seen) = tokio::sync::watch::channel(Arc::clone(&fleets));
    let tasks = tokio::spawn(crate::fleet::run(seen, std::future::pending()));
    eventually("a report", || waiting(&fleets.models()[0], "w0") == Some(4)).await;
    fleets.refresh_metrics();
    let page = metrics.page().unwrap();
    for line in [
        r#"tidegate_worker_queue_waiting{model="m",worker="w0"} 4"#,
        r#"tidegate_report_state{model="m",state="fresh",worker="w0"} 1"#,
        r#"tidegate_report_state{model="m",state="never",worker="w1"} 1"#,
        r#"tidegate_report_age_seconds{model="m",worker="w0"}"#,
        r#"tidegate_breaker_state{worker="w1"} 0"#,
        r#"tidegate_bytes_per_token{model="m"} 4"#,
    ] {
        assert!(page.contains(line), "{line} is not in {page}");
    }
    assert!(!page.contains(r#"tidegate_worker_queue_waiting{model="m",worker="w1"}"#));
    tasks.abort();
    let _ = tasks.await;
    drop((fleets, in_force));
    assert!(!metrics.page().unwrap().contains("w0"), "series leave with their worker");
}
