//! Every outcome over a real socket.

#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use crate::config::{Secret, UpstreamAuth};
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};

const ONE_RANK: &str = r#"[{"dp_rank":0,"num_reqs":5,"num_waiting_reqs":3,"num_tokens":9}]"#;
const V1: &str = r#"{"loads":[{"dp_rank":0,"num_running_reqs":2,"num_waiting_reqs":4}]}"#;
const VLLM: &str = "vllm:num_requests_waiting{engine=\"0\"} 6\nvllm:num_requests_running 1\n";

/// Answers of a path.
#[derive(Clone)]
enum Canned {
    Says(StatusCode, Bytes),
    Redirects(&'static str),
    Hangs,
    /// Closes the connection instead of answering.
    Breaks,
}

/// A worker's engine: what it answers where, and what it was asked.
#[derive(Default)]
struct Engine {
    canned: Mutex<HashMap<&'static str, Canned>>,
    asked: Mutex<Vec<(String, HeaderMap)>>,
    connections: Mutex<u32>,
}

impl Engine {
    fn put(&self, path: &'static str, status: u16, body: impl Into<Bytes>) {
        let status = StatusCode::from_u16(status).unwrap();
        self.canned.lock().insert(path, Canned::Says(status, body.into()));
    }

    /// The paths asked for since the last call.
    fn asked(&self) -> Vec<String> {
        self.asked.lock().drain(..).map(|(path, _)| path).collect()
    }

    async fn answer(&self, request: Request<Incoming>) -> http::Result<Response<Full<Bytes>>> {
        let path = request.uri().path().to_owned();
        let canned = self.canned.lock().get(path.as_str()).cloned();
        self.asked.lock().push((path, request.headers().clone()));
        match canned {
            None => Response::builder().status(404).body("not here".into()),
            Some(Canned::Says(status, body)) => {
                Response::builder().status(status).body(Full::new(body))
            }
            Some(Canned::Redirects(to)) => {
                Response::builder().status(307).header("location", to).body(Full::default())
            }
            Some(Canned::Hangs) => std::future::pending().await,
            Some(Canned::Breaks) => Response::builder().header("\n", "").body(Full::default()),
        }
    }

    fn serve(self: &Arc<Self>, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        *self.connections.lock() += 1;
        let engine = Arc::clone(self);
        let service = service_fn(move |request| {
            let engine = Arc::clone(&engine);
            async move { engine.answer(request).await }
        });
        let connection = hyper::server::conn::http1::Builder::new();
        tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
    }

    async fn on_tcp() -> (Arc<Self>, Target) {
        let engine = Arc::<Self>::default();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = WorkerAddress::Tcp(listener.local_addr().unwrap());
        let serving = Arc::clone(&engine);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serving.serve(stream);
            }
        });
        (engine, target(address))
    }

    fn on_unix(path: &std::path::Path) -> (Arc<Self>, Target) {
        let engine = Arc::<Self>::default();
        let listener = UnixListener::bind(path).unwrap();
        let serving = Arc::clone(&engine);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serving.serve(stream);
            }
        });
        (engine, target(WorkerAddress::Unix(path.into())))
    }
}

fn target(address: WorkerAddress) -> Target {
    let host = "w0.example:30000".to_owned();
    Target { scheme: Scheme::Http, address, host, sni: None, ca: None, auth: None }
}

/// A source whose polls end in time unless a test wants a timeout.
fn source(format: ReportChoice) -> ReportSource {
    within(format, Duration::from_secs(20))
}

fn within(format: ReportChoice, timeout: Duration) -> ReportSource {
    let settings = LoadReports {
        format,
        interval: Duration::from_millis(500),
        timeout,
        max_age: Duration::from_secs(2),
        frozen_after: Duration::from_secs(10),
        auth: None,
    };
    ReportSource::new(&settings, None)
}

fn waiting(outcome: &PollOutcome) -> Option<u64> {
    match outcome {
        PollOutcome::Report(report) => report.waiting,
        other => panic!("{other:?}"),
    }
}

/// Whether the source counts its worker among those without a report.
fn waits_longer(source: &ReportSource) -> bool {
    source.next_in(Duration::from_millis(500)) == ABSENT_INTERVAL
}

#[tokio::test]
async fn a_poll_brings_a_report_on_a_kept_connection() {
    let (engine, target) = Engine::on_tcp().await;
    engine.put("/get_load", 200, ONE_RANK);
    let (scraper, mut source) = (Scraper::new(), source(ReportChoice::GetLoad));
    for _ in 0..3 {
        assert_eq!(waiting(&source.poll(&scraper, &target).await), Some(3));
    }
    assert_eq!(*engine.connections.lock(), 1);
    assert_eq!(source.next_in(Duration::from_millis(500)), Duration::from_millis(500));
}

#[tokio::test]
async fn auto_takes_the_best_path_that_answers_and_keeps_to_it() {
    for (path, body, number, tried) in [
        ("/v1/loads", V1, 4, &["/v1/loads", "/get_server_info", "/server_info"][..]),
        ("/get_load", ONE_RANK, 3, &["/v1/loads", "/get_load", "/get_server_info", "/server_info"]),
        ("/metrics", VLLM, 6, &["/v1/loads", "/get_load", "/metrics"]),
    ] {
        let (engine, target) = Engine::on_tcp().await;
        engine.put(path, 200, body);
        let (scraper, mut source) = (Scraper::new(), source(ReportChoice::Auto));
        assert_eq!(waiting(&source.poll(&scraper, &target).await), Some(number));
        assert_eq!(engine.asked(), tried);
        assert_eq!(waiting(&source.poll(&scraper, &target).await), Some(number));
        assert_eq!(engine.asked(), [path]);
    }
}

#[tokio::test]
async fn the_shape_decides_and_not_the_path() {
    let (engine, target) = Engine::on_tcp().await;
    engine.put("/get_load", 200, V1);
    let outcome = source(ReportChoice::GetLoad).poll(&Scraper::new(), &target).await;
    let PollOutcome::Report(report) = outcome else { panic!("{outcome:?}") };
    assert_eq!(report.format, ReportFormat::V1Loads);
}

#[tokio::test]
async fn a_worker_without_any_report_is_absent_and_asked_seldom() {
    let (engine, target) = Engine::on_tcp().await;
    engine.put("/metrics", 501, "start it with --metrics");
    let (scraper, mut source) = (Scraper::new(), source(ReportChoice::Auto));
    assert_eq!(source.poll(&scraper, &target).await, PollOutcome::Absent);
    assert_eq!(engine.asked(), PATHS);
    assert!(waits_longer(&source));
    assert_eq!(source.next_in(Duration::from_secs(60)), Duration::from_secs(60));
    engine.put("/metrics", 200, VLLM);
    assert_eq!(waiting(&source.poll(&scraper, &target).await), Some(6));
    assert!(!waits_longer(&source));
}

#[tokio::test]
async fn a_worker_that_is_not_to_be_asked_is_not_asked() {
    let (engine, target) = Engine::on_tcp().await;
    let outcome = source(ReportChoice::None).poll(&Scraper::new(), &target).await;
    assert_eq!((outcome, engine.asked().len()), (PollOutcome::Absent, 0));
}

#[tokio::test]
async fn a_form_that_is_gone_is_looked_for_elsewhere_at_once() {
    let (engine, target) = Engine::on_tcp().await;
    engine.put("/v1/loads", 200, V1);
    let (scraper, mut source) = (Scraper::new(), source(ReportChoice::Auto));
    assert_eq!(waiting(&source.poll(&scraper, &target).await), Some(4));
    engine.put("/v1/loads", 404, "");
    engine.put("/get_load", 200, ONE_RANK);
    assert_eq!(waiting(&source.poll(&scraper, &target).await), Some(3));
}

#[tokio::test]
async fn refused_credentials_are_told_apart_from_no_report() {
    for status in [401, 403] {
        let (engine, target) = Engine::on_tcp().await;
        engine.put("/get_load", status, "");
        let (scraper, mut source) = (Scraper::new(), source(ReportChoice::Auto));
        assert_eq!(source.poll(&scraper, &target).await, PollOutcome::Unauthorized);
        assert!(!waits_longer(&source));
        engine.asked();
        assert_eq!(source.poll(&scraper, &target).await, PollOutcome::Unauthorized);
        assert_eq!(engine.asked(), ["/get_load"]);
    }
}

#[tokio::test]
async fn an_open_report_is_found_behind_a_guarded_path() {
    let (engine, target) = Engine::on_tcp().await;
    engine.put("/v1/loads", 401, "");
    engine.put("/metrics", 200, VLLM);
    let outcome = source(ReportChoice::Auto).poll(&Scraper::new(), &target).await;
    assert_eq!(waiting(&outcome), Some(6));
}

#[tokio::test]
async fn credentials_and_host_are_sent_with_every_request() {
    let (engine, mut target) = Engine::on_tcp().await;
    engine.put("/get_load", 200, ONE_RANK);
    let value = Secret::new("Bearer k1".to_owned());
    target.auth = Some(UpstreamAuth { name: "authorization".to_owned(), value });
    source(ReportChoice::Auto).poll(&Scraper::new(), &target).await;
    let asked = std::mem::take(&mut *engine.asked.lock());
    assert_eq!(asked.len(), 4);
    for (path, headers) in asked {
        assert_eq!(headers.get("authorization").unwrap(), "Bearer k1", "{path}");
        assert_eq!(headers.get("host").unwrap(), "w0.example:30000", "{path}");
    }
}

#[tokio::test]
async fn a_header_that_cannot_be_sent_is_said_without_its_value() {
    let (engine, mut target) = Engine::on_tcp().await;
    let value = Secret::new("hidden\nvalue".to_owned());
    target.auth = Some(UpstreamAuth { name: "x-key".to_owned(), value });
    let outcome = source(ReportChoice::GetLoad).poll(&Scraper::new(), &target).await;
    let PollOutcome::Unreachable(reason) = outcome else { panic!("{outcome:?}") };
    assert!(reason.starts_with("request: ") && !reason.contains("hidden"), "{reason}");
    assert_eq!(engine.asked().len(), 0);
}

#[tokio::test]
async fn an_answer_that_is_no_report_is_unreadable() {
    let (engine, target) = Engine::on_tcp().await;
    for path in PATHS {
        engine.put(path, 200, "<html>");
    }
    let (scraper, mut source) = (Scraper::new(), source(ReportChoice::Auto));
    let outcome = source.poll(&scraper, &target).await;
    assert_eq!(outcome, PollOutcome::Unreadable(ReportError::Foreign));
    assert_eq!(engine.asked(), PATHS);
}

#[tokio::test]
async fn a_worker_that_is_not_ready_is_not_called_idle_by_another_form() {
    let (engine, target) = Engine::on_tcp().await;
    let starting = V1.replace("_reqs\":2", "_reqs\":0,\"max_total_num_tokens\":0");
    engine.put("/v1/loads", 200, starting);
    engine.put("/get_load", 200, ONE_RANK);
    let outcome = source(ReportChoice::Auto).poll(&Scraper::new(), &target).await;
    assert_eq!(outcome, PollOutcome::Unreadable(ReportError::NotReady { rank: 0 }));
}

#[tokio::test]
async fn two_mebibytes_are_not_read() {
    let (engine, target) = Engine::on_tcp().await;
    engine.put("/get_load", 200, vec![b' '; 2 << 20]);
    let outcome = source(ReportChoice::GetLoad).poll(&Scraper::new(), &target).await;
    assert_eq!(outcome, PollOutcome::Unreadable(ReportError::TooLong { limit: 1 << 20 }));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (engine, target) = Engine::on_tcp().await;
    engine.canned.lock().insert("/get_load", Canned::Redirects("/elsewhere"));
    engine.put("/elsewhere", 200, ONE_RANK);
    let outcome = source(ReportChoice::GetLoad).poll(&Scraper::new(), &target).await;
    assert_eq!(outcome, PollOutcome::Absent);
    assert_eq!(engine.asked(), ["/get_load"]);
}

#[tokio::test]
async fn a_worker_that_hangs_times_out() {
    let (engine, target) = Engine::on_tcp().await;
    engine.canned.lock().insert("/get_load", Canned::Hangs);
    let mut source = within(ReportChoice::GetLoad, Duration::from_millis(50));
    assert_eq!(source.poll(&Scraper::new(), &target).await, PollOutcome::Timeout);
}

#[tokio::test]
async fn a_path_that_hangs_does_not_hide_the_others() {
    let (engine, target) = Engine::on_tcp().await;
    engine.canned.lock().insert("/v1/loads", Canned::Hangs);
    engine.put("/metrics", 200, VLLM);
    let scraper = Scraper::new();
    let mut source = within(ReportChoice::Auto, Duration::from_millis(50));
    assert_eq!(source.poll(&scraper, &target).await, PollOutcome::Timeout);
    source.timeout = Duration::from_secs(20);
    assert_eq!(waiting(&source.poll(&scraper, &target).await), Some(6));
    let mut asked = engine.asked();
    asked.retain(|path| path != "/v1/loads");
    assert_eq!(asked, PATHS[1..]);
}

#[tokio::test]
async fn a_worker_that_is_not_there_is_unreachable_and_the_reason_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let target = target(WorkerAddress::Unix(folder.path().join("none.sock").into()));
    let outcome = source(ReportChoice::Auto).poll(&Scraper::new(), &target).await;
    let PollOutcome::Unreachable(reason) = outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("No such file"), "{reason}");
}

#[tokio::test]
async fn a_broken_connection_does_not_change_where_the_report_is() {
    let (engine, target) = Engine::on_tcp().await;
    engine.put("/get_load", 200, ONE_RANK);
    let (scraper, mut source) = (Scraper::new(), source(ReportChoice::Auto));
    source.poll(&scraper, &target).await;
    engine.canned.lock().insert("/get_load", Canned::Breaks);
    engine.put("/v1/loads", 200, V1);
    let outcome = source.poll(&scraper, &target).await;
    assert!(matches!(outcome, PollOutcome::Unreachable(_)), "{outcome:?}");
    engine.put("/get_load", 200, ONE_RANK);
    assert_eq!(waiting(&source.poll(&scraper, &target).await), Some(3));
}

#[tokio::test]
async fn server_errors_do_not_change_where_the_report_is() {
    let (engine, target) = Engine::on_tcp().await;
    engine.put("/get_load", 200, ONE_RANK);
    let (scraper, mut source) = (Scraper::new(), source(ReportChoice::Auto));
    source.poll(&scraper, &target).await;
    engine.asked();
    engine.put("/get_load", 503, "");
    let broken = PollOutcome::Unreachable("HTTP 503 Service Unavailable".to_owned());
    for _ in 0..REPROBE_AFTER {
        assert_eq!(source.poll(&scraper, &target).await, broken);
        assert_eq!(engine.asked(), ["/get_load"]);
    }
    assert_eq!(source.poll(&scraper, &target).await, broken);
    assert_eq!(engine.asked(), PATHS, "a streak of failures makes it look around");
    assert_eq!(source.poll(&scraper, &target).await, broken);
    assert_eq!(engine.asked(), ["/get_load"], "what it saw there was no reason to go elsewhere");
}

#[tokio::test]
async fn a_lesser_form_found_past_a_server_error_is_not_settled_for() {
    let (engine, target) = Engine::on_tcp().await;
    engine.put("/v1/loads", 500, "");
    engine.put("/get_load", 200, ONE_RANK);
    let (scraper, mut source) = (Scraper::new(), source(ReportChoice::Auto));
    assert_eq!(waiting(&source.poll(&scraper, &target).await), Some(3));
    engine.put("/v1/loads", 200, V1);
    assert_eq!(waiting(&source.poll(&scraper, &target).await), Some(4));
}

#[tokio::test]
async fn after_a_streak_of_failures_another_form_is_found() {
    let (engine, target) = Engine::on_tcp().await;
    engine.put("/v1/loads", 200, V1);
    let (scraper, mut source) = (Scraper::new(), source(ReportChoice::Auto));
    source.poll(&scraper, &target).await;
    engine.put("/v1/loads", 200, "{}");
    engine.put("/metrics", 200, VLLM);
    for _ in 0..REPROBE_AFTER {
        let outcome = source.poll(&scraper, &target).await;
        assert_eq!(outcome, PollOutcome::Unreadable(ReportError::Foreign));
    }
    assert_eq!(waiting(&source.poll(&scraper, &target).await), Some(6));
}

#[tokio::test]
async fn a_restart_makes_it_look_for_the_best_path_again() {
    let (engine, target) = Engine::on_tcp().await;
    engine.put("/get_load", 200, ONE_RANK);
    let (scraper, mut source) = (Scraper::new(), source(ReportChoice::Auto));
    source.poll(&scraper, &target).await;
    engine.put("/v1/loads", 200, V1);
    assert_eq!(waiting(&source.poll(&scraper, &target).await), Some(3));
    source.restarted();
    assert_eq!(waiting(&source.poll(&scraper, &target).await), Some(4));
}

#[tokio::test]
async fn a_rank_that_is_missing_by_server_info_makes_the_report_unreadable() {
    let too_few = PollOutcome::Unreadable(ReportError::TooFewRanks { seen: 1, expected: 2 });
    for path in SERVER_INFO_PATHS {
        let (engine, target) = Engine::on_tcp().await;
        engine.put("/get_load", 200, ONE_RANK);
        engine.put(path, 200, r#"{"dp_size":2}"#);
        let (scraper, mut source) = (Scraper::new(), source(ReportChoice::GetLoad));
        assert_eq!(source.poll(&scraper, &target).await, too_few);
        assert_eq!(engine.asked().last().unwrap(), path);
        assert_eq!(source.poll(&scraper, &target).await, too_few);
        assert_eq!(engine.asked(), ["/get_load"], "asked once");
    }
}

#[tokio::test]
async fn a_configured_dp_size_is_not_asked_for() {
    let (engine, target) = Engine::on_tcp().await;
    engine.put("/get_load", 200, ONE_RANK);
    let mut source = source(ReportChoice::GetLoad);
    source.dp_size = Some(1);
    assert_eq!(waiting(&source.poll(&Scraper::new(), &target).await), Some(3));
    assert_eq!(engine.asked(), ["/get_load"]);
}

#[tokio::test]
async fn server_info_that_hangs_costs_no_report() {
    let (engine, target) = Engine::on_tcp().await;
    engine.put("/get_load", 200, ONE_RANK);
    engine.canned.lock().insert("/get_server_info", Canned::Hangs);
    let mut source = within(ReportChoice::GetLoad, Duration::from_secs(1));
    assert_eq!(waiting(&source.poll(&Scraper::new(), &target).await), Some(3));
}

#[tokio::test]
async fn server_info_that_never_comes_is_given_up() {
    let (engine, target) = Engine::on_tcp().await;
    engine.put("/get_load", 200, ONE_RANK);
    engine.canned.lock().insert("/get_server_info", Canned::Breaks);
    let (scraper, mut source) = (Scraper::new(), source(ReportChoice::GetLoad));
    for _ in 0..=SERVER_INFO_TRIES {
        assert_eq!(waiting(&source.poll(&scraper, &target).await), Some(3));
    }
    let infos = engine.asked().into_iter().filter(|path| path == "/get_server_info");
    assert_eq!(infos.count(), SERVER_INFO_TRIES as usize);
}

#[tokio::test]
async fn a_unix_socket_is_a_worker_too() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, target) = Engine::on_unix(&folder.path().join("w0.sock"));
    engine.put("/get_load", 200, ONE_RANK);
    let (scraper, mut source) = (Scraper::new(), source(ReportChoice::Auto));
    for _ in 0..2 {
        assert_eq!(waiting(&source.poll(&scraper, &target).await), Some(3));
    }
    assert_eq!(*engine.connections.lock(), 1);
}

/// An https worker that calls itself `worker.test`; the files say who vouches for it.
mod tls {
    use super::*;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ServerConfig, ServerConnection, StreamOwned};
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpStream;

    fn file(name: &str) -> std::path::PathBuf {
        std::path::PathBuf::from(format!(
            "{}/src/fleet/scrape/testdata/{name}",
            env!("CARGO_MANIFEST_DIR")
        ))
    }

    /// Answers every request on `stream`; a client that trusts it not ends this.
    fn answer(config: Arc<ServerConfig>, stream: TcpStream) -> std::io::Result<()> {
        let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
        let mut stream = BufReader::new(StreamOwned::new(connection, stream));
        let mut line = String::new();
        while stream.read_line(&mut line)? != 0 {
            if line == "\r\n" {
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", ONE_RANK.len());
                stream.get_mut().write_all((head + ONE_RANK).as_bytes())?;
            }
            line.clear();
        }
        Ok(())
    }

    /// Serves one connection.
    fn worker() -> Target {
        let certificate = CertificateDer::from_pem_file(file("worker.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(file("worker.key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = WorkerAddress::Tcp(listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (stream, _) = listener.accept()?;
            answer(Arc::new(config), stream)
        });
        let ca = Authorities::from_pem(&file("ca.pem"), &std::fs::read(file("ca.pem")).unwrap());
        let sni = Some("worker.test".to_owned());
        Target { scheme: Scheme::Https, sni, ca, ..target(address) }
    }

    async fn reason(target: &Target) -> String {
        match source(ReportChoice::GetLoad).poll(&Scraper::new(), target).await {
            PollOutcome::Unreachable(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_worker_is_trusted_by_its_own_ca_and_name_on_a_kept_connection() {
        let (target, scraper) = (worker(), Scraper::new());
        let mut source = source(ReportChoice::GetLoad);
        for _ in 0..2 {
            assert_eq!(waiting(&source.poll(&scraper, &target).await), Some(3));
        }
    }

    #[tokio::test]
    async fn another_name_is_not_trusted() {
        let target = Target { sni: Some("other.test".to_owned()), ..worker() };
        assert!(reason(&target).await.contains("certificate"));
    }

    #[tokio::test]
    async fn the_address_is_the_name_of_a_worker_without_one() {
        assert!(reason(&Target { sni: None, ..worker() }).await.contains("127.0.0.1"));
    }

    #[tokio::test]
    async fn a_ca_the_system_does_not_know_is_not_trusted() {
        assert_ne!(reason(&Target { ca: None, ..worker() }).await, "");
    }
}
