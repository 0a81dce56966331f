//! How a request ended, booked once: worker, index, estimates, metrics, journal, access log.

use super::context::RequestContext;
use super::reply::Refusal;
use crate::journal::{ACCESS_LOG, PrefixRow, PromptTokens, Record, RouteSelected, Row, Rungs};
use crate::metrics::Outcome;
use crate::prompt::usage::{Usage, UsageReader};
use crate::routing::{self, Choice, Used};
use crate::state::unix_seconds;
use std::sync::Arc;
use std::time::Duration;

/// Called when the request is over, however it ended.
pub(super) fn request_ended(ctx: &mut RequestContext) {
    if ctx.observed {
        return;
    }
    ctx.observed = true;
    let outcome = outcome(ctx);
    let usage = ctx.answer.usage.as_ref().map(|usage| usage.usage()).unwrap_or_default();
    settle(ctx, outcome);
    learn(ctx, outcome, &usage);
    let total = ctx.started.elapsed();
    count(ctx, outcome, &usage, total);
    let record = record(ctx, outcome, &usage, total);
    write_access_log(ctx, &record);
    ctx.state.journal.push(record);
}

fn outcome(ctx: &RequestContext) -> Outcome {
    if let Some(broken) = ctx.answer.broken {
        return broken;
    }
    match &ctx.refusal {
        Some(refusal) => refused(refusal),
        None => answered(ctx.answer.status),
    }
}

fn refused(refusal: &Refusal) -> Outcome {
    match refusal {
        Refusal::BadRequest(_)
        | Refusal::ModelNotFound(_)
        | Refusal::RequestTimeout
        | Refusal::LengthRequired
        | Refusal::BodyTooLarge(_)
        | Refusal::HeadersTooLarge(_)
        | Refusal::InvalidRoute(_) => Outcome::ClientError,
        Refusal::FleetSaturated(_) | Refusal::QueueTimeout(_) => Outcome::Shed,
        Refusal::WorkerUnreachable => Outcome::Unreachable,
        Refusal::WorkerClosed => Outcome::WorkerError,
        Refusal::FirstByteTimeout | Refusal::StreamIdleTimeout => Outcome::Timeout,
        Refusal::NoRoutableWorker(_)
        | Refusal::NoRoute { .. }
        | Refusal::NoRoomForBody
        | Refusal::Internal => Outcome::EdgeError,
    }
}

fn answered(status: u16) -> Outcome {
    match status {
        // Ended without an answer and without a fault of worker or edge.
        0 => Outcome::Cancelled,
        429 | 503 | 529 => Outcome::WorkerBusy,
        400..=499 => Outcome::ClientError,
        500.. => Outcome::WorkerError,
        1..=399 => Outcome::Ok,
    }
}

fn settle(ctx: &mut RequestContext, outcome: Outcome) {
    let Some(mut attempt) = ctx.attempt.take() else { return };
    let Some(last_byte) = ctx.answer.complete else { return attempt.broken(outcome) };
    if let Some(route) = attempt.route.take_if(|_| outcome == Outcome::Ok) {
        route.arrived(ctx.answer.usage.as_ref(), last_byte);
    }
    attempt.finished(outcome);
}

/// What a finished answer teaches: token estimate, how true the index is.
fn learn(ctx: &RequestContext, outcome: Outcome, usage: &Usage) {
    let (Some(fleet), Some(query), Some((snapshot, Choice { decision, .. }))) =
        (&ctx.model.fleet, &ctx.query, &ctx.routed)
    else {
        return;
    };
    if outcome != Outcome::Ok {
        return;
    }
    let Some(prompt_tokens) = usage.prompt_tokens else { return };
    let slot = snapshot.workers()[decision.at].slot;
    let used = Used { prompt_tokens, cached_tokens: usage.cached_tokens };
    let predicted = routing::learn(fleet, query, (slot, decision.uncached_tokens), used);
    let requests = &ctx.model.requests;
    requests.predicted_cached_tokens.inc_by(predicted.unwrap_or(0));
    requests.reported_cached_tokens.inc_by(usage.cached_tokens.unwrap_or(0));
}

fn count(ctx: &RequestContext, outcome: Outcome, usage: &Usage, total: Duration) {
    let requests = &ctx.model.requests;
    requests.ended(ctx.dialect, ctx.answer.status, outcome);
    requests.request_seconds.observe(total.as_secs_f64());
    if let Some(first) = ctx.answer.first_content.filter(|_| ctx.streamed) {
        requests.first_content(first);
    }
    requests.prompt_tokens.inc_by(usage.prompt_tokens.unwrap_or(0));
    requests.cached_tokens.inc_by(usage.cached_tokens.unwrap_or(0));
    requests.prompt_cached_tokens.inc_by(usage.cached_tokens.unwrap_or(0));
    requests.completion_tokens.inc_by(usage.completion_tokens.unwrap_or(0));
    if let Some((_, choice)) = &ctx.routed {
        ctx.model.decisions.book(&choice.decision);
    }
}

fn record(
    ctx: &mut RequestContext,
    outcome: Outcome,
    usage: &Usage,
    total: Duration,
) -> Arc<Record> {
    let request_id = std::mem::take(&mut ctx.request_id);
    let routed = ctx.routed.as_ref().map(|(fleet, choice)| (fleet, &choice.decision));
    let route = ctx.routed.as_ref().and_then(|(_, choice)| choice.route.as_deref());
    let estimated = ctx.query.as_ref().map(|query| query.input_tokens);
    let uncached = routed.map(|(_, decision)| decision.uncached_tokens);
    Arc::new(Record {
        time: unix_seconds(),
        request_id,
        client: ctx.client.clone(),
        model: Arc::clone(&ctx.model.requests.model),
        path: ctx.dialect.as_str(),
        status: ctx.answer.status,
        outcome,
        decision: routed.map(|(_, decision)| decision.reason.as_str()),
        worker: routed.map(|(fleet, decision)| fleet.workers()[decision.at].id.clone()),
        error: ctx.refusal.as_ref().map(Refusal::code),
        prompt_tokens: PromptTokens {
            estimated,
            reported: usage.prompt_tokens,
            matched: estimated
                .zip(uncached)
                .map(|(input, uncached)| input.saturating_sub(uncached)),
            cached: usage.cached_tokens,
        },
        completion_tokens: ctx.answer.usage.as_ref().and_then(UsageReader::completion_tokens),
        ttft_ms: ctx.answer.first_content.map(millis),
        total_ms: millis(total),
        queued_ms: ctx.queued.map(millis),
        attempts: ctx.attempts,
        route: route.map(RouteSelected::from),
        rungs: routed.map(|(fleet, decision)| Rungs::new(fleet, decision)),
    })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn prefix(ctx: &RequestContext) -> Option<PrefixRow> {
    let query = ctx.query.as_ref().filter(|_| ctx.running.config.access_log.prefixes)?;
    let fleet = ctx.model.fleet.as_ref()?;
    Some(PrefixRow::new(&query.keys, fleet.block_bytes()))
}

fn write_access_log(ctx: &RequestContext, record: &Record) {
    let settings = &ctx.running.config.access_log;
    if !settings.enabled || !log::log_enabled!(target: ACCESS_LOG, log::Level::Info) {
        return;
    }
    if settings.sample < 1.0 && settings.sample <= fastrand::f64() {
        return;
    }
    let mut line = Row::of(record);
    line.add_known(r#","prefix":"#, prefix(ctx).as_ref());
    match String::from_utf8(line.end()) {
        Ok(line) => log::info!(target: ACCESS_LOG, "{line}"),
        Err(error) => log::error!("an access log line cannot be written: {error}"),
    }
}
