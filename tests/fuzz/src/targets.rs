//! Everything that reads foreign bytes, as functions that panic where a promise is broken.
//!
//! A fuzzer looks for inputs, one target at a time, for as long as one likes:
//!
//! ```text
//! cd tests/fuzz && TARGET=answer cargo run -- corpus/answer -max_len=4096 -max_total_time=600
//! ```
//!
//! A few small inputs of each kind are under `corpus/`; `tests/fuzzed.rs` replays them and mutants with
//! every test run. The first bytes of an input choose what headers would say.
//!
//! Promises: no panic, memory in proportion to the input, and what can be said of the result.

use bytes::Bytes;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use tidegate::config::{Config, Overrides};
use tidegate::handover::{self, Snapshot, Trust};
use tidegate::prompt::usage::UsageReader;
use tidegate::prompt::{Dialect, encoding};
use tidegate::state::State;
use tidegate::{admin, prompt};
use tidegate_policy::learned::Pin;
use tidegate_policy::scenario;
use xxhash_rust::xxh3::xxh3_64;

/// Reads any bytes; panics where it must not.
pub type Target = fn(&[u8]);

/// Every target by its name.
pub const ALL: [(&str, Target); 9] = [
    ("body", body),
    ("encoding", coded),
    ("answer", answer),
    ("report", report),
    ("config", config),
    ("snapshot", snapshot),
    ("route", route),
    ("scenario", scenarios),
    ("admin", asked),
];

const BLOCK_BYTES: NonZeroU32 = NonZeroU32::new(512).unwrap();

/// Two models, one of them with learned routes; nobody is probed, so that everybody is routable.
static STATE: LazyLock<Arc<State>> = LazyLock::new(|| {
    let yaml = r#"
tidegate:
  admin: {address: "127.0.0.1:9909"}
  health: {enabled: false}
  index: {max_entries: 4096}
  models:
    - name: m
      aliases: [default]
      workers: [{id: w0, url: "http://127.0.0.1:1"}, {id: w1, url: "http://127.0.0.1:2"}]
    - name: sharded
      policy: learned
      layers: 4
      workers:
        - {id: a, url: "http://127.0.0.1:3", last_layer: 1, tps: 5}
        - {id: b, url: "http://127.0.0.1:4", first_layer: 1, tps: 7}
"#;
    let config = Config::from_yaml(yaml, Path::new(""), &Overrides::default());
    State::new(Arc::new(config.expect("a valid file"))).expect("metrics")
});

/// A request's body, of any dialect.
pub fn body(bytes: &[u8]) {
    let Some((choice, body)) = bytes.split_first() else { return };
    let dialect = Dialect::ALL[usize::from(*choice) % Dialect::ALL.len()];
    let envelope = prompt::read(dialect, body);
    let mut written = Vec::new();
    let size = envelope.write_prompt(&mut written);
    assert!(written.len() <= 64 + 8 * body.len(), "{} of {}", written.len(), body.len());
    let keys = envelope.keys(BLOCK_BYTES, "m");
    assert_eq!(keys, envelope.keys(BLOCK_BYTES, "m"));
    let Some(keys) = keys else { return };
    assert!(keys.keys.keys().len() <= 1 + written.len() / 512, "a key a block");
    assert_eq!(size.map(|size| size.exact_tokens), Some(keys.exact_tokens));
    if let Ok(text) = std::str::from_utf8(body)
        && let Ok(parsed) = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text)
    {
        // What a parser takes for a model is the model.
        let model = parsed.get("model").and_then(|model| model.as_str());
        assert_eq!(envelope.model.as_deref(), model);
    }
}

/// A compressed body.
pub fn coded(bytes: &[u8]) {
    const LIMIT: usize = 1 << 16;
    let Some((choice, body)) = bytes.split_first() else { return };
    let codings = ["gzip", "zstd", "br", "gzip, br", "br, zstd"];
    let coding = codings[usize::from(*choice) % codings.len()];
    if let Some(decoded) = encoding::decode(coding, body, LIMIT) {
        assert!(decoded.len() <= LIMIT);
    }
}

/// A worker's answer, whole and cut.
pub fn answer(bytes: &[u8]) {
    let Some(([choice, cut], rest)) = bytes.split_first_chunk() else { return };
    let types = ["text/event-stream", "application/x-ndjson", "application/json"];
    let dialect = Dialect::ALL[usize::from(choice >> 2) % Dialect::ALL.len()];
    let kind = types[usize::from(choice & 3) % types.len()];
    let new = || UsageReader::new(Some(kind), None, dialect);
    let (mut whole, mut pieces) = (new(), new());
    whole.push(rest);
    for piece in rest.chunks(usize::from(*cut).max(1)) {
        pieces.push(piece);
    }
    assert_eq!(whole.usage(), pieces.usage());
    assert_eq!(whole.content_events(), pieces.content_events());
    assert_eq!(whole.completion_tokens(), pieces.completion_tokens());
    assert_eq!(whole.is_whole(), pieces.is_whole());
    assert!(whole.content_events() <= rest.len() as u64);
}

/// An engine's load report, of any form.
pub fn report(bytes: &[u8]) {
    const LARGEST: u64 = 1 << 53;
    let _ = tidegate_reports::dp_size_of_server_info(bytes);
    let Ok(report) = tidegate_reports::parse(bytes, None) else { return };
    let counts = [report.waiting, report.running, report.max_running, report.total_tokens];
    assert!(counts.into_iter().flatten().all(|count| count <= LARGEST));
    assert!(report.kv_usage.is_none_or(|usage| (0.0..=1.0).contains(&usage)));
    assert!(tidegate_reports::parse(bytes, Some(report.ranks)).is_ok());
    assert!(tidegate_reports::parse(bytes, Some(report.ranks + 1)).is_err());
}

/// A configuration file.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let read = |text: &str| Config::from_yaml(text, Path::new("/nowhere"), &Overrides::default());
    match read(text) {
        Ok(config) => {
            let masked = config.masked();
            assert!(Config::known_keys(text).is_ok());
            assert!(masked.is_object());
        }
        Err(errors) => assert!(!errors.to_string().is_empty()),
    }
}

/// Warm state with a true head, and what an edge makes of it.
pub fn snapshot(bytes: &[u8]) {
    let mut from = Vec::from(b"TIDEGATE");
    from.extend_from_slice(&handover::VERSION.to_le_bytes());
    from.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    from.extend_from_slice(&xxh3_64(bytes).to_le_bytes());
    from.extend_from_slice(bytes);
    assert!(Snapshot::read(&mut &*bytes).is_err(), "no head");
    let Ok(snapshot) = Snapshot::read(&mut &*from) else { return };
    let mut written = Vec::new();
    snapshot.write(&mut written).expect("a vector");
    assert!(Snapshot::read(&mut &*written).is_ok());
    let running = STATE.pin();
    for trust in [Trust::Learned { now: u64::MAX }, Trust::Learned { now: 0 }, Trust::Now] {
        let _ = handover::restore(&snapshot, &running.fleets, trust);
    }
    let _ = handover::take(&running.fleets, 0);
}

/// The `route` of a request.
pub fn route(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let pin = Pin::read(text);
    if let Ok(Some(_)) = &pin {
        assert!(serde_json::from_str::<Vec<String>>(text).is_ok());
    }
    if let Err(error) = pin {
        assert!(error.to_string().len() < 400, "{error}");
    }
    let body = format!(r#"{{"model":"sharded","route":{text}}}"#);
    explained("/v1/explain", body.as_bytes());
}

/// A scenario of the command line, of either kind.
pub fn scenarios(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for scenario in scenario::read(text).unwrap_or_default() {
        let _ = (scenario.decide(), scenario.run());
    }
    for scenario in scenario::routes::read(text).unwrap_or_default() {
        let _ = scenario.run();
    }
}

/// A question to the admin listener: its target in the first line, its body behind it.
pub fn asked(bytes: &[u8]) {
    let line = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let Ok(target) = std::str::from_utf8(&bytes[..line]) else { return };
    explained(target, bytes.get(line + 1..).unwrap_or_default());
}

fn explained(target: &str, body: &[u8]) {
    for method in ["GET", "POST"] {
        let request = http::Request::builder().method(method).uri(target).header("host", "[::1]");
        let Ok(request) = request.body(Bytes::copy_from_slice(body)) else { return };
        let answer = admin::respond(&STATE, &request);
        assert_ne!(answer.status(), 500);
        let length = 4096 + 64 * (target.len() + body.len());
        assert!(target.starts_with("/metrics") || answer.body().len() < length.max(1 << 16));
    }
}
