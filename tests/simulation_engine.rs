//! Simulated engines over real sockets: what they answer, count and report.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tidegate::simulate::clock::Clock;
use tidegate::simulate::engine::EngineConfig;
use tidegate::simulate::replay::{ReplayConfig, Summary, replay};
use tidegate::simulate::server::{Fault, FleetConfig, LoadEndpoint, SimulatedFleet};
use tidegate::simulate::trace;
use tidegate::simulate::traffic::{self, TrafficConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// No test needs longer, and a hang fails instead of lasting.
const DEADLINE: Duration = Duration::from_secs(60);

fn in_time(test: impl Future<Output = ()>) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(DEADLINE, test).await.unwrap() });
}

fn fast() -> FleetConfig {
    FleetConfig { speed: 100.0, bytes_per_token: 1, ..FleetConfig::default() }
}

/// An engine that works on one request at a time and is done with it in about a day of wall time.
fn endless() -> FleetConfig {
    FleetConfig {
        speed: 1.0,
        engine: EngineConfig {
            decode_base_ms: 1.0,
            max_running: 1,
            kv_tokens: 200_000_000,
            ..EngineConfig::default()
        },
        ..fast()
    }
}

async fn ask(address: SocketAddr, path: &str, body: Option<Value>) -> (StatusCode, String) {
    let client: Client<HttpConnector, Full<Bytes>> =
        Client::builder(TokioExecutor::new()).build_http();
    let uri = format!("http://{address}{path}");
    let request = match body {
        Some(body) => Request::post(uri).body(Full::from(body.to_string())),
        None => Request::get(uri).body(Full::default()),
    };
    let response = client.request(request.unwrap()).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn document(address: SocketAddr, path: &str, body: Option<Value>) -> Value {
    let (status, text) = ask(address, path, body).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// Asks again and again until the report is as wanted; the test's deadline ends it otherwise.
async fn until_load(address: SocketAddr, wanted: impl Fn(&Value) -> bool) {
    while !wanted(&document(address, "/get_load", None).await[0]) {
        tokio::task::yield_now().await;
    }
}

/// A connection on which a request for very many tokens was sent.
async fn endless_request(address: SocketAddr, stream: &str) -> TcpStream {
    let body = format!(r#"{{"prompt":"tide","max_tokens":90000000,"stream":{stream}}}"#);
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: sim\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection.write_all((head + &body).as_bytes()).await.unwrap();
    connection
}

#[test]
fn a_repeated_prompt_is_reported_as_cached_in_each_dialect() {
    in_time(async {
        let fleet = SimulatedFleet::start(1, fast()).await.unwrap();
        let engine = fleet.addresses()[0];
        let prompt = "abcdefgh".repeat(40);
        let chat = json!({"messages": [{"role": "user", "content": prompt}], "max_tokens": 3});
        let first = document(engine, "/v1/chat/completions", Some(chat.clone())).await;
        assert_eq!(first["usage"]["prompt_tokens"], 320);
        assert_eq!(first["usage"]["completion_tokens"], 3);
        assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
        // Five blocks of 64 tokens, of which the last has to be computed anew.
        let body = json!({"prompt": prompt, "max_tokens": 3});
        let second = document(engine, "/v1/completions", Some(body)).await;
        assert_eq!(second["usage"]["prompt_tokens_details"]["cached_tokens"], 256);
        let body = json!({"text": prompt, "sampling_params": {"max_new_tokens": 3}});
        let third = document(engine, "/generate", Some(body)).await;
        assert_eq!(third["meta_info"]["cached_tokens"], 256);
        assert_eq!(fleet.stats()[0].stats.cached_tokens, 512);
        ask(engine, "/flush_cache", None).await;
        let fourth = document(engine, "/v1/chat/completions", Some(chat)).await;
        assert_eq!(fourth["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
        fleet.shutdown().await;
    });
}

#[test]
fn a_stream_carries_every_token_and_ends_with_usage_and_done() {
    in_time(async {
        let fleet = SimulatedFleet::start(1, fast()).await.unwrap();
        let body = json!({
            "messages": [{"role": "user", "content": "tide"}], "max_tokens": 40, "stream": true,
            "stream_options": {"include_usage": true},
        });
        let path = "/v1/chat/completions";
        let (_, stream) = ask(fleet.addresses()[0], path, Some(body)).await;
        let events: Vec<&str> = stream.split_terminator("\n\n").collect();
        let event = |at: usize| -> Value { serde_json::from_str(&events[at][6..]).unwrap() };
        let content = |at: usize| event(at)["choices"][0]["delta"]["content"].clone();
        assert_eq!(event(0)["choices"][0]["delta"]["role"], "assistant");
        let last = events.len() - 1;
        let text: String =
            (1..last - 2).map(|at| content(at).as_str().unwrap().to_owned()).collect();
        assert_eq!(text.len(), 40);
        assert_eq!(event(last - 1)["usage"]["completion_tokens"], 40);
        assert_eq!(events[last], "data: [DONE]");
    });
}

#[test]
fn a_client_that_leaves_aborts_its_request_in_every_phase() {
    in_time(async {
        let fleet = SimulatedFleet::start(1, endless()).await.unwrap();
        let engine = fleet.addresses()[0];
        let mut streaming = endless_request(engine, "true").await;
        let mut head = [0; 12];
        streaming.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        let queued = endless_request(engine, "false").await;
        until_load(engine, |load| load["num_reqs"] == 2 && load["num_waiting_reqs"] == 1).await;
        drop(queued);
        until_load(engine, |load| load["num_reqs"] == 1 && load["num_waiting_reqs"] == 0).await;
        let whole = endless_request(engine, "false").await;
        until_load(engine, |load| load["num_reqs"] == 2).await;
        drop(streaming);
        until_load(engine, |load| load["num_reqs"] == 1 && load["num_waiting_reqs"] == 0).await;
        drop(whole);
        until_load(engine, |load| load["num_reqs"] == 0 && load["num_tokens"] == 0).await;
        assert_eq!(fleet.stats()[0].stats.aborted, 3);
    });
}

#[test]
fn reports_have_the_shapes_of_their_paths() {
    in_time(async {
        let fleet = SimulatedFleet::start(1, endless()).await.unwrap();
        let engine = fleet.addresses()[0];
        let open = [endless_request(engine, "false").await, endless_request(engine, "false").await];
        until_load(engine, |load| load["num_reqs"] == 2).await;
        let report = document(engine, "/get_load", None).await;
        assert_eq!((&report[0]["dp_rank"], &report[0]["num_waiting_reqs"]), (&json!(0), &json!(1)));
        assert_eq!(ask(engine, "/v1/loads", None).await.0, StatusCode::NOT_FOUND);
        drop(open);

        let config = FleetConfig { load_endpoint: LoadEndpoint::V1Loads, ..endless() };
        let fleet = SimulatedFleet::start(1, config).await.unwrap();
        let engine = fleet.addresses()[0];
        let report = document(engine, "/v1/loads", None).await;
        assert_eq!(report["loads"][0]["num_running_reqs"], 0);
        assert_eq!(report["loads"][0]["max_total_num_tokens"], 200_000_000);
        assert_eq!(ask(engine, "/get_load", None).await.0, StatusCode::NOT_FOUND);
        assert_eq!(document(engine, "/v1/models", None).await["data"][0]["id"], "simulated");
        assert_eq!(document(engine, "/get_server_info", None).await["dp_size"], 1);
    });
}

#[test]
fn bad_requests_are_refused_and_the_engine_lives_on() {
    in_time(async {
        let fleet = SimulatedFleet::start(1, fast()).await.unwrap();
        let engine = fleet.addresses()[0];
        for body in [json!({"prompt": "x", "max_tokens": 4_000_000_000_u32})] {
            assert_eq!(ask(engine, "/v1/completions", Some(body)).await.0, StatusCode::BAD_REQUEST);
        }
        assert_eq!(ask(engine, "/generate", None).await.0, StatusCode::BAD_REQUEST);
        assert_eq!(ask(engine, "/nothing", None).await.0, StatusCode::NOT_FOUND);
        for odd in
            [json!([]), json!({"messages": 7}), json!({"prompt": [[1, 2], [3]]}), json!(null)]
        {
            assert_eq!(ask(engine, "/v1/completions", Some(odd)).await.0, StatusCode::OK);
        }
    });
}

#[test]
fn engines_fail_on_demand_and_come_back_cold() {
    in_time(async {
        let mut fleet = SimulatedFleet::start(2, fast()).await.unwrap();
        let engine = fleet.addresses()[1];
        let body = json!({"prompt": "abcd".repeat(64), "max_tokens": 1});
        let cached = async || {
            let answer = document(engine, "/v1/completions", Some(body.clone())).await;
            answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
        };
        assert_eq!((cached().await, cached().await), (0, 192));
        fleet.set_fault(1, Fault::Status(StatusCode::SERVICE_UNAVAILABLE));
        let (status, _) = ask(engine, "/v1/completions", Some(body.clone())).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(ask(engine, "/health", None).await.0, StatusCode::OK);
        fleet.set_fault(1, Fault::None);
        let mut open = endless_request(engine, "true").await;
        fleet.kill(1).await;
        assert!(TcpStream::connect(engine).await.is_err());
        // Whatever came before, the connection ends.
        let _ = open.read_to_end(&mut Vec::new()).await;
        fleet.restart(1).await.unwrap();
        assert_eq!(fleet.addresses()[1], engine);
        assert_eq!(cached().await, 0);
    });
}

#[test]
fn the_trace_replays_at_an_engine_and_reuses_what_its_ids_share() {
    in_time(async {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/conversation_trace_1500.jsonl");
        let mut requests = trace::read_file(&path).unwrap();
        assert_eq!(requests.len(), 1_500);
        trace::spread(&mut requests, 1);
        requests.truncate(60);
        for request in &mut requests {
            request.output_tokens = request.output_tokens.min(8);
        }
        // One after the other: whatever the timing, each finds what came before it.
        let config = FleetConfig {
            engine: EngineConfig { max_running: 1, ..EngineConfig::default() },
            ..fast()
        };
        let fleet = SimulatedFleet::start(1, config).await.unwrap();
        let config = ReplayConfig {
            target: fleet.addresses()[0],
            model: "simulated".to_owned(),
            speed: 100.0,
            bytes_per_token: 1,
            timeout: DEADLINE,
        };
        let summary: Summary = replay(&requests, &config).await;
        println!("{summary}");
        assert_eq!((summary.ok, summary.failed), (60, 0), "{summary}");
        let tokens: u64 = requests.iter().map(|request| u64::from(request.input_tokens)).sum();
        assert_eq!(summary.prompt_tokens, tokens);
        let stats = fleet.stats()[0].stats;
        assert_eq!(stats.cached_tokens, summary.cached_tokens);
        assert!(requests.iter().all(|request| request.blocks[0] == 0));
        assert!(59 * 512 <= summary.cached_tokens, "{summary}");
        assert!(Duration::ZERO < summary.first_token_at(0.5));
    });
}

#[test]
fn the_traffic_source_sends_until_nobody_listens() {
    in_time(async {
        let config = FleetConfig {
            speed: 20.0,
            engine: EngineConfig { max_running: 1, ..EngineConfig::default() },
            ..FleetConfig::default()
        };
        let fleet = SimulatedFleet::start(1, config).await.unwrap();
        let (sender, mut events) = mpsc::channel(16);
        let config = TrafficConfig {
            answer_tokens: 1..=2,
            ..TrafficConfig::new(fleet.addresses()[0], "simulated")
        };
        let source = tokio::spawn(traffic::run(config, Clock::start(20.0), sender));
        let mut cached = 0;
        for _ in 0..50 {
            let outcome = events.recv().await.unwrap().outcome.unwrap();
            assert_eq!(outcome.failure, None);
            assert!(1_500 < outcome.prompt_tokens);
            cached += outcome.cached_tokens;
        }
        // All but the first of each of four system prompts of 1,500 tokens.
        assert!(46 * 1_472 <= cached, "{cached}");
        drop(events);
        source.await.unwrap();
    });
}

#[test]
fn what_comes_while_too_much_is_open_is_skipped_and_told() {
    in_time(async {
        let clock = Clock::start(1_000.0);
        let (sender, mut events) = mpsc::channel(1);
        let config = TrafficConfig {
            max_open: 0,
            ..TrafficConfig::new(SocketAddr::from(([127, 0, 0, 1], 1)), "simulated")
        };
        let source = tokio::spawn(traffic::run(config, clock, sender));
        assert!(events.recv().await.unwrap().outcome.is_none());
        drop(events);
        source.await.unwrap();
    });
}
