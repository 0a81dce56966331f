//! An engine on a port of its own that answers as a test says, byte by byte.

use super::client::values;
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// What an engine got.
#[derive(Clone, Debug)]
pub struct Received {
    /// The number of its connection, from 0.
    pub connection: u64,
    pub method: String,
    pub target: String,
    /// The head, byte by byte.
    pub head: String,
    pub headers: Vec<(String, String)>,
    pub body_len: usize,
    pub body_sha256: String,
    /// The body itself, if it is small.
    pub body: Vec<u8>,
}

impl Received {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Every value of a header, in order.
    pub fn all(&self, name: &str) -> Vec<&str> {
        values(&self.headers, name)
    }
}

/// One thing an engine does for a request.
#[derive(Clone, Debug)]
pub enum Step {
    /// Writes these bytes as they are.
    Write(Vec<u8>),
    /// Waits this long.
    Pause(Duration),
    /// Waits until the test says so.
    Wait(Arc<Notify>),
    /// Says nothing until the edge closes the connection.
    Hang,
    /// Closes the connection.
    Close,
    /// Sends back every byte that comes until the other side closes.
    Echo,
}

/// How a request is answered.
#[derive(Clone, Debug)]
pub struct Reply {
    pub steps: Vec<Step>,
}

impl Reply {
    /// A complete answer with a length.
    pub fn json(status: u16, body: &str) -> Self {
        Self::with_type(status, "application/json", body)
    }

    pub fn with_type(status: u16, kind: &str, body: &str) -> Self {
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        Self { steps: vec![Step::Write(head.into_bytes())] }
    }

    /// An answer with usage, as engines give it.
    pub fn completion() -> Self {
        Self::json(
            200,
            r#"{"choices":[{"message":{"content":"ok"}}],"usage":{"prompt_tokens":10,"completion_tokens":1}}"#,
        )
    }

    pub fn steps(steps: Vec<Step>) -> Self {
        Self { steps }
    }

    /// These bytes, head and all.
    pub fn raw(bytes: &[u8]) -> Self {
        Self { steps: vec![Step::Write(bytes.to_vec())] }
    }

    pub fn hang() -> Self {
        Self { steps: vec![Step::Hang] }
    }

    pub fn close() -> Self {
        Self { steps: vec![Step::Close] }
    }
}

/// The head of a chunked event stream.
pub fn stream_head() -> Step {
    Step::Write(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            .to_vec(),
    )
}

/// One chunk holding `text`.
pub fn chunk(text: &str) -> Step {
    Step::Write(format!("{:x}\r\n{text}\r\n", text.len()).into_bytes())
}

/// A content event of a chat stream.
pub fn event(content: &str) -> Step {
    chunk(&format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{content}\"}}}}]}}\n\n"))
}

/// The end of a chunked stream.
pub fn stream_end() -> Step {
    Step::Write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n".to_vec())
}

type Answering = dyn Fn(&Received) -> Reply + Send + Sync;

const MONITORED: usize = 100;

/// See the module. Stops listening when dropped.
pub struct Engine {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    received: Mutex<Vec<Received>>,
    /// Probes and polls, the last [`MONITORED`].
    monitored: Mutex<VecDeque<Received>>,
    /// `/get_load`'s answer; `None` = 404.
    load: Mutex<Option<String>>,
    /// `/get_load` never ends.
    hanging: AtomicBool,
    healthy: Mutex<bool>,
    answering: Mutex<Arc<Answering>>,
    /// Connections the edge closed while the engine was still busy with a request.
    abandoned: Mutex<u64>,
}

/// So many engines, and their URLs.
pub async fn engines(count: usize) -> (Vec<Engine>, Vec<String>) {
    let mut engines = Vec::new();
    for _ in 0..count {
        engines.push(Engine::start().await);
    }
    let urls = engines.iter().map(Engine::url).collect();
    (engines, urls)
}

impl Engine {
    /// Healthy, without load reports, answering completions.
    pub async fn start() -> Self {
        Self::at("127.0.0.1:0").await
    }

    pub async fn at(address: &str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            received: Mutex::default(),
            monitored: Mutex::default(),
            load: Mutex::default(),
            hanging: AtomicBool::new(false),
            healthy: Mutex::new(true),
            answering: Mutex::new(Arc::new(|_| Reply::completion())),
            abandoned: Mutex::default(),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { address, shared, task }
    }

    pub fn answer(&self, answering: impl Fn(&Received) -> Reply + Send + Sync + 'static) {
        *self.shared.answering.lock().unwrap() = Arc::new(answering);
    }

    /// Reports this many waiting and running requests in SGLang's form.
    pub fn set_queue(&self, waiting: u64, running: u64) {
        let row = format!(
            r#"[{{"dp_rank":0,"num_reqs":{},"num_waiting_reqs":{waiting},"num_tokens":{}}}]"#,
            waiting + running,
            1000 + waiting
        );
        self.set_load(Some(&row));
    }

    /// The body of `/get_load`; `None` answers 404.
    pub fn set_load(&self, body: Option<&str>) {
        *self.shared.load.lock().unwrap() = body.map(str::to_owned);
    }

    /// From here on a report is asked for in vain.
    pub fn hang_reports(&self) {
        self.shared.hanging.store(true, Ordering::Relaxed);
    }

    pub fn set_healthy(&self, healthy: bool) {
        *self.shared.healthy.lock().unwrap() = healthy;
    }

    /// Requests so far, polls and probes left out.
    pub fn received(&self) -> Vec<Received> {
        self.shared.received.lock().unwrap().clone()
    }

    /// The last probes and polls.
    pub fn monitored(&self) -> Vec<Received> {
        self.shared.monitored.lock().unwrap().iter().cloned().collect()
    }

    pub fn abandoned(&self) -> u64 {
        *self.shared.abandoned.lock().unwrap()
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Connections end with the engine.
    let mut connections = tokio::task::JoinSet::new();
    let mut number = 0;
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        connections.spawn(serve(stream, number, Arc::clone(&shared)));
        number += 1;
    }
}

async fn serve(mut stream: TcpStream, connection: u64, shared: Arc<Shared>) {
    let mut buffer = Vec::new();
    while let Some(received) = read_request(&mut stream, &mut buffer).await {
        let received = Received { connection, ..received };
        let reply = if let Some(reply) = monitoring(&received, &shared) {
            let mut monitored = shared.monitored.lock().unwrap();
            monitored.push_back(received);
            if MONITORED < monitored.len() {
                monitored.pop_front();
            }
            reply
        } else {
            shared.received.lock().unwrap().push(received.clone());
            let answering = Arc::clone(&*shared.answering.lock().unwrap());
            answering(&received)
        };
        for step in reply.steps {
            if !play(step, &mut stream, &shared).await {
                return;
            }
        }
    }
}

fn monitoring(received: &Received, shared: &Shared) -> Option<Reply> {
    if received.method != "GET" {
        return None;
    }
    match received.target.as_str() {
        "/health" if *shared.healthy.lock().unwrap() => Some(Reply::json(200, "{}")),
        "/health" => Some(Reply::json(500, "{}")),
        "/get_load" if shared.hanging.load(Ordering::Relaxed) => Some(Reply::hang()),
        "/get_load" => Some(match &*shared.load.lock().unwrap() {
            Some(body) => Reply::json(200, body),
            None => Reply::json(404, "{}"),
        }),
        "/v1/loads" | "/metrics" | "/get_server_info" | "/server_info" => {
            Some(Reply::json(404, "{}"))
        }
        _ => None,
    }
}

/// False: the connection is over.
async fn play(step: Step, stream: &mut TcpStream, shared: &Shared) -> bool {
    match step {
        Step::Write(bytes) => stream.write_all(&bytes).await.is_ok(),
        Step::Pause(time) => {
            tokio::time::sleep(time).await;
            true
        }
        Step::Wait(notify) => tokio::select! {
            () = notify.notified() => true,
            () = closed(stream) => {
                *shared.abandoned.lock().unwrap() += 1;
                false
            }
        },
        Step::Hang => {
            closed(stream).await;
            *shared.abandoned.lock().unwrap() += 1;
            false
        }
        Step::Close => false,
        Step::Echo => {
            let (mut from, mut to) = stream.split();
            // An error is the other side's close.
            let _ = tokio::io::copy(&mut from, &mut to).await;
            false
        }
    }
}

async fn closed(stream: &mut TcpStream) {
    let mut byte = [0; 256];
    while matches!(stream.read(&mut byte).await, Ok(n) if n > 0) {}
}

async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Received> {
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
        more(stream, buffer).await?;
    };
    let head = String::from_utf8(buffer[..head_end].to_vec()).unwrap();
    buffer.drain(..head_end);
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    let find = |name: &str| headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
    let body = match (find("content-length"), find("transfer-encoding")) {
        (Some((_, length)), _) => sized(stream, buffer, length.parse().unwrap()).await?,
        (None, Some(_)) => chunked(stream, buffer).await?,
        (None, None) => Vec::new(),
    };
    Some(Received {
        connection: 0,
        method,
        target,
        head,
        headers,
        body_len: body.len(),
        body_sha256: sha256(&body),
        body: if body.len() <= 1 << 16 { body } else { Vec::new() },
    })
}

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn more(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    let read = stream.read_buf(buffer).await.ok()?;
    (read > 0).then_some(())
}

async fn sized(stream: &mut TcpStream, buffer: &mut Vec<u8>, length: usize) -> Option<Vec<u8>> {
    while buffer.len() < length {
        more(stream, buffer).await?;
    }
    Some(buffer.drain(..length).collect())
}

async fn chunked(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line_end = loop {
            if let Some(at) = buffer.windows(2).position(|w| w == b"\r\n") {
                break at;
            }
            more(stream, buffer).await?;
        };
        let size = std::str::from_utf8(&buffer[..line_end]).ok()?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        buffer.drain(..line_end + 2);
        let piece = sized(stream, buffer, size + 2).await?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(&piece[..size]);
    }
}
