//! Successors that fail, strangers, and signals at bad moments: the running edge serves on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use nix::sys::signal::Signal;
use std::fs;
use std::net::TcpListener as BlockingListener;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener as BlockingUnixListener;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;
use support::client::{chat, get, post};
use support::edge::{Edge, free_address, is_listening, model, send};
use support::engine::{Engine, engines};
use support::{until, within};
use tidegate::handover::VERSION;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const CHAT: &str = "/v1/chat/completions";

/// Requests one after the other, each over a connection of its own and each answered.
struct Traffic {
    stop: watch::Sender<bool>,
    task: JoinHandle<usize>,
}

impl Traffic {
    fn of(edge: &Edge) -> Self {
        let (stop, stopped) = watch::channel(false);
        let address = edge.traffic;
        let task = tokio::spawn(async move {
            let mut sent = 0;
            while !*stopped.borrow() {
                assert_eq!(post(address, CHAT, &chat("m", "hello")).await.status, 200);
                sent += 1;
                // Other tests want to run as well.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            sent
        });
        Self { stop, task }
    }

    async fn ends(self) {
        self.stop.send(true).unwrap();
        assert!(0 < self.task.await.unwrap());
    }
}

async fn ended(child: &mut Child) -> Option<i32> {
    until("the end of a successor", || std::future::ready(child.try_wait().unwrap())).await.code()
}

/// A script in the place of a binary.
fn script(edge: &Edge, name: &str, text: &str) -> String {
    let path = edge.directory.path().join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_that_cannot_start_changes_nothing() {
    let (_engines, urls) = engines(1).await;
    let body = model(&[], &urls);
    let edge = Edge::start(&body).await;
    let pid = edge.pid().to_string();
    let traffic = Traffic::of(&edge);
    let busy = BlockingListener::bind("127.0.0.1:0").unwrap();
    let taken = busy.local_addr().unwrap().to_string();
    let good = edge.yaml(&body);
    let listeners = format!("[{{address: \"{}\"}}]", edge.traffic);
    let more = format!("[{{address: \"{}\"}}, {{address: \"{taken}\"}}]", edge.traffic);
    let false_binary = script(&edge, "ends", "exit 3");
    let missing = edge.directory.path().join("none").to_str().unwrap().to_owned();
    let cases: [(&str, String, &[&str], i32, &str); 6] = [
        ("broken file", good.replace("workers", "wrokers"), &[], 2, "wrokers"),
        ("busy listener", good.replace(&listeners, &more), &[], 1, "the new process ended"),
        (
            "busy admin",
            good.replace(&edge.admin.to_string(), &taken),
            &[],
            1,
            "the new process ended",
        ),
        ("no binary", good.clone(), &["--binary", &missing], 1, "none"),
        ("false binary", good.clone(), &["--binary", &false_binary], 1, "the new process ended"),
        ("no process", good.clone(), &["--pid", "4194300"], 1, "process 4194300"),
    ];
    for (name, text, arguments, code, word) in cases {
        fs::write(edge.file(), text).unwrap();
        let mut arguments = arguments.to_vec();
        if !arguments.contains(&"--pid") {
            arguments.extend(["--pid", &pid]);
        }
        let output = edge.upgrade(&arguments).await;
        assert_eq!(output.status.code(), Some(code), "{name}: {output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(word), "{name}: {said}");
        assert!(said.ends_with("nothing changed: the running edge serves on\n"), "{name}: {said}");
        assert_eq!(edge.serving().await, edge.pid(), "{name}");
        assert_eq!(edge.processes(), [edge.pid()], "{name}");
    }
    fs::write(edge.file(), good).unwrap();
    edge.upgraded().await;
    traffic.ends().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_killed_before_it_is_told_leaves_a_socket_that_harms_nobody() {
    let (_engines, urls) = engines(1).await;
    let edge = Edge::start(&model(&[], &urls)).await;
    let traffic = Traffic::of(&edge);
    let mut child = edge.successor().await;
    send(child.id(), Signal::SIGKILL);
    child.wait().unwrap();
    assert!(edge.upgrade_sock().exists());
    edge.signal("QUIT");
    edge.logs("SIGQUIT without effect").await;
    assert_eq!(edge.serving().await, edge.pid());
    edge.upgraded().await;
    traffic.ends().await;
}

/// Plays a successor that gets the sockets, as far as the test wants.
fn false_successor(edge: &Edge) -> BlockingUnixListener {
    BlockingUnixListener::bind(edge.upgrade_sock()).unwrap()
}

fn warm(edge: &Edge) -> PathBuf {
    edge.upgrade_sock().with_added_extension("warm")
}

async fn call(path: &Path) -> UnixStream {
    until("the meeting point", || async { UnixStream::connect(path).await.ok() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_lost_with_the_sockets_in_its_hands_does_not_block_the_next_one() {
    let (_engines, urls) = engines(1).await;
    let edge = Edge::start(&model(&[], &urls)).await;
    let traffic = Traffic::of(&edge);
    let lost = false_successor(&edge);
    edge.signal("QUIT");
    // It has the sockets when somebody called, and never calls itself.
    drop(tokio::task::spawn_blocking(move || lost.accept().unwrap()).await.unwrap());
    until("the meeting point", || std::future::ready(warm(&edge).exists().then_some(()))).await;
    edge.upgraded().await;
    assert!(edge.log().contains("the one before is given up"), "{}", edge.log());
    traffic.ends().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_that_says_something_else_or_hangs_up_is_no_successor() {
    let (_engines, urls) = engines(1).await;
    let edge = Edge::start(&model(&[], &urls)).await;
    let traffic = Traffic::of(&edge);
    for (round, word) in [&b"hello\n"[..], b"", b"re"].into_iter().enumerate() {
        let _waits = false_successor(&edge);
        edge.signal("QUIT");
        let mut state = Vec::new();
        within("state", call(&warm(&edge)).await.read_to_end(&mut state)).await.unwrap();
        assert!(state.starts_with(b"TIDEGATE"));
        let mut stream = call(&warm(&edge)).await;
        stream.write_all(word).await.unwrap();
        drop(stream);
        until("a word about it", || {
            let lines = edge.log().matches("SIGQUIT without effect").count();
            std::future::ready((lines == round + 1).then_some(()))
        })
        .await;
        fs::remove_file(edge.upgrade_sock()).unwrap();
        assert!(!warm(&edge).exists());
    }
    edge.upgraded().await;
    traffic.ends().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_killed_while_both_accept_gives_the_place_back() {
    let (_engines, urls) = engines(1).await;
    let mut edge = Edge::start(&model(&[], &urls)).await;
    let mut child = edge.successor().await;
    edge.signal("QUIT");
    edge.logs("serves; the listeners close here in a moment").await;
    send(child.id(), Signal::SIGKILL);
    child.wait().unwrap();
    edge.logs("is gone; this process serves on").await;
    let traffic = Traffic::of(&edge);
    assert_eq!(edge.serving().await, edge.pid());
    let answer = post(edge.traffic, CHAT, &chat("m", "hello")).await;
    assert_ne!(answer.header("connection"), Some("close"), "connections are kept again");
    let new = edge.upgraded().await;
    traffic.ends().await;
    edge.is_alone(new).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_successors_one_is_refused_at_once_and_one_serves() {
    let (_engines, urls) = engines(1).await;
    let mut edge = Edge::start(&model(&[], &urls)).await;
    let traffic = Traffic::of(&edge);
    // What an earlier process left.
    drop(BlockingUnixListener::bind(edge.upgrade_sock()).unwrap());
    let mut children = [edge.spawn_successor(), edge.spawn_successor()];
    let [one, two] = &mut children;
    let refused = until("a refusal", || {
        let ends = [one.try_wait().unwrap(), two.try_wait().unwrap()];
        std::future::ready(ends.iter().position(Option::is_some))
    })
    .await;
    assert_eq!(ended(&mut children[refused]).await, Some(1));
    assert!(edge.log().contains("another successor waits there already"), "{}", edge.log());
    let first = children[1 - refused].id();
    let output = edge.upgrade(&[]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("another upgrade"), "{output:?}");
    // It may not have got further than the stale socket yet; it is waited for.
    edge.signal("QUIT");
    edge.settled_with(first).await;
    edge.is_alone(first).await;
    traffic.ends().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_upgrades_at_once_end_with_one_new_process() {
    let (_engines, urls) = engines(1).await;
    let mut edge = Edge::start(&model(&[], &urls)).await;
    let traffic = Traffic::of(&edge);
    let (one, two) = tokio::join!(edge.upgrade(&[]), edge.upgrade(&[]));
    assert!(one.status.success() || two.status.success(), "{one:?} {two:?}");
    assert!(!(one.status.success() && two.status.success()), "{one:?} {two:?}");
    edge.settled().await;
    let new = edge.serving().await;
    edge.is_alone(new).await;
    traffic.ends().await;
}

/// A process that plays the predecessor for a successor of the test's own.
struct FalsePredecessor {
    edge: Edge,
    meeting: UnixListener,
    successor: Child,
}

impl FalsePredecessor {
    /// The edge itself has left.
    async fn start() -> (Self, Vec<Engine>) {
        let (engines, urls) = engines(1).await;
        let keys = "  shutdown: {drain_delay: 0s}\n";
        let mut edge = Edge::start(&format!("{keys}{}", model(&[], &urls))).await;
        edge.signal("INT");
        edge.exit_code().await;
        let meeting = UnixListener::bind(warm(&edge)).unwrap();
        let successor = edge.successor().await;
        (Self { edge, meeting, successor }, engines)
    }

    /// Listening sockets, as Pingora sends them.
    async fn send_sockets(&self) {
        let mut sockets = pingora::server::Fds::new();
        for address in [self.edge.traffic, self.edge.admin] {
            let listener = BlockingListener::bind(address).unwrap();
            listener.set_nonblocking(true).unwrap();
            sockets.add(address.to_string(), listener.into_raw_fd());
        }
        let path = self.edge.upgrade_sock().to_str().unwrap().to_owned();
        let sent = tokio::task::spawn_blocking(move || {
            sockets.send_to_sock(path.as_str()).unwrap();
            sockets
        });
        drop(sent.await.unwrap());
    }

    async fn accept(&self) -> UnixStream {
        within("a call", self.meeting.accept()).await.unwrap().0
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn warm_state_that_cannot_be_used_is_a_warning_and_a_cold_start() {
    let head = |version: u32, length: u64| {
        let mut bytes = b"TIDEGATE".to_vec();
        bytes.extend(version.to_le_bytes());
        bytes.extend(length.to_le_bytes());
        bytes.extend([7; 8]);
        bytes
    };
    // More than any socket buffers, so that one who reads no further hangs up on a writer.
    let large = |head: Vec<u8>| [head, vec![1; 8 << 20]].concat();
    let cases = vec![
        (Vec::new(), "no snapshot"),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec(), "no snapshot"),
        (large(head(u32::MAX, 8 << 20)), "version 4294967295"),
        (large(head(VERSION, u64::MAX)), "the most is"),
        (head(VERSION, 1 << 30), "cut short"),
        (large(head(VERSION, 8 << 20)), "checksum"),
    ];
    let rounds = cases.into_iter().map(|(bytes, why)| async move {
        let (played, _engines) = FalsePredecessor::start().await;
        played.send_sockets().await;
        let mut first = played.accept().await;
        // It may hang up on it.
        let _ = first.write_all(&bytes).await;
        drop(first);
        let mut second = played.accept().await;
        let mut word = [0; 6];
        within("ready", second.read_exact(&mut word)).await.unwrap();
        assert_eq!(&word, b"ready\n");
        second.write_all(b"leaving\n").await.unwrap();
        drop(second);
        let edge = &played.edge;
        edge.logs("the predecessor's warm state is left out").await;
        let log = edge.log();
        let line = log.lines().find(|line| line.contains("is left out")).unwrap();
        assert!(line.contains("WARN") && line.contains(why), "{line}");
        edge.all_healthy().await;
        assert_eq!(post(edge.traffic, CHAT, &chat("m", "hello")).await.status, 200);
    });
    futures_util::future::join_all(rounds).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_leaves_when_its_predecessor_is_lost_or_a_stranger() {
    type Play = fn(FalsePredecessor) -> JoinHandle<FalsePredecessor>;
    let plays: [(&str, Play); 5] = [
        ("junk for sockets", |played| {
            tokio::spawn(async move {
                fs::remove_file(warm(&played.edge)).unwrap();
                let mut stream = call(&played.edge.upgrade_sock()).await;
                stream.write_all(b"127.0.0.1:80 and no socket").await.unwrap();
                played
            })
        }),
        ("nothing for sockets", |played| {
            tokio::spawn(async move {
                fs::remove_file(warm(&played.edge)).unwrap();
                drop(call(&played.edge.upgrade_sock()).await);
                played
            })
        }),
        ("sockets and nobody to meet", |played| {
            tokio::spawn(async move {
                fs::remove_file(warm(&played.edge)).unwrap();
                played.send_sockets().await;
                played
            })
        }),
        ("sockets and no farewell", |played| {
            tokio::spawn(async move {
                played.send_sockets().await;
                drop(played.accept().await);
                let mut second = played.accept().await;
                let mut word = [0; 6];
                within("ready", second.read_exact(&mut word)).await.unwrap();
                played
            })
        }),
        ("sockets and another farewell", |played| {
            tokio::spawn(async move {
                played.send_sockets().await;
                drop(played.accept().await);
                let mut second = played.accept().await;
                let mut word = [0; 6];
                within("ready", second.read_exact(&mut word)).await.unwrap();
                second.write_all(b"staying\n").await.unwrap();
                played
            })
        }),
    ];
    let rounds = plays.into_iter().map(|(name, play)| async move {
        let (played, _engines) = FalsePredecessor::start().await;
        let mut played = play(played).await.unwrap();
        assert_eq!(ended(&mut played.successor).await, Some(1), "{name}");
    });
    futures_util::future::join_all(rounds).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_during_a_hand_over_drains_and_the_successor_serves_nobody() {
    let (_engines, urls) = engines(1).await;
    let yaml = format!("  shutdown: {{drain_delay: 0s}}\n{}", model(&[], &urls));
    let mut edge = Edge::start(&yaml).await;
    let waits = false_successor(&edge);
    edge.signal("QUIT");
    let mut state = Vec::new();
    call(&warm(&edge)).await.read_to_end(&mut state).await.unwrap();
    let mut second = call(&warm(&edge)).await;
    edge.signal("TERM");
    assert_eq!(edge.exit_code().await, Some(0));
    // Whoever was there hears no farewell, and has to leave.
    let mut rest = Vec::new();
    // An error is an end as well.
    let _ = within("its end", second.read_to_end(&mut rest)).await;
    assert_eq!(rest, b"");
    // The sockets are still in its hands.
    drop(waits);
    assert!(!is_listening(edge.traffic).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_and_sigint_while_both_accept_leave_the_successor_serving() {
    let (_engines, urls) = engines(1).await;
    for signal in ["TERM", "INT"] {
        let yaml = format!("  shutdown: {{drain_delay: 0s}}\n{}", model(&[], &urls));
        let mut edge = Edge::start(&yaml).await;
        let child = edge.successor().await;
        edge.signal("QUIT");
        edge.logs("serves; the listeners close here in a moment").await;
        edge.signal(signal);
        assert_eq!(edge.exit_code().await, Some(0), "{signal}");
        assert_eq!(edge.serving().await, child.id());
        assert_eq!(post(edge.traffic, CHAT, &chat("m", "hello")).await.status, 200);
        assert_eq!(get(edge.admin, "/readyz").await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_impatient_second_sigquit_changes_nothing() {
    let (_engines, urls) = engines(1).await;
    let mut edge = Edge::start(&model(&[], &urls)).await;
    let traffic = Traffic::of(&edge);
    let child = edge.successor().await;
    for _ in 0..3 {
        edge.signal("QUIT");
        until("a look at it", || async { (edge.serving().await != 0).then_some(()) }).await;
    }
    edge.logs("serves; the listeners close here in a moment").await;
    edge.signal("QUIT");
    edge.settled_with(child.id()).await;
    edge.is_alone(child.id()).await;
    traffic.ends().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_traffic_port_that_is_free_is_taken_and_one_that_is_not_ends_the_successor() {
    let (_engines, urls) = engines(1).await;
    let edge = Edge::start(&model(&[], &urls)).await;
    let other = Edge::start(&model(&[], &urls)).await;
    let text = edge.yaml(&model(&[], &urls));
    fs::write(edge.file(), text.replace(&edge.traffic.to_string(), &other.traffic.to_string()))
        .unwrap();
    let mut child = edge.successor().await;
    edge.signal("QUIT");
    assert_eq!(ended(&mut child).await, Some(1));
    assert!(edge.log().contains("cannot listen on"), "{}", edge.log());
    assert_eq!(edge.serving().await, edge.pid());
    let free = free_address().to_string();
    fs::write(edge.file(), text.replace(&edge.traffic.to_string(), &free)).unwrap();
    edge.upgraded().await;
    assert!(is_listening(free.parse().unwrap()).await);
}
