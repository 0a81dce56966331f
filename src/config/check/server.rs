//! Pingora's own keys at the top of the file. Pingora would ignore a typo there.

use crate::config::kinds::{as_number, boolean, duration, integer, text};
use crate::config::node::Node;
use crate::config::section::{Item, Section};
use serde_yaml::Value;
use std::path::PathBuf;
use std::time::Duration;

/// What Pingora gets, and the parts we need ourselves.
pub(super) struct Server {
    pub(super) yaml: String,
    pub(super) grace_period: Duration,
    pub(super) upgrade_sock: PathBuf,
}

#[derive(Clone, Copy)]
enum Kind {
    Boolean,
    /// A whole number in this range.
    Whole(u64, u64),
    Text,
    /// IP addresses.
    Addresses,
    /// `true` does nothing in this build, for the reason given.
    Absent(&'static str),
}

const UNSTABLE: &str = "needs a build with `--cfg tokio_unstable`, which this is not";
const MOST: u64 = 1 << 20;
const DAY: u64 = 86_400;

/// All of Pingora 0.9.1's `ServerConf`, less `version` and what follows in [`keys`].
const KEYS: [(&str, Kind); 26] = [
    ("daemon", Kind::Boolean),
    ("error_log", Kind::Text),
    ("pid_file", Kind::Text),
    ("user", Kind::Text),
    ("group", Kind::Text),
    ("working_directory", Kind::Text),
    ("listener_tasks_per_fd", Kind::Whole(1, 1024)),
    ("work_stealing", Kind::Boolean),
    ("runtime_enable_alt_timer", Kind::Absent(UNSTABLE)),
    ("ca_file", Kind::Text),
    ("graceful_shutdown_timeout_seconds", Kind::Whole(0, DAY)),
    ("client_bind_to_ipv4", Kind::Addresses),
    ("client_bind_to_ipv6", Kind::Addresses),
    ("upstream_keepalive_pool_size", Kind::Whole(1, MOST)),
    ("upstream_connect_offload_threadpools", Kind::Whole(1, 1024)),
    ("upstream_connect_offload_thread_per_pool", Kind::Whole(1, 1024)),
    ("downstream_tls_offload_threadpools", Kind::Whole(1, 1024)),
    ("downstream_tls_offload_thread_per_pool", Kind::Whole(1, 1024)),
    ("upstream_debug_ssl_keylog", Kind::Boolean),
    ("max_retries", Kind::Whole(0, MOST)),
    ("upgrade_sock_connect_accept_max_retries", Kind::Whole(0, MOST)),
    ("max_blocking_threads", Kind::Whole(1, MOST)),
    ("blocking_threads_ttl_seconds", Kind::Whole(0, DAY)),
    ("daemon_wait_for_ready", Kind::Boolean),
    ("daemon_ready_timeout_seconds", Kind::Whole(1, DAY)),
    ("daemon_notify_timeout_seconds", Kind::Whole(1, DAY)),
];

/// Pingora's histogram of poll times, which this build does not have.
const HISTOGRAM: [&str; 4] = [
    "runtime_metrics_poll_time_histogram",
    "runtime_metrics_poll_time_histogram_scale",
    "runtime_metrics_poll_time_histogram_resolution_micros",
    "runtime_metrics_poll_time_histogram_buckets",
];

const GRACE_SECONDS: u64 = 900;
/// A unix socket's path has 107 bytes at most, and files beside it end in `.warm` and `.lock`.
const UPGRADE_SOCK_BYTES: usize = 102;
const UPGRADE_SOCK: &str = "/tmp/tidegate_upgrade.sock";
const PID_FILE: &str = "/tmp/tidegate.pid";
/// Two idle connections to each of a thousand workers. With Pingora's 128 a fleet that is larger gets
/// a new connection for most requests.
const POOL_SIZE: u64 = 2048;

/// Reads them all; what the file leaves out and Pingora's default does not suit is filled in.
pub(super) fn keys(top: &mut Section<'_>) -> Server {
    let version = top.read("version", 1, version);
    let threads = top.read("threads", cores(), integer(1..=1024));
    let week = Duration::from_secs(7 * DAY);
    let grace = Duration::from_secs(GRACE_SECONDS);
    let grace = top.read("grace_period_seconds", grace, |item| whole_seconds(item, week));
    let sock = top.read("upgrade_sock", UPGRADE_SOCK.to_owned(), text(UPGRADE_SOCK_BYTES));
    let mut out = serde_yaml::Mapping::new();
    let _ = out.insert("version".into(), version.into());
    let _ = out.insert("threads".into(), threads.into());
    let _ = out.insert("pid_file".into(), PID_FILE.into());
    let _ = out.insert("grace_period_seconds".into(), grace.as_secs().into());
    let _ = out.insert("upgrade_sock".into(), sock.as_str().into());
    let _ = out.insert("upstream_keepalive_pool_size".into(), POOL_SIZE.into());
    // One thread has nobody to take work from, and costs less without the means to.
    let _ = out.insert("work_stealing".into(), (1 < threads).into());
    for (key, kind) in KEYS {
        if let Some(value) = one(top, key, kind) {
            let _ = out.insert(key.into(), value);
        }
    }
    if let Some(value) = fast_timeout(top) {
        let _ = out.insert(FAST_TIMEOUT.into(), value);
    }
    for key in HISTOGRAM {
        top.refuse(key, UNSTABLE);
    }
    top.refuse("s2n_config_cache_size", "needs a build with s2n; this one has rustls");
    Server {
        // A mapping of scalars and lists of texts always has a YAML form.
        yaml: serde_yaml::to_string(&out).unwrap_or_default(),
        grace_period: grace,
        upgrade_sock: sock.into(),
    }
}

fn version(item: &Item<'_>) -> Result<u64, String> {
    integer(1..=1)(item).map_err(|_| "must be 1".into())
}

/// Pingora's default is one thread; an edge wants all cores.
fn cores() -> u64 {
    std::thread::available_parallelism().map_or(1, |n| n.get() as u64)
}

fn whole_seconds(item: &Item<'_>, most: Duration) -> Result<Duration, String> {
    let value = duration(Duration::ZERO..=most)(item);
    match value {
        Ok(value) if value.subsec_nanos() == 0 => Ok(value),
        _ => Err(format!("must be whole seconds from 0 to {}", most.as_secs())),
    }
}

fn one(top: &mut Section<'_>, key: &'static str, kind: Kind) -> Option<Value> {
    match kind {
        Kind::Boolean => top.optional(key, None, boolean).map(Value::from),
        Kind::Whole(least, most) => top.optional(key, None, integer(least..=most)).map(Value::from),
        Kind::Text => top.optional(key, None, text(4096)).map(Value::from),
        Kind::Absent(reason) => top.optional(key, None, |item| off(item, reason)).map(Value::from),
        Kind::Addresses => {
            let items = top.items(key);
            let read = |item: &Item<'_>| item.convert(top.scope, address);
            let list: Vec<Value> = items.iter().filter_map(read).map(Value::from).collect();
            (!list.is_empty()).then_some(Value::Sequence(list))
        }
    }
}

fn off(item: &Item<'_>, reason: &str) -> Result<bool, String> {
    match boolean(item)? {
        false => Ok(false),
        true => Err(reason.to_owned()),
    }
}

fn address(item: &Item<'_>) -> Result<String, String> {
    let address = item.text().filter(|text| text.parse::<std::net::IpAddr>().is_ok());
    address.map(str::to_owned).ok_or_else(|| "must be an IP address".into())
}

const FAST_TIMEOUT: &str = "fast_timeout_to_tokio_threshold_seconds";

/// Here `null` is a value of its own: never use tokio's timer.
fn fast_timeout(top: &mut Section<'_>) -> Option<Value> {
    let kind = |item: &Item<'_>| match *item.scalar() {
        Node::Null => Ok(Value::Null),
        ref node => match as_number(node) {
            Some(_) => integer(1..=DAY)(item).map(Value::from),
            None => Err(format!("must be null or whole seconds from 1 to {DAY}")),
        },
    };
    let value = top.read(FAST_TIMEOUT, Value::Bool(false), kind);
    (value != Value::Bool(false)).then_some(value)
}
