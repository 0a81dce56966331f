//! The saturation pin over sockets: owner fresh or unknown, the other one fresh or unknown, and
//! both boundaries. Counters rise exactly when the rules say so.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use support::client::{chat, post};
use support::edge::{Edge, workers};
use support::engine::{Engine, Reply};
use support::until;

const LIMIT: u64 = 4;
const FLOOR: u64 = 2;

/// Two workers, of which the first one asked becomes the owner of [`prompt`].
struct Scene {
    edge: Edge,
    owner: Engine,
    other: Engine,
    owner_id: String,
}

fn prompt() -> String {
    chat("m", &"the quick brown fox jumps over the lazy dog ".repeat(300))
}

impl Scene {
    async fn new() -> Self {
        let engines = [Engine::start().await, Engine::start().await];
        for engine in &engines {
            engine.set_queue(0, 0);
            engine.answer(|_| Reply::completion());
        }
        let urls: Vec<String> = engines.iter().map(Engine::url).collect();
        let yaml = format!(
            "  load_reports: {{interval: 20ms, timeout: 400ms, max_age: 2s, format: get_load}}\n  models:\n    - name: m\n      policy: cache_aware\n      \
             cache_aware: {{worker_queue_limit: {LIMIT}, saturation_queue_floor: {FLOOR}, min_matched_tokens: 256}}\n      workers:\n{}",
            workers(&urls)
        );
        let edge = Edge::start(&yaml).await;
        edge.reports_are("fresh").await;
        let first = post(edge.traffic, "/v1/chat/completions", &prompt()).await;
        assert_eq!(first.status, 200, "{}", first.text());
        assert_eq!(first.header("x-tidegate-decision"), Some("home"));
        edge.booked(1).await;
        let owner_id = first.header("x-tidegate-worker").unwrap().to_owned();
        let [zero, one] = engines;
        let (owner, other) = if owner_id == "w0" { (zero, one) } else { (one, zero) };
        Self { edge, owner, other, owner_id }
    }

    /// Sets both queues (`None` = no report) and waits until the edge has seen them.
    async fn queues(&self, owner: Option<u64>, other: Option<u64>) {
        for (engine, queue) in [(&self.owner, owner), (&self.other, other)] {
            match queue {
                Some(waiting) => engine.set_queue(waiting, 8),
                None => engine.set_load(None),
            }
        }
        until("the queues at the edge", || async {
            let rows = self.edge.workers().await;
            let seen = |row: &serde_json::Value| {
                let queue = if row["id"] == self.owner_id.as_str() { owner } else { other };
                match queue {
                    Some(waiting) => {
                        row["report"]["state"] == "fresh" && row["report"]["waiting"] == waiting
                    }
                    None => row["report"]["state"] != "fresh",
                }
            };
            rows.iter().all(seen).then_some(())
        })
        .await;
    }

    /// Sends the owned prompt; checks where it went, why, and that exactly the right counters rose.
    async fn goes(&self, to_owner: bool, reason: &str) {
        let ended = self.edge.ended().await;
        let before = self.edge.metrics().await;
        let answer = post(self.edge.traffic, "/v1/chat/completions", &prompt()).await;
        let went = (
            answer.header("x-tidegate-worker") == Some(self.owner_id.as_str()),
            answer.header("x-tidegate-decision").unwrap_or_default(),
        );
        assert_eq!(went, (to_owner, reason));
        let after = self.edge.booked(ended + 1).await;
        let rose = |name, labels: &[&str]| after.sum(name, labels) - before.sum(name, labels);
        let pins = f64::from(u8::from(reason == "saturation_pin"));
        assert_eq!(rose("tidegate_saturation_pins_total", &["model=\"m\""]), pins);
        assert_eq!(rose("tidegate_policy_decisions_total", &["reason=\"saturation_pin\""]), pins);
        let label = format!("reason=\"{reason}\"");
        assert_eq!(rose("tidegate_policy_decisions_total", &[&label]), 1.0);
        assert_eq!(rose("tidegate_policy_decisions_total", &[]), 1.0);
        assert_eq!(rose("tidegate_cache_aware_decisions_total", &[]), 1.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_fresh_and_other_fresh_at_both_boundaries() {
    let scene = Scene::new().await;
    // One below the limit: the gate is open.
    scene.queues(Some(LIMIT - 1), Some(0)).await;
    scene.goes(true, "cache_candidate").await;
    // At the limit, and somebody is one below the floor: diverting pays.
    scene.queues(Some(LIMIT), Some(FLOOR - 1)).await;
    scene.goes(false, "diverted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_at_the_floor_pins() {
    let scene = Scene::new().await;
    scene.queues(Some(LIMIT), Some(FLOOR)).await;
    scene.goes(true, "saturation_pin").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_fresh_and_other_unknown_pins_because_unknown_is_not_idle() {
    let scene = Scene::new().await;
    scene.queues(Some(LIMIT), None).await;
    scene.goes(true, "saturation_pin").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_unknown_and_other_fresh_keeps_affinity_because_the_gate_fails_open() {
    let scene = Scene::new().await;
    scene.queues(None, Some(0)).await;
    scene.goes(true, "cache_candidate").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_unknown_keeps_affinity() {
    let scene = Scene::new().await;
    scene.queues(None, None).await;
    scene.goes(true, "cache_candidate").await;
}
