//! The worker receives exactly the bytes the client sent, whatever their number, their framing,
//! the client's pace, and whether a first worker refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::net::SocketAddr;
use support::client::{Answer, Connection, chat, exchange, post, request};
use support::edge::{Edge, free_address, model, workers};
use support::engine::{Engine, sha256};
use support::within;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Around Pingora's replay limit, and far beyond it.
const SIZES: [usize; 6] = [1, 65_535, 65_536, 65_537, 1 << 20, 20 << 20];

/// A chat of exactly `size` bytes, or as many bytes of no JSON at all if it does not fit.
fn body(size: usize) -> Vec<u8> {
    let head = br#"{"messages":[{"role":"user","content":""#;
    let tail = br#""}]}"#;
    let Some(fill) = size.checked_sub(head.len() + tail.len()) else { return vec![b'x'; size] };
    let text = (0..fill).map(|i| b'a' + u8::try_from(i * 7 % 26).unwrap());
    head.iter().copied().chain(text).chain(tail.iter().copied()).collect()
}

fn chunked(body: &[u8], piece: usize) -> Vec<u8> {
    let mut bytes = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for piece in body.chunks(piece) {
        bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        bytes.extend_from_slice(piece);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

fn one_model(urls: &[String]) -> String {
    format!(
        "  models:\n    - name: m\n      aliases: [default]\n      policy: cache_aware\n      workers:\n{}",
        workers(urls)
    )
}

async fn arrived_whole(engine: &Engine, answer: &Answer, body: &[u8], what: &str) {
    assert_eq!(answer.status, 200, "{what}: {}", answer.text());
    let received = engine.received();
    let last = received.last().unwrap();
    assert_eq!((last.body_len, &last.body_sha256), (body.len(), &sha256(body)), "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_with_a_length_arrive_whole() {
    let engine = Engine::start().await;
    let edge = Edge::start(&one_model(&[engine.url()])).await;
    for size in SIZES {
        let body = body(size);
        let answer = exchange(edge.traffic, &request("POST", "/v1/chat/completions", &body)).await;
        arrived_whole(&engine, &answer, &body, &format!("{size} bytes with a length")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn chunked_bodies_arrive_whole() {
    let engine = Engine::start().await;
    let edge = Edge::start(&one_model(&[engine.url()])).await;
    for size in SIZES {
        let body = body(size);
        let answer = exchange(edge.traffic, &chunked(&body, 10_007)).await;
        arrived_whole(&engine, &answer, &body, &format!("{size} bytes in chunks")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn chunked_bodies_that_are_no_json_arrive_whole() {
    let engine = Engine::start().await;
    let edge = Edge::start(&one_model(&[engine.url()])).await;
    for size in [10, 65_536, 65_537, 3 << 20] {
        let body = vec![b'-'; size];
        let answer = exchange(edge.traffic, &chunked(&body, 65_000)).await;
        arrived_whole(&engine, &answer, &body, &format!("{size} bytes of no JSON")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_client_is_waited_for() {
    let engine = Engine::start().await;
    let edge = Edge::start(&one_model(&[engine.url()])).await;
    let body = body(200_000);
    for bytes in [request("POST", "/v1/chat/completions", &body), chunked(&body, 30_000)] {
        let mut client = Connection::open(edge.traffic).await;
        for piece in bytes.chunks(17_000) {
            client.send(piece).await;
            // A pause the edge can notice; nothing is measured by it.
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        let answer = client.answer().await;
        arrived_whole(&engine, &answer, &body, "slow").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_refused_first_worker_the_next_one_gets_the_same_bytes() {
    let engine = Engine::start().await;
    // Health off: the edge finds out by being refused.
    let refusing = format!("http://{}", free_address());
    let yaml = format!(
        "  health: {{enabled: false}}\n  breaker: {{threshold: 1000}}\n  models:\n    - name: m\n      policy: round_robin\n      workers:\n{}",
        workers(&[refusing, engine.url()])
    );
    let edge = Edge::start(&yaml).await;
    let mut retries = 0.0;
    for (sent, size) in (2..).step_by(2).zip(SIZES) {
        // Two in a row: the turn goes to the refusing worker in at least one of them. In both, if the first
        // answer is not yet booked out at the other one, which has then more in flight.
        for _ in 0..2 {
            let body = body(size);
            let answer =
                exchange(edge.traffic, &request("POST", "/v1/chat/completions", &body)).await;
            arrived_whole(&engine, &answer, &body, &format!("{size} bytes, retried")).await;
        }
        let now = edge.booked(sent).await.sum("tidegate_retries_total", &["cause=\"connect\""]);
        assert!(retries < now, "{size} bytes never met the refusing worker");
        retries = now;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_chunked_body_is_not_sent_twice() {
    let refusing = format!("http://{}", free_address());
    let yaml = format!(
        "  health: {{enabled: false}}\n  models:\n    - name: m\n      policy: round_robin\n      workers:\n{}",
        workers(&[refusing])
    );
    let edge = Edge::start(&yaml).await;
    let answer = exchange(edge.traffic, &chunked(&body(300_000), 30_000)).await;
    assert_eq!((answer.status, answer.error_code().as_str()), (502, "worker_unreachable"));
}

async fn h2(address: SocketAddr, body: &[u8], with_length: bool) -> (u16, Vec<u8>) {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::post(format!("http://{address}/v1/chat/completions"));
    let body = bytes::Bytes::copy_from_slice(body);
    let body = if with_length {
        Full::new(body).boxed()
    } else {
        let frame = Ok::<_, Infallible>(Frame::data(body));
        StreamBody::new(futures_util::stream::iter([frame])).boxed()
    };
    let answer = within("h2", sender.send_request(request.body(body).unwrap())).await.unwrap();
    let status = answer.status().as_u16();
    let body = within("h2 body", answer.into_body().collect()).await.unwrap().to_bytes().to_vec();
    connection.abort();
    (status, body)
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_bodies_with_a_length_arrive_whole() {
    let engine = Engine::start().await;
    let edge = Edge::start_h2c(&one_model(&[engine.url()])).await;
    for size in SIZES {
        let body = body(size);
        let (status, text) = h2(edge.traffic, &body, true).await;
        let answer = Answer { status, headers: Vec::new(), body: text };
        arrived_whole(&engine, &answer, &body, &format!("{size} bytes over h2c")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_without_a_length_is_taken_up_to_the_replay_limit() {
    let engine = Engine::start().await;
    let edge = Edge::start_h2c(&one_model(&[engine.url()])).await;
    let small = body(65_536);
    let (status, _) = h2(edge.traffic, &small, false).await;
    assert_eq!(status, 200);
    assert_eq!(engine.received().last().unwrap().body_sha256, sha256(&small));
    let (status, text) = h2(edge.traffic, &body(65_537), false).await;
    let error: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!((status, &error["error"]["code"]), (411, &"length_required".into()));
    assert_eq!(engine.received().len(), 1, "no worker sees a byte of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_over_the_limit_is_refused_before_a_worker_sees_it() {
    let engine = Engine::start().await;
    let yaml = format!("  limits: {{max_body_bytes: 1KiB}}\n{}", one_model(&[engine.url()]));
    let edge = Edge::start(&yaml).await;
    for bytes in [request("POST", "/v1/chat/completions", &body(1025)), chunked(&body(1025), 100)] {
        let answer = exchange(edge.traffic, &bytes).await;
        assert_eq!((answer.status, answer.error_code().as_str()), (413, "body_too_large"));
    }
    let answer =
        exchange(edge.traffic, &request("POST", "/v1/chat/completions", &body(1024))).await;
    assert_eq!(answer.status, 200);
    assert_eq!(engine.received().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_expects_100_continue_gets_it() {
    let engine = Engine::start().await;
    let edge = Edge::start(&one_model(&[engine.url()])).await;
    let body = body(2_000_000);
    let mut client = Connection::open(edge.traffic).await;
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    client.send(head.as_bytes()).await;
    assert_eq!(client.head().await.status, 100);
    client.send(&body).await;
    let answer = client.answer().await;
    arrived_whole(&engine, &answer, &body, "after 100 Continue").await;
    assert_eq!(engine.received()[0].header("expect"), None);
}

/// On a new connection and on a kept one. Two writes would be two packets, and most often two reads.
#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_reaches_its_worker_in_one_piece() {
    let worker = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", worker.local_addr().unwrap());
    let model = model(&["load_reports: {format: none}"], &[url]);
    let edge = Edge::start(&format!("  health: {{enabled: false}}\n{model}")).await;
    let body = chat("m", &"a prompt ".repeat(1000));
    let pieces = async {
        let (mut connection, _) = worker.accept().await.unwrap();
        let mut pieces = Vec::new();
        for _ in 0..20 {
            let mut piece = vec![0; 1 << 16];
            let count = connection.read(&mut piece).await.unwrap();
            piece.truncate(count);
            connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
            pieces.push(piece);
        }
        pieces
    };
    let requests = async {
        for _ in 0..20 {
            assert_eq!(post(edge.traffic, "/v1/chat/completions", &body).await.status, 200);
        }
    };
    let (pieces, ()) = within("twenty requests", async { tokio::join!(pieces, requests) }).await;
    for piece in pieces {
        assert!(piece.starts_with(b"POST /v1/chat/completions HTTP/1.1\r\n"));
        assert!(piece.ends_with(body.as_bytes()), "{} bytes", piece.len());
    }
}
