//! One worker and its guards.

use super::support::*;
use crate::fleet::clock::Clock;
use crate::fleet::scrape::PollOutcome;
use crate::fleet::{BreakerState, Fleets, ModelFleet, Whose, Worker, WorkerAddress};
use crate::metrics::{Metrics, Outcome};
use parking_lot::Mutex;
use std::num::{NonZeroU32, NonZeroU64};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Wake};
use std::time::Duration;
use tidegate_policy::fleet::{Millis, Slot};
use tidegate_policy::ledger::Streaming;

const COOL_DOWN: u64 = 1_000;

/// A fleet by a clock that somebody sets.
fn timed(model: crate::config::Model) -> (Arc<ModelFleet>, Arc<AtomicU64>) {
    let time = Arc::<AtomicU64>::default();
    let clock = Clock::Set(Arc::clone(&time));
    let fleets = Fleets::with_clock(&config(vec![model]), &Metrics::new().unwrap(), clock);
    (Arc::clone(&fleets.models()[0]), time)
}

/// Each worker has so many waiting.
fn reported(fleet: &ModelFleet, time: &AtomicU64, waiting: u64) {
    for worker in fleet.workers() {
        let sent = worker.asked();
        let report = tidegate_reports::parse(get_load(waiting).as_bytes(), None).unwrap();
        worker.answered(sent, PollOutcome::Report(report));
    }
    time.fetch_add(1, Ordering::Relaxed);
    fleet.publish();
}

fn one(model: &ModelFleet) -> Arc<Worker> {
    Arc::clone(&model.workers()[0])
}

fn ended(worker: &Arc<Worker>, outcome: Outcome) {
    worker.try_dispatch(Whose::Pinned).expect("is routable").settle(outcome);
}

#[test]
fn a_worker_at_max_inflight_is_not_routable_until_a_guard_is_dropped() {
    let mut config = nowhere("w0");
    config.max_inflight = NonZeroU32::new(2);
    let worker = one(&still(model("m", vec![config])));
    let first = worker.try_dispatch(Whose::Pinned).unwrap();
    assert!(worker.live.is_routable());
    let second = worker.try_dispatch(Whose::Pinned).unwrap();
    assert!(!worker.live.is_routable());
    assert!(worker.try_dispatch(Whose::Pinned).is_none());
    drop(first);
    assert!(worker.live.is_routable());
    second.settle(Outcome::Ok);
    assert_eq!(worker.standing().in_flight, 0);
}

#[test]
fn a_draining_worker_takes_nothing_new_and_finishes_what_it_has() {
    let fleets = fleets(vec![model("m", vec![nowhere("w0")])]);
    let worker = one(&fleets.models()[0]);
    let old = worker.try_dispatch(Whose::Pinned).unwrap();
    worker.drain();
    assert!(worker.try_dispatch(Whose::Pinned).is_none());
    assert!(!worker.live.is_routable());
    assert_eq!(worker.standing().in_flight, 1);
    old.settle(Outcome::Ok);
    worker.activate();
    assert!(worker.live.is_routable());
}

#[test]
fn client_errors_busy_answers_and_aborts_never_take_a_worker_out() {
    let worker = one(&still(model("m", vec![nowhere("w0")])));
    for _ in 0..40 {
        ended(&worker, Outcome::ClientError);
        ended(&worker, Outcome::WorkerBusy);
        ended(&worker, Outcome::Cancelled);
        drop(worker.try_dispatch(Whose::Pinned).unwrap());
    }
    assert_eq!(worker.standing().breaker, BreakerState::Closed);
    assert!(worker.live.is_routable());
}

#[test]
fn failures_in_a_row_take_a_worker_out_of_the_fleet() {
    for outcome in [Outcome::WorkerError, Outcome::Unreachable, Outcome::Timeout] {
        let worker = one(&still(model("m", vec![nowhere("w0")])));
        for _ in 0..3 {
            assert!(worker.live.is_routable());
            ended(&worker, outcome);
        }
        assert!(!worker.live.is_routable());
        assert!(worker.try_dispatch(Whose::Pinned).is_none());
    }
}

#[tokio::test]
async fn after_the_cool_down_one_request_at_a_time_may_try_without_any_traffic_before() {
    let mut config = model("m", vec![nowhere("w0")]);
    config.load_reports.format = crate::config::ReportChoice::None;
    config.breaker.cool_down = Duration::from_millis(50);
    let running = Running::start(vec![config]);
    let worker = one(running.model());
    for _ in 0..3 {
        ended(&worker, Outcome::WorkerError);
    }
    assert!(!worker.live.is_routable());
    eventually("routable again", || worker.live.is_routable()).await;
    let probe = worker.try_dispatch(Whose::Pinned).unwrap();
    assert!(!worker.live.is_routable());
    assert!(worker.try_dispatch(Whose::Pinned).is_none(), "the probe is out");
    drop(probe);
    assert!(worker.live.is_routable(), "an aborted probe frees the probe");
    ended(&worker, Outcome::Ok);
    assert_eq!(worker.standing().breaker, BreakerState::Closed);
}

#[test]
fn only_503_counts_for_a_wedged_worker() {
    let mut config = model("m", vec![nowhere("w0")]);
    config.breaker.wedged_after = Duration::ZERO;
    let worker = one(&still(config));
    let mut busy = worker.try_dispatch(Whose::Pinned).unwrap();
    busy.answered(429);
    busy.settle(Outcome::WorkerBusy);
    assert_eq!(worker.standing().breaker, BreakerState::Closed);
    let mut wedged = worker.try_dispatch(Whose::Pinned).unwrap();
    wedged.answered(503);
    wedged.settle(Outcome::WorkerBusy);
    assert_eq!(worker.standing().breaker, BreakerState::Open);
}

#[test]
fn attempts_are_counted_by_outcome_and_a_dropped_guard_is_a_cancelled_one() {
    let metrics = Metrics::new().unwrap();
    let config = config(vec![model("m", vec![nowhere("w0")])]);
    let fleets = crate::fleet::Fleets::new(&config, &metrics);
    let worker = one(&fleets.models()[0]);
    ended(&worker, Outcome::Ok);
    drop(worker.try_dispatch(Whose::Pinned));
    let held = worker.try_dispatch(Whose::Pinned);
    let page = metrics.page().unwrap();
    for line in [
        r#"tidegate_worker_requests_total{outcome="ok",worker="w0"} 1"#,
        r#"tidegate_worker_requests_total{outcome="cancelled",worker="w0"} 1"#,
        r#"tidegate_in_flight{worker="w0"} 1"#,
    ] {
        assert!(page.contains(line), "{line} is not in {page}");
    }
    drop(held);
}

#[test]
fn many_threads_leave_the_count_at_zero() {
    let worker = one(&still(model("m", vec![nowhere("w0")])));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1_000).for_each(|_| drop(worker.try_dispatch(Whose::Pinned))));
        }
    });
    assert_eq!(worker.standing().in_flight, 0);
}

#[test]
fn workers_are_found_by_their_slot_and_no_other() {
    let fleet = still(model("m", vec![nowhere("b"), nowhere("a")]));
    for worker in fleet.workers() {
        assert_eq!(fleet.worker(worker.slot).unwrap().id, worker.id);
        let snapshot = fleet.snapshot();
        let row = &snapshot.workers()[snapshot.at(worker.slot).unwrap()];
        assert_eq!(row.id, worker.id);
    }
    assert!(fleet.worker(Slot(999)).is_none());
}

#[test]
fn models_are_found_by_name_alias_and_star() {
    let mut first = model("first", vec![nowhere("w0")]);
    first.aliases = vec!["also".to_owned()];
    let only = fleets(vec![first.clone()]);
    assert_eq!(only.lookup("also").unwrap().config.name, "first");
    assert!(only.lookup("other").is_none());
    assert_eq!(only.default_model().unwrap().config.name, "first", "the only one is the default");

    let two = fleets(vec![first.clone(), model("*", vec![nowhere("w1")])]);
    assert_eq!(two.lookup("anything").unwrap().config.name, "*");
    assert_eq!(two.lookup("first").unwrap().config.name, "first");
    assert!(two.default_model().is_none());

    first.aliases = vec!["default".to_owned()];
    let two = fleets(vec![model("second", vec![nowhere("w1")]), first]);
    assert_eq!(two.default_model().unwrap().config.name, "first");
}

#[test]
fn a_model_with_decode_workers_only_is_not_ready() {
    let mut decode = nowhere("w0");
    decode.role = tidegate_policy::fleet::Role::Decode;
    assert!(!fleets(vec![model("m", vec![decode.clone()])]).is_ready());
    let ready = fleets(vec![model("m", vec![decode, nowhere("w1")])]);
    assert!(ready.is_ready());
    ready.models()[0].workers()[1].drain();
    assert!(!ready.is_ready());
}

#[test]
fn a_unix_socket_needs_no_resolver_and_a_name_does() {
    use crate::config::WorkerHost;
    let fleet = still(model(
        "m",
        vec![
            worker("u", WorkerHost::Unix("/run/engine.sock".into())),
            worker("n", WorkerHost::Name { host: "engine".to_owned(), port: 80 }),
        ],
    ));
    let [unix, name] = fleet.workers() else { panic!("two workers") };
    let path = std::path::Path::new("/run/engine.sock");
    assert_eq!(unix.address(), Some(WorkerAddress::Unix(path.into())));
    assert!(unix.live.is_routable());
    assert_eq!(name.address(), None);
    assert!(!name.live.is_routable());
    assert!(name.try_dispatch(Whose::Pinned).is_none());
}

#[test]
fn rows_have_the_shape_operators_are_promised() {
    let fleets = fleets(vec![model("m", vec![nowhere("w0")])]);
    let rows = serde_json::to_value(fleets.rows()).unwrap();
    let expected = serde_json::json!([{
        "id": "w0", "model": "m", "url": "http://127.0.0.1:9", "role": "plain", "state": "active",
        "healthy": true, "breaker": "closed", "in_flight": 0, "owned_blocks": 0,
        "report": {
            "state": "never", "age_ms": null, "waiting": null, "running": null, "kv_usage": null
        }
    }]);
    assert_eq!(rows, expected);
}

#[test]
fn a_probe_that_is_out_is_worth_waiting_for_and_an_open_breaker_is_not() {
    let mut config = model("m", vec![nowhere("w0")]);
    config.breaker.cool_down = Duration::from_millis(COOL_DOWN);
    let (fleet, time) = timed(config);
    let worker = one(&fleet);
    for _ in 0..3 {
        ended(&worker, Outcome::WorkerError);
    }
    assert!(!fleet.is_worth_waiting_for(), "nothing it has can bring it back");
    time.store(COOL_DOWN, Ordering::Relaxed);
    let probe = worker.try_dispatch(Whose::Pinned).unwrap();
    assert!(worker.try_dispatch(Whose::Waiting).is_none());
    assert!(fleet.is_worth_waiting_for());
    probe.settle(Outcome::WorkerError);
    assert!(!fleet.is_worth_waiting_for());
}

#[test]
fn a_report_below_the_limit_lets_in_as_many_as_bring_the_queue_back_to_it() {
    let mut config = model("m", vec![nowhere("w0"), nowhere("w1")]);
    config.shed_queue_limit = NonZeroU64::new(5);
    let (fleet, time) = timed(config);
    let reported = |waiting| reported(&fleet, &time, waiting);
    // However many would come at once.
    let let_in = || {
        let mut tickets = Vec::new();
        while !fleet.is_saturated() && tickets.len() < 100 {
            // In turn, as least load would.
            let worker = &fleet.workers()[tickets.len() % 2];
            let now = fleet.clock.now();
            tickets.push(worker.live.ledger.dispatch(9, Streaming::Streamed, now));
        }
        tickets.len()
    };
    reported(5);
    assert_eq!(let_in(), 0);
    reported(3);
    assert_eq!(let_in(), 4, "two more at each");
    assert_eq!(let_in(), 0);
    reported(4);
    assert_eq!(let_in(), 2, "what was sent before the report is in it");
}

/// Looks, the moment it is woken, whether its fleet is saturated.
struct Looks {
    fleet: Arc<ModelFleet>,
    seen: Mutex<Vec<bool>>,
}

impl Wake for Looks {
    fn wake(self: Arc<Self>) {
        self.seen.lock().push(self.fleet.is_saturated());
    }
}

#[test]
fn who_waits_for_a_report_is_told_when_nothing_of_it_is_counted_twice() {
    let mut config = model("m", vec![nowhere("w0")]);
    config.shed_queue_limit = NonZeroU64::new(5);
    let (fleet, time) = timed(config);
    reported(&fleet, &time, 4);
    let _ticket = fleet.workers()[0].live.ledger.dispatch(9, Streaming::Streamed, Millis(1));
    assert!(fleet.is_saturated());
    let place = fleet.queue.join(None, 1).unwrap();
    let looks = Arc::new(Looks { fleet: Arc::clone(&fleet), seen: Mutex::default() });
    let waker = Arc::clone(&looks).into();
    let mut told = pin!(place.changed());
    assert!(told.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    // Nobody tells again before the next report.
    reported(&fleet, &time, 4);
    assert_eq!(*looks.seen.lock(), [false]);
}
