//! Reloads and upgrades in a row under load: nothing is refused, cut, changed or lost.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use support::client::{Connection, chat, request};
use support::edge::{Edge, free_address, model};
use support::engine::{Engine, Received, Reply, Step, sha256};
use support::within;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

const CHAT: &str = "/v1/chat/completions";
/// Streams that are open at any time.
const STREAMS: u64 = 200;
/// Pieces of a stream, and the time before each: four seconds in all.
const PIECES: u64 = 20;
const PAUSE: Duration = Duration::from_millis(200);
/// Short requests: this many senders, each with this pause, are 50 a second.
const SENDERS: u64 = 10;
const BETWEEN: Duration = Duration::from_millis(200);
/// Upgrades; around each there are four reloads, two of them invalid.
const UPGRADES: usize = 5;

/// A piece of an answer that nobody could guess.
fn piece(seed: u64, at: u64) -> String {
    let number = (seed * PIECES + at).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{number:016x}\"}}}}]}}\n\n")
}

fn whole(seed: u64, pieces: u64) -> String {
    (0..pieces).map(|at| piece(seed, at)).collect()
}

/// What the prompt asks for.
fn prompt(seed: u64, kind: &str) -> String {
    chat("m", &format!("seed={seed} {kind} "))
}

/// Answers by the prompt: a stream in chunks, a stream with a length, or all at once.
fn answer(received: &Received) -> Reply {
    let text = String::from_utf8_lossy(&received.body).into_owned();
    let seed = text.split("seed=").nth(1).and_then(|rest| rest.split(' ').next());
    let seed: u64 = seed.unwrap().parse().unwrap();
    let head = |framing: &str| {
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{framing}\r\n\r\n")
    };
    let length = |pieces| format!("content-length: {}", whole(seed, pieces).len());
    if text.contains("short") {
        let answer = head(&length(1)) + &piece(seed, 0);
        return Reply::raw(answer.as_bytes());
    }
    let is_chunked = text.contains("chunked");
    let framing = if is_chunked { "transfer-encoding: chunked".to_owned() } else { length(PIECES) };
    let mut steps = vec![Step::Write(head(&framing).into_bytes())];
    for at in 0..PIECES {
        let piece = piece(seed, at);
        let piece = match is_chunked {
            true => format!("{:x}\r\n{piece}\r\n", piece.len()),
            false => piece,
        };
        steps.extend([Step::Pause(PAUSE), Step::Write(piece.into_bytes())]);
    }
    if is_chunked {
        steps.push(Step::Write(b"0\r\n\r\n".to_vec()));
    }
    Reply::steps(steps)
}

/// What everybody who sends knows.
#[derive(Clone)]
struct Senders {
    plain: SocketAddr,
    h2c: SocketAddr,
    tls: SocketAddr,
    secure: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    seeds: Arc<AtomicU64>,
    streams: Arc<AtomicU64>,
    short: Arc<AtomicU64>,
    stopped: watch::Receiver<bool>,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Senders {
    fn seed(&self) -> u64 {
        self.seeds.fetch_add(1, Ordering::Relaxed)
    }

    fn goes_on(&self) -> bool {
        !*self.stopped.borrow()
    }

    fn h2_request(
        &self,
        at: SocketAddr,
        scheme: &str,
        seed: u64,
        kind: &str,
    ) -> Request<Full<Bytes>> {
        Request::post(format!("{scheme}://{at}{CHAT}"))
            .header("content-type", "application/json")
            .body(Full::new(prompt(seed, kind).into()))
            .unwrap()
    }

    /// A new connection for each request: by turns plain with a length, plain in chunks, h2c, TLS.
    async fn once(&self, way: u64, kind: &str, pieces: u64) {
        let seed = self.seed();
        let what = format!("seed {seed}, way {}", way % 4);
        let body = match way % 4 {
            0 => self.plain_once(seed, kind).await,
            1 => self.plain_once(seed, &format!("chunked {kind}")).await,
            2 => {
                let mut sender = h2c(self.h2c).await.unwrap();
                let request = self.h2_request(self.h2c, "http", seed, &format!("chunked {kind}"));
                whole_body(sender.send_request(request).await).await
            }
            _ => {
                let request = self.h2_request(self.tls, "https", seed, &format!("chunked {kind}"));
                whole_body(self.secure.request(request).await).await
            }
        };
        let body = body.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(sha256(&body), sha256(whole(seed, pieces).as_bytes()), "{what}");
    }

    async fn plain_once(&self, seed: u64, kind: &str) -> Result<Vec<u8>, Failure> {
        let mut connection = Connection::open(self.plain).await;
        connection.send(&request("POST", CHAT, prompt(seed, kind).as_bytes())).await;
        let answer = connection.answer().await;
        if answer.status != 200 {
            return Err(format!("{}: {}", answer.status, answer.text()).into());
        }
        Ok(answer.body)
    }

    /// Streams one after the other.
    async fn stream(self, way: u64) {
        while self.goes_on() {
            self.once(way, "stream", PIECES).await;
            self.streams.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Short requests, each over a new connection.
    async fn knock(self, way: u64) {
        while self.goes_on() {
            self.once(way, "short", 1).await;
            self.short.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(BETWEEN).await;
        }
    }

    /// Short requests over one connection for as long as the edge keeps it.
    async fn keep(self) {
        let mut connection = Connection::open(self.plain).await;
        while self.goes_on() {
            if connection.is_closed() {
                connection = Connection::open(self.plain).await;
            }
            let seed = self.seed();
            connection.send(&request("POST", CHAT, prompt(seed, "short").as_bytes())).await;
            // Panics if it is closed instead.
            let answer = connection.answer().await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(answer.text(), whole(seed, 1));
            if answer.header("connection") == Some("close") {
                connection = Connection::open(self.plain).await;
            }
            self.short.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(BETWEEN).await;
        }
    }

    /// The same over HTTP/2, where the edge says which requests it will not take.
    async fn keep_h2(self) {
        let mut sender = h2c(self.h2c).await.unwrap();
        while self.goes_on() {
            let seed = self.seed();
            let request = self.h2_request(self.h2c, "http", seed, "short");
            let answer = match sender.ready().await {
                Ok(()) => sender.send_request(request).await,
                Err(error) => Err(error),
            };
            match answer {
                // It was not sent.
                Err(error) if error.is_canceled() || error.is_closed() => {
                    sender = h2c(self.h2c).await.unwrap();
                    continue;
                }
                answer => {
                    assert_eq!(whole_body(answer).await.unwrap(), whole(seed, 1).as_bytes());
                }
            }
            self.short.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(BETWEEN).await;
        }
    }
}

async fn h2c(address: SocketAddr) -> Result<SendRequest<Full<Bytes>>, Failure> {
    let stream = TcpStream::connect(address).await?;
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn whole_body<E: Into<Failure>>(
    answer: Result<Response<Incoming>, E>,
) -> Result<Vec<u8>, Failure> {
    let answer = answer.map_err(Into::into)?;
    let status = answer.status();
    let body = within("a body", answer.into_body().collect()).await?.to_bytes().to_vec();
    match status.is_success() {
        true => Ok(body),
        false => Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into()),
    }
}

fn testdata(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/fleet/scrape/testdata").join(name)
}

/// A client that opens a connection for each request and sends none twice.
fn secure() -> Client<HttpsConnector<HttpConnector>, Full<Bytes>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(testdata("ca.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("worker.test").unwrap();
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_only()
        .with_server_name_resolver(FixedServerNameResolver::new(name))
        .enable_http1()
        .build();
    Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(0)
        .retry_canceled_requests(false)
        .build(connector)
}

/// Its file with a listener of each kind.
fn yaml(edge: &Edge, body: &str, h2c: SocketAddr, tls: SocketAddr) -> String {
    let one = format!("[{{address: \"{}\"}}]", edge.traffic);
    let all = format!(
        "[{{address: \"{}\"}}, {{address: \"{h2c}\", h2c: true}}, {{address: \"{tls}\", tls: {{cert: \"{}\", key: \"{}\"}}}}]",
        edge.traffic,
        testdata("worker.pem").display(),
        testdata("worker.key").display(),
    );
    edge.yaml(body).replace(&one, &all)
}

async fn reload(edge: &Edge, text: &str, status: u16) {
    fs::write(edge.file(), text).unwrap();
    assert_eq!(edge.post("/v1/reload").await.status, status);
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_reloads_and_five_upgrades_under_load_lose_nothing() {
    let engines = [Engine::start().await, Engine::start().await, Engine::start().await];
    engines.iter().for_each(|engine| engine.answer(answer));
    let urls: Vec<String> = engines.iter().map(Engine::url).collect();
    let bodies = [
        model(&["policy: round_robin"], &urls),
        model(&["policy: least_load"], &urls[..2]),
        model(&["policy: round_robin", "aliases: [more]"], &urls),
    ];
    let mut edge = Edge::start(&bodies[0]).await;
    let (h2c, tls) = (free_address(), free_address());
    fs::write(edge.file(), yaml(&edge, &bodies[0], h2c, tls)).unwrap();
    edge.upgraded().await;
    let (stop, stopped) = watch::channel(false);
    let senders = Senders {
        plain: edge.traffic,
        h2c,
        tls,
        secure: secure(),
        seeds: Arc::default(),
        streams: Arc::default(),
        short: Arc::default(),
        stopped,
    };
    let mut tasks = JoinSet::new();
    for number in 0..STREAMS {
        tasks.spawn(senders.clone().stream(number));
    }
    for number in 0..SENDERS {
        match number {
            0..4 => tasks.spawn(senders.clone().knock(number)),
            4..8 => tasks.spawn(senders.clone().keep()),
            _ => tasks.spawn(senders.clone().keep_h2()),
        };
    }
    let mut now = edge.serving().await;
    for round in 0..UPGRADES {
        for half in 0..2 {
            let text = yaml(&edge, &bodies[(round + half) % bodies.len()], h2c, tls);
            reload(&edge, &text.replace("workers", "wrokers"), 422).await;
            reload(&edge, &text, 200).await;
        }
        let output = edge.upgrade(&["--pid", &now.to_string()]).await;
        assert!(output.status.success(), "{output:?}");
        print!("{}", String::from_utf8_lossy(&output.stdout));
        edge.settled().await;
        let next = edge.serving().await;
        assert_ne!(next, now);
        now = next;
    }
    stop.send(true).unwrap();
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    println!(
        "{} streams and {} short requests, all whole, over {UPGRADES} upgrades and {} reloads",
        count(&senders.streams),
        count(&senders.short),
        UPGRADES * 4
    );
    edge.is_alone(now).await;
    assert!(!edge.log().contains("\"outcome\":\"worker"), "{}", edge.log());
}
