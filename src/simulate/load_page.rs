//! What a simulated engine answers when it is asked for its load, in the manner of SGLang 0.5.

use super::engine::Engine;
use serde_json::{Value, json};
use std::time::Duration;

/// `/get_load`: `num_reqs` includes what waits, and `num_tokens` the prompts that wait.
pub(super) fn get_load(engine: &Engine, _now: Duration) -> Value {
    let load = engine.load();
    json!([{
        "dp_rank": 0,
        "num_reqs": load.running + load.waiting,
        "num_waiting_reqs": load.waiting,
        "num_tokens": load.used_tokens + load.waiting_tokens,
    }])
}

/// `/v1/loads`.
pub(super) fn v1_loads(engine: &Engine, now: Duration) -> Value {
    let (load, stats, config) = (engine.load(), engine.stats(), engine.config());
    json!({
        "timestamp": now.as_secs_f64(),
        "version": "simulated",
        "dp_rank_count": 1,
        "loads": [{
            "dp_rank": 0,
            "num_running_reqs": load.running,
            "num_waiting_reqs": load.waiting,
            "num_used_tokens": load.used_tokens,
            "num_total_tokens": load.used_tokens + load.waiting_tokens,
            "max_total_num_tokens": config.kv_tokens,
            "token_usage": load.used_tokens as f64 / config.kv_tokens as f64,
            "max_running_requests": config.max_running,
            "num_waiting_uncached_tokens": engine.waiting_uncached_tokens(),
            "total_prefill_uncached_tokens": stats.computed_tokens,
            "total_prefill_busy_us": stats.prefill_busy.as_micros() as u64,
        }],
    })
}
