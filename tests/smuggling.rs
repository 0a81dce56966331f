//! No bytes of a client are two requests: what a worker gets is exactly one request for each the
//! edge counted, or the client gets a refusal and a closed connection and the worker gets nothing.
//!
//! Every attempt hides a request to `/smuggled` behind framing that two parties might read in two
//! ways. The other direction is here too: an answer of a worker never becomes another client's.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use futures_util::future::join_all;
use support::client::{Connection, chat, get, post, request};
use support::edge::{Edge, workers};
use support::engine::{Engine, Received, Reply};
use support::until;
use tokio::io::AsyncWriteExt;

/// What has to come of an attempt.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// A 4xx or 5xx of the edge, the connection closed, nothing at the worker.
    Refused,
    /// One request at the worker, with this body.
    Passed(&'static str),
}

use Fate::{Passed, Refused};

const HIDDEN: &str = "GET /smuggled HTTP/1.1\r\nhost: e\r\n\r\n";

/// Heads without the request line, their bodies, and what becomes of them. `{}` is the body that
/// a request of a known length has.
const FRAMINGS: &[(&str, &str, Fate)] = &[
    (
        "a length and chunks",
        "content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        Refused,
    ),
    (
        "chunks and a length",
        "transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
        Refused,
    ),
    ("two lengths", "content-length: 2\r\ncontent-length: 3\r\n\r\n{}", Refused),
    ("the same length twice", "content-length: 2\r\ncontent-length: 2\r\n\r\n{}", Passed("{}")),
    ("a list of lengths", "content-length: 2, 3\r\n\r\n{}", Refused),
    ("a list of one length", "content-length: 2, 2\r\n\r\n{}", Refused),
    ("a signed length", "content-length: +2\r\n\r\n{}", Refused),
    ("a negative length", "content-length: -2\r\n\r\n{}", Refused),
    ("a length in base 16", "content-length: 0x2\r\n\r\n{}", Refused),
    ("a fraction of a length", "content-length: 2.0\r\n\r\n{}", Refused),
    ("no length at all", "content-length: \r\n\r\n{}", Refused),
    ("a length with a space inside", "content-length: 1 2\r\n\r\n{}", Refused),
    ("a length with spaces around", "content-length:   2 \t\r\n\r\n{}", Passed("{}")),
    ("a length with a vertical tab", "content-length: \x0b2\r\n\r\n{}", Refused),
    ("a length beyond 64 bits", "content-length: 18446744073709551618\r\n\r\n{}", Refused),
    ("a length before its colon", "content-length : 2\r\n\r\n{}", Refused),
    ("chunks twice", "transfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n", Refused),
    ("identity", "transfer-encoding: identity\r\n\r\n0\r\n\r\n", Refused),
    (
        "identity and a length",
        "transfer-encoding: identity\r\ncontent-length: 2\r\n\r\n{}",
        Refused,
    ),
    ("chunks by another name", "transfer-encoding: xchunked\r\n\r\n0\r\n\r\n", Refused),
    ("chunks with a parameter", "transfer-encoding: chunked;q=1\r\n\r\n0\r\n\r\n", Refused),
    ("chunks and a comma", "transfer-encoding: chunked,\r\n\r\n0\r\n\r\n", Refused),
    ("quoted chunks", "transfer-encoding: \"chunked\"\r\n\r\n0\r\n\r\n", Refused),
    ("chunks behind a vertical tab", "transfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n", Refused),
    ("gzip before chunks", "transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", Refused),
    (
        "codings in two lines",
        "transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        Refused,
    ),
    ("an empty coding", "transfer-encoding: \r\ncontent-length: 2\r\n\r\n{}", Refused),
    ("a coding before its colon", "transfer-encoding : chunked\r\n\r\n0\r\n\r\n", Refused),
    ("a folded coding", "transfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n", Refused),
    ("a folded header", "x-a: b\r\n\tcontent-length: 9\r\ncontent-length: 2\r\n\r\n{}", Refused),
    ("a header that starts folded", " x-a: b\r\ncontent-length: 2\r\n\r\n{}", Refused),
    ("bare line feeds", "x-a: b\ncontent-length: 2\n\n{}", Refused),
    ("one bare line feed", "x-a: b\ncontent-length: 2\r\n\r\n{}", Refused),
    ("a bare return", "x-a: b\rcontent-length: 9\r\ncontent-length: 2\r\n\r\n{}", Refused),
    ("returns before line feeds", "x-a: b\r\r\ncontent-length: 2\r\n\r\n{}", Refused),
    ("a zero byte in a value", "x-a: b\0c\r\ncontent-length: 2\r\n\r\n{}", Refused),
    ("a zero byte in a name", "x-\0a: b\r\ncontent-length: 2\r\n\r\n{}", Refused),
    ("a line without a colon", "x-a\r\ncontent-length: 2\r\n\r\n{}", Refused),
    ("a name with a space", "x a: b\r\ncontent-length: 2\r\n\r\n{}", Refused),
    ("no name", ": b\r\ncontent-length: 2\r\n\r\n{}", Refused),
    (
        "a nominated length",
        "connection: content-length\r\ncontent-length: 2\r\n\r\n{}",
        Passed("{}"),
    ),
    (
        "a nominated coding",
        "connection: transfer-encoding\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        Passed("{}"),
    ),
    (
        "another spelling of a name",
        "content_length: 9\r\ncontent-length: 2\r\n\r\n{}",
        Passed("{}"),
    ),
    (
        "another spelling of a coding",
        "transfer_encoding: chunked\r\ncontent-length: 2\r\n\r\n{}",
        Passed("{}"),
    ),
    (
        "nominated headers of the edge",
        "connection: x-request-id, x-tidegate-worker\r\ncontent-length: 2\r\n\r\n{}",
        Passed("{}"),
    ),
    (
        "more nominated names than anybody needs",
        "connection: a, b, c, d, e, f, g, h, i, j, k\r\ncontent-length: 2\r\n\r\n{}",
        Refused,
    ),
    ("a nominated quote", "connection: \"x-a\"\r\ncontent-length: 2\r\n\r\n{}", Refused),
    ("a nominated sender", "connection: x-forwarded-for\r\ncontent-length: 2\r\n\r\n{}", Refused),
    ("an expectation nobody knows", "expect: tea\r\ncontent-length: 2\r\n\r\n{}", Passed("{}")),
    (
        "trailers that are announced",
        "te: trailers\r\ntrailer: host\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nhost: f\r\n\r\n",
        Passed("{}"),
    ),
    (
        "a trailer that is folded",
        "transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\na: b\r\n c\r\n\r\n",
        Passed("{}"),
    ),
    ("chunks", "transfer-encoding: Chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n", Passed("{}")),
    (
        "chunks with trailers",
        "transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\ncontent-length: 9\r\n\r\n",
        Passed("{}"),
    ),
    (
        "an extension",
        "transfer-encoding: chunked\r\n\r\n2;a=b;c=\"d\"\r\n{}\r\n0;e\r\n\r\n",
        Passed("{}"),
    ),
    (
        "an extension with a line feed",
        "transfer-encoding: chunked\r\n\r\n2;\n{}\r\n0\r\n\r\n",
        Refused,
    ),
    ("a size and a line feed", "transfer-encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n", Refused),
    ("a chunk and a line feed", "transfer-encoding: chunked\r\n\r\n2\r\n{}\n0\r\n\r\n", Refused),
    (
        "a chunk longer than its size",
        "transfer-encoding: chunked\r\n\r\n2\r\n{}x\r\n0\r\n\r\n",
        Refused,
    ),
    // Taken for the last chunk; what follows is never looked at.
    ("no size", "transfer-encoding: chunked\r\n\r\n\r\n{}\r\n0\r\n\r\n", Passed("")),
    ("a signed size", "transfer-encoding: chunked\r\n\r\n+2\r\n{}\r\n0\r\n\r\n", Refused),
    ("a negative size", "transfer-encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n", Refused),
    ("a prefixed size", "transfer-encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n", Refused),
    ("a size behind a space", "transfer-encoding: chunked\r\n\r\n 2\r\n{}\r\n0\r\n\r\n", Refused),
    (
        "a size beyond 64 bits",
        "transfer-encoding: chunked\r\n\r\n10000000000000002\r\n{}\r\n0\r\n\r\n",
        Refused,
    ),
    (
        "the largest size",
        "transfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n{}\r\n0\r\n\r\n",
        Refused,
    ),
    (
        "a long last chunk",
        "transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n000000000000\r\n\r\n",
        Passed("{}"),
    ),
];

/// The same with their request lines and hosts.
const LINES: &[(&str, &str, Fate)] = &[
    (
        "chunks of HTTP/1.0",
        "POST {} HTTP/1.0\r\nhost: e\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        Refused,
    ),
    ("no version", "GET {}\r\n", Refused),
    ("an unknown version", "GET {} HTTP/3.0\r\nhost: e\r\n\r\n", Refused),
    ("HTTP/2 in HTTP/1", "GET {} HTTP/2.0\r\nhost: e\r\n\r\n", Refused),
    ("two hosts", "GET {} HTTP/1.1\r\nhost: e\r\nhost: f\r\n\r\n", Refused),
    ("no host", "GET {} HTTP/1.1\r\n\r\n", Refused),
    ("a host that is none", "GET {} HTTP/1.1\r\nhost: a b\r\n\r\n", Refused),
    ("a host with a path", "GET {} HTTP/1.1\r\nhost: a/b\r\n\r\n", Refused),
    ("a nominated host", "GET {} HTTP/1.1\r\nhost: e\r\nconnection: host\r\n\r\n", Refused),
    ("a tab in the line", "GET\t{} HTTP/1.1\r\nhost: e\r\n\r\n", Refused),
    // These reach the worker percent-encoded.
    ("a space in the target", "GET {} x HTTP/1.1\r\nhost: e\r\n\r\n", Passed("")),
    ("a zero byte in the target", "GET {}\0 HTTP/1.1\r\nhost: e\r\n\r\n", Passed("")),
    ("a return in the target", "GET {}\r HTTP/1.1\r\nhost: e\r\n\r\n", Passed("")),
    ("an empty line first", "\r\nGET {} HTTP/1.1\r\nhost: e\r\n\r\n", Passed("")),
    ("an encoded line end", "GET {}%0d%0ax: HTTP/1.1\r\nhost: e\r\n\r\n", Passed("")),
    ("an absolute target", "GET http://e{} HTTP/1.1\r\nhost: e\r\n\r\n", Passed("")),
    ("an absolute target elsewhere", "GET http://f{} HTTP/1.1\r\nhost: e\r\n\r\n", Refused),
    (
        "an absolute target of another scheme",
        "GET ftp://e{} HTTP/1.1\r\nhost: e\r\n\r\n",
        Passed(""),
    ),
    ("an absolute target in capitals", "GET HTTP://e{} HTTP/1.1\r\nhost: e\r\n\r\n", Passed("")),
    ("an absolute target with a user", "GET http://a@e{} HTTP/1.1\r\nhost: e\r\n\r\n", Refused),
    ("a target that is a word", "GET e{} HTTP/1.1\r\nhost: e\r\n\r\n", Refused),
    ("a target that is a star and more", "OPTIONS *{} HTTP/1.1\r\nhost: e\r\n\r\n", Refused),
    ("a target with a query of lines", "GET {}?a=%0d%0ab HTTP/1.1\r\nhost: e\r\n\r\n", Passed("")),
    ("a target with a fragment", "GET {}#/b HTTP/1.1\r\nhost: e\r\n\r\n", Passed("")),
    ("a target with dots", "GET {}../../c HTTP/1.1\r\nhost: e\r\n\r\n", Passed("")),
    ("two versions", "GET {} HTTP/1.1 HTTP/1.1\r\nhost: e\r\n\r\n", Refused),
    ("a method with a colon", "GET: {} HTTP/1.1\r\nhost: e\r\n\r\n", Refused),
    ("a method in small letters", "get {} HTTP/1.1\r\nhost: e\r\n\r\n", Passed("")),
    ("a host of nothing", "GET {} HTTP/1.1\r\nhost:\r\n\r\n", Passed("")),
    ("a host with a user", "GET {} HTTP/1.1\r\nhost: a@b:80\r\n\r\n", Refused),
    (
        "a request with a body that should have none",
        "GET {} HTTP/1.1\r\nhost: e\r\ncontent-length: 2\r\n\r\n{}",
        Passed("{}"),
    ),
    (
        "bytes behind an upgrade",
        "GET {} HTTP/1.1\r\nhost: e\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        Passed(""),
    ),
    (
        "an upgrade to HTTP/2",
        "GET {} HTTP/1.1\r\nhost: e\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n\r\n",
        Passed(""),
    ),
    ("a tunnel", "CONNECT e{} HTTP/1.1\r\nhost: e\r\n\r\n", Refused),
];

fn attempts() -> Vec<(&'static str, String, Fate)> {
    let framings = FRAMINGS.iter().enumerate().map(|(at, (name, rest, fate))| {
        (*name, format!("POST /f/{at}/ HTTP/1.1\r\nhost: e\r\n{rest}"), *fate)
    });
    let lines = LINES.iter().enumerate().map(|(at, (name, text, fate))| {
        (*name, text.replacen("{}", &format!("/l/{at}/"), 1), *fate)
    });
    framings.chain(lines).collect()
}

/// Where an attempt is aimed at.
fn target(text: &str) -> &str {
    let from = text.find("/f/").or_else(|| text.find("/l/")).unwrap();
    let length = text[from + 3..].find('/').unwrap();
    &text[from..from + 3 + length + 1]
}

/// A request as every party reads it: one framing, whole lines, one host.
fn is_plain(received: &Received) -> bool {
    let framings = received.all("content-length").len() + received.all("transfer-encoding").len();
    let lines = received.head.replace("\r\n", "");
    framings <= 1
        && received.all("host").len() == 1
        && !lines.contains(['\r', '\n', '\0'])
        && received.target.starts_with('/')
}

async fn hostile_edge(engine: &Engine) -> Edge {
    let timeouts = "  timeouts: {client_header: 1s, client_idle: 1s, client_body_idle: 500ms, \
                    first_byte: 2s, stream_idle: 2s}\n";
    let models = "  models:\n    - name: m\n      aliases: [default]\n      workers:\n";
    Edge::start(&format!("{timeouts}{models}{}", workers(&[engine.url()]))).await
}

/// What the client sees: the statuses of the answers, in order.
async fn attempted(edge: &Edge, text: &str) -> Vec<String> {
    let mut client = Connection::open(edge.traffic).await;
    client.send(format!("{text}{HIDDEN}").as_bytes()).await;
    let seen = String::from_utf8_lossy(&client.rest().await).into_owned();
    let starts = seen.match_indices("HTTP/1.1 ");
    starts.map(|(at, _)| seen[at + 9..at + 12].to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_one_request_at_the_worker_or_none() {
    let engine = Engine::start().await;
    let edge = hostile_edge(&engine).await;
    let attempts = attempts();
    let seen = join_all(attempts.iter().map(|(_, text, _)| attempted(&edge, text))).await;
    let received = engine.received();
    let mut wrong = Vec::new();
    for ((name, text, fate), statuses) in attempts.iter().zip(seen) {
        let own: Vec<_> =
            received.iter().filter(|request| request.target.starts_with(target(text))).collect();
        let plain = own.iter().all(|request| is_plain(request));
        let right = match fate {
            Refused => {
                own.is_empty()
                    && statuses.len() <= 1
                    && statuses.iter().all(|s| "400" <= s.as_str())
            }
            Passed(body) => {
                plain && own.len() == 1 && own[0].body == body.as_bytes() && statuses == ["200"]
            }
        };
        if !right {
            wrong.push(format!("{name}: {statuses:?}, at the worker {own:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let smuggled = received.iter().filter(|request| request.target.contains("smuggled"));
    assert_eq!(smuggled.count(), 0);
    let ok = ["outcome=\"ok\""];
    let counted = edge.metrics().await.sum("tidegate_worker_requests_total", &ok);
    assert_eq!(counted, received.len() as f64, "one for each the edge counted");
    // No connection to the worker is left in the middle of something.
    for _ in 0..20 {
        let answer = post(edge.traffic, "/v1/completions", r#"{"model":"m","prompt":"x"}"#).await;
        assert_eq!(answer.status, 200);
        let last = engine.received().pop().unwrap();
        assert_eq!((last.target.as_str(), last.body_len), ("/v1/completions", 26));
        assert!(is_plain(&last), "{}", last.head);
    }
}

/// Header lists of HTTP/2 requests, their data, and what becomes of them.
type Fields = &'static [(&'static str, &'static str)];

const STREAMS: &[(&str, Fields, &str, Fate)] = &[
    ("nothing wrong", &[("content-length", "2")], "{}", Passed("{}")),
    ("a coding", &[("transfer-encoding", "chunked")], "0\r\n\r\n", Refused),
    ("a connection header", &[("connection", "close"), ("content-length", "2")], "{}", Refused),
    ("a length that is too long", &[("content-length", "9")], "{}", Refused),
    ("a length that is too short", &[("content-length", "1")], "{}", Refused),
    ("two lengths", &[("content-length", "2"), ("content-length", "3")], "{}", Refused),
    ("a signed length", &[("content-length", "+2")], "{}", Refused),
    ("a list of lengths", &[("content-length", "2, 2")], "{}", Refused),
    ("a line end in a value", &[("x-a", "b\r\nx-b: c"), ("content-length", "2")], "{}", Refused),
    ("a line feed in a value", &[("x-a", "b\nx-b: c"), ("content-length", "2")], "{}", Refused),
    ("a zero byte in a value", &[("x-a", "b\0"), ("content-length", "2")], "{}", Refused),
    ("a colon in a name", &[("x-a: b", "c"), ("content-length", "2")], "{}", Refused),
    ("a line end in a name", &[("x-a\r\nx-b", "c"), ("content-length", "2")], "{}", Refused),
    ("a capital in a name", &[("X-A", "c"), ("content-length", "2")], "{}", Refused),
    ("an encoding of trailers", &[("te", "gzip"), ("content-length", "2")], "{}", Refused),
    ("an upgrade", &[("upgrade", "websocket"), ("content-length", "2")], "{}", Refused),
    ("another path", &[(":path", "/smuggled"), ("content-length", "2")], "{}", Refused),
    ("another method", &[(":method", "PUT"), ("content-length", "2")], "{}", Refused),
    ("the same host", &[("host", "e"), ("content-length", "2")], "{}", Passed("{}")),
    ("another host", &[("host", "f"), ("content-length", "2")], "{}", Refused),
    (
        "the same length twice",
        &[("content-length", "2"), ("content-length", "2")],
        "{}",
        Passed("{}"),
    ),
];

/// Pseudo-headers that would be lines of their own in HTTP/1.
const PSEUDO: &[(&str, Fields)] = &[
    (
        "a line end in a path",
        &[
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "e"),
            (":path", "/p HTTP/1.1\r\nhost: e\r\n\r\nGET /smuggled"),
        ],
    ),
    ("no path", &[(":method", "POST"), (":scheme", "http"), (":authority", "e")]),
    (
        "an empty path",
        &[(":method", "POST"), (":scheme", "http"), (":authority", "e"), (":path", "")],
    ),
    ("no method", &[(":scheme", "http"), (":authority", "e"), (":path", "/p")]),
    ("no scheme", &[(":method", "POST"), (":authority", "e"), (":path", "/p")]),
    (
        "a pseudo-header behind another one",
        &[
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "e"),
            ("x-a", "b"),
            (":path", "/p"),
        ],
    ),
    (
        "a pseudo-header nobody knows",
        &[
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "e"),
            (":path", "/p"),
            (":worker", "w0"),
        ],
    ),
    (
        "a pseudo-header of answers",
        &[
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "e"),
            (":path", "/p"),
            (":status", "200"),
        ],
    ),
    (
        "two authorities",
        &[
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "e"),
            (":authority", "f"),
            (":path", "/p"),
        ],
    ),
    (
        "a user in an authority",
        &[(":method", "POST"), (":scheme", "http"), (":authority", "a@e"), (":path", "/p")],
    ),
    (
        "a star for a path",
        &[(":method", "POST"), (":scheme", "http"), (":authority", "e"), (":path", "*")],
    ),
    ("a tunnel", &[(":method", "CONNECT"), (":authority", "e:443")]),
    (
        "a tunnel of another protocol",
        &[
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "http"),
            (":authority", "e"),
            (":path", "/p"),
        ],
    ),
    (
        "a space in a path",
        &[
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "e"),
            (":path", "/p HTTP/1.1 /smuggled"),
        ],
    ),
    (
        "a path that is none",
        &[(":method", "POST"), (":scheme", "http"), (":authority", "e"), (":path", "smuggled")],
    ),
    (
        "a line in a method",
        &[
            (":method", "GET /smuggled HTTP/1.1\r\nx: "),
            (":scheme", "http"),
            (":authority", "e"),
            (":path", "/p"),
        ],
    ),
    (
        "a line in an authority",
        &[(":method", "POST"), (":scheme", "http"), (":authority", "e\r\nx: y"), (":path", "/p")],
    ),
];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

fn h2_preface() -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    bytes
}

/// A request on a stream: header fields byte by byte, then its data.
fn h2_request<'a>(
    stream: u32,
    fields: impl IntoIterator<Item = &'a (&'a str, &'a str)>,
    data: &str,
) -> Vec<u8> {
    let mut bytes = frame(1, 4, stream, &h2_block(fields));
    bytes.extend(frame(0, 1, stream, data.as_bytes()));
    bytes
}

/// Header fields, byte by byte.
fn h2_block<'a>(fields: impl IntoIterator<Item = &'a (&'a str, &'a str)>) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// Was the stream answered with 200? The connection is closed by the edge in time.
async fn h2_attempted(edge: &Edge, request: &[u8]) -> bool {
    let mut client = Connection::open(edge.traffic).await;
    client.send(&h2_preface()).await;
    client.send(request).await;
    loop {
        let head = client.bytes(9).await;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let payload = client.bytes(length).await;
        match head[3] {
            // Of the answer's head: the first field is the status, of which 200 is one byte.
            1 => return payload[0] == 0x88,
            // The stream or the connection is reset.
            3 | 7 => return false,
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_http2_is_one_request_at_the_worker_or_none() {
    let engine = Engine::start().await;
    let models = "  models:\n    - name: m\n      aliases: [default]\n      workers:\n";
    let edge = Edge::start_h2c(&format!("{models}{}", workers(&[engine.url()]))).await;
    let mut expected = Vec::new();
    for (at, (name, fields, data, fate)) in STREAMS.iter().enumerate() {
        let path = format!("/s/{at}");
        let first =
            [(":method", "POST"), (":scheme", "http"), (":authority", "e"), (":path", &*path)];
        let answered = h2_attempted(&edge, &h2_request(1, first.iter().chain(*fields), data)).await;
        assert_eq!(answered, matches!(fate, Passed(_)), "{name}");
        if let Passed(body) = fate {
            expected.push((path, body.as_bytes().to_vec()));
        }
    }
    for (name, fields) in PSEUDO {
        let answered = h2_attempted(&edge, &h2_request(1, *fields, "{}")).await;
        assert!(!answered, "{name}");
    }
    let received = engine.received();
    assert!(received.iter().all(is_plain), "{received:?}");
    let got: Vec<_> = received.into_iter().map(|one| (one.target, one.body)).collect();
    assert_eq!(got, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn trailers_of_http2_are_no_headers() {
    let engine = Engine::start().await;
    let models = "  models:\n    - name: m\n      aliases: [default]\n      workers:\n";
    let edge = Edge::start_h2c(&format!("{models}{}", workers(&[engine.url()]))).await;
    let fields = [(":method", "POST"), (":scheme", "http"), (":authority", "e"), (":path", "/t")];
    let trailers: [Fields; 3] = [
        &[("x-trailer", "1"), ("x-tidegate-worker", "w9")],
        &[("content-length", "9"), ("host", "f")],
        &[(":path", "/smuggled")],
    ];
    for trailers in trailers {
        // The last frame ends the stream in the place of the data.
        let mut bytes = h2_request(1, &fields, "{}");
        let data = bytes.len() - 9 - 2;
        bytes[data + 4] = 0;
        bytes.extend(frame(1, 5, 1, &h2_block(trailers)));
        h2_attempted(&edge, &bytes).await;
    }
    for received in engine.received() {
        assert!(is_plain(&received), "{}", received.head);
        assert_eq!((received.target.as_str(), received.body_len), ("/t", 2));
        for name in ["x-trailer", "x-tidegate-worker"] {
            assert_eq!(received.header(name), None);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_are_reset_as_fast_as_they_open_leave_nothing_behind() {
    let engine = Engine::start().await;
    engine.answer(|_| Reply::hang());
    let models = "  models:\n    - name: m\n      aliases: [default]\n      workers:\n";
    let edge = Edge::start_h2c(&format!("{models}{}", workers(&[engine.url()]))).await;
    let fields = [(":method", "POST"), (":scheme", "http"), (":authority", "e"), (":path", "/r")];
    let mut bytes = h2_preface();
    for at in 0..1000 {
        bytes.extend(h2_request(1 + 2 * at, &fields, "{}"));
        bytes.extend(frame(3, 0, 1 + 2 * at, &8u32.to_be_bytes()));
    }
    for _ in 0..3 {
        let mut client = Connection::open(edge.traffic).await;
        // The edge may have had enough before the end.
        let _ = client.stream.write_all(&bytes).await;
    }
    engine.answer(|_| Reply::completion());
    let answer = post(edge.traffic, "/v1/completions", r#"{"prompt":"x"}"#).await;
    assert_eq!(answer.status, 200);
    until("the end of all", || async {
        let page = edge.metrics().await;
        let left =
            page.sum("tidegate_in_flight", &[]) + page.sum("tidegate_requests_in_progress", &[]);
        (left == 0.0).then_some(())
    })
    .await;
}

/// What workers send that could be taken for the beginning of the next answer.
const ANSWERS: &[(&str, &str)] = &[
    (
        "an answer behind the answer",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison",
    ),
    ("bytes behind the answer", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}poison"),
    (
        "an answer behind chunks",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison",
    ),
    ("a body of 204", "HTTP/1.1 204 No\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison"),
    ("a body of 304", "HTTP/1.1 304 No\r\ncontent-length: 6\r\n\r\npoison"),
    (
        "an upgrade nobody asked for",
        "HTTP/1.1 101 Up\r\nconnection: upgrade\r\nupgrade: x\r\n\r\npoison",
    ),
    ("two lengths", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 8\r\n\r\n{}poison"),
    (
        "a length and chunks",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\npoison",
    ),
    ("a negative length", "HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\n{}poison"),
    ("a coding that is none", "HTTP/1.1 200 OK\r\ntransfer-encoding: xchunked\r\n\r\npoison"),
    (
        "an interim answer behind the answer",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}HTTP/1.1 100 Go\r\n\r\n",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn no_client_gets_what_a_worker_said_to_another() {
    let engine = Engine::start().await;
    engine.answer(|received| {
        let poison =
            received.target.strip_prefix("/poison/").and_then(|at| at.parse::<usize>().ok());
        match poison {
            Some(at) => Reply::raw(ANSWERS[at].1.as_bytes()),
            None => Reply::json(200, &received.target),
        }
    });
    let edge = hostile_edge(&engine).await;
    for (at, (name, _)) in ANSWERS.iter().enumerate() {
        for method in ["POST", "HEAD"] {
            let mut client = Connection::open(edge.traffic).await;
            client.send(&request(method, &format!("/poison/{at}"), b"")).await;
            client.send(&request("GET", "/second", b"")).await;
            let seen = String::from_utf8_lossy(&client.rest().await).into_owned();
            assert!(!seen.contains("/second") || seen.ends_with("/second"), "{name}: {seen}");
            for own in 0..3 {
                let target = format!("/own/{at}/{own}");
                assert_eq!(get(edge.traffic, &target).await.text(), target, "after {name}");
            }
        }
    }
    let chat = post(edge.traffic, "/v1/chat/completions", &chat("m", "hello")).await;
    assert_eq!(chat.text(), "/v1/chat/completions");
}
