//! The command line: what is printed, exit codes, and how the process leaves.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::net::TcpListener;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;
use support::client::{Connection, chat, get, post, request};
use support::edge::{Edge, command, free_address, is_listening, model};
use support::engine::{Engine, Reply, Step, event, stream_end, stream_head};
use support::until;
use tokio::sync::Notify;

const CHAT: &str = "/v1/chat/completions";

/// Runs to the end.
async fn run(args: &[&str]) -> Output {
    let mut command = command();
    command.args(args);
    support::within("the command", tokio::task::spawn_blocking(move || command.output().unwrap()))
        .await
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn version_and_help_go_to_stdout() {
    let version = run(&["--version"]).await;
    assert_eq!(version.status.code(), Some(0));
    let stdout = text(&version.stdout);
    let head = format!("tidegate {} (", env!("CARGO_PKG_VERSION"));
    assert!(stdout.starts_with(&head) && stdout.trim_end().ends_with(')'), "{stdout}");
    let help = run(&["--help"]).await;
    assert_eq!(help.status.code(), Some(0));
    let stdout = text(&help.stdout);
    assert!(stdout.lines().count() <= 58, "{} lines", stdout.lines().count());
    for word in [
        "check",
        "explain",
        "routes",
        "upgrade",
        "demo",
        "--worker-queue-limit",
        "--saturation-queue-floor",
    ] {
        assert!(stdout.contains(word), "{word}: {stdout}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_usage_is_exit_code_2() {
    for args in [&["--nonsense"][..], &[], &["check"], &["demo", "--workers", "0"]] {
        let output = run(args).await;
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(!output.stderr.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_says_every_problem_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("edge.yaml");
    let path = file.to_str().unwrap();
    std::fs::write(
        &file,
        "version: 1\nthreds: 2\ntidegate:\n  health: {interval: soon}\n  models:\n    - name: m\n      \
         cache_aware: {saturation_queue_floor: 2}\n      workers:\n        - {id: w0, url: \"http://127.0.0.1:1\"}\n        \
         - {id: w0, url: \"ftp://127.0.0.1:1\"}\n",
    )
    .unwrap();
    for args in
        [&["check", "-c", path][..], &["-c", path, "-t"], &["-t", "-c", path], &["-c", path]]
    {
        let output = run(args).await;
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let stderr = text(&output.stderr);
        for part in [
            "threds",
            "threads",
            "tidegate.health.interval",
            "saturation_queue_floor",
            "worker_queue_limit",
            "w0",
            "ftp://127.0.0.1:1",
        ] {
            assert!(stderr.contains(part), "{args:?}: {part}: {stderr}");
        }
    }
    let missing = run(&["check", "-c", "/nowhere/edge.yaml"]).await;
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("/nowhere/edge.yaml"));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_passes_a_good_file_and_flags_are_part_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("edge.yaml");
    let path = file.to_str().unwrap();
    let body = model(&[], &["http://127.0.0.1:1".to_owned(), "http://127.0.0.1:2".to_owned()]);
    std::fs::write(&file, format!("version: 1\ntidegate:\n{body}")).unwrap();
    for args in [&["check", "-c", path][..], &["-c", path, "-t"]] {
        let output = run(args).await;
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "OK: 1 model, 2 workers\n");
    }
    let output = run(&["check", "-c", path, "--saturation-queue-floor", "4"]).await;
    assert_eq!(output.status.code(), Some(2));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("--saturation-queue-floor"), "names the flag: {stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_runs_without_a_file() {
    let engines = [Engine::start().await, Engine::start().await];
    let edge = Edge::start_without_file(&[
        "--worker",
        &engines[0].url(),
        "--worker",
        &engines[1].url(),
        "--policy",
        "round_robin",
    ])
    .await;
    edge.all_healthy().await;
    for _ in 0..2 {
        let answer = post(edge.traffic, CHAT, &chat("any-name", "hello")).await;
        assert_eq!(answer.header("x-tidegate-decision"), Some("round_robin"));
    }
    assert_eq!(engines.each_ref().map(|engine| engine.received().len()), [1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_address_ends_the_process_with_exit_code_1() {
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = busy.local_addr().unwrap().to_string();
    let free = free_address().to_string();
    for (listen, admin) in [(&busy, &free), (&free, &busy)] {
        let worker = "http://127.0.0.1:1";
        let output = run(&["--worker", worker, "--listen", listen, "--admin", admin]).await;
        assert_eq!(output.status.code(), Some(1));
        let stderr = text(&output.stderr);
        assert!(stderr.contains(&busy), "names the address: {stderr}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_turns_readiness_red_while_the_listener_is_open_and_a_second_one_leaves() {
    let engine = Engine::start().await;
    engine.answer(|received| match received.target.as_str() {
        CHAT => Reply::completion(),
        _ => Reply::hang(),
    });
    let yaml = format!("  shutdown: {{drain_delay: 600s}}\n{}", model(&[], &[engine.url()]));
    let mut edge = Edge::start(&yaml).await;
    let mut stuck = Connection::open(edge.traffic).await;
    stuck.send(&request("GET", "/stuck", b"")).await;
    until("the stuck request", || async { (engine.received().len() == 1).then_some(()) }).await;
    edge.signal("TERM");
    until("red readiness", || async {
        (get(edge.admin, "/readyz").await.status == 503).then_some(())
    })
    .await;
    assert_eq!(get(edge.admin, "/livez").await.status, 200);
    let answer = post(edge.traffic, CHAT, &chat("m", "hello")).await;
    assert_eq!(answer.status, 200, "the listener is open");
    assert_eq!(answer.header("connection"), Some("close"), "clients are asked to go elsewhere");
    edge.signal("TERM");
    assert_eq!(edge.exit_code().await, Some(0), "not ten minutes later");
    stuck.rest().await;
}

/// A stream whose second half waits until the test says so.
async fn half_a_stream(edge: &Edge, engine: &Engine) -> (Connection, Arc<Notify>) {
    let go_on = Arc::new(Notify::new());
    let wait = Arc::clone(&go_on);
    engine.answer(move |_| {
        Reply::steps(vec![
            stream_head(),
            event("one"),
            Step::Wait(Arc::clone(&wait)),
            event("two"),
            stream_end(),
        ])
    });
    let mut client = Connection::open(edge.traffic).await;
    client.send(&request("POST", CHAT, chat("m", "hello").as_bytes())).await;
    assert_eq!(client.head().await.status, 200);
    client.chunk().await;
    (client, go_on)
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_drain_delay_the_listener_closes_and_streams_finish() {
    let engine = Engine::start().await;
    let yaml = format!("  shutdown: {{drain_delay: 0s}}\n{}", model(&[], &[engine.url()]));
    let mut edge = Edge::start(&yaml).await;
    let (mut client, go_on) = half_a_stream(&edge, &engine).await;
    edge.signal("TERM");
    until("a closed listener", || async { (!is_listening(edge.traffic).await).then_some(()) })
        .await;
    go_on.notify_one();
    let mut rest = Vec::new();
    while let Some(chunk) = client.chunk().await {
        rest.extend(chunk);
    }
    let rest = text(&rest);
    assert!(rest.contains("two") && rest.ends_with("data: [DONE]\n\n"), "{rest}");
    assert_eq!(edge.exit_code().await, Some(0), "as soon as nothing is in progress");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_from_before_the_listener_closed_may_still_ask() {
    let engine = Engine::start().await;
    let yaml = format!("  shutdown: {{drain_delay: 0s}}\n{}", model(&[], &[engine.url()]));
    let mut edge = Edge::start(&yaml).await;
    let mut new = Connection::open(edge.traffic).await;
    // Accepted before this one, which is answered.
    post(edge.traffic, CHAT, &chat("m", "hello")).await;
    edge.signal("TERM");
    until("a closed listener", || async { (!is_listening(edge.traffic).await).then_some(()) })
        .await;
    new.send(&request("POST", CHAT, chat("m", "hello").as_bytes())).await;
    let answer = new.answer().await;
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    assert_eq!(edge.exit_code().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_sigterm_does_not_wait_for_streams() {
    let engine = Engine::start().await;
    let yaml = format!("  shutdown: {{drain_delay: 0s}}\n{}", model(&[], &[engine.url()]));
    let mut edge = Edge::start(&yaml).await;
    let (mut client, _go_on) = half_a_stream(&edge, &engine).await;
    edge.signal("TERM");
    until("a closed listener", || async { (!is_listening(edge.traffic).await).then_some(()) })
        .await;
    edge.signal("TERM");
    assert_eq!(edge.exit_code().await, Some(0));
    assert!(client.try_chunk().await.is_err(), "cut, and not made to look whole");
}

#[tokio::test(flavor = "multi_thread")]
async fn sigint_leaves_at_once_and_sigquit_without_a_successor_does_nothing() {
    let engine = Engine::start().await;
    let yaml = format!("  shutdown: {{drain_delay: 600s}}\n{}", model(&[], &[engine.url()]));
    let mut edge = Edge::start(&yaml).await;
    edge.signal("QUIT");
    until("a word about it", || async {
        edge.log().contains("SIGQUIT without effect").then_some(())
    })
    .await;
    assert_eq!(post(edge.traffic, CHAT, &chat("m", "hello")).await.status, 200);
    assert_eq!(get(edge.admin, "/readyz").await.status, 200);
    edge.signal("INT");
    assert_eq!(edge.exit_code().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_shows_decisions_and_ends() {
    let (listen, admin) = (free_address().to_string(), free_address().to_string());
    let mut command = command();
    command.args(["demo", "--seconds", "2", "--listen", &listen, "--admin", &admin]);
    command.stdout(Stdio::piped());
    let output = tokio::time::timeout(
        Duration::from_secs(60),
        tokio::task::spawn_blocking(move || command.output().unwrap()),
    );
    let output = output.await.expect("two seconds of demo").unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let stdout = text(&output.stdout);
    assert!(stdout.contains(&listen) && stdout.contains(&admin), "says where to look: {stdout}");
    let summary = stdout.lines().last().unwrap_or_default();
    assert!(summary.contains(" answers, 0 failed"), "{stdout}");
    assert!(!summary.starts_with("0 answers"), "{stdout}");
    for reason in ["home", "least_load", "cache_candidate", "saturation_pin", "diverted"] {
        // Whatever it shows, it shows by the words of the labels.
        if summary.contains(reason) {
            return;
        }
    }
    panic!("no decision is named: {stdout}");
}
