//! Models in a few words, and engines that answer as a script says.

use crate::config::*;
use crate::fleet::{Fleets, ModelFleet, run};
use crate::metrics::Metrics;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tidegate_policy::rules::Rules;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep};

pub(super) fn worker(id: &str, host: WorkerHost) -> Worker {
    let url = WorkerUrl { scheme: Scheme::Http, host };
    Worker::new(id.into(), url, WorkerSource::Listed)
}

/// A worker at an address where nobody needs to be.
pub(super) fn nowhere(id: &str) -> Worker {
    worker(id, WorkerHost::Ip("127.0.0.1:9".parse().unwrap()))
}

pub(super) fn at(id: &str, address: SocketAddr) -> Worker {
    worker(id, WorkerHost::Ip(address))
}

/// Quick settings; health off.
pub(super) fn model(name: &str, workers: Vec<Worker>) -> Model {
    let long = Duration::from_secs(60);
    Model {
        queue: None,
        warmup: Duration::ZERO,
        name: name.to_owned(),
        aliases: Vec::new(),
        policy: Policy::CacheAware(Rules::default()),
        affinity_headers: Vec::new(),
        shed_queue_limit: None,
        load_reports: LoadReports {
            format: ReportChoice::GetLoad,
            interval: Duration::from_millis(20),
            timeout: Duration::from_millis(500),
            max_age: long,
            frozen_after: long,
            auth: None,
        },
        health: Health {
            enabled: false,
            path: "/health".to_owned(),
            interval: Duration::from_millis(20),
            timeout: Duration::from_millis(500),
            fall: NonZeroU32::new(3).unwrap(),
            rise: NonZeroU32::new(2).unwrap(),
        },
        breaker: Breaker {
            threshold: NonZeroU32::new(3).unwrap(),
            cool_down: long,
            wedged_after: long,
        },
        timeouts: timeouts(),
        retries: Retries { max_attempts: NonZeroU32::MIN, stale_window: long },
        workers,
        discovery: None,
    }
}

fn timeouts() -> Timeouts {
    let long = Duration::from_secs(60);
    Timeouts {
        connect: long,
        first_byte: long,
        stream_idle: long,
        client_header: long,
        client_body_idle: long,
        client_idle: long,
        client_stall: long,
        worker_idle: long,
        worker_write: long,
    }
}

/// The same with probes.
pub(super) fn probed(name: &str, workers: Vec<Worker>) -> Model {
    let mut model = model(name, workers);
    model.health.enabled = true;
    model
}

pub(super) fn config(models: Vec<Model>) -> Config {
    Config {
        pingora: String::new(),
        grace_period: Duration::ZERO,
        upgrade_sock: PathBuf::new(),
        state_file: None,
        listeners: Vec::new(),
        admin: Admin { address: Address::Unix(PathBuf::new()), token: None },
        limits: Limits {
            max_connections: None,
            max_body_bytes: 1,
            max_header_bytes: 1,
            max_buffered_bytes: 1,
            max_decoded_bytes: 1,
        },
        http: Http {
            forwarded: Forwarded::Off,
            response_headers: true,
            half_close: HalfClose::Abort,
        },
        timeouts: timeouts(),
        shutdown: Shutdown { drain_delay: Duration::ZERO },
        index: Index { block_bytes: 512, max_entries: 1_000, capacity_slack: 1.0 },
        dns_interval: Duration::from_millis(20),
        access_log: AccessLog { enabled: false, sample: 1.0, prefixes: false },
        models: models.into_iter().map(Arc::new).collect(),
        warnings: ConfigErrors::default(),
    }
}

pub(super) fn fleets(models: Vec<Model>) -> Arc<Fleets> {
    Arc::new(Fleets::new(&config(models), &Metrics::new().unwrap()))
}

/// One model's fleet without any task.
pub(super) fn still(model: Model) -> Arc<ModelFleet> {
    Arc::clone(&fleets(vec![model]).models()[0])
}

/// Fleets with their tasks, until dropped.
pub(super) struct Running {
    pub(super) fleets: Arc<Fleets>,
    _in_force: watch::Sender<Arc<Fleets>>,
    _stop: oneshot::Sender<()>,
}

impl Running {
    pub(super) fn start(models: Vec<Model>) -> Self {
        let fleets = fleets(models);
        let (stop, stopped) = oneshot::channel::<()>();
        let (in_force, seen) = watch::channel(Arc::clone(&fleets));
        tokio::spawn(run(seen, async move {
            let _ = stopped.await;
        }));
        Self { fleets, _in_force: in_force, _stop: stop }
    }

    pub(super) fn model(&self) -> &Arc<ModelFleet> {
        &self.fleets.models()[0]
    }
}

/// Waits for something that must come true, at most ten seconds.
pub(super) async fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_true() {
        assert!(Instant::now() < deadline, "never: {what}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// What an engine does with a request.
pub(super) enum Does {
    Answer(u16, String),
    Redirect(String),
    Hang,
}

impl Does {
    pub(super) fn ok(body: &str) -> Self {
        Self::Answer(200, body.to_owned())
    }
}

/// Answers each request head as `script` says. The listener closes when the task is aborted.
pub(super) async fn engine<F>(script: F) -> (SocketAddr, tokio::task::JoinHandle<()>)
where
    F: Fn(&str) -> Does + Send + Sync + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (address, tokio::spawn(serve(listener, Arc::new(script))))
}

/// The same at an address where another one was.
pub(super) async fn engine_at<F>(address: SocketAddr, script: F) -> tokio::task::JoinHandle<()>
where
    F: Fn(&str) -> Does + Send + Sync + 'static,
{
    let listener = TcpListener::bind(address).await.unwrap();
    tokio::spawn(serve(listener, Arc::new(script)))
}

async fn serve<F>(listener: TcpListener, script: Arc<F>)
where
    F: Fn(&str) -> Does + Send + Sync + 'static,
{
    // Connections end with the engine.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        connections.spawn(answer(stream, Arc::clone(&script)));
    }
}

async fn answer<F: Fn(&str) -> Does>(mut stream: TcpStream, script: Arc<F>) {
    let mut head = Vec::new();
    loop {
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(count) => head.extend_from_slice(&chunk[..count]),
        }
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        let text = String::from_utf8_lossy(&head).into_owned();
        head.clear();
        let (status, extra, body) = match script(&text) {
            Does::Answer(status, body) => (status, String::new(), body),
            Does::Redirect(to) => (302, format!("location: {to}\r\n"), String::new()),
            Does::Hang => std::future::pending().await,
        };
        let length = body.len();
        let answer =
            format!("HTTP/1.1 {status} X\r\n{extra}content-length: {length}\r\n\r\n{body}");
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// SGLang's page of one rank.
pub(super) fn get_load(waiting: u64) -> String {
    let all = waiting + 1;
    format!(r#"[{{"dp_rank":0,"num_reqs":{all},"num_waiting_reqs":{waiting},"num_tokens":77}}]"#)
}
