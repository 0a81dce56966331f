//! The effective configuration in the form of the file, for `/v1/config`. Secrets are `***`; what
//! is unset is left out. The result can be read again as a file.

use super::kinds::{show_duration, show_size};
use super::words::{CHOICES, FORMATS, FORWARDED, HALF_CLOSE, PIN_ORDERS, ROLES, STATES, word};
use super::{
    Address, Authorities, Breaker, Config, Discovery, Health, Learned, Listener, LoadReports,
    Model, Policy, Queue, Retries, Timeouts, UpstreamAuth, Worker, WorkerSource, WorkerTls,
};
use serde_json::{Map, Value, json};
use std::time::Duration;
use tidegate_policy::rules::{Rules, Selection};

const MASK: &str = "***";

pub(super) fn config(config: &Config) -> Value {
    let mut top: Map<String, Value> = serde_yaml::from_str(&config.pingora).unwrap_or_default();
    let limits = &config.limits;
    let http = &config.http;
    let own = json!({
        "state_file": config.state_file,
        "listeners": config.listeners.iter().map(listener).collect::<Vec<_>>(),
        "admin": {
            "address": address(&config.admin.address),
            "token": config.admin.token.as_ref().map(|_| MASK),
        },
        "limits": {
            "max_body_bytes": show_size(limits.max_body_bytes),
            "max_header_bytes": show_size(limits.max_header_bytes),
            "max_buffered_bytes": show_size(limits.max_buffered_bytes),
            "max_decoded_bytes": show_size(limits.max_decoded_bytes),
            "max_connections": limits.max_connections,
        },
        "timeouts": common_timeouts(&config.timeouts),
        "http": {
            "forwarded": word(FORWARDED, &http.forwarded),
            "response_headers": http.response_headers,
            "half_close": word(HALF_CLOSE, &http.half_close),
        },
        "shutdown": {"drain_delay": time(config.shutdown.drain_delay)},
        "index": {
            "block_bytes": config.index.block_bytes,
            "max_entries": config.index.max_entries,
            "capacity_slack": config.index.capacity_slack,
        },
        "dns_interval": time(config.dns_interval),
        "access_log": {
            "enabled": config.access_log.enabled,
            "sample": config.access_log.sample,
            "prefixes": config.access_log.prefixes,
        },
        "models": config.models.iter().map(|m| model(m)).collect::<Vec<_>>(),
    });
    let _ = top.insert("tidegate".into(), own);
    without_null(Value::Object(top))
}

/// `null` means unset; only Pingora's own keys know another meaning, and they are at the top.
fn without_null(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(key, value)| {
                !value.is_null() || key.starts_with("fast_timeout") || key == "min_matched_tokens"
            });
            Value::Object(kept.map(|(key, value)| (key, without_null(value))).collect())
        }
        Value::Array(list) => Value::Array(list.into_iter().map(without_null).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

fn time(value: Duration) -> String {
    show_duration(value)
}

fn address(address: &Address) -> String {
    match address {
        Address::Tcp(address) => address.to_string(),
        Address::Unix(path) => format!("unix:{}", path.display()),
    }
}

fn listener(listener: &Listener) -> Value {
    let tls = listener.tls.as_ref().map(|tls| json!({"cert": tls.cert, "key": tls.key}));
    // `h2c` does nothing with `tls` and would be refused.
    let h2c = tls.is_none().then_some(listener.h2c);
    json!({"address": address(&listener.address), "tls": tls, "h2c": h2c})
}

fn model(model: &Model) -> Value {
    let listed = model.workers.iter().filter(|worker| worker.source == WorkerSource::Listed);
    let mut out = json!({
        "name": model.name,
        "aliases": model.aliases,
        "policy": model.policy.as_str(),
        "shed_queue_limit": model.shed_queue_limit,
        "warmup": time(model.warmup),
        "queue": model.queue.as_ref().map(queue),
        "load_reports": load_reports(&model.load_reports),
        "health": health(&model.health),
        "breaker": breaker(&model.breaker),
        "timeouts": timeouts(&model.timeouts),
        "retries": retries(&model.retries),
        "discovery": model.discovery.as_ref().map(discovery),
        "workers": listed.map(worker).collect::<Vec<_>>(),
    });
    match &model.policy {
        Policy::CacheAware(of) => out["cache_aware"] = rules(of, &model.affinity_headers),
        Policy::LeastLoad { choices } => {
            out["least_load"] = json!({"min_load_choices": choices});
        }
        Policy::RoundRobin => {}
        Policy::Learned(of) => {
            out["layers"] = json!(of.layers);
            out["learned"] = learned(of);
        }
    }
    out
}

fn queue(of: &Queue) -> Value {
    json!({"max_requests": of.max_requests, "max_wait": time(of.max_wait)})
}

fn learned(of: &Learned) -> Value {
    let settings = &of.settings;
    json!({
        "choice": word(CHOICES, &settings.choice),
        "explore_share": settings.explore_share.get(),
        "weight_alpha": settings.weight_alpha.get(),
        "stats_half_life": time(Duration::from_millis(settings.stats_half_life.0)),
        "min_sample_tokens": settings.min_sample_tokens,
        "max_candidates": settings.max_candidates,
        "prune_after": time(Duration::from_millis(settings.prune_after.0)),
        "seed": of.seed,
    })
}

fn discovery(of: &Discovery) -> Value {
    match of {
        Discovery::File(path) => json!({"file": path}),
        Discovery::Dns { name, .. } => json!({"dns": name.to_string()}),
    }
}

fn rules(rules: &Rules, affinity_headers: &[String]) -> Value {
    match &rules.selection {
        Selection::Ladder => ladder(rules, affinity_headers),
        Selection::Cost(cost) => json!({
            "selection": "cost",
            "min_matched_tokens": rules.min_matched_tokens,
            "price_worker": cost.price_worker.get(),
            "price_fleet": cost.price_fleet.get(),
            "tie_percent": cost.tie_percent.get(),
            "speed_snap": cost.speed_snap.get(),
            "home_bonus": cost.home_bonus.get(),
            "home_bonus_foreign": cost.home_bonus_foreign.get(),
            "affinity_headers": affinity_headers,
        }),
    }
}

fn ladder(rules: &Rules, affinity_headers: &[String]) -> Value {
    json!({
        "selection": "ladder",
        "worker_queue_limit": rules.worker_queue_limit,
        "saturation_queue_floor": rules.saturation_queue_floor,
        "min_matched_tokens": rules.min_matched_tokens,
        "min_match_ratio": rules.min_match_ratio.map(|ratio| ratio.get()),
        "candidate_min_workers": rules.candidate_min_workers,
        "candidate_ratio": rules.candidate_ratio.get(),
        "candidate_max_workers": rules.candidate_max_workers,
        "switch_margin_tokens": rules.switch_margin_tokens,
        "pressure_guard": rules.pressure_guard,
        "pressure_abs_tokens": rules.pressure_abs_tokens,
        "pressure_rel": rules.pressure_rel.get(),
        "pressure_abs_ms": rules.pressure_abs_ms,
        "max_pending_prefill_tokens": rules.max_pending_prefill_tokens,
        "min_load_choices": rules.min_load_choices,
        "pin_order": word(PIN_ORDERS, &rules.pin_order),
        "pin_max_queue": rules.pin_max_queue,
        "dispatch_correction": rules.dispatch_correction,
        "scale_with_dp": rules.scale_with_dp,
        "affinity_headers": affinity_headers,
    })
}

fn load_reports(of: &LoadReports) -> Value {
    json!({
        "format": word(FORMATS, &of.format),
        "interval": time(of.interval),
        "timeout": time(of.timeout),
        "max_age": time(of.max_age),
        "frozen_after": time(of.frozen_after),
        "auth": of.auth.as_ref().map(auth),
    })
}

fn health(of: &Health) -> Value {
    json!({
        "enabled": of.enabled,
        "path": of.path,
        "interval": time(of.interval),
        "timeout": time(of.timeout),
        "fall": of.fall,
        "rise": of.rise,
    })
}

fn breaker(of: &Breaker) -> Value {
    json!({
        "threshold": of.threshold,
        "cool_down": time(of.cool_down),
        "wedged_after": time(of.wedged_after),
    })
}

fn timeouts(of: &Timeouts) -> Value {
    json!({
        "connect": time(of.connect),
        "first_byte": time(of.first_byte),
        "stream_idle": time(of.stream_idle),
        "client_stall": time(of.client_stall),
        "worker_idle": time(of.worker_idle),
        "worker_write": time(of.worker_write),
    })
}

fn common_timeouts(of: &Timeouts) -> Value {
    let mut out = timeouts(of);
    out["client_header"] = time(of.client_header).into();
    out["client_body_idle"] = time(of.client_body_idle).into();
    out["client_idle"] = time(of.client_idle).into();
    out
}

fn retries(of: &Retries) -> Value {
    json!({"max_attempts": of.max_attempts, "stale_window": time(of.stale_window)})
}

fn auth(of: &UpstreamAuth) -> Value {
    if of.name == "authorization" && of.value.expose().starts_with("Bearer ") {
        return json!({"bearer": MASK});
    }
    json!({"header": {"name": of.name, "value": MASK}})
}

fn worker(of: &Worker) -> Value {
    let WorkerTls { sni, ca } = &of.tls;
    let ca = ca.as_ref().map(Authorities::file);
    let tls = (sni.is_some() || ca.is_some()).then(|| json!({"sni": sni, "ca": ca}));
    json!({
        "id": of.id.as_str(),
        "url": of.url.to_string(),
        "role": word(ROLES, &of.role),
        "weight": of.weight,
        "dp_size": of.dp_size,
        "kv_capacity_tokens": of.kv_capacity_tokens,
        "prefill_tps": of.prefill_tps,
        "max_inflight": of.max_inflight,
        "state": word(STATES, &of.draining),
        "first_layer": of.shard.as_ref().and_then(|shard| shard.layers).map(|held| held.first()),
        "last_layer": of.shard.as_ref().and_then(|shard| shard.layers).map(|held| held.last()),
        "tps": of.shard.as_ref().and_then(|shard| shard.tps),
        "reputation": of.shard.as_ref().map(|shard| shard.reputation),
        "tls": tls,
        "upstream_auth": of.upstream_auth.as_ref().map(auth),
    })
}
