//! One process follows another: what is kept, and who is told.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use nix::sys::signal::Signal;
use serde_json::json;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use support::client::{Connection, chat, post, request};
use support::edge::{Edge, binary, free_address, model, send};
use support::engine::engines;
use support::until;
use tidegate::handover::VERSION;
use tidegate::simulate::client::{Chat, ChatClient, Message};
use tidegate::simulate::server::{FleetConfig, SimulatedFleet};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

const CHAT: &str = "/v1/chat/completions";

/// Prompts long enough to have an owner.
fn workload() -> Vec<Chat> {
    let chat = |at| Chat {
        model: "m".to_owned(),
        messages: vec![Message {
            role: "user",
            text: format!("conversation {at} begins here. ").repeat(250),
        }],
        output_tokens: 2,
    };
    (0..24).map(chat).collect()
}

/// Cached share of the workload's prompt tokens.
async fn hit_rate(edge: &Edge, fleet: &SimulatedFleet) -> f64 {
    let client = ChatClient::new(edge.traffic, fleet.clock(), Duration::from_secs(20));
    let (mut cached, mut prompt) = (0, 0);
    for chat in workload() {
        let outcome = client.send(&chat).await;
        assert_eq!(outcome.failure, None);
        cached += outcome.cached_tokens;
        prompt += outcome.prompt_tokens;
    }
    cached as f64 / prompt as f64
}

/// Six simulated workers and an edge that has sent everything to one of them: nobody could guess
/// which from the prompts. Its `keys` go under `tidegate:`.
async fn taught(keys: &str) -> (SimulatedFleet, Edge, String, f64) {
    let config = FleetConfig { model: "m".to_owned(), ..FleetConfig::default() };
    let fleet = SimulatedFleet::start(6, config).await.unwrap();
    let urls: Vec<String> = fleet.addresses().iter().map(|at| format!("http://{at}")).collect();
    let body = format!("{keys}{}", model(&[], &urls));
    let edge = Edge::start(&body).await;
    edge.all_healthy().await;
    let others = ["w0", "w1", "w2", "w4", "w5"];
    for id in others {
        edge.post(&format!("/v1/workers/{id}/drain")).await;
    }
    hit_rate(&edge, &fleet).await;
    for id in others {
        edge.post(&format!("/v1/workers/{id}/activate")).await;
    }
    let before = hit_rate(&edge, &fleet).await;
    assert!(0.9 < before, "{before}");
    // What an answer teaches is learned after the client has it.
    edge.booked(2 * workload().len()).await;
    (fleet, edge, body, before)
}

async fn estimate(edge: &Edge) -> f64 {
    edge.metrics().await.sum("tidegate_bytes_per_token", &["model=\"m\""])
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_keeps_owners_estimates_and_what_operators_said() {
    let (fleet, mut edge, body, before) = taught("").await;
    edge.post("/v1/workers/w5/drain").await;
    let estimated = estimate(&edge).await;
    let blocks = |rows: Vec<serde_json::Value>| {
        rows.iter().map(|row| row["owned_blocks"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let owned = blocks(edge.workers().await);
    let old = edge.serving().await;
    let new = edge.upgraded().await;
    assert_eq!(edge.admin("/v1/config").await.json()["took_over_from"], old);
    assert_eq!(edge.exit_code().await, Some(0), "the old one");
    edge.is_alone(new).await;
    assert_eq!(estimate(&edge).await, estimated);
    let rows = edge.workers().await;
    assert_eq!(rows[5]["state"], "draining");
    assert!(rows.iter().all(|row| row["healthy"] == true), "known to be well: {rows:?}");
    assert_eq!(blocks(rows), owned);
    let after = hit_rate(&edge, &fleet).await;
    // The same upgrade without what is handed over.
    let knows_nothing = Edge::start(&body).await;
    knows_nothing.all_healthy().await;
    let cold = hit_rate(&knows_nothing, &fleet).await;
    println!("hit rate {before:.3}, after an upgrade {after:.3}, of a new process {cold:.3}");
    assert!(0.98 * before <= after, "{before} {after}");
    assert!(cold < 0.5, "{cold}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_normal_stop_keeps_in_a_file_what_was_learned() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("state");
    let keys = format!("  shutdown: {{drain_delay: 0s}}\n  state_file: \"{}\"\n", file.display());
    let (fleet, mut edge, body, before) = taught(&keys).await;
    assert!(edge.log().contains("no warm state in"), "{}", edge.log());
    let estimated = estimate(&edge).await;
    edge.signal("TERM");
    assert_eq!(edge.exit_code().await, Some(0));
    let next = Edge::start(&body).await;
    assert!(next.log().contains("warm state of "), "{}", next.log());
    assert_eq!(estimate(&next).await, estimated);
    next.all_healthy().await;
    let after = hit_rate(&next, &fleet).await;
    println!("hit rate {before:.3}, after a stop and a start {after:.3}");
    assert!(0.98 * before <= after, "{before} {after}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_file_that_cannot_be_used_is_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let (_engines, urls) = engines(1).await;
    for (name, bytes, why) in damaged() {
        let file = directory.path().join(name);
        fs::write(&file, bytes).unwrap();
        let keys = format!("  state_file: \"{}\"\n", file.display());
        let edge = Edge::start(&format!("{keys}{}", model(&[], &urls))).await;
        let log = edge.log();
        let line = log.lines().find(|line| line.contains("is left out")).unwrap_or(&log);
        assert!(line.contains("WARN") && line.contains(why), "{name}: {line}");
        assert_eq!(post(edge.traffic, CHAT, &chat("m", "hello")).await.status, 200, "{name}");
    }
}

/// Snapshots that are none.
fn damaged() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let head = |version: u32, length: u64| {
        let mut bytes = b"TIDEGATE".to_vec();
        bytes.extend(version.to_le_bytes());
        bytes.extend(length.to_le_bytes());
        bytes.extend([7; 8]);
        bytes.extend([1; 4096]);
        bytes
    };
    vec![
        ("empty", Vec::new(), "no snapshot"),
        (
            "foreign",
            b"{\"this\": \"is something else\", \"and\": \"long\"}".to_vec(),
            "no snapshot",
        ),
        ("newer", head(u32::MAX, 4096), "version 4294967295"),
        ("gigantic", head(VERSION, u64::MAX), "the most is"),
        ("truncated", head(VERSION, 1 << 30), "cut short"),
        ("corrupt", head(VERSION, 4096), "checksum"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_variables_directory_and_log_go_to_the_successor() {
    let (_engines, urls) = engines(1).await;
    let edge = Edge::start_made(&model(&[], &urls), |command| {
        command.args(["--worker-queue-limit", "7"]).env("TIDEGATE_SATURATION_QUEUE_FLOOR", "3");
    })
    .await;
    let settings = async || {
        let config = edge.admin("/v1/config").await.json();
        let settings = &config["config"]["tidegate"]["models"][0]["cache_aware"];
        json!([settings["worker_queue_limit"], settings["saturation_queue_floor"]])
    };
    assert_eq!(settings().await, json!([7, 3]));
    // Who runs the command has another environment, and another directory.
    let binary = edge.directory.path().join("tidegate-next");
    fs::copy(self::binary(), &binary).unwrap();
    let pid_file = edge.directory.path().join("my.pid");
    fs::write(&pid_file, format!("{}\n", edge.pid())).unwrap();
    let paths = [&pid_file, &binary].map(|path| path.to_str().unwrap());
    let output = edge.upgrade(&["--pid-file", paths[0], "--binary", paths[1]]).await;
    assert!(output.status.success(), "{output:?}");
    edge.settled().await;
    let new = edge.serving().await;
    assert_ne!(new, edge.pid());
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(report.starts_with(&format!("process {new} serves since")), "{report}");
    assert_eq!(settings().await, json!([7, 3]));
    let link = |pid: u32, name: &str| fs::read_link(format!("/proc/{pid}/{name}")).unwrap();
    assert_eq!(link(new, "exe"), binary.canonicalize().unwrap());
    assert_eq!(link(new, "cwd"), std::env::current_dir().unwrap());
    assert_eq!(link(new, "fd/2"), edge.directory.path().join("log").canonicalize().unwrap());
    // Once more, with the flags of a successor to start from.
    let output = edge.upgrade(&["--pid", &new.to_string()]).await;
    assert!(output.status.success(), "{output:?}");
    edge.settled().await;
    assert_eq!(settings().await, json!([7, 3]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_listener_and_a_new_admin_address_come_with_an_upgrade() {
    let (_engines, urls) = engines(1).await;
    let mut edge = Edge::start(&model(&[], &urls)).await;
    let (traffic, admin) = (free_address(), free_address());
    let text = edge.yaml(&model(&[], &urls));
    let listeners = format!("[{{address: \"{}\"}}, {{address: \"{traffic}\"}}]", edge.traffic);
    let text = text
        .replace(&format!("[{{address: \"{}\"}}]", edge.traffic), &listeners)
        .replace(&edge.admin.to_string(), &admin.to_string());
    fs::write(edge.file(), text).unwrap();
    // The running one is not where the file says.
    let output = edge.upgrade(&[]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--pid"), "{output:?}");
    let output = edge.upgrade(&["--pid", &edge.pid().to_string()]).await;
    assert!(output.status.success(), "{output:?}");
    edge.settled().await;
    let old = std::mem::replace(&mut edge.admin, admin);
    for address in [edge.traffic, traffic] {
        assert_eq!(post(address, CHAT, &chat("m", "hello")).await.status, 200);
    }
    until("the end of the old admin address", async || {
        (!support::edge::is_listening(old).await).then_some(())
    })
    .await;
}

async fn ask_unix(path: &PathBuf) -> Option<String> {
    let mut stream = UnixStream::connect(path).await.ok()?;
    stream.write_all(&request("POST", CHAT, chat("m", "hello").as_bytes())).await.ok()?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.ok()?;
    Some(String::from_utf8_lossy(&head).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket_stays_the_same_one() {
    let (_engines, urls) = engines(1).await;
    let edge = Edge::start(&model(&[], &urls)).await;
    let path = edge.directory.path().join("traffic.sock");
    let one = format!("[{{address: \"{}\"}}]", edge.traffic);
    let two =
        format!("[{{address: \"{}\"}}, {{address: \"unix:{}\"}}]", edge.traffic, path.display());
    fs::write(edge.file(), edge.yaml(&model(&[], &urls)).replace(&one, &two)).unwrap();
    for _ in 0..2 {
        edge.upgraded().await;
        assert_eq!(ask_unix(&path).await.as_deref(), Some("HTTP/1.1 200"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_connection_is_told_to_move_and_an_idle_one_is_closed() {
    let (_engines, urls) = engines(1).await;
    let mut edge = Edge::start(&model(&[], &urls)).await;
    let ask = request("POST", CHAT, chat("m", "hello").as_bytes());
    let mut busy = Connection::open(edge.traffic).await;
    let mut idle = Connection::open(edge.traffic).await;
    for connection in [&mut busy, &mut idle] {
        connection.send(&ask).await;
        assert_ne!(connection.answer().await.header("connection"), Some("close"));
    }
    let output = edge.upgrade(&[]).await;
    assert!(output.status.success(), "{output:?}");
    busy.send(&ask).await;
    let answer = busy.answer().await;
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    assert_eq!(busy.rest().await, b"");
    assert_eq!(idle.rest().await, b"", "closed without a word, and without a request");
    assert_eq!(edge.exit_code().await, Some(0));
    assert_eq!(post(edge.traffic, CHAT, &chat("m", "hello")).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sighup_while_the_successor_waits_is_not_lost() {
    let (_engines, urls) = engines(1).await;
    let edge = Edge::start(&model(&[], &urls)).await;
    let successor = edge.successor().await;
    send(successor.id(), Signal::SIGHUP);
    edge.signal("HUP");
    edge.is_at(2).await;
    edge.signal("QUIT");
    edge.logs("serves; the listeners close").await;
    edge.signal("HUP");
    edge.settled().await;
    assert_eq!(edge.serving().await, successor.id());
    // Its own first one was 1.
    edge.is_at(2).await;
}

/// The edge in the background.
async fn in_the_background(keys: &str) {
    let (_engines, urls) = engines(1).await;
    let edge = Edge::start_daemon(&model(&[], &urls), keys).await;
    let first = edge.serving().await;
    assert_eq!(edge.processes(), [first], "who started it is gone");
    let second = edge.upgraded().await;
    let third = edge.upgraded().await;
    until("the end of the old ones", || {
        std::future::ready((edge.processes() == [third]).then_some(()))
    })
    .await;
    assert_ne!(first, third);
    assert_ne!(second, third);
    let pid = fs::read_to_string(edge.directory.path().join("pid")).unwrap();
    assert_eq!(pid.trim(), third.to_string());
    assert_eq!(post(edge.traffic, CHAT, &chat("m", "hello")).await.status, 200);
    send(third, Signal::SIGTERM);
    until("its end", || std::future::ready(edge.processes().is_empty().then_some(()))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_in_the_background_is_followed_by_one_there() {
    tokio::join!(in_the_background(""), in_the_background("daemon_wait_for_ready: true\n"));
}

/// How a service manager hears who serves.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_manager_is_told_who_serves() {
    let (_engines, urls) = engines(1).await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let manager = tokio::net::UnixDatagram::bind(&path).unwrap();
    let heard = async || {
        let mut text = [0; 512];
        let length = support::within("a word", manager.recv(&mut text)).await.unwrap();
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    let edge = Edge::start_made(&model(&[], &urls), |command| {
        command.env("NOTIFY_SOCKET", &path);
    })
    .await;
    let ready = |pid: u32| format!("READY=1\nMAINPID={pid}");
    assert_eq!(heard().await.trim(), ready(edge.pid()));
    let new = edge.upgraded().await;
    assert_eq!(heard().await.trim(), ready(new));
}

/// Three minutes, most of them the overlaps; its figures are those of each process of the chain.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes three minutes"]
async fn twenty_upgrades_leave_a_process_as_large_as_the_first() {
    let quiet = [
        "load_reports: {format: none}",
        "health: {enabled: false}",
        "timeouts: {worker_idle: 100ms}",
    ];
    let (_engines, urls) = engines(3).await;
    let mut edge = Edge::start(&model(&quiet, &urls)).await;
    let mut pid = edge.pid();
    let mut sizes = Vec::new();
    for round in 0..=20 {
        for _ in 0..200 {
            let answer = post(edge.traffic, CHAT, &chat("m", &"hello ".repeat(500))).await;
            assert_eq!(answer.status, 200);
        }
        let size = edge.size(pid).await;
        println!("after {round} upgrades: {} files, {} KiB", size.0, size.1);
        sizes.push(size);
        if round < 20 {
            pid = edge.upgraded().await;
            edge.is_alone(pid).await;
        }
    }
    assert!(sizes[1..].iter().all(|size| size.0 == sizes[1].0), "open files: {sizes:?}");
    let most = sizes.iter().map(|size| size.1).max().unwrap();
    assert!(most < sizes[0].1 + 8 * 1024, "KiB: {sizes:?}");
}
