#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use crate::config::{Config, Overrides};
use crate::explain::Explanation;
use crate::journal::{PromptTokens, Record};
use crate::metrics::Outcome;
use crate::routing;
use serde_json::Value;
use std::path::Path;

/// Two models that share a worker's id; nobody probes, so everybody is routable at once.
const FLEET: &str = r#"
tidegate:
  listeners: [{address: "127.0.0.1:0"}]
  admin: {address: "127.0.0.1:9909"}
  health: {enabled: false}
  models:
    - name: qwen
      aliases: [default]
      policy: cache_aware
      cache_aware: {selection: ladder, worker_queue_limit: 8, saturation_queue_floor: 1}
      workers:
        - {id: w0, url: "http://127.0.0.1:1"}
        - {id: w1, url: "http://127.0.0.1:2", upstream_auth: {bearer: hidden-bearer}}
    - name: small
      policy: least_load
      workers:
        - {id: w0, url: "http://127.0.0.1:3"}
"#;

fn state_of(yaml: &str) -> Arc<State> {
    let config = Config::from_yaml(yaml, Path::new(""), &Overrides::default());
    State::new(Arc::new(config.expect("a valid file"))).expect("metrics")
}

fn state() -> Arc<State> {
    state_of(FLEET)
}

fn guarded() -> Arc<State> {
    let admin = r#"admin: {address: "127.0.0.1:9909", token: hidden-token}"#;
    state_of(&FLEET.replace(r#"admin: {address: "127.0.0.1:9909"}"#, admin))
}

fn request(method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> Request<Bytes> {
    let mut request = Request::builder().method(method).uri(target);
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", "127.0.0.1:9909");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Bytes::copy_from_slice(body.as_bytes())).unwrap()
}

fn get(state: &Arc<State>, target: &str) -> Response<Vec<u8>> {
    respond(state, &request("GET", target, &[], ""))
}

fn post(state: &Arc<State>, target: &str, body: &str) -> Response<Vec<u8>> {
    respond(state, &request("POST", target, &[], body))
}

fn asked_with(state: &Arc<State>, method: &str, target: &str, headers: &[(&str, &str)]) -> u16 {
    respond(state, &request(method, target, headers, "")).status().as_u16()
}

fn json(response: &Response<Vec<u8>>) -> Value {
    serde_json::from_slice(response.body()).expect("a JSON body")
}

fn text(response: &Response<Vec<u8>>) -> String {
    String::from_utf8(response.body().clone()).unwrap()
}

fn record(request_id: &str) -> Arc<Record> {
    Arc::new(Record {
        queued_ms: None,
        time: 1.5,
        request_id: request_id.to_owned(),
        client: Some("127.0.0.1".into()),
        model: "qwen".into(),
        path: "/v1/chat/completions",
        status: 200,
        outcome: Outcome::Ok,
        decision: Some("home"),
        worker: Some("w0".into()),
        error: None,
        prompt_tokens: PromptTokens::default(),
        completion_tokens: None,
        ttft_ms: None,
        total_ms: 7,
        attempts: 1,
        route: None,
        rungs: None,
    })
}

/// A chat whose prompt is some 5,000 tokens long.
fn long_chat() -> String {
    let words = "the tide turns at the gate ".repeat(740);
    format!(r#"{{"model":"qwen","messages":[{{"role":"user","content":"{words}"}}]}}"#)
}

/// From now on this worker of the first model holds the whole prompt of `body`.
fn own(state: &Arc<State>, worker: &str, body: &str) {
    let running = state.pin();
    let read = routing::read(&running, crate::prompt::Dialect::Chat, body.as_bytes(), |_| None);
    let read = read.unwrap();
    let fleet = read.model.fleet.as_ref().unwrap();
    let worker = fleet.workers().iter().find(|known| known.id.as_str() == worker).unwrap();
    let keys = read.query.unwrap().keys;
    fleet.index.credit(worker.slot, keys.keys()).completed();
}

#[test]
fn the_process_is_alive_even_while_it_drains() {
    let state = state();
    state.start_draining();
    assert_eq!(get(&state, "/livez").status(), StatusCode::OK);
}

#[test]
fn readiness_is_green_while_every_model_has_a_routable_worker() {
    let response = get(&state(), "/readyz");
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(json(&response)["ready"], true);
}

#[test]
fn readiness_names_the_model_without_a_routable_worker() {
    let state = state();
    assert_eq!(post(&state, "/v1/workers/w0/drain?model=small", "").status(), StatusCode::OK);
    let response = get(&state, "/readyz");
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    let why = json(&response);
    assert_eq!(why["draining"], false);
    assert_eq!(why["models_without_routable_worker"], serde_json::json!(["small"]));
}

#[test]
fn readiness_is_red_while_the_process_drains() {
    let state = state();
    state.start_draining();
    let response = get(&state, "/readyz");
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(json(&response)["draining"], true);
}

#[test]
fn a_worker_is_shown_with_the_fields_of_the_contract() {
    let rows = json(&get(&state(), "/v1/workers"));
    let row = rows["workers"][1].as_object().unwrap();
    let mut fields: Vec<&str> = row.keys().map(String::as_str).collect();
    fields.sort_unstable();
    let expected = [
        "breaker",
        "healthy",
        "id",
        "in_flight",
        "model",
        "owned_blocks",
        "report",
        "role",
        "state",
        "url",
    ];
    assert_eq!(fields, expected);
    let report = row["report"].as_object().unwrap();
    for field in ["state", "age_ms", "waiting", "running", "kv_usage"] {
        assert!(report.contains_key(field), "{field}");
    }
    assert_eq!(rows["workers"].as_array().unwrap().len(), 3);
    assert_eq!(row["id"], "w1");
    assert_eq!(row["url"], "http://127.0.0.1:2");
}

#[test]
fn a_drained_worker_can_be_activated_again() {
    let state = state();
    let drained = json(&post(&state, "/v1/workers/w1/drain", ""));
    assert_eq!(drained["state"], "draining");
    assert_eq!(drained["model"], "qwen");
    assert_eq!(json(&get(&state, "/v1/workers"))["workers"][1]["state"], "draining");
    assert_eq!(json(&post(&state, "/v1/workers/w1/activate", ""))["state"], "active");
}

#[test]
fn a_worker_id_of_two_models_needs_the_model() {
    let state = state();
    let response = post(&state, "/v1/workers/w0/drain", "");
    assert_eq!(response.status(), StatusCode::CONFLICT);
    assert_eq!(json(&response)["error"]["code"], "ambiguous_worker");
    post(&state, "/v1/workers/w0/drain?model=qwen", "");
    let rows = json(&get(&state, "/v1/workers"));
    assert_eq!(rows["workers"][0]["state"], "draining");
    assert_eq!(rows["workers"][2]["state"], "active");
}

#[test]
fn an_unknown_worker_is_not_found() {
    let state = state();
    for target in ["/v1/workers/w9/drain", "/v1/workers/w0/drain?model=none", "/v1/workers/w0/kill"]
    {
        assert_eq!(post(&state, target, "").status(), StatusCode::NOT_FOUND, "{target}");
    }
}

#[test]
fn the_metrics_page_is_prometheus_text_and_counts_requests_in_progress() {
    let state = state();
    own(&state, "w0", &long_chat());
    let _one = crate::state::InProgress::enter(Arc::clone(&state));
    let response = get(&state, "/metrics");
    assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let page = text(&response);
    assert!(page.contains("\ntidegate_config_generation 1\n"), "{page}");
    assert!(page.contains("\ntidegate_requests_in_progress 1\n"), "{page}");
    let held = state.running().fleets.models()[0].index.stats().entries;
    assert!(0 < held && page.contains(&format!("\ntidegate_index_entries {held}\n")), "{page}");
}

#[test]
fn evictions_are_added_once_however_often_somebody_looks() {
    let state = state();
    own(&state, "w0", &long_chat());
    let running = state.pin();
    let fleet = &running.fleets.models()[0];
    fleet.index.forget(fleet.workers()[0].slot);
    let dropped = format!("\ntidegate_index_evictions_total{{cause=\"forgotten\"}} {}\n", {
        let stats = fleet.index.stats();
        let forgotten = tidegate_policy::index::Cause::Forgotten;
        let place = tidegate_policy::index::Cause::ALL.iter().position(|cause| *cause == forgotten);
        assert!(0 < stats.evictions[place.unwrap()]);
        stats.evictions[place.unwrap()]
    });
    let first = text(&get(&state, "/metrics"));
    assert!(first.contains(&dropped), "{dropped}{first}");
    assert!(text(&get(&state, "/metrics")).contains(&dropped));
}

#[test]
fn the_configuration_is_shown_without_secrets() {
    let state = guarded();
    let token = [("authorization", "Bearer hidden-token")];
    let response = respond(&state, &request("GET", "/v1/config", &token, ""));
    let value = json(&response);
    assert_eq!(value["generation"], 1);
    assert_eq!(value["config"]["tidegate"]["models"][0]["name"], "qwen");
    assert!(value["last_error"].is_null());
    assert!(!text(&response).contains("hidden-"), "{}", text(&response));
}

#[test]
fn decisions_come_newest_first_and_no_more_than_asked_for() {
    let state = state();
    for id in ["first", "second", "third"] {
        state.journal.push(record(id));
    }
    let ids = |target| {
        let value = json(&get(&state, target));
        let rows = value["decisions"].as_array().unwrap().clone();
        rows.iter().map(|row| row["request_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids("/v1/decisions"), ["third", "second", "first"]);
    assert_eq!(ids("/v1/decisions?limit=2"), ["third", "second"]);
    assert_eq!(ids("/v1/decisions?request_id=second"), ["second"]);
    assert_eq!(ids("/v1/decisions?request_id=fourth"), [""; 0]);
    assert_eq!(get(&state, "/v1/decisions?limit=some").status(), StatusCode::BAD_REQUEST);
}

#[test]
fn an_explanation_names_the_owner_and_books_nothing() {
    let state = state();
    let body = long_chat();
    own(&state, "w1", &body);
    let before = (text(&get(&state, "/metrics")), state.running().fleets.models()[0].next_turn());
    let response = post(&state, "/v1/explain", &body);
    assert_eq!(response.status(), StatusCode::OK);
    let told: Explanation = serde_json::from_slice(response.body()).unwrap();
    assert_eq!(told.model, "qwen");
    assert!(told.input_tokens.is_some_and(|tokens| 4_000 < tokens));
    assert!(told.blocks.is_some_and(|blocks| 30 < blocks));
    let winner = told.winner.unwrap();
    assert_eq!((winner.worker.as_str(), winner.reason.as_str()), ("w1", "cache_candidate"));
    assert_eq!(told.candidates[0].verdict, "chosen");
    assert_eq!(told.what_if.len(), 4);
    assert!(state.journal.latest().is_empty());
    let after = (text(&get(&state, "/metrics")), state.running().fleets.models()[0].next_turn());
    assert_eq!(before, after);
}

#[test]
fn the_path_of_an_explanation_says_how_to_read_the_body() {
    let state = state();
    let body = format!(r#"{{"model":"qwen","prompt":"{}"}}"#, "low tide ".repeat(2_000));
    let tokens = |target| json(&post(&state, target, &body))["input_tokens"].clone();
    assert!(tokens("/v1/explain?path=/v1/completions").as_u64().is_some_and(|count| 4_000 < count));
    assert!(tokens("/v1/explain?path=%2Fv1%2Fcompletions").is_u64());
    assert!(tokens("/v1/explain?path=/v1/embeddings").is_null());
}

#[test]
fn an_explanation_of_another_policy_says_its_own_rule() {
    let told = json(&post(&state(), "/v1/explain", r#"{"model":"small","messages":[]}"#));
    assert_eq!(told["policy"], "least_load");
    assert_eq!(told["rungs"][0]["rung"], "least_load");
    assert_eq!(told["winner"]["worker"], "w0");
}

#[test]
fn an_explanation_for_a_fleet_without_routable_workers_has_no_winner() {
    let state = state();
    post(&state, "/v1/workers/w0/drain?model=small", "");
    let told = json(&post(&state, "/v1/explain", r#"{"model":"small"}"#));
    assert!(told["winner"].is_null());
    assert_eq!(told["rungs"][0]["result"], "closed");
}

#[test]
fn an_explanation_of_an_unknown_model_is_an_error_like_the_edges() {
    let response = post(&state(), "/v1/explain", r#"{"model":"none"}"#);
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    let error = json(&response)["error"].clone();
    assert_eq!(error["code"], "model_not_found");
    assert_eq!(error["type"], "invalid_request_error");
    assert!(error["param"].is_null());
}

#[test]
fn with_a_token_only_probes_and_the_page_are_answered_without_it() {
    let state = guarded();
    for target in ["/livez", "/readyz", "/", "/dashboard/main.js", "/dashboard/style.css"] {
        assert_eq!(get(&state, target).status(), StatusCode::OK, "{target}");
    }
    for target in
        ["/v1/overview", "/metrics", "/v1/workers", "/v1/config", "/v1/decisions", "/nothing"]
    {
        let response = get(&state, target);
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{target}");
        assert!(response.headers().contains_key("www-authenticate"));
    }
}

#[test]
fn only_the_whole_token_opens() {
    let state = guarded();
    let status = |value| asked_with(&state, "GET", "/metrics", &[("authorization", value)]);
    assert_eq!(status("Bearer hidden-token"), 200);
    assert_eq!(status("bearer hidden-token"), 200);
    for wrong in
        ["Bearer hidden-toke", "Bearer hidden-tokens", "Bearer ", "Basic hidden-token", "x"]
    {
        assert_eq!(status(wrong), 401, "{wrong}");
    }
}

#[test]
fn a_page_of_another_site_can_change_nothing() {
    let state = state();
    let drain = |headers| asked_with(&state, "POST", "/v1/workers/w1/drain", headers);
    assert_eq!(drain(&[("sec-fetch-site", "cross-site")]), 403);
    assert_eq!(drain(&[("sec-fetch-site", "same-site")]), 403);
    assert_eq!(drain(&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")]), 403);
    assert_eq!(drain(&[("origin", "http://evil.example")]), 403);
    assert_eq!(drain(&[("origin", "http://127.0.0.1:3000")]), 403);
    assert_eq!(drain(&[("origin", "null")]), 403);
    assert_eq!(json(&get(&state, "/v1/workers"))["workers"][1]["state"], "active");
    let own = [("origin", "http://127.0.0.1:9909"), ("sec-fetch-site", "same-origin")];
    assert_eq!(drain(&own), 200);
}

#[test]
fn a_page_of_another_site_can_read_nothing_but_may_link_here() {
    let state = state();
    let read = |headers| asked_with(&state, "GET", "/v1/decisions", headers);
    assert_eq!(read(&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")]), 403);
    assert_eq!(read(&[("origin", "https://evil.example")]), 403);
    assert_eq!(read(&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")]), 200);
    assert_eq!(read(&[("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate")]), 200);
}

#[test]
fn without_a_token_a_name_that_was_made_to_resolve_here_is_refused() {
    let state = state();
    let read = |host| asked_with(&state, "GET", "/v1/workers", &[("host", host)]);
    for own in ["localhost:9909", "LOCALHOST", "127.0.0.1:9909", "[::1]:9909", "10.1.2.3"] {
        assert_eq!(read(own), 200, "{own}");
    }
    for foreign in ["evil.example:9909", "localhost.evil.example", "127.0.0.1.evil.example", "a b"]
    {
        assert_eq!(read(foreign), 403, "{foreign}");
    }
}

#[test]
fn with_a_token_any_name_will_do() {
    let headers = [("host", "edge.internal:9909"), ("authorization", "Bearer hidden-token")];
    assert_eq!(asked_with(&guarded(), "GET", "/v1/workers", &headers), 200);
}

#[test]
fn an_unknown_path_is_not_found() {
    let response = get(&state(), "/v2/workers");
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    assert_eq!(json(&response)["error"]["code"], "not_found");
}

#[test]
fn a_wrong_method_is_told_the_right_one() {
    let state = state();
    let response = get(&state, "/v1/explain");
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(response.headers()["allow"], "POST");
    let response = post(&state, "/metrics", "");
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(response.headers()["allow"], "GET, HEAD");
    assert_eq!(asked_with(&state, "GET", "/v1/workers/w1/drain", &[]), 405);
}

#[test]
fn head_has_the_length_of_the_body_it_leaves_out() {
    let response = respond(&state(), &request("HEAD", "/livez", &[], ""));
    assert!(response.body().is_empty());
    assert_eq!(response.headers()["content-length"], "3");
}

#[test]
fn every_answer_has_its_length_and_is_neither_kept_nor_sniffed() {
    let state = state();
    for target in ["/", "/livez", "/readyz", "/metrics", "/v1/workers", "/v1/config", "/nothing"] {
        let response = get(&state, target);
        let headers = response.headers();
        assert_eq!(headers["content-length"], response.body().len().to_string(), "{target}");
        assert_eq!(headers["cache-control"], "no-store", "{target}");
        assert_eq!(headers["x-content-type-options"], "nosniff", "{target}");
    }
}

#[test]
fn every_link_and_file_of_the_dashboard_leads_somewhere() {
    let state = state();
    let page = text(&get(&state, "/"));
    let scripts = ["main", "overview", "workers", "decisions", "routing", "config", "story"];
    let scripts = scripts.map(|name| text(&get(&state, &format!("/dashboard/{name}.js"))));
    let named = |text: &str, mark: &str, end: char| -> Vec<String> {
        let rests = text.split(mark).skip(1);
        rests.filter_map(|rest| rest.split(end).next()).map(str::to_owned).collect()
    };
    let mut links = named(&page, "href=\"/", '"');
    links.extend(named(&page, "src=\"/", '"'));
    let imports = scripts.iter().flat_map(|script| named(script, "from \"./", '"'));
    links.extend(imports.map(|file| format!("dashboard/{file}")));
    assert!(20 < links.len());
    for link in links {
        assert_eq!(get(&state, &format!("/{link}")).status(), StatusCode::OK, "{link}");
    }
}

#[test]
fn the_dashboard_takes_nothing_from_elsewhere_and_nothing_inline() {
    let state = state();
    let response = get(&state, "/");
    let policy = response.headers()["content-security-policy"].to_str().unwrap();
    for part in
        ["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"]
    {
        assert!(policy.contains(part), "{part}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
    let page = text(&response);
    assert!(!page.contains("style=") && !page.contains("<style") && !page.contains(" onclick"));
    assert_eq!(
        page.matches("<script").count(),
        page.matches("<script type=\"module\" src=\"/").count()
    );
}

#[test]
fn the_overview_says_what_is_true_now_of_one_model_or_all() {
    let state = state();
    let all = json(&get(&state, "/v1/overview"));
    assert_eq!(all["config"]["generation"], 1);
    assert_eq!(all["models"][0]["selection"], "ladder");
    assert_eq!(all["models"][0]["worker_queue_limit"], 8);
    assert_eq!(all["models"][0]["bound"], 1);
    assert_eq!(all["models"][0]["gate_inert"], true, "nobody reports");
    assert_eq!(all["models"][1]["gate_inert"], false, "it has no gate");
    assert_eq!(all["models"][1]["routable"], 1);
    assert_eq!(all["workers"].as_array().unwrap().len(), 3);
    let one = json(&get(&state, "/v1/overview?model=small"));
    assert_eq!(one["workers"].as_array().unwrap().len(), 1);
    assert_eq!(one["models"].as_array().unwrap().len(), 2, "to choose from");
    assert_eq!(get(&state, "/v1/overview?since=x").status(), StatusCode::BAD_REQUEST);
}

#[test]
fn what_is_hardly_meant_is_shown_with_the_configuration() {
    let unwise = FLEET.replace("health: {enabled: false}", "load_reports: {format: none}");
    let config = json(&get(&state_of(&unwise), "/v1/config"));
    let warnings = config["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0]["path"], "tidegate.models[0].cache_aware.worker_queue_limit");
    let overview = json(&get(&state_of(&unwise), "/v1/overview"));
    assert_eq!(overview["config"]["warnings"], config["warnings"]);
}
