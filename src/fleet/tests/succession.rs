//! Fleets of one configuration after another.

use super::support::*;
use crate::config::{self, ReportChoice};
use crate::fleet::{BreakerState, Fleets, ModelFleet, Whose, Worker};
use crate::metrics::{Metrics, Outcome};
use futures_util::FutureExt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidegate_policy::prefix::PrefixKey;

/// Fleets in force, and how many there were before.
struct Line {
    metrics: Metrics,
    now: Arc<Fleets>,
}

impl Line {
    fn start(models: Vec<config::Model>) -> Self {
        let metrics = Metrics::new().unwrap();
        let now = Arc::new(Fleets::new(&config(models), &metrics));
        Self { metrics, now }
    }

    /// The fleets before.
    fn reload(&mut self, models: Vec<config::Model>) -> Arc<Fleets> {
        self.reload_all(config(models))
    }

    fn reload_all(&mut self, config: config::Config) -> Arc<Fleets> {
        let next = Arc::new(self.now.next(&config, &self.metrics));
        let before = std::mem::replace(&mut self.now, next);
        before.supersede(&self.now);
        before
    }

    fn model(&self) -> &Arc<ModelFleet> {
        &self.now.models()[0]
    }

    fn worker(&self, id: &str) -> Arc<Worker> {
        let mut workers = self.model().workers().iter();
        Arc::clone(workers.find(|worker| worker.id.as_str() == id).unwrap())
    }

    fn states(&self) -> Vec<(String, &'static str)> {
        self.now.rows().into_iter().map(|row| (row.id, row.state)).collect()
    }

    fn page(&self) -> String {
        self.now.refresh_metrics();
        self.metrics.page().unwrap()
    }
}

fn own(model: &ModelFleet, worker: &Worker, blocks: u64) {
    let keys: Vec<PrefixKey> = (1..=blocks).map(PrefixKey).collect();
    model.index.credit(worker.slot, &keys).completed();
    assert_eq!(model.owned_blocks(worker), blocks);
}

fn two() -> Vec<config::Model> {
    vec![model("m", vec![nowhere("w0"), nowhere("w1")])]
}

#[test]
fn what_is_known_of_a_worker_outlives_a_reload_and_new_settings_hold() {
    let mut line = Line::start(two());
    let worker = line.worker("w0");
    own(line.model(), &worker, 3);
    line.model().bytes_per_token.observed(3_000, 1_000);
    let estimate = line.model().bytes_per_token.get();
    let turn = line.model().turn();
    let stream = worker.try_dispatch(Whose::Pinned).unwrap();
    for _ in 0..2 {
        worker.try_dispatch(Whose::Pinned).unwrap().settle(Outcome::WorkerError);
    }
    let mut models = two();
    models[0].workers[0].max_inflight = NonZeroU32::new(1);
    models[0].breaker.threshold = NonZeroU32::new(9).unwrap();
    line.reload(models);
    let kept = line.worker("w0");
    assert_eq!((kept.slot, kept.standing().in_flight), (worker.slot, 1));
    assert!(!kept.live.is_routable(), "it is at its new limit");
    assert_eq!(line.model().owned_blocks(&kept), 3);
    assert!((line.model().bytes_per_token.get() - estimate).abs() < f64::EPSILON);
    assert_eq!(line.model().turn(), turn + 1);
    stream.settle(Outcome::WorkerError);
    assert_eq!(kept.standing().breaker, BreakerState::Closed, "three failures of nine");
    line.reload(two());
    line.worker("w0").try_dispatch(Whose::Pinned).unwrap().settle(Outcome::WorkerError);
    assert_eq!(line.worker("w0").standing().breaker, BreakerState::Open, "four of three");
}

#[test]
fn a_removed_worker_finishes_what_it_has_and_leaves_nothing_behind() {
    let mut line = Line::start(two());
    let gone = line.worker("w1");
    own(line.model(), &gone, 2);
    let stream = gone.try_dispatch(Whose::Pinned).unwrap();
    let before = line.reload(vec![model("m", vec![nowhere("w0")])]);
    drop(gone);
    assert_eq!(line.states(), [("w0".to_owned(), "active"), ("w1".to_owned(), "removed")]);
    assert_eq!(line.model().index.stats().entries, 2);
    assert!(line.page().contains(r#"tidegate_in_flight{worker="w1"} 1"#));
    stream.settle(Outcome::Ok);
    assert_eq!(line.states(), [("w0".to_owned(), "active")]);
    assert_eq!(line.model().index.stats().entries, 0);
    assert!(!line.page().contains("w1"), "also while requests keep the configuration before");
    drop(before);
}

#[test]
fn a_removed_worker_without_requests_is_gone_at_once() {
    let mut line = Line::start(two());
    own(line.model(), &line.worker("w1"), 2);
    line.page();
    let _before = line.reload(vec![model("m", vec![nowhere("w0")])]);
    assert_eq!(line.states(), [("w0".to_owned(), "active")]);
    assert_eq!(line.model().index.stats().entries, 0);
    assert!(!line.page().contains("w1"));
}

#[test]
fn who_waits_is_let_out_to_no_worker_that_was_removed_and_who_does_not_holds_on_to_it() {
    let mut line = Line::start(two());
    let [finishing, idle] = ["w0", "w1"].map(|id| line.worker(id));
    let stream = finishing.try_dispatch(Whose::Waiting).unwrap();
    line.reload(vec![model("m", vec![nowhere("w2")])]);
    for removed in [&finishing, &idle] {
        assert!(removed.try_dispatch(Whose::Waiting).is_none(), "{}", removed.id);
        drop(removed.try_dispatch(Whose::Pinned).unwrap());
    }
    line.reload(two());
    assert!(finishing.try_dispatch(Whose::Waiting).is_some(), "it is back");
    assert!(idle.try_dispatch(Whose::Waiting).is_none(), "it had left");
    drop(stream);
}

#[tokio::test]
async fn who_is_called_is_woken_when_another_configuration_is_in_force() {
    let mut line = Line::start(two());
    let place = line.model().queue.join(None, 1).unwrap();
    let before = Arc::clone(line.model());
    let next = vec![model("n", vec![nowhere("w0")])];
    // Somebody is told whatever the next one has, once it is in force and not before.
    line.reload(next);
    assert!(place.changed().now_or_never().is_some());
    assert!(!line.model().continues(&before));
    line.reload(two());
    assert!(!line.model().continues(&before), "it was gone");
}

#[test]
fn a_worker_put_back_while_it_finishes_is_the_same_one() {
    let mut line = Line::start(two());
    let worker = line.worker("w1");
    own(line.model(), &worker, 2);
    let stream = worker.try_dispatch(Whose::Pinned).unwrap();
    drop(worker);
    line.reload(vec![model("m", vec![nowhere("w0")])]);
    line.reload(two());
    let back = line.worker("w1");
    assert_eq!((back.standing().in_flight, line.model().owned_blocks(&back)), (1, 2));
    stream.settle(Outcome::Ok);
    assert_eq!(line.model().owned_blocks(&back), 2, "it has not left");
    assert_eq!(line.states()[1].1, "active");
    assert!(back.try_dispatch(Whose::Pinned).is_some());
}

#[test]
fn another_url_is_another_worker_and_the_old_one_finishes_beside_it() {
    let mut line = Line::start(two());
    let old = line.worker("w1");
    own(line.model(), &old, 2);
    let stream = old.try_dispatch(Whose::Pinned).unwrap();
    let moved = at("w1", "127.0.0.1:10".parse().unwrap());
    line.reload(vec![model("m", vec![nowhere("w0"), moved])]);
    let new = line.worker("w1");
    assert_ne!(new.slot, old.slot);
    assert_eq!((new.standing().in_flight, line.model().owned_blocks(&new)), (0, 0));
    let states = line.states();
    assert_eq!(states[1..], [("w1".to_owned(), "active"), ("w1".to_owned(), "removed")]);
    new.try_dispatch(Whose::Pinned).unwrap().settle(Outcome::Ok);
    drop(old);
    stream.settle(Outcome::Ok);
    let page = line.page();
    assert!(page.contains(r#"tidegate_worker_owned_blocks{model="m",worker="w1"} 0"#), "{page}");
    assert!(page.contains(r#"tidegate_worker_requests_total{outcome="ok",worker="w1"} 2"#));
}

#[test]
fn the_operators_drain_lasts_until_the_file_says_something_else() {
    let mut line = Line::start(two());
    line.worker("w0").drain();
    line.reload(two());
    assert!(line.worker("w0").standing().draining, "the file says what it said");
    let mut draining = two();
    draining[0].workers.iter_mut().for_each(|worker| worker.draining = true);
    line.reload(draining.clone());
    assert!(line.worker("w1").standing().draining);
    line.worker("w1").activate();
    line.reload(draining);
    assert!(!line.worker("w1").standing().draining, "the file says what it said");
    line.reload(two());
    assert!(!line.worker("w0").standing().draining);
}

#[test]
fn a_request_of_an_earlier_configuration_sees_its_own_workers_and_settings() {
    let mut line = Line::start(two());
    let mut models = vec![model("m", vec![nowhere("w0"), nowhere("w2")])];
    models[0].workers[0].weight = NonZeroU32::new(5).unwrap();
    let before = line.reload(models);
    let old = before.models()[0].snapshot();
    let ids: Vec<&str> = old.workers().iter().map(|worker| worker.id.as_str()).collect();
    assert_eq!(ids, ["w0", "w1"]);
    assert_eq!(old.workers()[0].weight, 1);
    assert_eq!(line.model().snapshot().workers()[0].weight, 5);
    let late = before.models()[0].workers()[1].try_dispatch(Whose::Pinned).unwrap();
    assert_eq!(line.states()[2], ("w1".to_owned(), "removed"));
    late.settle(Outcome::Ok);
    assert_eq!(line.states().len(), 2);
}

#[test]
fn a_model_that_is_gone_takes_its_workers_with_it() {
    let mut line =
        Line::start(vec![model("m", vec![nowhere("w0")]), model("n", vec![nowhere("v0")])]);
    let stream = line.now.models()[1].workers()[0].try_dispatch(Whose::Pinned).unwrap();
    line.reload(vec![model("m", vec![nowhere("w0")])]);
    let rows = line.now.rows();
    assert_eq!((rows[1].model.as_str(), rows[1].state), ("n", "removed"));
    drop(stream);
    assert_eq!(line.now.rows().len(), 1);
    assert!(!line.page().contains("v0"));
}

#[test]
fn blocks_of_another_size_begin_anew_and_a_smaller_index_holds_less() {
    let mut line = Line::start(two());
    own(line.model(), &line.worker("w0"), 600);
    let mut smaller = config(two());
    smaller.index.max_entries = 100;
    line.reload_all(smaller.clone());
    assert_eq!(line.model().index.stats().entries, 100);
    let capacity = line.model().index.capacity(line.worker("w0").slot).unwrap();
    smaller.index.block_bytes = 256;
    line.reload_all(smaller);
    assert_eq!(line.model().index.stats().entries, 0);
    assert_eq!(line.model().index.capacity(line.worker("w0").slot), Some(2 * capacity));
}

#[test]
fn health_is_kept_and_follows_its_settings() {
    let mut line = Line::start(vec![probed("m", vec![nowhere("w0")])]);
    assert!(!line.worker("w0").standing().healthy);
    line.worker("w0").lasting.probed(true);
    line.reload(vec![probed("m", vec![nowhere("w0"), nowhere("w1")])]);
    assert!(line.worker("w0").standing().healthy);
    assert!(!line.worker("w1").standing().healthy, "a new one waits for its first probe");
    line.reload(vec![model("m", vec![nowhere("w0"), nowhere("w1")])]);
    assert!(line.worker("w1").live.is_routable(), "nobody probes any more");
}

#[test]
fn new_workers_are_trusted_only_if_nobody_else_could_serve() {
    let mut line = Line::start(vec![probed("m", vec![nowhere("w0")])]);
    let routable = |line: &Line, id: &str| line.worker(id).live.is_routable();
    line.reload(vec![probed("m", vec![nowhere("w1")])]);
    assert!(!routable(&line, "w1"), "nobody could serve before either");
    line.worker("w1").lasting.probed(true);
    line.reload(vec![probed("m", vec![nowhere("w1"), nowhere("w2")])]);
    assert!(!routable(&line, "w2"), "the other one serves");
    line.reload(vec![probed("m", vec![nowhere("w3")])]);
    assert!(routable(&line, "w3"));
    line.worker("w3").lasting.probed(false);
    assert!(!routable(&line, "w3"));
}

#[tokio::test]
async fn polls_go_on_as_they_were_and_change_with_their_settings() {
    let polls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&polls);
    let (address, _engine) = engine(move |head| {
        if !head.starts_with("GET /get_load ") {
            return Does::Answer(404, String::new());
        }
        counted.fetch_add(1, Ordering::Relaxed);
        Does::ok(&get_load(3))
    })
    .await;
    let mut slow = model("m", vec![at("w0", address)]);
    slow.load_reports.interval = Duration::from_secs(3_000);
    let metrics = Metrics::new().unwrap();
    let first = Arc::new(Fleets::new(&config(vec![slow.clone()]), &metrics));
    let (in_force, seen) = tokio::sync::watch::channel(Arc::clone(&first));
    let tasks = tokio::spawn(crate::fleet::run(seen, std::future::pending()));
    let fresh = |fleets: &Fleets| fleets.rows()[0].report.state == "fresh";
    eventually("a report", || fresh(&first)).await;

    let put = |before: &Arc<Fleets>, model: config::Model| {
        let next = Arc::new(before.next(&config(vec![model]), &metrics));
        before.supersede(&next);
        in_force.send_replace(Arc::clone(&next));
        next
    };
    let second = put(&first, slow.clone());
    assert!(fresh(&second), "known without another poll");
    assert_eq!(polls.load(Ordering::Relaxed), 1);

    slow.load_reports.interval = Duration::from_millis(2);
    let third = put(&second, slow.clone());
    eventually("many polls", || 9 < polls.load(Ordering::Relaxed)).await;
    slow.load_reports.format = ReportChoice::None;
    let fourth = put(&third, slow);
    eventually("no report", || fourth.rows()[0].report.state == "absent").await;
    tasks.abort();
}
