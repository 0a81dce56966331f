//! The clients people have, against an edge with simulated engines: the OpenAI and Anthropic libraries
//! of Python and Node, and curl. What each of them expects is in `tests/clients`.
//!
//! The libraries are installed below `target/` on the first run, in the versions named there.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use http::StatusCode;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::edge::Edge;
use support::until;
use tidegate::simulate::server::{Fault, FleetConfig, SimulatedFleet};

/// What engines are told to say, each for the model `says-<status>`.
const SAID: [u16; 6] = [400, 401, 422, 429, 500, 503];

/// An edge, three engines that work behind `m`, and models that do not work.
struct Served {
    edge: Edge,
    _fleets: Vec<SimulatedFleet>,
}

impl Served {
    async fn start() -> Self {
        let mut config = FleetConfig { speed: 20.0, ..FleetConfig::default() };
        config.engine.decode_base_ms = 10.0;
        let working = SimulatedFleet::start(3, config.clone()).await.unwrap();
        let failing = SimulatedFleet::start(SAID.len(), config).await.unwrap();
        let mut models = model("m", &working.addresses().iter().map(url).collect::<Vec<_>>());
        for (at, (address, status)) in failing.addresses().iter().zip(SAID).enumerate() {
            failing.set_fault(at, Fault::Status(StatusCode::from_u16(status).unwrap()));
            models += &model(&format!("says-{status}"), &[url(address)]);
        }
        // A port that nothing listens on.
        models += &model("unreachable", &[url("127.0.0.1:1")]);
        models += "    - name: drained\n      workers: [{id: d, url: 'http://127.0.0.1:1', state: draining}]\n";
        let body = format!(
            "  limits: {{max_body_bytes: 256KiB}}\n  health: {{enabled: false}}\n  models:\n{models}"
        );
        let edge = Edge::start_unready(&body).await;
        edge.all_routable("m").await;
        Self { edge, _fleets: vec![working, failing] }
    }

    /// Runs a program, which has to succeed and to have checked something.
    async fn run(&self, mut command: Command) -> String {
        command.env("EDGE", format!("http://{}", self.edge.traffic));
        let output = tokio::task::spawn_blocking(move || output(&mut command)).await.unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}{errors}\n{}", self.edge.log());
        said
    }

    /// Waits until a request ended because its client had left.
    async fn is_left(&self) {
        until("a cancelled request", || async {
            let page = self.edge.metrics().await;
            let left = page.sum("tidegate_requests_total", &[r#"outcome="cancelled""#]);
            (left == 1.0).then_some(())
        })
        .await;
    }
}

fn model(name: &str, urls: &[String]) -> String {
    let mut yaml = format!("    - name: {name}\n      workers:\n");
    for (at, url) in urls.iter().enumerate() {
        let _ = writeln!(yaml, "        - {{id: {name}-{at}, url: '{url}'}}");
    }
    yaml
}

fn url(address: impl std::fmt::Display) -> String {
    format!("http://{address}")
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|why| {
        panic!(
            "{:?} cannot be run ({why}): this test needs python3 with pip, node with npm, and curl",
            command.get_program()
        )
    })
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

/// Registries are far away, and now and then one does not answer.
const ATTEMPTS: usize = 3;

/// A directory below `target/` in which `install` has installed what `list` names; made anew when the
/// list is another one.
fn installed(list: &str, install: impl Fn(&Path) -> Command) -> PathBuf {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients").join(list);
    let wanted = std::fs::read_to_string(source(list)).unwrap();
    // Written last: it says that the rest is whole.
    let done = home.join("installed");
    if std::fs::read_to_string(&done).is_ok_and(|there| there == wanted) {
        return home;
    }
    let attempt = || {
        // It may not be there yet.
        let _ = std::fs::remove_dir_all(&home);
        std::fs::create_dir_all(&home).unwrap();
        std::fs::copy(source(list), home.join(list)).unwrap();
        let output = output(&mut install(&home));
        if output.status.success() { Ok(()) } else { Err(output) }
    };
    let mut last = attempt();
    for _ in 1..ATTEMPTS {
        last = last.or_else(|_| attempt());
    }
    assert!(last.is_ok(), "cannot install {list}: {last:?}");
    std::fs::write(done, wanted).unwrap();
    home
}

fn python(script: &str) -> Command {
    // Two tests want it, and neither may see it half done.
    static INSTALLING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let installing = INSTALLING.lock();
    let home = installed("requirements.txt", |home| {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"]);
        pip.arg(home).arg("--requirement").arg(home.join("requirements.txt"));
        pip
    });
    drop(installing);
    let mut command = Command::new("python3");
    command.arg(source(script)).env("PYTHONPATH", home).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn the_openai_library_of_python_gets_answers_streams_tools_and_its_own_errors() {
    let served = Served::start().await;
    served.run(python("check_openai.py")).await;
    served.is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_anthropic_library_of_python_gets_answers_streams_tools_and_its_own_errors() {
    Served::start().await.run(python("check_anthropic.py")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_libraries_of_node_get_answers_streams_tools_and_their_own_errors() {
    let home = installed("package.json", |home| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--no-package-lock", "--prefix"]).arg(home);
        npm
    });
    // Node looks for packages above a script, so the script is put beside them.
    let script = home.join("check_node.mjs");
    std::fs::copy(source("check_node.mjs"), &script).unwrap();
    let served = Served::start().await;
    let mut node = Command::new("node");
    node.arg(script);
    served.run(node).await;
    served.is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn curl_sees_a_stream_event_by_event_and_an_error_as_its_exit_code() {
    let served = Served::start().await;
    let curl = |arguments: &[&str], body: &str| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--max-time", "20"]).args(arguments);
        curl.args(["-H", "content-type: application/json", "-d", body]);
        curl.arg(format!("http://{}/v1/chat/completions", served.edge.traffic));
        curl
    };
    let body = r#"{"model":"m","stream":true,"max_tokens":4,"messages":[{"role":"user","content":"hello"}]}"#;
    let stream = served.run(curl(&["--no-buffer"], body)).await;
    assert!(stream.starts_with("data: {"), "{stream}");
    assert!(stream.ends_with("data: [DONE]\n\n"), "{stream}");

    let body = r#"{"model":"none","messages":[]}"#;
    let wanted = "%{http_code} %{content_type} %{errormsg}";
    let mut command = curl(&["--fail-with-body", "--write-out", wanted], body);
    let output = tokio::task::spawn_blocking(move || output(&mut command)).await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(22), "{said}");
    assert!(said.contains(r#""code":"model_not_found""#), "{said}");
    assert!(said.contains("404 application/json"), "{said}");
}
