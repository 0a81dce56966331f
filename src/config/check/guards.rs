//! What may be given for all models and, key by key, for one: a model's section is read over the
//! common values.

use super::auth;
use crate::config::kinds::{boolean, choice, count, duration};
use crate::config::section::{Item, Section};
use crate::config::words::FORMATS;
use crate::config::{Breaker, Health, LoadReports, ReportChoice, Retries, Timeouts};
use std::num::NonZeroU32;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

const TWO: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);
const THREE: NonZeroU32 = NonZeroU32::MIN.saturating_add(2);

pub(super) fn load_reports_default() -> LoadReports {
    LoadReports {
        format: ReportChoice::Auto,
        interval: 500 * MS,
        timeout: 400 * MS,
        max_age: seconds(2),
        frozen_after: seconds(10),
        auth: None,
    }
}

pub(super) fn load_reports(mut from: Section<'_>, base: &LoadReports) -> LoadReports {
    LoadReports {
        format: from.read("format", base.format, choice(FORMATS)),
        interval: from.read("interval", base.interval, duration(10 * MS..=HOUR)),
        timeout: from.read("timeout", base.timeout, duration(MS..=HOUR)),
        max_age: from.read("max_age", base.max_age, duration(MS..=HOUR)),
        frozen_after: from.read("frozen_after", base.frozen_after, duration(100 * MS..=DAY)),
        auth: auth::credentials(from.section("auth")).or_else(|| base.auth.clone()),
    }
}

pub(super) fn health_default() -> Health {
    Health {
        enabled: true,
        path: "/health".into(),
        interval: seconds(5),
        timeout: seconds(2),
        fall: THREE,
        rise: TWO,
    }
}

pub(super) fn health(mut from: Section<'_>, base: &Health) -> Health {
    Health {
        enabled: from.read("enabled", base.enabled, boolean),
        path: from.read("path", base.path.clone(), request_target),
        interval: from.read("interval", base.interval, duration(10 * MS..=HOUR)),
        timeout: from.read("timeout", base.timeout, duration(MS..=HOUR)),
        fall: from.read("fall", base.fall, count(1000)),
        rise: from.read("rise", base.rise, count(1000)),
    }
}

fn request_target(item: &Item<'_>) -> Result<String, String> {
    let valid = |text: &&str| {
        text.starts_with('/') && text.len() <= 1024 && text.bytes().all(|b| b.is_ascii_graphic())
    };
    let path = item.text().filter(valid).map(str::to_owned);
    path.ok_or_else(|| "must be a path such as /health, printable ASCII without spaces".into())
}

pub(super) fn breaker_default() -> Breaker {
    Breaker { threshold: THREE, cool_down: seconds(30), wedged_after: seconds(60) }
}

pub(super) fn breaker(mut from: Section<'_>, base: &Breaker) -> Breaker {
    Breaker {
        threshold: from.read("threshold", base.threshold, count(1_000_000)),
        cool_down: from.read("cool_down", base.cool_down, duration(MS..=DAY)),
        wedged_after: from.read("wedged_after", base.wedged_after, duration(MS..=DAY)),
    }
}

pub(super) fn timeouts_default() -> Timeouts {
    Timeouts {
        connect: seconds(2),
        first_byte: seconds(600),
        stream_idle: seconds(180),
        client_header: seconds(10),
        client_body_idle: seconds(30),
        client_idle: seconds(75),
        client_stall: seconds(120),
        worker_idle: seconds(4),
        worker_write: seconds(10),
    }
}

/// Times that pass before anybody knows which model a request is for.
const BEFORE_THE_MODEL: [&str; 3] = ["client_header", "client_body_idle", "client_idle"];

/// A model's `timeouts`.
pub(super) fn model_timeouts(mut from: Section<'_>, base: &Timeouts) -> Timeouts {
    for key in BEFORE_THE_MODEL {
        from.refuse(key, "passes before the model is known; set it in `tidegate.timeouts`");
    }
    worker_timeouts(&mut from, base)
}

/// The common `timeouts`.
pub(super) fn timeouts(mut from: Section<'_>, base: &Timeouts) -> Timeouts {
    let mut read = |key, base| from.read(key, base, duration(MS..=DAY));
    let client_header = read("client_header", base.client_header);
    let client_body_idle = read("client_body_idle", base.client_body_idle);
    let client_idle = read("client_idle", base.client_idle);
    let rest = worker_timeouts(&mut from, base);
    Timeouts { client_header, client_body_idle, client_idle, ..rest }
}

fn worker_timeouts(from: &mut Section<'_>, base: &Timeouts) -> Timeouts {
    let mut read = |key, base| from.read(key, base, duration(MS..=DAY));
    Timeouts {
        connect: read("connect", base.connect),
        first_byte: read("first_byte", base.first_byte),
        stream_idle: read("stream_idle", base.stream_idle),
        client_stall: read("client_stall", base.client_stall),
        worker_idle: read("worker_idle", base.worker_idle),
        worker_write: read("worker_write", base.worker_write),
        ..base.clone()
    }
}

pub(super) fn retries_default() -> Retries {
    Retries { max_attempts: THREE, stale_window: 100 * MS }
}

pub(super) fn retries(mut from: Section<'_>, base: &Retries) -> Retries {
    // Pingora gives up after 16 of its own accord.
    Retries {
        max_attempts: from.read("max_attempts", base.max_attempts, count(16)),
        stale_window: from.read(
            "stale_window",
            base.stale_window,
            duration(Duration::ZERO..=seconds(10)),
        ),
    }
}
