//! The configuration: what is read, what is refused and with which words, and what wins.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use pingora::server::configuration::ServerConf;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::Path;
use std::time::Duration;
use tidegate::config::{
    Config, ConfigError, ConfigErrors, Overrides, POLICY_SETTINGS, Policy, PolicySetting,
    QuickStart, WorkerHost,
};
use tidegate_policy::rules::{CostRules, Rules, Selection};

fn read_with(text: &str, overrides: &Overrides) -> Result<Config, ConfigErrors> {
    Config::from_yaml(text, Path::new(""), overrides)
}

fn read(text: &str) -> Result<Config, ConfigErrors> {
    read_with(text, &Overrides::default())
}

fn good(text: &str) -> Config {
    read(text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn errors(text: &str) -> Vec<ConfigError> {
    match read(text) {
        Err(errors) => errors.into_iter().collect(),
        Ok(_) => panic!("accepted:\n{text}"),
    }
}

/// The only problem of a text.
fn problem(text: &str) -> ConfigError {
    let list = errors(text);
    assert_eq!(list.len(), 1, "{list:#?}\n{text}");
    list.into_iter().next().unwrap()
}

const MODELS: &str = "models: [{name: m, workers: [{id: w, url: 'http://h:1'}]}]";

/// A file with this under `tidegate:` and one model.
fn own(lines: &str) -> String {
    format!("tidegate:\n  {MODELS}\n  {lines}\n")
}

/// A file with one model that has these further keys.
fn model(keys: &str) -> String {
    format!("tidegate: {{models: [{{name: m, workers: [{{id: w, url: 'http://h:1'}}], {keys}}}]}}")
}

/// A file with one model of this `cache_aware`.
fn ladder(keys: &str) -> String {
    model(&format!("cache_aware: {{{keys}}}"))
}

/// A file with one worker that has these further keys.
fn worker(keys: &str) -> String {
    format!("tidegate: {{models: [{{name: m, workers: [{{id: w, {keys}}}]}}]}}")
}

fn rules(config: &Config) -> Rules {
    match &config.models[0].policy {
        Policy::CacheAware(rules) => rules.clone(),
        Policy::LeastLoad { .. } | Policy::RoundRobin | Policy::Learned(_) => {
            panic!("another policy")
        }
    }
}

fn setting(key: &str) -> &'static PolicySetting {
    POLICY_SETTINGS.iter().find(|setting| setting.key == key).unwrap()
}

// ---- what is read ------------------------------------------------------------------------------

#[test]
fn an_almost_empty_file_has_the_documented_defaults() {
    let config = good(&own("{}").replace("  {}\n", ""));
    assert_eq!(config.grace_period, Duration::from_secs(900));
    assert_eq!(config.limits.max_body_bytes, 64 << 20);
    assert_eq!(config.limits.max_header_bytes, 64 << 10);
    assert_eq!(config.limits.max_decoded_bytes, 8 << 20);
    assert_eq!(config.shutdown.drain_delay, Duration::from_secs(5));
    assert_eq!((config.index.block_bytes, config.index.max_entries), (512, 4_000_000));
    assert_eq!(config.dns_interval, Duration::from_secs(5));
    let model = &config.models[0];
    let selection = Selection::Cost(CostRules::default());
    assert_eq!(rules(&config), Rules { selection, ..Rules::default() });
    assert_eq!(model.load_reports.interval, Duration::from_millis(500));
    assert_eq!(model.load_reports.timeout, Duration::from_millis(400));
    assert_eq!(model.load_reports.max_age, Duration::from_secs(2));
    assert_eq!(model.load_reports.frozen_after, Duration::from_secs(10));
    assert_eq!((model.health.fall.get(), model.health.rise.get()), (3, 2));
    assert_eq!((model.health.path.as_str(), model.health.enabled), ("/health", true));
    assert_eq!(model.breaker.threshold.get(), 3);
    assert_eq!(model.breaker.cool_down, Duration::from_secs(30));
    assert_eq!(model.breaker.wedged_after, Duration::from_secs(60));
    assert_eq!(model.retries.max_attempts.get(), 3);
    assert_eq!(model.retries.stale_window, Duration::from_millis(100));
    let seconds = |duration: Duration| duration.as_secs();
    let times = &model.timeouts;
    assert_eq!((seconds(times.connect), seconds(times.first_byte)), (2, 600));
    assert_eq!((seconds(times.stream_idle), seconds(times.client_stall)), (180, 120));
    assert_eq!((seconds(times.client_header), seconds(times.client_body_idle)), (10, 30));
    assert_eq!((seconds(times.client_idle), seconds(times.worker_idle)), (75, 4));
    assert_eq!(seconds(times.worker_write), 10);
}

#[test]
fn durations_and_sizes_are_read_in_every_unit() {
    for (text, millis) in [
        ("500ms", 500),
        ("2s", 2000),
        ("1.5s", 1500),
        ("10m", 600_000),
        ("1h", 3_600_000),
        ("3", 3000),
        ("0.25", 250),
        ("'4'", 0),
    ] {
        let result = read(&own(&format!("breaker: {{cool_down: {text}}}")));
        match result {
            Ok(config) => assert_eq!(
                config.models[0].breaker.cool_down,
                Duration::from_millis(millis),
                "{text}"
            ),
            Err(errors) => assert_eq!(millis, 0, "{text}: {errors}"),
        }
    }
    for (text, bytes) in [
        ("64KiB", 64 << 10),
        ("1MiB", 1 << 20),
        ("2gib", 2 << 30),
        ("3KB", 3000),
        ("4MB", 4_000_000),
        ("5GB", 5_000_000_000),
        ("10B", 10),
        ("77", 77),
        ("1.5KiB", 1536),
    ] {
        let limits = format!("limits: {{max_body_bytes: {text}, max_buffered_bytes: 16GiB}}");
        assert_eq!(good(&own(&limits)).limits.max_body_bytes, bytes, "{text}");
    }
    for text in ["-1s", "1d", "s", "''", "[1s]", ".inf", "1e30", "25h", "0s", "1 s x", "null"] {
        let problem = problem(&own(&format!("breaker: {{cool_down: {text}}}")));
        assert_eq!(problem.path, "tidegate.breaker.cool_down", "{text}");
        assert!(problem.message.contains("from 1ms to 24h"), "{problem}");
    }
}

#[test]
fn a_models_settings_win_key_by_key_over_the_common_ones() {
    let text = "
tidegate:
  timeouts: {connect: 1s, first_byte: 20s}
  health: {path: /up, fall: 5}
  upstream_auth: {bearer: common}
  load_reports: {interval: 1s, auth: {bearer: reports}}
  models:
    - name: a
      timeouts: {connect: 3s}
      health: {fall: 7}
      load_reports: {max_age: 9s}
      upstream_auth: {header: {name: X-Api-Key, value: of-a}}
      workers:
        - {id: w, url: 'http://h:1'}
        - {id: v, url: 'http://h:2', upstream_auth: {bearer: of-v}}
    - {name: b, workers: [{id: w, url: 'http://h:1'}]}
";
    let config = good(text);
    let [a, b] = [&config.models[0], &config.models[1]];
    assert_eq!((a.timeouts.connect.as_secs(), a.timeouts.first_byte.as_secs()), (3, 20));
    assert_eq!((b.timeouts.connect.as_secs(), config.timeouts.connect.as_secs()), (1, 1));
    assert_eq!((a.health.path.as_str(), a.health.fall.get(), b.health.fall.get()), ("/up", 7, 5));
    assert_eq!((a.load_reports.interval.as_secs(), a.load_reports.max_age.as_secs()), (1, 9));
    assert_eq!(a.load_reports.auth.as_ref().unwrap().value.expose(), "Bearer reports");
    let auth = |at: usize, of: usize| {
        let auth = config.models[at].workers[of].upstream_auth.clone().unwrap();
        (auth.name, auth.value.expose().to_owned())
    };
    assert_eq!(auth(0, 0), ("x-api-key".into(), "of-a".into()));
    assert_eq!(auth(0, 1), ("authorization".into(), "Bearer of-v".into()));
    assert_eq!(auth(1, 0), ("authorization".into(), "Bearer common".into()));
}

#[test]
fn worker_urls_are_read_in_every_form() {
    for (url, shown) in [
        ("http://h", "http://h:80"),
        ("HTTPS://W1.Example:30000/", "https://w1.example:30000"),
        ("https://10.0.0.1", "https://10.0.0.1:443"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("http://[fe80::2]", "http://[fe80::2]:80"),
        ("unix:/run/w.sock", "unix:/run/w.sock"),
        ("unix:///run/w.sock", "unix:/run/w.sock"),
        ("http://under_score.svc:1", "http://under_score.svc:1"),
    ] {
        let config = good(&worker(&format!("url: '{url}'")));
        assert_eq!(config.models[0].workers[0].url.to_string(), shown);
    }
    let config = good(&worker("url: 'http://10.0.0.1:5'"));
    assert!(matches!(config.models[0].workers[0].url.host, WorkerHost::Ip(_)));
}

#[test]
fn variables_of_the_environment_are_filled_in_and_their_values_never_shown() {
    let env = |name: &str| match name {
        "KEY" => Some("hunter2".to_owned()),
        "N" => Some("7".to_owned()),
        _ => None,
    };
    let overrides = Overrides::default().with_environment(env);
    let text = model("shed_queue_limit: '${N}', upstream_auth: {bearer: '${KEY}'}");
    let config = read_with(&text, &overrides).unwrap();
    assert_eq!(config.models[0].shed_queue_limit, NonZeroU64::new(7));
    let auth = config.models[0].workers[0].upstream_auth.clone().unwrap();
    assert_eq!(auth.value.expose(), "Bearer hunter2");
    assert!(!format!("{config:?}{}", config.masked()).contains("hunter2"));

    let text = model("health: {path: '${KEY}'}, shed_queue_limit: '${KEY}', aliases: ['${NO}']");
    let errors = read_with(&text, &overrides).unwrap_err().to_string();
    assert!(!errors.contains("hunter2"), "{errors}");
    assert!(errors.contains("${KEY}") && errors.contains("NO is not set"), "{errors}");
}

#[test]
fn secrets_are_in_no_message() {
    for text in [
        model("upstream_auth: {bearer: 'top secret'}"),
        model("upstream_auth: {bearer: ['secret']}"),
        model("upstream_auth: {bearer: {secret: secret}}"),
        model("upstream_auth: {bearre: secret}"),
        model("upstream_auth: {header: {name: host, value: \"secret\\n\"}}"),
        own("admin: {address: '0.0.0.0:1', token: \"secret\\u00e9\"}"),
        worker("url: 'http://me:secret@h:1/v1'"),
        worker("url: 'ftp://secret@h'"),
    ] {
        let errors = read(&text).unwrap_err();
        let said = errors.iter().map(|e| format!("{}{}", e.value, e.message)).collect::<String>();
        assert!(!said.contains("secret"), "{errors}");
    }
}

#[test]
fn the_masked_configuration_can_be_read_again() {
    for entry in files() {
        let config = Config::from_path(&entry, &Overrides::default()).unwrap();
        let masked = config.masked();
        let again = good(&serde_json::to_string_pretty(&masked).unwrap());
        assert_eq!(again.masked(), masked, "{}", entry.display());
    }
    let named =
        good("tidegate: {models: [{name: m, discovery: {dns: 'Engines.svc:80'}}]}").masked();
    assert_eq!(named["tidegate"]["models"][0]["discovery"]["dns"], "engines.svc:80");
    assert_eq!(good(&named.to_string()).masked(), named);
    let text = own("admin: {token: t}").replace("id: w,", "id: w, upstream_auth: {bearer: b},");
    let masked = good(&text).masked();
    assert_eq!(masked["tidegate"]["admin"]["token"], "***");
    assert_eq!(masked["tidegate"]["models"][0]["workers"][0]["upstream_auth"]["bearer"], "***");
}

// ---- what is refused ---------------------------------------------------------------------------

#[test]
fn each_rule_has_its_message() {
    let cases = [
        (ladder("worker_queue_limit: 0"), "cache_aware.worker_queue_limit", "at least 1"),
        (ladder("worker_queue_limit: many"), "cache_aware.worker_queue_limit", "at least 1"),
        (ladder("worker_queue_limit: -3"), "cache_aware.worker_queue_limit", "at least 1"),
        (
            ladder("saturation_queue_floor: 1"),
            "cache_aware.saturation_queue_floor",
            "needs `worker_queue_limit`: there is no diversion to cancel without it",
        ),
        (
            ladder("worker_queue_limit: 8, saturation_queue_floor: 9"),
            "cache_aware.saturation_queue_floor",
            "must not be above `worker_queue_limit` (8)",
        ),
        (
            ladder("worker_queue_limit: 8, saturation_queue_floor: 0"),
            "cache_aware.saturation_queue_floor",
            "at least 1",
        ),
        (ladder("min_load_choices: 0"), "cache_aware.min_load_choices", "at least 1"),
        (ladder("min_match_ratio: 1.1"), "cache_aware.min_match_ratio", "from 0 to 1"),
        (ladder("candidate_ratio: -0.1"), "cache_aware.candidate_ratio", "from 0 to 1"),
        (ladder("candidate_max_workers: 33"), "cache_aware.candidate_max_workers", "1 to 32"),
        (
            ladder("selection: ladder, candidate_max_workers: 4"),
            "cache_aware.candidate_min_workers",
            "(4)",
        ),
        (ladder("pressure_rel: 1"), "cache_aware.pressure_rel", "above 1"),
        (ladder("pressure_rel: .inf"), "cache_aware.pressure_rel", "above 1"),
        (ladder("pressure_rel: .nan"), "cache_aware.pressure_rel", "above 1"),
        (ladder("selection: best"), "cache_aware.selection", "ladder, cost"),
        (ladder("price_worker: 65"), "cache_aware.price_worker", "from 0 to 64"),
        (ladder("price_worker: 0"), "cache_aware.price_worker", "above 0 if `price_fleet` is"),
        (ladder("price_fleet: -1"), "cache_aware.price_fleet", "from 0 to 64"),
        (ladder("tie_percent: 21"), "cache_aware.tie_percent", "from 0 to 20"),
        (ladder("speed_snap: 0.9"), "cache_aware.speed_snap", "from 1"),
        (ladder("home_bonus: 1"), "cache_aware.home_bonus", "below 1"),
        (
            ladder("home_bonus: 0.5, home_bonus_foreign: 0.5"),
            "cache_aware.home_bonus_foreign",
            "below 1 together with `home_bonus`",
        ),
        (
            ladder("selection: cost, worker_queue_limit: 8"),
            "cache_aware.worker_queue_limit",
            "belongs to `selection: ladder`",
        ),
        (
            ladder("switch_margin_tokens: 0"),
            "cache_aware.switch_margin_tokens",
            "belongs to `selection: ladder`",
        ),
        (
            ladder("worker_queue_limit: 8, price_worker: 4"),
            "cache_aware.price_worker",
            "belongs to `selection: cost`",
        ),
        (
            ladder("selection: ladder, pin_order: locality"),
            "cache_aware.pin_order",
            "saturation_queue_floor",
        ),
        (
            ladder("selection: ladder, pin_max_queue: 9"),
            "cache_aware.pin_max_queue",
            "saturation_queue_floor",
        ),
        (
            ladder("worker_queue_limit: 8, saturation_queue_floor: 1, pin_max_queue: 7"),
            "cache_aware.pin_max_queue",
            "at least `worker_queue_limit` (8)",
        ),
        (
            ladder("selection: ladder, scale_with_dp: true"),
            "cache_aware.scale_with_dp",
            "`worker_queue_limit`",
        ),
        (ladder("scale_with_dp: 1"), "cache_aware.scale_with_dp", "true or false"),
        (
            ladder("selection: ladder, pressure_guard: false, pressure_abs_ms: 5"),
            "cache_aware.pressure_abs_ms",
            "does nothing with `pressure_guard: false`",
        ),
        (ladder("affinity_headers: [a b]"), "cache_aware.affinity_headers[0]", "header's name"),
        (
            model("policy: round_robin, cache_aware: {worker_queue_limit: 8}"),
            "cache_aware",
            "does nothing under this policy",
        ),
        (
            model("least_load: {min_load_choices: 2}"),
            "least_load",
            "does nothing under this policy",
        ),
        (model("policy: random"), "policy", "cache_aware, least_load, round_robin"),
        (model("discovery: {}"), "discovery", "needs `file` or `dns`"),
        (model("discovery: {file: a, dns: 'b:1'}"), "discovery", "not both"),
        (model("discovery: {dns: '10.0.0.1:80'}"), "discovery.dns", "host name with a port"),
        (model("discovery: {dns: engines}"), "discovery.dns", "host name with a port"),
        (model("warmup: 2h"), "warmup", "from 0s to 1h"),
        (model("policy: learned, warmup: 5s"), "warmup", "does nothing under the policy learned"),
        (model("queue: {max_wait: 1s}"), "queue.max_requests", "is missing"),
        (model("queue: {max_requests: 0, max_wait: 1s}"), "queue.max_requests", "1 to 1000000"),
        (model("queue: {max_requests: 1, max_wait: 2h}"), "queue.max_wait", "from 1ms to 1h"),
        (model("queue: {max_requests: 1, max_wait: 1s}"), "queue", "`max_inflight`"),
        (model("timeouts: {client_header: 1s}"), "timeouts.client_header", "before the model"),
        (model("aliases: ['*']"), "aliases[0]", "a model named `*`"),
        (model("aliases: [m]"), "aliases[0]", "is taken by tidegate.models[0].name"),
        (model("aliases: m"), "aliases", "must be a list"),
        (model("health: {path: health}"), "health.path", "such as /health"),
        (model("health: 5"), "health", "must be a mapping"),
        (
            model("upstream_auth: {bearer: a, header: {name: b, value: c}}"),
            "upstream_auth",
            "not both",
        ),
        (model("upstream_auth: {header: {name: b}}"), "upstream_auth.header.value", "is missing"),
        (
            model("upstream_auth: {header: {name: Content-Length, value: 'x'}}"),
            "upstream_auth.header.name",
            "belongs to the connection",
        ),
        (model("upstream_auth: {bearer: Bearer x}"), "upstream_auth.bearer", "the token alone"),
    ];
    for (text, path, words) in cases {
        let problem = problem(&text);
        assert_eq!(problem.path, format!("tidegate.models[0].{path}"), "{text}");
        assert!(problem.message.contains(words), "{problem}\n{text}");
    }
}

#[test]
fn each_rule_of_the_process_has_its_message() {
    let cases = [
        (own("admin: {address: '0.0.0.0:9909'}"), "tidegate.admin.address", "set `admin.token`"),
        (own("admin: {address: '[::]:9909'}"), "tidegate.admin.address", "set `admin.token`"),
        (own("admin: {address: '127.0.0.1:8080'}"), "tidegate.admin.address", "traffic listener"),
        (own("listeners: []"), "tidegate.listeners", "1 to 64 entries"),
        (
            own("listeners: [{address: '127.0.0.1:99999'}]"),
            "tidegate.listeners[0].address",
            "ip:port",
        ),
        (own("listeners: [{address: '::1:8080'}]"), "tidegate.listeners[0].address", "brackets"),
        (own("listeners: [{address: 'unix:x'}]"), "tidegate.listeners[0].address", "absolute"),
        (
            own("listeners: [{address: '0.0.0.0:1'}, {address: '0.0.0.0:1'}]"),
            "tidegate.listeners[1].address",
            "another listener",
        ),
        (
            own("listeners: [{address: '0.0.0.0:1', tls: {cert: /no, key: conf/no}}]"),
            "tidegate.listeners[0].tls.cert",
            "readable file",
        ),
        (own("limits: {max_body_bytes: 2GiB}"), "tidegate.limits.max_body_bytes", "must hold one"),
        (own("limits: {max_header_bytes: 2MiB}"), "tidegate.limits.max_header_bytes", "1048575"),
        (own("limits: {max_connections: 0}"), "tidegate.limits.max_connections", "1 to 10000000"),
        (own("http: {forwarded: yes}"), "tidegate.http.forwarded", "append, set, off"),
        (own("http: {half_close: x}"), "tidegate.http.half_close", "abort, tolerate"),
        (own("access_log: {sample: 2}"), "tidegate.access_log.sample", "from 0 to 1"),
        (own("index: {block_bytes: 8}"), "tidegate.index.block_bytes", "16 to 65536"),
        (own("retries: {max_attempts: 0}"), "tidegate.retries.max_attempts", "1 to 16"),
        (own("state_file: [x]"), "tidegate.state_file", "must be a text"),
        (format!("upgrade_sock: /{}\n{}", "x".repeat(102), own("http:")), "upgrade_sock", "102"),
        (own("load_reports: {format: json}"), "tidegate.load_reports.format", "vllm_metrics"),
        (format!("version: 2\n{}", own("http:")), "version", "must be 1"),
        (format!("threads: 0\n{}", own("http:")), "threads", "1 to 1024"),
        (format!("daemon: maybe\n{}", own("http:")), "daemon", "true or false"),
        (
            format!("runtime_enable_alt_timer: true\n{}", own("http:")),
            "runtime_enable_alt_timer",
            "tokio_unstable",
        ),
        (
            format!("client_bind_to_ipv4: [x]\n{}", own("http:")),
            "client_bind_to_ipv4[0]",
            "IP address",
        ),
        ("version: 1".into(), "tidegate", "is missing"),
        ("[1]".into(), "file", "must be a mapping"),
        ("tidegate: {models: []}".into(), "tidegate.models", "1 to 1000 models"),
        ("tidegate: {http: {}}".into(), "tidegate.models", "1 to 1000 models"),
        ("tidegate: {models: {a: b}}".into(), "tidegate.models", "must be a list"),
    ];
    for (text, path, words) in cases {
        let list = errors(&text);
        let found = list.iter().find(|p| p.path == path && p.message.contains(words));
        assert!(found.is_some(), "{list:#?}\n{text}");
    }
}

#[test]
fn each_rule_of_a_worker_has_its_message() {
    let long = format!("url: 'http://h:1', id: {}", "x".repeat(65));
    let cases = [
        ("url: 'http://:8000'", "url", "has no host"),
        ("url: '::1'", "url", "http://host:port"),
        ("url: 'http://::1:80'", "url", "brackets"),
        ("url: 'http://[::1:80'", "url", "brackets"),
        ("url: 'http://h:0'", "url", "port from 1 to 65535"),
        ("url: 'http://h:+1'", "url", "port from 1 to 65535"),
        ("url: 'http://h:65536'", "url", "port from 1 to 65535"),
        ("url: 'http://h:1/v1'", "url", "requests bring their own path"),
        ("url: 'http://h:1?x'", "url", "requests bring their own path"),
        ("url: 'http://a:b@h:1'", "url", "`upstream_auth`"),
        ("url: 'ftp://h'", "url", "unix:/path"),
        ("url: 'http://1.2.3.400'", "url", "host name"),
        ("url: 'http://-x'", "url", "host name"),
        ("url: 'unix:rel'", "url", "absolute"),
        ("url: 7", "url", "http://host:port"),
        ("role: plain", "url", "is missing"),
        ("url: 'http://h', weight: 0", "weight", "1 to 65535"),
        ("url: 'http://h', dp_size: 0", "dp_size", "1 to 65535"),
        ("url: 'http://h', max_inflight: 0", "max_inflight", "at least 1"),
        ("url: 'http://h', kv_capacity_tokens: 1.5", "kv_capacity_tokens", "whole number"),
        ("url: 'http://h', state: gone", "state", "active, draining"),
        ("url: 'http://h', role: both", "role", "plain, prefill, decode"),
        ("url: 'http://h', tls: {sni: x}", "tls", "https://"),
        ("url: 'https://h', tls: {ca: /no/ca}", "tls.ca", "readable file"),
        ("url: 'http://h', first_layer: 0", "first_layer", "`learned`"),
        ("url: 'http://h', tps: 3", "tps", "`learned`"),
        ("url: 'http://h', tps: 0", "tps", "above 0"),
    ];
    for (keys, path, words) in cases {
        let problem = problem(&worker(keys));
        assert_eq!(problem.path, format!("tidegate.models[0].workers[0].{path}"), "{keys}");
        assert!(problem.message.contains(words), "{problem}");
    }
    for id in ["id: ''", "id: a b", "id: 1", "id: ä", &long] {
        let text = worker("url: 'http://h:1'").replace("id: w", id.split("', ").last().unwrap());
        assert!(problem(&text).message.contains("1 to 64"), "{id}");
    }
    let decode = problem(&worker("url: 'http://h', role: decode"));
    assert!(decode.message.contains("plain or prefill"), "{decode}");
    let text = model("policy: least_load").replace("id: w,", "id: w, weight: 2,");
    assert!(problem(&text).message.contains("least_load"));
}

#[test]
fn ids_and_names_are_unique() {
    let text = "tidegate: {models: [{name: m, workers: [{id: w, url: 'http://h'}, {id: w, url: 'http://i'}]}]}";
    let twice = problem(text);
    assert_eq!(twice.path, "tidegate.models[0].workers[1].id");
    assert!(twice.message.contains("is the id of tidegate.models[0].workers[0] already"));
    let workers = "workers: [{id: w, url: 'http://h'}]";
    let two = |a: &str, b: &str| {
        format!("tidegate: {{models: [{{name: {a}, {workers}}}, {{name: {b}, {workers}}}]}}")
    };
    assert_eq!(problem(&two("a", "a")).path, "tidegate.models[1].name");
    assert_eq!(problem(&two("a", "b, aliases: [a]")).path, "tidegate.models[1].aliases[0]");
    assert!(problem(&two("'*'", "b")).message.contains("only model"));
    let _ = good(&two("a", "b"));
}

#[test]
fn keys_that_are_there_twice_are_all_named() {
    let text = format!("threads: 1\nthreads: 1\n{}  http: {{}}\n  http: {{}}\n", own("limits:"));
    let paths: Vec<_> = errors(&text).into_iter().map(|e| (e.path, e.message)).collect();
    let message = "is there more than once; keep one of them".to_owned();
    assert_eq!(paths, [("threads".into(), message.clone()), ("tidegate.http".into(), message)]);
}

#[test]
fn a_typo_is_answered_with_the_nearest_key() {
    let top = |key: &str| format!("{key}: 1\n{}", own("http:"));
    for (text, path, advice) in [
        (top("thread"), "thread", "`threads`"),
        (top("grace_period"), "grace_period", "`grace_period_seconds`"),
        (top("upgrade-sock"), "upgrade-sock", "`upgrade_sock`"),
        (top("Daemon"), "Daemon", "`daemon`"),
        (top("models"), "models", "`tidegate.models` is where it belongs"),
        (top("s2n_config_cache_size"), "s2n_config_cache_size", "rustls"),
        (own("listner: []"), "tidegate.listner", "`listeners`"),
        (own("load_report: {}"), "tidegate.load_report", "`load_reports`"),
        (own("threads: 2"), "tidegate.threads", "`threads` is where it belongs"),
        (own("limits: {max_body: 1}"), "tidegate.limits.max_body", "`max_body_bytes`"),
        (own("timeouts: {conect: 1}"), "tidegate.timeouts.conect", "`connect`"),
        (own("zzzzzzzz: 1"), "tidegate.zzzzzzzz", "valid here: listeners, admin, load_reports"),
        (model("worker: []"), "tidegate.models[0].worker", "`workers`"),
        (model("timeout: 1s"), "tidegate.models[0].timeout", "`timeouts`"),
        (model("queue_limitt: 3"), "tidegate.models[0].queue_limitt", "`shed_queue_limit`"),
        (
            model("worker_queue_limit: 3"),
            "tidegate.models[0].worker_queue_limit",
            "`tidegate.models[].cache_aware.worker_queue_limit` is where it belongs",
        ),
        (
            ladder("worker_que_limit: 3"),
            "tidegate.models[0].cache_aware.worker_que_limit",
            "`worker_queue_limit`",
        ),
        (
            ladder("saturation_floor: 3"),
            "tidegate.models[0].cache_aware.saturation_floor",
            "`saturation_queue_floor`",
        ),
        (worker("url: 'http://h', wieght: 3"), "tidegate.models[0].workers[0].wieght", "`weight`"),
    ] {
        let problem = problem(&text);
        assert_eq!(problem.path, path);
        assert!(problem.message.contains(advice), "{problem}");
    }
}

#[test]
fn all_problems_come_at_once_and_values_before_policy() {
    let text = "
version: 3
treads: 2
tidegate:
  http: {forwarded: maybe}
  models:
    - name: m
      policy: least_load
      cache_aware: {worker_queue_limit: 0}
      workers:
        - {id: w, url: 'http://:1'}
        - {id: w, url: 'http://h'}
";
    let paths: Vec<_> = errors(text).into_iter().map(|error| error.path).collect();
    assert_eq!(
        paths,
        [
            "version",
            "tidegate.http.forwarded",
            "tidegate.models[0].cache_aware.worker_queue_limit",
            "tidegate.models[0].cache_aware",
            "tidegate.models[0].workers[0].url",
            "tidegate.models[0].workers[1].id",
            "treads",
        ]
    );
}

#[test]
fn a_wrong_value_does_not_bring_false_alarms_about_others() {
    let text = ladder("worker_queue_limit: many, saturation_queue_floor: 2, scale_with_dp: true");
    assert!(problem(&text).path.ends_with("worker_queue_limit"));
}

#[test]
fn problems_are_bounded_and_the_rest_is_counted() {
    let many: String = (0..5000).fold(String::new(), |mut text, n| {
        let _ = writeln!(text, "  x{n}: 1");
        text
    });
    let list = errors(&own(many.trim_start()));
    assert_eq!(list.len(), 101);
    assert_eq!(list.last().unwrap().message, "4900 more problems");
}

// ---- damaged files -----------------------------------------------------------------------------

#[test]
fn syntax_errors_name_the_line() {
    for (text, line) in [
        ("version: 1\ntidegate:\n\tmodels: []\n", "line 3"),
        ("version: 1\ntidegate: {models: [\n", "line 3"),
        ("a: b: c\n", "line 1"),
        ("version: !secret 1\n", "line 1"),
        ("version: 1\n? [a]\n: b\n", "line "),
        ("version: *nobody\n", "line 1"),
    ] {
        let problem = problem(text);
        assert!(problem.path.starts_with(line), "{problem}\n{text}");
    }
    assert!(problem("a: 1\n---\nb: 1\n").message.contains("more than one document"));
}

#[test]
fn an_empty_file_says_so() {
    for text in ["", "\n \n", "# only\n  # comments\n", "---\n", "null", "~"] {
        assert!(problem(text).message.starts_with("is empty"), "{text:?}");
    }
}

#[test]
fn a_file_over_four_mebibytes_is_refused() {
    let text = format!("{}\n#{}", own("http:"), "x".repeat(4 << 20));
    assert!(problem(&text).message.contains("4 MiB"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.yaml");
    std::fs::write(&path, text).unwrap();
    let errors = Config::from_path(&path, &Overrides::default()).unwrap_err();
    assert!(errors.to_string().contains("large.yaml: is larger than 4 MiB"), "{errors}");
}

#[test]
fn files_that_cannot_be_read_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let read = |path: &Path| Config::from_path(path, &Overrides::default()).unwrap_err();
    assert!(read(&folder.path().join("no.yaml")).to_string().contains("no.yaml: cannot be read"));
    assert!(read(folder.path()).to_string().contains("cannot be read"));
    let path = folder.path().join("bytes.yaml");
    std::fs::write(&path, b"a: \xff").unwrap();
    assert!(read(&path).to_string().contains("utf-8"));
}

#[test]
fn bombs_are_refused_before_they_grow() {
    let mut aliases = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let below = vec![format!("*a{}", level - 1); 9].join(", ");
        let _ = writeln!(aliases, "a{level}: &a{level} [{below}]");
    }
    assert!(problem(&aliases).message.contains("not readable YAML"));
    let wide = format!("a: &a [{}]\nb: [{}]\n", "x,".repeat(50_000), "*a,".repeat(50_000));
    assert!(problem(&wide).message.contains("too large"));
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), "*a,".repeat(10_000));
    assert!(problem(&long).message.contains("too large"));
    for open in ["[", "{a: ", "? [", "a: [", "[\n", "{? ", "#\r["] {
        let text = open.repeat(200_000);
        assert!(problem(&text).message.contains("brackets are open"), "{open:?}");
    }
    assert!(!errors(&"- ".repeat(500_000)).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,200}") {
        let _ = read(&text);
    }

    #[test]
    fn no_damage_to_a_file_makes_it_panic(
        at in 0usize..3000, with in any::<Vec<u8>>(), cut in 0usize..200,
    ) {
        let mut bytes = REFERENCE.as_bytes().to_vec();
        let at = at.min(bytes.len());
        let end = (at + cut).min(bytes.len());
        bytes.splice(at..end, with);
        let _ = read(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn no_value_makes_it_panic(
        key in prop::sample::select(known()), value in value(),
    ) {
        let (file, key) = (REFERENCE, key.rsplit('.').next().unwrap_or_default().to_owned());
        let text = file.lines().map(|line| match line.trim_start().split_once(':') {
            Some((name, _)) if name == key => {
                let indent = line.len() - line.trim_start().len();
                format!("{}{key}: {value}\n", " ".repeat(indent))
            }
            _ => format!("{line}\n"),
        }).collect::<String>();
        let _ = read(&text);
    }
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| n.to_string()),
        "[0-9.]{1,20}(ms|s|m|h|KiB|GB)".prop_map(|text| text),
        "\"[a-z:/@.$\\{\\}\\[\\]]{0,30}\"".prop_map(|text| text),
        prop::sample::select(vec![
            "null", "[]", "{}", "[1, [2]]", "{a: b}", ".nan", "-.inf", "true"
        ])
        .prop_map(str::to_owned),
    ]
}

// ---- flags and variables -----------------------------------------------------------------------

#[test]
fn a_flag_wins_over_a_variable_over_the_file_over_the_default() {
    let file = ladder("worker_queue_limit: 8");
    let limit = |text: &str, overrides: &Overrides| {
        rules(&read_with(text, overrides).unwrap()).worker_queue_limit.map(NonZeroU64::get)
    };
    let variable = Overrides::default()
        .with_environment(|name| (name == "TIDEGATE_WORKER_QUEUE_LIMIT").then(|| "4".into()));
    let flag = variable.clone().with_flag(setting("worker_queue_limit"), "2");
    assert_eq!(limit(&model("policy: cache_aware"), &Overrides::default()), None);
    assert_eq!(limit(&file, &Overrides::default()), Some(8));
    assert_eq!(limit(&file, &variable), Some(4));
    assert_eq!(limit(&file, &flag), Some(2));
    assert_eq!(limit(&file, &flag.with_flag(setting("worker_queue_limit"), "null")), None);
    let cost = Overrides::default().with_flag(setting("selection"), "cost");
    let errors = read_with(&file, &cost).unwrap_err();
    assert!(errors.to_string().contains("worker_queue_limit"), "{errors}");
}

#[test]
fn every_policy_setting_can_be_given_outside_the_file() {
    let gate = ladder("worker_queue_limit: 8, saturation_queue_floor: 1");
    for (key, value) in [
        ("policy", "cache_aware"),
        ("selection", "ladder"),
        ("worker_queue_limit", "9"),
        ("saturation_queue_floor", "2"),
        ("min_matched_tokens", "null"),
        ("min_match_ratio", "0.5"),
        ("candidate_min_workers", "4"),
        ("candidate_ratio", "1"),
        ("candidate_max_workers", "16"),
        ("switch_margin_tokens", "0"),
        ("pressure_guard", "false"),
        ("pressure_abs_tokens", "1"),
        ("pressure_rel", "2"),
        ("pressure_abs_ms", "3"),
        ("max_pending_prefill_tokens", "4"),
        ("min_load_choices", "2"),
        ("pin_order", "locality"),
        ("pin_max_queue", "10"),
        ("dispatch_correction", "false"),
        ("scale_with_dp", "true"),
        ("price_worker", "2.5"),
        ("price_fleet", "0"),
        ("tie_percent", "0"),
        ("speed_snap", "1.5"),
        ("home_bonus", "0"),
        ("home_bonus_foreign", "0.1"),
        ("affinity_headers", "x-session, x-user"),
    ] {
        let of_cost = Selection::COST_KEYS.contains(&key);
        let file = if of_cost { ladder("selection: cost") } else { gate.clone() };
        let overrides = Overrides::default().with_flag(setting(key), value);
        let config = read_with(&file, &overrides).unwrap_or_else(|e| panic!("{key}: {e}"));
        let same = config.masked() == good(&file).masked();
        assert_eq!(same, ["policy", "selection"].contains(&key), "{key}");
        let bad = Overrides::default().with_flag(setting(key), "no such value");
        let errors = read_with(&file, &bad).unwrap_err();
        let flag = format!("--{}", setting(key).flag());
        assert!(errors.iter().any(|error| error.path == flag), "{key}: {errors}");
    }
    let learned = model("policy: learned");
    for (key, value) in ROUTE_SETTINGS {
        let overrides = Overrides::default().with_flag(setting(key), value);
        let config = read_with(&learned, &overrides).unwrap_or_else(|e| panic!("{key}: {e}"));
        assert_ne!(config.masked(), good(&learned).masked(), "{key}");
        let bad = Overrides::default().with_flag(setting(key), "no such value");
        let errors = read_with(&learned, &bad).unwrap_err();
        let flag = format!("--{}", setting(key).flag());
        assert!(errors.iter().any(|error| error.path == flag), "{key}: {errors}");
    }
    assert_eq!(POLICY_SETTINGS.len(), 27 + ROUTE_SETTINGS.len(), "extend the tables above");
}

const ROUTE_SETTINGS: [(&str, &str); 8] = [
    ("choice", "thompson"),
    ("explore_share", "0.5"),
    ("weight_alpha", "4"),
    ("stats_half_life", "1m"),
    ("min_sample_tokens", "16"),
    ("max_candidates", "4"),
    ("prune_after", "1h"),
    ("seed", "7"),
];

#[test]
fn route_settings_have_names_of_their_own_outside_the_file() {
    let share = setting("explore_share");
    assert_eq!(
        (share.flag(), share.variable()),
        ("route-explore-share".to_owned(), "TIDEGATE_ROUTE_EXPLORE_SHARE".to_owned(),)
    );
    assert_eq!(setting("weight_alpha").flag(), "route-weight-alpha");
    assert_eq!(setting("stats_half_life").flag(), "route-stats-half-life");
    assert_eq!(setting("min_sample_tokens").flag(), "route-min-sample-tokens");
    assert_eq!(setting("seed").variable(), "TIDEGATE_SEED");
    let file = model("policy: learned, learned: {explore_share: 0.1}");
    let share = |overrides: &Overrides| match &read_with(&file, overrides).unwrap().models[0].policy
    {
        Policy::Learned(learned) => learned.settings.explore_share.get(),
        other => panic!("{other:?}"),
    };
    let variable = Overrides::default()
        .with_environment(|name| (name == "TIDEGATE_ROUTE_EXPLORE_SHARE").then(|| "0.2".into()));
    let flag = variable.clone().with_flag(setting("explore_share"), "0.4");
    assert_eq!([share(&Overrides::default()), share(&variable), share(&flag)], [0.1, 0.2, 0.4]);
    let errors = read_with(&model("policy: round_robin"), &flag).unwrap_err();
    assert_eq!(errors.iter().next().unwrap().path, "--route-explore-share");
    let policy = Overrides::default().with_flag(setting("policy"), "least_load");
    let sharded = sharded("", "last_layer: 21, tps: 120", "first_layer: 22, tps: 6");
    assert!(read_with(&sharded, &policy).is_ok(), "another policy can be tried over the file");
}

/// A file with one model of 40 layers on two nodes, with these further keys.
fn sharded(model: &str, a: &str, b: &str) -> String {
    format!(
        "tidegate: {{models: [{{name: m, policy: learned, layers: 40, {model} workers: [\
         {{id: a, url: 'http://a', {a}}}, {{id: b, url: 'http://b', {b}}}]}}]}}"
    )
}

#[test]
fn shards_are_read_and_what_is_left_out_is_the_models_own_end() {
    let config = good(&sharded("", "last_layer: 21, tps: 120", "tps: 6, reputation: 0.5"));
    let held: Vec<_> = config.models[0]
        .workers
        .iter()
        .map(|worker| {
            let shard = worker.shard.as_ref().unwrap();
            let layers = shard.layers.unwrap();
            (layers.first(), layers.last(), shard.tps, shard.reputation)
        })
        .collect();
    assert_eq!(held, [(0, 21, Some(120.0), 1.0), (0, 39, Some(6.0), 0.5)]);
    let masked = config.masked();
    assert_eq!(good(&masked.to_string()).masked(), masked);
}

#[test]
fn each_rule_of_learned_routes_has_its_message() {
    let cases = [
        (model("layers: 40"), "layers", "`learned`"),
        (model("learned: {seed: 1}"), "learned", "does nothing under this policy"),
        (sharded("layers: 0,", "", "").replace("layers: 40, ", ""), "layers", "1 to 100000"),
        (sharded("learned: {explore_share: 1.5},", "", ""), "learned.explore_share", "0 to 1"),
        (sharded("learned: {weight_alpha: -1},", "", ""), "learned.weight_alpha", "0 to 100"),
        (sharded("learned: {weight_alpha: .nan},", "", ""), "learned.weight_alpha", "0 to 100"),
        (sharded("learned: {stats_half_life: 0s},", "", ""), "learned.stats_half_life", "1ms"),
        (sharded("learned: {min_sample_tokens: 0},", "", ""), "learned.min_sample_tokens", "1"),
        (sharded("learned: {max_candidates: 65},", "", ""), "learned.max_candidates", "1 to 64"),
        (sharded("learned: {choice: best},", "", ""), "learned.choice", "thompson"),
        (
            sharded("learned: {choice: thompson, explore_share: 0.1},", "", ""),
            "learned.explore_share",
            "thompson",
        ),
        (sharded("", "tps: 0", "tps: 1"), "workers[0].tps", "above 0"),
        (sharded("", "reputation: -1", ""), "workers[0].reputation", "from 0"),
        (sharded("", "last_layer: 40", ""), "workers[0].last_layer", "0 to 39"),
        (sharded("", "first_layer: 5, last_layer: 4", ""), "workers[0].last_layer", "(5)"),
        (sharded("", "weight: 2", ""), "workers[0].weight", "learned"),
        (sharded("", "tps: 3", ""), "workers", "`b` has no `tps`"),
        (sharded("", "last_layer: 21", "first_layer: 23"), "workers", "at layer 22"),
        (sharded("", "first_layer: 1", "first_layer: 1"), "workers", "at layer 0"),
        (
            model("policy: learned").replace("id: w,", "id: w, first_layer: 0,"),
            "workers[0].first_layer",
            "needs the model's `layers`",
        ),
    ];
    for (text, path, words) in cases {
        let problem = problem(&text);
        assert_eq!(problem.path, format!("tidegate.models[0].{path}"), "{text}");
        assert!(problem.message.contains(words), "{problem}");
    }
    let found = sharded("discovery: {dns: 'n.svc:1'},", "last_layer: 21", "last_layer: 9");
    assert!(read(&found).is_ok(), "the rest may be found");
}

#[test]
fn an_error_names_the_variable_it_came_from() {
    let overrides = Overrides::default()
        .with_environment(|name| (name == "TIDEGATE_SATURATION_QUEUE_FLOOR").then(|| "9".into()));
    let errors = read_with(&ladder("worker_queue_limit: 8"), &overrides).unwrap_err();
    let list: Vec<_> = errors.iter().collect();
    assert_eq!(list.len(), 1, "{errors}");
    assert_eq!(list[0].path, "TIDEGATE_SATURATION_QUEUE_FLOOR");
    assert!(list[0].message.contains("must not be above"), "{errors}");
}

#[test]
fn a_flag_no_model_can_use_is_refused_and_a_policy_can_be_tried_over_a_file() {
    let round_robin = model("policy: round_robin");
    let limit = Overrides::default().with_flag(setting("worker_queue_limit"), "4");
    let errors = read_with(&round_robin, &limit).unwrap_err();
    assert_eq!(errors.iter().next().unwrap().path, "--worker-queue-limit");
    let policy = Overrides::default().with_flag(setting("policy"), "round_robin");
    let config = read_with(&ladder("worker_queue_limit: 8"), &policy).unwrap();
    assert_eq!(config.models[0].policy, Policy::RoundRobin);
    let choices = Overrides::default()
        .with_flag(setting("policy"), "least_load")
        .with_flag(setting("min_load_choices"), "3");
    let config = read_with(&model("aliases: []"), &choices).unwrap();
    assert_eq!(config.models[0].policy, Policy::LeastLoad { choices: NonZeroU32::new(3) });
}

#[test]
fn workers_on_the_command_line_make_a_whole_configuration() {
    let workers = vec!["http://a:1".to_owned(), "http://b:2".to_owned()];
    let quick = QuickStart { workers, ..QuickStart::default() };
    let config = Config::from_quick_start(&quick, &Overrides::default()).unwrap();
    let model = &config.models[0];
    assert_eq!((model.name.as_str(), model.policy.as_str()), ("*", "cache_aware"));
    let ids: Vec<_> = model.workers.iter().map(|worker| worker.id.as_str()).collect();
    assert_eq!(ids, ["w0", "w1"]);
    let quick = QuickStart {
        workers: vec!["ftp://x".into()],
        model: Some(String::new()),
        listen: Some("8080".into()),
        admin: Some("0.0.0.0:1".into()),
    };
    let errors = Config::from_quick_start(&quick, &Overrides::default()).unwrap_err();
    let paths: Vec<_> = errors.iter().map(|error| error.path.as_str()).collect();
    assert_eq!(paths, ["--listen", "--admin", "--model", "--worker"]);
}

// ---- conf/ and Pingora -------------------------------------------------------------------------

const REFERENCE: &str = include_str!("../conf/reference.yaml");

fn files() -> Vec<std::path::PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|e| e == "yaml")).collect()
}

fn known() -> Vec<String> {
    Config::known_keys(REFERENCE).unwrap()
}

#[test]
fn every_file_in_conf_is_valid() {
    let files = files();
    assert!(7 <= files.len(), "{files:?}");
    for path in files {
        let result = Config::from_path(&path, &Overrides::default());
        assert!(result.is_ok(), "{}:\n{}", path.display(), result.unwrap_err());
    }
}

/// Paths of a file's keys, list positions as `[]`, those that are commented out among them, and whether
/// something is said about each. A key's comment is behind it or in the line above.
fn explained(text: &str) -> BTreeMap<String, bool> {
    let mut found = BTreeMap::new();
    // Indentation and path of the mappings and list items that are open.
    let mut open: Vec<(usize, String)> = Vec::new();
    // Indentation of the comment above.
    let mut prose = None;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let (code, is_live) = match line.trim_start().strip_prefix("# ") {
            Some(rest) if is_key(rest) => (rest, false),
            Some(_) => ("", true),
            None => (line.trim_start(), true),
        };
        let is_prose = code.is_empty() && !line.is_empty();
        let above = std::mem::replace(&mut prose, is_prose.then_some(indent)) == Some(indent);
        let (code, comment) = code.split_once(" #").map_or((code, None), |(a, b)| (a, Some(b)));
        let (code, is_item) = code.strip_prefix("- ").map_or((code, false), |rest| (rest, true));
        if code.trim().is_empty() || code.starts_with('#') {
            continue;
        }
        while open.last().is_some_and(|(other, _)| indent <= *other) {
            open.pop();
        }
        let mut home = open.last().map(|(_, path)| format!("{path}.")).unwrap_or_default();
        if is_item {
            home = format!("{}[].", home.trim_end_matches('.'));
            open.push((indent, home.trim_end_matches('.').to_owned()));
        }
        let value: serde_yaml::Value = serde_yaml::from_str(code).unwrap();
        let is_told = comment.is_some() || above;
        note(&home, &value, is_told, &mut found);
        if is_live && code.trim().ends_with(':') {
            let path = format!("{home}{}", code.trim().trim_end_matches(':'));
            open.push((indent + 2 * usize::from(is_item), path));
        }
    }
    found
}

fn is_key(text: &str) -> bool {
    let key = text.split_once(": ").map(|(key, _)| key);
    key.is_some_and(|key| key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
}

/// Every key of a mapping, those inside as well.
fn note(home: &str, value: &serde_yaml::Value, is_told: bool, into: &mut BTreeMap<String, bool>) {
    for (key, value) in value.as_mapping().into_iter().flatten() {
        let path = format!("{home}{}", key.as_str().unwrap());
        *into.entry(path.clone()).or_default() |= is_told;
        note(&format!("{path}."), value, is_told, into);
    }
}

/// Where a key is explained that a model may have of its own.
fn common(path: &str) -> String {
    let groups = ["load_reports", "health", "breaker", "timeouts", "retries", "upstream_auth"];
    let own = path.strip_prefix("tidegate.models[].");
    match own.filter(|own| groups.contains(&own.split('.').next().unwrap())) {
        Some(own) => format!("tidegate.{own}"),
        None => path.to_owned(),
    }
}

#[test]
fn the_reference_has_every_key_and_says_what_it_means() {
    let (known, reference) = (known(), explained(REFERENCE));
    let is_section = |path: &str| known.iter().any(|other| other.starts_with(&format!("{path}.")));
    for path in &known {
        let told = reference.get(&common(path));
        assert!(told.is_some(), "conf/reference.yaml has no {path}");
        assert!(told == Some(&true) || is_section(path), "nothing is said of {path}");
    }
    for path in reference.keys() {
        assert!(known.contains(path), "conf/reference.yaml has {path}, which nobody reads");
    }
    assert!(
        REFERENCE
            .contains("# load_reports, health, breaker, timeouts, retries, upstream_auth as above")
    );
}

#[test]
fn the_references_values_are_the_defaults() {
    let reference = good(REFERENCE);
    let least = good(
        "
tidegate:
  models:
    - {name: qwen3-32b, aliases: [default], workers: [{id: w0, url: 'http://10.0.0.10:30000'}]}
    - {name: qwen3-8b, cache_aware: {selection: ladder}, workers: [{id: q0, url: 'http://10.0.0.30:30000'}]}
    - {name: reranker, policy: least_load, workers: [{id: r0, url: 'http://10.0.0.20:30000'}]}
    - {name: sharded, policy: learned, layers: 40, workers: [{id: n0, url: 'http://10.0.1.1:7000'}]}
",
    );
    // All of it, whatever is added: only Pingora's part is a text as it was written.
    let debug = |config: &Config| {
        let config = Config { pingora: String::new(), ..config.clone() };
        format!("{config:#?}")
    };
    let (told, found) = (debug(&reference), debug(&least));
    for (told, found) in told.lines().zip(found.lines()) {
        assert_eq!(told, found);
    }
    assert_eq!(told.len(), found.len());
    let server = |config: &Config| ServerConf::from_yaml(&config.pingora).unwrap();
    let mut expected = server(&least);
    // The number of cores, which the file cannot know.
    expected.threads = 2;
    assert_eq!(server(&reference), expected);
}

#[test]
fn pingoras_keys_are_all_known_and_reach_it() {
    let all: serde_yaml::Mapping = serde_yaml::from_str(&ServerConf::default().to_yaml()).unwrap();
    let known = known();
    for (key, _) in &all {
        let key = key.as_str().unwrap();
        let unavailable = key.starts_with("runtime_metrics_poll_time_histogram");
        assert!(unavailable || known.iter().any(|known| known == key), "{key}");
        if unavailable {
            let text = format!("{key}: 1\n{}", own("http:"));
            assert!(problem(&text).message.contains("tokio_unstable"), "{key}");
        }
    }
    let text = "grace_period_seconds: 60\nupstream_keepalive_pool_size: 7\n\
                fast_timeout_to_tokio_threshold_seconds: null\nclient_bind_to_ipv4: [127.0.0.2]\n";
    let server = ServerConf::from_yaml(&good(&format!("{text}{}", own("http:"))).pingora).unwrap();
    assert_eq!(server.grace_period_seconds, Some(60));
    assert_eq!(server.upstream_keepalive_pool_size, 7);
    assert_eq!(server.fast_timeout_to_tokio_threshold_seconds, None);
    assert_eq!(server.client_bind_to_ipv4, ["127.0.0.2"]);
    let server = ServerConf::from_yaml(&good(&own("http:")).pingora).unwrap();
    assert_eq!(server.grace_period_seconds, Some(900));
    assert_eq!(server.upstream_keepalive_pool_size, 2048);
    assert_eq!(server.fast_timeout_to_tokio_threshold_seconds, Some(900));
    assert!(1 <= server.threads);
}

#[test]
fn threads_take_over_work_where_there_is_more_than_one() {
    for (keys, stealing) in [
        ("threads: 1\n", false),
        ("threads: 2\n", true),
        ("threads: 1\nwork_stealing: true\n", true),
        ("threads: 2\nwork_stealing: false\n", false),
    ] {
        let config = good(&format!("{keys}{}", own("http:")));
        let server = ServerConf::from_yaml(&config.pingora).unwrap();
        assert_eq!(server.work_stealing, stealing, "{keys}");
    }
}
