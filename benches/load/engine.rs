//! An engine that answers at once: a JSON answer, a stream of 64 events, a load report, or the body as it came.
//! One process, listening on all of 127.0.0.0/8, so that a fleet of any size is one port.

use crate::process::{self, Side};
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::Child;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub struct Engine {
    pub address: SocketAddr,
    child: Child,
}

impl Engine {
    pub fn cpu(&self) -> Duration {
        process::cpu(self.child.id())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        process::stop(&mut self.child);
    }
}

pub fn start() -> Engine {
    let address = process::free_address();
    let child = process::spawn(process::itself(&["engine", &address.to_string()]), Side::Load);
    process::is_listening(address);
    Engine { address, child }
}

pub fn serve(address: &str) {
    let port = address.parse::<SocketAddr>().unwrap().port();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = TcpListener::bind(("0.0.0.0", port)).await.unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            tokio::spawn(connection(stream));
        }
    });
}

/// Reads heads and skips bodies that it need not send back; no more of HTTP than the proxies beside it send.
async fn connection(mut stream: TcpStream) -> Option<()> {
    let [report, model, answer] = [REPORT, MODEL, ANSWER].map(|body| whole(body.as_bytes()));
    let stream_answer = stream_answer();
    let mut bytes = Vec::with_capacity(1 << 16);
    loop {
        let head = loop {
            if let Some(end) = memchr::memmem::find(&bytes, b"\r\n\r\n") {
                break end + 4;
            }
            more(&mut stream, &mut bytes).await?;
        };
        let length = length(&bytes[..head]);
        let asked = Asked::by(&bytes[..head]);
        if asked == Asked::Echo {
            while bytes.len() < head + length {
                more(&mut stream, &mut bytes).await?;
            }
            stream.write_all(&whole(&bytes[head..head + length])).await.ok()?;
        }
        let mut left = (head + length).saturating_sub(bytes.len());
        bytes.drain(..bytes.len().min(head + length));
        while 0 < left {
            let mut rest = Vec::with_capacity(1 << 16);
            more(&mut stream, &mut rest).await?;
            let taken = left.min(rest.len());
            left -= taken;
            bytes.extend_from_slice(&rest[taken..]);
        }
        match asked {
            Asked::Echo => {}
            Asked::Model => stream.write_all(&model).await.ok()?,
            Asked::Report => stream.write_all(&report).await.ok()?,
            Asked::Answer => stream.write_all(&answer).await.ok()?,
            Asked::Stream => {
                for piece in &stream_answer {
                    stream.write_all(piece).await.ok()?;
                    // The others' turn: events go out one by one, as engines send them.
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Report,
    Model,
    Answer,
    Stream,
    Echo,
}

impl Asked {
    fn by(head: &[u8]) -> Self {
        let has = |word: &[u8]| memchr::memmem::find(head, word).is_some();
        match () {
            () if has(b"/v1/models HTTP") || has(b"model_info HTTP") => Self::Model,
            () if head.starts_with(b"GET") => Self::Report,
            () if has(b"x-kind: sse") => Self::Stream,
            () if has(b"x-kind: echo") => Self::Echo,
            () => Self::Answer,
        }
    }
}

async fn more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<()> {
    match stream.read_buf(bytes).await {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(()),
    }
}

fn length(head: &[u8]) -> usize {
    let text = std::str::from_utf8(head).unwrap_or("").to_ascii_lowercase();
    let value = text.split("content-length:").nth(1).and_then(|rest| rest.split("\r\n").next());
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

const ANSWER: &str = r#"{"id":"c-1","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":512,"completion_tokens":2,"total_tokens":514,"prompt_tokens_details":{"cached_tokens":480}}}"#;

/// What routers ask before they send anything.
const MODEL: &str = r#"{"object":"list","data":[{"id":"m","object":"model"}],"model_path":"m","served_model_name":"m"}"#;

const REPORT: &str = r#"[{"dp_rank":0,"num_reqs":0,"num_waiting_reqs":0,"num_tokens":100}]"#;

fn whole(body: &[u8]) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ";
    [format!("{head}{}\r\n\r\n", body.len()).as_bytes(), body].concat()
}

/// Events of a stream with content; usage and `[DONE]` follow.
const EVENTS: usize = 64;
/// All of them.
pub const ALL_EVENTS: usize = EVENTS + 2;

fn stream_answer() -> Vec<Vec<u8>> {
    let mut pieces = vec![
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            .to_vec(),
    ];
    let usage = r#"data: {"choices":[],"usage":{"prompt_tokens":512,"completion_tokens":64,"prompt_tokens_details":{"cached_tokens":480}}}"#;
    let event = r#"data: {"id":"c-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}"#;
    let events = std::iter::repeat_n(event, EVENTS).chain([usage, "data: [DONE]"]);
    for event in events {
        let mut piece = Vec::new();
        write!(piece, "{:x}\r\n{event}\n\n\r\n", event.len() + 2).unwrap();
        pieces.push(piece);
    }
    pieces.push(b"0\r\n\r\n".to_vec());
    pieces
}
