//! Traffic while things go wrong: engines that are killed and come back, answer with garbage or not
//! at all, clients that leave, dawdle or say nothing. Everything is drawn from a seed; the times at
//! which it meets are the machine's.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, missing_docs)]

use crate::support::edge::{Edge, free_address, model};
use crate::support::engine::{
    Engine, Received, Reply, Step, chunk, event, stream_end, stream_head,
};
use crate::support::{PATIENCE, until};
use fastrand::Rng;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};

/// How engines and clients behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manners {
    /// Engines answer properly while they live, clients wait for the end.
    Good,
    /// Neither can be relied on.
    Bad,
}

/// When there is enough.
#[derive(Clone, Copy, Debug)]
pub enum Enough {
    Requests(u64),
    Time(Duration),
}

/// Health that follows kills, and no connection kept for longer than a moment.
pub fn settings(urls: &[String], index_bound: u32) -> String {
    let edge = format!(
        "  index: {{max_entries: {index_bound}}}\n  access_log: {{enabled: false}}\n  timeouts: {{client_header: 1h}}\n"
    );
    let keys = [
        "aliases: [default]",
        "load_reports: {format: none}",
        "health: {interval: 100ms, fall: 2, rise: 1}",
        "breaker: {cool_down: 200ms}",
        "timeouts: {worker_idle: 200ms, first_byte: 500ms, stream_idle: 300ms}",
    ];
    format!("{edge}{}", model(&keys, urls))
}

/// Engines on ports of their own, so that one that was killed can come back.
pub struct Engines {
    places: Vec<(SocketAddr, Mutex<Option<Engine>>)>,
    manners: Manners,
    seed: u64,
    /// How often each request came to an engine, by its number.
    seen: Arc<Mutex<HashMap<u64, u32>>>,
    /// The number of the next request.
    next: Arc<AtomicU64>,
}

impl Engines {
    pub async fn start(count: usize, manners: Manners, seed: u64) -> Arc<Self> {
        let places = (0..count)
            .map(|_| (SocketAddr::from(([0, 0, 0, 0], free_address().port())), Mutex::default()))
            .collect();
        let engines = Self { places, manners, seed, seen: Arc::default(), next: Arc::default() };
        for at in 0..count {
            engines.revive(at).await;
        }
        Arc::new(engines)
    }

    /// This many URLs, each its own, of these engines by turns.
    pub fn urls(&self, count: usize) -> Vec<String> {
        let url = |at: usize| {
            let port = self.places[at % self.places.len()].0.port();
            format!("http://127.0.{}.{}:{port}", at / 250, 1 + at % 250)
        };
        (0..count).map(url).collect()
    }

    pub fn kill(&self, at: usize) {
        *self.places[at].1.lock().unwrap() = None;
    }

    pub fn kill_all(&self) {
        (0..self.places.len()).for_each(|at| self.kill(at));
    }

    pub async fn revive(&self, at: usize) {
        let address = self.places[at].0.to_string();
        // What was killed may still be letting go of its port.
        until("the port", || async { std::net::TcpListener::bind(&address).is_ok().then_some(()) })
            .await;
        let engine = Engine::at(&address).await;
        let (manners, seed, seen) = (self.manners, self.seed, Arc::clone(&self.seen));
        engine.answer(move |received| {
            let number = number_of(received);
            *seen.lock().unwrap().entry(number).or_default() += 1;
            let mut dice = Rng::with_seed(seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            reply(manners, received, &mut dice)
        });
        *self.places[at].1.lock().unwrap() = Some(engine);
    }

    pub async fn revive_all(&self) {
        for at in 0..self.places.len() {
            self.revive(at).await;
        }
    }

    /// Kills one after the other, each for a quarter of `pause`, until told to stop.
    pub fn killing(self: &Arc<Self>, pause: Duration, stop: &Arc<AtomicBool>) -> JoinHandle<u64> {
        let (engines, stop) = (Arc::clone(self), Arc::clone(stop));
        tokio::spawn(async move {
            let mut kills = 0;
            while !stop.load(Ordering::Relaxed) {
                let at = kills as usize % engines.places.len();
                engines.kill(at);
                kills += 1;
                tokio::time::sleep(pause / 4).await;
                engines.revive(at).await;
                tokio::time::sleep(pause / 4 * 3).await;
            }
            kills
        })
    }

    fn times_seen(&self, number: u64) -> u32 {
        self.seen.lock().unwrap().get(&number).copied().unwrap_or(0)
    }
}

fn number_of(received: &Received) -> u64 {
    received.header("x-number").and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn reply(manners: Manners, received: &Received, dice: &mut Rng) -> Reply {
    let is_stream = received.body.windows(13).any(|part| part == b"\"stream\":true");
    let good = |dice: &mut Rng| match is_stream {
        true => stream(dice, vec![stream_end()]),
        false => plain(dice),
    };
    match (manners, dice.u32(..100)) {
        (Manners::Good, _) | (Manners::Bad, 0..60) => good(dice),
        (_, 60..65) => Reply::json(500, "{}"),
        (_, 65..70) => Reply::json(503, "{}"),
        (_, 70..73) => Reply::json(429, "{}"),
        (_, 73..78) => Reply::json(400, "{}"),
        (_, 78..82) => Reply::close(),
        (_, 82..86) => stream(dice, vec![Step::Close]),
        (_, 86..89) => Reply::raw(b"\0\x01garbage\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"),
        (_, 89..92) => Reply::raw(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\ncut"),
        (_, 92..95) => stream(dice, vec![Step::Write(b"zz\r\nno size\r\n".to_vec()), Step::Close]),
        (_, 95..98) => stream(dice, vec![Step::Hang]),
        (_, _) => Reply::hang(),
    }
}

fn plain(dice: &mut Rng) -> Reply {
    let mut reply = Reply::completion();
    reply.steps.insert(0, Step::Pause(Duration::from_millis(dice.u64(..10))));
    reply
}

fn stream(dice: &mut Rng, end: Vec<Step>) -> Reply {
    let mut steps = vec![stream_head()];
    for _ in 0..dice.u32(1..6) {
        steps.extend([event("word "), Step::Pause(Duration::from_millis(dice.u64(..10)))]);
    }
    steps.push(chunk(
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":5}}\n\n",
    ));
    steps.extend(end);
    Reply::steps(steps)
}

/// How a request ended for its client.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// A whole answer with this status, and the edge's own code if it has one.
    Whole(u16, String),
    /// The answer was cut.
    Cut,
    /// The client left.
    Left,
}

/// What came of all requests.
#[derive(Debug, Default)]
pub struct Outcome {
    pub sent: u64,
    pub ends: BTreeMap<End, u64>,
    /// Failures of requests that no engine's program read: the kernel took the connection.
    pub unread: u64,
    /// Requests that came to engines more than once.
    pub twice: u64,
    pub seconds: f64,
}

impl Outcome {
    pub fn whole(&self, status: u16) -> u64 {
        let of = |end: &End| matches!(end, End::Whole(found, _) if *found == status);
        self.ends.iter().filter(|(end, _)| of(end)).map(|(_, count)| count).sum()
    }

    pub fn failures(&self) -> u64 {
        self.sent - self.whole(200)
    }

    /// Each failure is of a connection that a worker had accepted and that broke: a cut answer, or the
    /// edge saying that the worker closed.
    pub fn only_lost_with_their_workers(&self) -> bool {
        self.ends.keys().all(|end| match end {
            End::Whole(200, _) | End::Cut => true,
            End::Whole(status, code) => *status == 502 && code == "worker_closed",
            End::Left => false,
        })
    }
}

/// Clients that send one request after the other, each on a connection of its own.
pub async fn traffic(edge: &Edge, engines: &Engines, clients: u64, enough: Enough) -> Outcome {
    let start = Instant::now();
    let first = engines.next.load(Ordering::Relaxed);
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let (at, manners, seed) = (edge.traffic, engines.manners, engines.seed);
        let next = Arc::clone(&engines.next);
        tasks.spawn(async move {
            let mut ends = Vec::new();
            loop {
                let own = next.fetch_add(1, Ordering::Relaxed);
                let is_enough = match enough {
                    Enough::Requests(requests) => first + requests <= own,
                    Enough::Time(time) => time < start.elapsed(),
                };
                if is_enough {
                    return ends;
                }
                ends.push((own, ask(at, manners, own, seed).await));
            }
        });
    }
    let mut outcome = Outcome::default();
    while let Some(ends) = tasks.join_next().await {
        for (number, end) in ends.unwrap() {
            let (times, failed) = (engines.times_seen(number), !matches!(end, End::Whole(200, _)));
            outcome.sent += 1;
            outcome.unread += u64::from(failed && times == 0);
            outcome.twice += u64::from(1 < times);
            *outcome.ends.entry(end).or_default() += 1;
        }
    }
    outcome.seconds = start.elapsed().as_secs_f64();
    outcome
}

async fn ask(at: SocketAddr, manners: Manners, number: u64, seed: u64) -> End {
    let mut dice = Rng::with_seed(seed.rotate_left(32) ^ number);
    let kind = match manners {
        Manners::Good => dice.u32(..80),
        Manners::Bad => dice.u32(..100),
    };
    let mut stream = TcpStream::connect(at).await.unwrap();
    let body = prompt(&mut dice, (70..75).contains(&kind), (40..70).contains(&kind) || 90 <= kind);
    let head = |framing: &str| {
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: e\r\nx-number: {number}\r\n\
             connection: close\r\n{framing}\r\n\r\n"
        )
    };
    let sized = head(&format!("content-length: {}", body.len()));
    // The edge may answer and close before it has read everything.
    let _ = match kind {
        0..5 => {
            let text = format!(
                "{}{:x}\r\n{body}\r\n0\r\n\r\n",
                head("transfer-encoding: chunked"),
                body.len()
            );
            stream.write_all(text.as_bytes()).await
        }
        5..10 => slowly(&mut stream, &sized, &body).await,
        _ => stream.write_all(format!("{sized}{body}").as_bytes()).await,
    };
    match kind {
        0..80 => end_of(&mut stream).await,
        80..90 => {
            tokio::time::sleep(Duration::from_millis(dice.u64(..20))).await;
            End::Left
        }
        _ => {
            let _ = stream.read(&mut [0; 300]).await;
            End::Left
        }
    }
}

/// One of some conversations, a new one now and then.
fn prompt(dice: &mut Rng, is_large: bool, is_stream: bool) -> String {
    let conversation = if dice.u32(..4) == 0 { dice.u64(..) } else { dice.u64(..48) };
    let words = format!("conversation {conversation} ").repeat(if is_large { 6000 } else { 40 });
    format!(
        r#"{{"model":"m","stream":{is_stream},"messages":[{{"role":"user","content":"{words}"}}]}}"#
    )
}

async fn slowly(stream: &mut TcpStream, head: &str, body: &str) -> std::io::Result<()> {
    let (one, other) = head.split_at(head.len() / 2);
    for piece in [one, other, &body[..1], &body[1..]] {
        stream.write_all(piece.as_bytes()).await?;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

async fn end_of(stream: &mut TcpStream) -> End {
    let mut seen = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut seen)).await;
    read.expect("an end of the answer").ok();
    let seen = String::from_utf8_lossy(&seen).into_owned();
    let Some((head, body)) = seen.split_once("\r\n\r\n") else { return End::Cut };
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
    let head = head.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let is_whole = match length {
        Some(length) => length.trim() == body.len().to_string(),
        None => body.ends_with("0\r\n\r\n"),
    };
    if !is_whole {
        return End::Cut;
    }
    let code = body.split("\"code\":\"").nth(1).and_then(|rest| rest.split('"').next());
    End::Whole(status, code.unwrap_or_default().to_owned())
}

/// Reloads with 8 to all of these workers until told to stop; how often.
pub async fn reloading(edge: &Edge, urls: &[String], index_bound: u32, stop: &AtomicBool) -> u64 {
    let mut dice = Rng::with_seed(2);
    let mut reloads = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut some = urls.to_vec();
        dice.shuffle(&mut some);
        some.truncate(dice.usize(8..=urls.len()));
        assert_eq!(edge.reload(&settings(&some, index_bound)).await.status, 200);
        reloads += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    reloads
}

/// Clients that connect and say nothing, or begin a head and go on with it byte by byte.
pub async fn dawdlers(edge: &Edge, idle: usize, slow: usize) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for at in 0..idle + slow {
        let mut stream = TcpStream::connect(edge.traffic).await.unwrap();
        if idle <= at {
            stream.write_all(b"POST /v1/completions HTTP/1.1\r\nx-slow: ").await.unwrap();
        }
        streams.push(stream);
    }
    streams
}

/// What must hold once nobody asks any more: each request was counted once, none is in flight, the
/// index kept its bound.
pub async fn is_settled(edge: &Edge, sent: u64, index_bound: f64) {
    until("the end of all requests", || async {
        let page = edge.metrics().await;
        let is_over = page.sum("tidegate_requests_total", &[]) == sent as f64
            && page.sum("tidegate_requests_in_progress", &[]) == 0.0;
        is_over.then_some(())
    })
    .await;
    let page = edge.metrics().await;
    assert_eq!(page.sum("tidegate_in_flight", &[]), 0.0);
    assert_eq!(page.sum("tidegate_request_seconds_count", &[]), sent as f64);
    assert!(page.sum("tidegate_index_entries", &[]) <= index_bound);
    for row in edge.workers().await {
        assert_eq!(row["in_flight"], 0, "{row}");
    }
}

/// Threads, open files and resident KiB of an edge nobody is connected to.
pub async fn size(edge: &Edge) -> (usize, usize, u64) {
    let (files, memory) = edge.size(edge.pid()).await;
    let threads = std::fs::read_dir(format!("/proc/{}/task", edge.pid())).unwrap().count();
    (threads, files, memory)
}
