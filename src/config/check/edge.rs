//! `limits:`, `http:`, `shutdown:`, `index:`, `access_log:` and `dns_interval`.

use crate::config::kinds::{boolean, choice, count, duration, integer, number, size};
use crate::config::section::Section;
use crate::config::words::{FORWARDED, HALF_CLOSE};
use crate::config::{AccessLog, Forwarded, HalfClose, Http, Index, Limits, Shutdown};
use std::time::Duration;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
/// More than one address has ports for.
const MOST_CONNECTIONS: u32 = 10_000_000;
/// Pingora reads no larger head.
const MOST_HEADER: u64 = MIB - 1;

pub(super) fn limits(mut from: Section<'_>) -> Limits {
    let limits = Limits {
        max_body_bytes: from.read("max_body_bytes", 64 * MIB, size(1..=16 * GIB)),
        max_header_bytes: from.read("max_header_bytes", 64 * KIB, size(KIB..=MOST_HEADER)),
        max_buffered_bytes: from.read("max_buffered_bytes", GIB, size(1..=TIB)),
        max_decoded_bytes: from.read("max_decoded_bytes", 8 * MIB, size(0..=GIB)),
        max_connections: from.optional("max_connections", None, count(MOST_CONNECTIONS)),
    };
    if limits.max_buffered_bytes < limits.max_body_bytes {
        let key =
            if from.has("max_buffered_bytes") { "max_buffered_bytes" } else { "max_body_bytes" };
        from.problem(key, "`max_buffered_bytes` (1GiB if unset) must hold one `max_body_bytes`");
    }
    limits
}

pub(super) fn http(mut from: Section<'_>) -> Http {
    Http {
        forwarded: from.read("forwarded", Forwarded::Append, choice(FORWARDED)),
        response_headers: from.read("response_headers", true, boolean),
        half_close: from.read("half_close", HalfClose::Abort, choice(HALF_CLOSE)),
    }
}

pub(super) fn shutdown(mut from: Section<'_>) -> Shutdown {
    let range = Duration::ZERO..=Duration::from_secs(3600);
    Shutdown { drain_delay: from.read("drain_delay", Duration::from_secs(5), duration(range)) }
}

pub(super) fn index(mut from: Section<'_>) -> Index {
    const MOST_ENTRIES: u64 = 1 << 32;
    Index {
        block_bytes: from.read("block_bytes", 512, |item| {
            let _ = integer(16..=65_536)(item)?;
            count(65_536)(item).map(Into::into)
        }),
        max_entries: from.read("max_entries", 4_000_000, integer(1..=MOST_ENTRIES)),
        capacity_slack: from.read("capacity_slack", 1.3, number(0.1..=10.0)),
    }
}

pub(super) fn access_log(mut from: Section<'_>) -> AccessLog {
    AccessLog {
        enabled: from.read("enabled", true, boolean),
        sample: from.read("sample", 1.0, number(0.0..=1.0)),
        prefixes: from.read("prefixes", false, boolean),
    }
}

pub(super) fn dns_interval(own: &mut Section<'_>) -> Duration {
    let range = Duration::from_millis(100)..=Duration::from_secs(86_400);
    own.read("dns_interval", Duration::from_secs(5), duration(range))
}
