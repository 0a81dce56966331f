//! What clients and engines in the field have sent and others stumbled over, through the whole edge,
//! and where the tests of the rest are.
//!
//! | From the field | Test |
//! |---|---|
//! | Content of images, audio and several texts | `field_cases::bodies_no_parser_would_keep_arrive_as_they_were_at_one_worker` |
//! | Tool turns with null, absent and empty content | `field_cases::bodies_no_parser_would_keep_arrive_as_they_were_at_one_worker`, `prompt_field_cases::a_tool_turn_with_null_absent_and_empty_content_gives_a_prompt` |
//! | Roles only some engines know | `field_cases::bodies_no_parser_would_keep_arrive_as_they_were_at_one_worker`, `prompt_field_cases::every_role_is_taken_as_it_is` |
//! | Tools without parameters, and of other kinds | `field_cases::bodies_no_parser_would_keep_arrive_as_they_were_at_one_worker`, `prompt_field_cases::tools_without_parameters_or_of_another_kind_are_opaque` |
//! | Extras, order and white space of a body | `field_cases::bodies_no_parser_would_keep_arrive_as_they_were_at_one_worker`, `prompt_field_cases::extras_and_white_space_around_members_do_not_count` |
//! | Integers above 2^53, spellings of numbers | `field_cases::bodies_no_parser_would_keep_arrive_as_they_were_at_one_worker`, `prompt_field_cases::numbers_of_any_spelling_are_passed_over` |
//! | Half a surrogate pair | `field_cases::bodies_no_parser_would_keep_arrive_as_they_were_at_one_worker`, `prompt_field_cases::a_lone_surrogate_has_bytes_of_its_own` |
//! | Compressed requests | `affinity::a_compressed_body_is_routed_by_its_prompt_and_forwarded_compressed` |
//! | Content types, and none | `field_cases::bodies_no_parser_would_keep_arrive_as_they_were_at_one_worker`, `field_cases::a_body_without_a_content_type_is_forwarded_without_one` |
//! | The same key twice | `field_cases::bodies_no_parser_would_keep_arrive_as_they_were_at_one_worker`, `models::the_last_of_two_model_keys_wins` |
//! | Small chunks, extensions, trailers | `bodies::chunked_bodies_arrive_whole`, `smuggling::a_request_is_one_request_at_the_worker_or_none` |
//! | Lists of prompts | `field_cases::bodies_no_parser_would_keep_arrive_as_they_were_at_one_worker`, `prompt_field_cases::a_batch_goes_by_its_longest_prompt_and_empty_items_do_no_harm` |
//! | Bodies of megabytes, and above the limit | `bodies::bodies_with_a_length_arrive_whole`, `bodies::a_body_over_the_limit_is_refused_before_a_worker_sees_it` |
//! | White space around a body | `field_cases::bodies_no_parser_would_keep_arrive_as_they_were_at_one_worker` |
//! | Bodies that are no request | `field_cases::bodies_no_parser_would_keep_arrive_as_they_were_at_one_worker`, `errors::a_body_that_is_no_json_goes_to_the_default_model` |
//! | Events that come in lumps | `streams::the_first_event_does_not_wait_for_the_second` |
//! | Cuts through characters and words | `field_cases::a_stream_passes_unchanged_and_is_understood_however_it_is_cut`, `usage::one_byte_at_a_time_gives_the_same` |
//! | Event streams as the standard allows them | `field_cases::a_stream_passes_unchanged_and_is_understood_however_it_is_cut`, `usage::every_form_of_events_is_read` |
//! | Usage in a chunk without choices | `field_cases::a_stream_passes_unchanged_and_is_understood_however_it_is_cut`, `usage::usage_in_a_chunk_of_its_own_counts_once` |
//! | Clients that leave | `streams::a_client_that_leaves_before_the_first_token_frees_the_worker`, `streams::a_client_that_leaves_in_mid_stream_frees_the_worker`, `streams::a_client_that_leaves_a_plain_answer_frees_the_worker` |
//! | A worker that dies in mid-stream | `streams::a_worker_that_dies_in_mid_stream_gives_no_proper_end`, `retries::a_stream_that_breaks_counts_against_its_worker_at_its_end` |
//! | A first token that takes its time | `errors::a_worker_without_a_first_byte_times_out`, `errors::a_short_first_byte_limit_does_not_cut_streams` |
//! | No retry once a worker may have begun | `retries::a_new_connection_closed_after_the_head_is_not_retried`, `bodies::after_a_refused_first_worker_the_next_one_gets_the_same_bytes` |
//! | Headers of answers | `field_cases::a_stream_passes_unchanged_and_is_understood_however_it_is_cut`, `headers::repeated_end_to_end_headers_pass_unchanged_and_in_order`, `headers::a_request_id_is_kept_or_made_and_never_doubled` |
//! | Gate and pin at their exact limits | `pins::owner_fresh_and_other_fresh_at_both_boundaries`, `pins::exactly_at_the_floor_pins` |
//! | Ranks of which the first is not the busiest | `reports::answers_that_misled_others_are_understood` |
//! | Reports of every shape, odd counts in them | `reports::answers_that_misled_others_are_understood` |
//! | Reports at another path in another version | `scrape::auto_takes_the_best_path_that_answers_and_keeps_to_it`, `scrape::the_shape_decides_and_not_the_path` |
//! | Reports that want a key | `engines::an_engine_that_wants_a_key_gets_it_and_a_wrong_one_is_told_apart`, `credentials::each_worker_gets_its_own_with_probes_and_polls` |
//! | A worker that was idle when its reports stopped | `regressions::a_worker_whose_reports_stopped_while_it_was_idle_is_not_idle` |
//! | All reports lost at once | `field_cases::when_every_report_is_lost_owners_keep_their_prompts_and_new_ones_spread` |
//! | Idle workers that cannot take the request | `field_cases::idle_workers_that_cannot_take_a_request_cancel_no_pin` |
//! | One system prompt for everybody | `field_cases::a_prompt_everybody_begins_with_does_not_keep_them_at_one_worker` |
//! | Prompts of a word | `field_cases::very_short_prompts_build_no_affinity` |
//! | New prompts for an idle fleet | `field_cases::new_prompts_spread_over_an_idle_fleet` |
//! | Aborted requests that keep their place | `streams::a_client_that_leaves_before_the_first_token_frees_the_worker`, `soak::what_bad_engines_and_bad_clients_do_is_counted_and_leaves_nothing_behind` |
//! | 400s that take a worker out | `retries::client_errors_and_busy_answers_are_neutral` |
//! | Failures that look fast | `field_cases::a_worker_that_fails_at_once_looks_fast_and_gets_no_more_for_it`, `learned::garbage_a_cut_stream_a_failure_and_a_client_that_leaves_teach_nothing` |
//! | An owner that is removed and comes back | `field_cases::an_owner_removed_by_a_reload_owns_nothing_when_it_is_back` |
//! | Prompts of nothing | `field_cases::bodies_no_parser_would_keep_arrive_as_they_were_at_one_worker`, `prompt_field_cases::empty_prompts_have_no_keys_or_very_few_bytes` |
//! | Routes whose speeds change places | `learned::traffic_leaves_a_route_that_is_throttled_and_comes_back_when_it_recovers` |
//! | Shards that overlap | `learned::the_head_is_told_the_route_and_the_second_hop_starts_where_the_first_ends` |
//! | Paths nobody knows are load | `field_cases::paths_the_edge_does_not_know_count_as_load_and_spread` |
//! | A broken configuration file | `reload::what_is_wrong_is_told_everywhere_and_changes_nothing`, `config::problems_are_bounded_and_the_rest_is_counted` |
//! | Reloads while streams run | `reload::twenty_reloads_half_of_them_wrong_cut_no_stream_and_fail_no_request`, `reload::a_removed_worker_finishes_its_stream_and_is_gone` |
//! | SIGTERM under load | `cli::sigterm_turns_readiness_red_while_the_listener_is_open_and_a_second_one_leaves`, `cli::after_the_drain_delay_the_listener_closes_and_streams_finish` |
//! | A new binary under load | `lossless::twenty_reloads_and_five_upgrades_under_load_lose_nothing` |
//! | Connections that close as they are used again | `retries::a_stale_connection_is_replaced_by_a_new_one_and_the_same_bytes_sent`, `retries::however_many_pooled_connections_are_stale_one_retry_suffices` |
//! | Workers restarted one after the other | `soak::while_workers_are_killed_only_requests_they_had_taken_fail`, `retries::a_worker_whose_probes_fail_is_left_out_until_they_pass` |
//! | Probes that fail now and then | `hysteresis::three_slow_answers_in_a_row_take_it_out_and_two_good_ones_bring_it_back`, `retries::a_worker_whose_probes_fail_is_left_out_until_they_pass` |
//! | Heads that never end | `errors::a_client_that_stops_in_its_head_is_cut_off`, `connections::one_that_never_sends_a_request_keeps_its_place_for_client_header_only`, `bodies::a_slow_client_is_waited_for` |
//! | More connections than descriptors | `shortage::without_descriptors_no_worker_is_blamed` |
//! | Labels clients choose | `regressions::what_clients_invent_makes_no_series` |
//! | Workers on IPv6 | `field_cases::a_worker_on_ipv6_is_asked_polled_and_named_with_its_brackets`, `config::worker_urls_are_read_in_every_form` |
//! | Headers that end at the edge | `headers::hop_by_hop_and_nominated_headers_end_at_the_edge_both_ways` |
//! | Credentials of workers and of clients | `credentials::each_worker_gets_its_own_with_requests_of_http_1_and_of_http_2`, `credentials::nothing_that_can_be_asked_for_or_read_has_one` |
//! | A worker that swallows connections | `engines::a_worker_that_swallows_connections_goes_down_and_others_do_not_wait_for_it`, `field_cases::a_worker_that_swallows_requests_delays_nobody_elses` |
//! | Nobody to route to | `errors::nobody_routable_is_said_with_retry_after` |
//! | Heads that are too much | `field_cases::heads_that_are_too_much_are_refused_and_the_edge_lives_on`, `errors::a_head_that_grows_over_the_limit_is_refused_before_it_ends` |

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde_json::json;
use support::client::{Connection, chat, exchange, get, post, request, request_with};
use support::edge::{Edge, model};
use support::engine::{Engine, Reply, Step, engines};
use support::until;

const CHAT: &str = "/v1/chat/completions";
const DEFAULT: &str = "aliases: [default]";

/// A path, further header lines, and a body that no parser would give back as it was.
type Awkward = (&'static str, &'static str, &'static [u8]);

const AWKWARD: &[Awkward] = &[
    (CHAT, "", br#"{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"what?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBOR="}},{"type":"input_audio","input_audio":{"data":"UklGR","format":"wav"}},{"type":"hologram","x":1}]}]}"#),
    (CHAT, "", br#"{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":""},{"role":"assistant","tool_calls":[]}]}"#),
    (CHAT, "", br#"{"model":"m","messages":[{"role":"developer","content":"d"},{"role":"ipython","content":"i"}]}"#),
    (CHAT, "", br#"{"model":"m","tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g","parameters":null}},{"type":"web_search"}],"messages":[]}"#),
    (CHAT, "", b"{ \"top_k\" : 40,\r\n\t\"stop_token_ids\":[ 2 ],\"model\":\"m\" ,\"chat_template_kwargs\":{\"z\":1,\"a\":2},\"messages\":[ ] }"),
    (CHAT, "", br#"{"model":"m","seed":9007199254740993,"temperature":1.0,"top_p":1e-0,"min_p":0.10,"x":1e400,"messages":[]}"#),
    (CHAT, "", br#"{"model":"m","messages":[{"role":"user","content":"cut \ud83d here"}]}"#),
    (CHAT, "", b"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]}"),
    (CHAT, "", br#"{"model":"other","stream":true,"model":"m","messages":[{"role":"user","content":"x"}],"stream":false}"#),
    (CHAT, "", b"\xef\xbb\xbf\n\n  {\"model\":\"m\",\"messages\":[]}  \r\n"),
    (CHAT, "content-type: application/json; charset=UTF-8\r\n", br#"{"model":"m","n":1,"messages":[]}"#),
    (CHAT, "content-type: Application/JSON\r\n", br#"{"model":"m","n":2,"messages":[]}"#),
    (CHAT, "content-type: application/vnd.api+json\r\n", br#"{"model":"m","n":3,"messages":[]}"#),
    ("/v1/completions", "", br#"{"model":"m","prompt":["","one","two"],"n":2}"#),
    ("/generate", "", br#"{"text":["a",""],"sampling_params":{"max_new_tokens":1}}"#),
    (CHAT, "", br#"{"model":"m","messages":[]}"#),
    (CHAT, "", br#"{"model":"m","messages":[{"role":"user","content":[]}]}"#),
    ("/v1/completions", "", b"{\"model\":\"m\",\"prompt\":\"   \\n\"}"),
    ("/generate", "", br#"{"input_ids":[]}"#),
    (CHAT, "", b"[1,2]"),
    (CHAT, "", b"\"text\""),
    (CHAT, "", b"null"),
    (CHAT, "", b"{\"model\":\"m\""),
    (CHAT, "content-encoding: br\r\n", b"\x00not brotli"),
    (CHAT, "content-encoding: snappy\r\n", b"\xff\x06\x00\x00sNaPpY"),
];

#[tokio::test(flavor = "multi_thread")]
async fn bodies_no_parser_would_keep_arrive_as_they_were_at_one_worker() {
    let (engines, urls) = engines(2).await;
    let edge = Edge::start(&model(&[DEFAULT], &urls)).await;
    edge.all_healthy().await;
    for (number, (path, headers, body)) in AWKWARD.iter().enumerate() {
        let text = String::from_utf8_lossy(body);
        let mut bytes = request_with("POST", path, headers, body);
        if headers.starts_with("content-type") {
            // The header under test instead of the usual one.
            let text = String::from_utf8(bytes).unwrap();
            bytes = text.replacen("content-type: application/json\r\n", "", 1).into_bytes();
        }
        assert_eq!(exchange(edge.traffic, &bytes).await.status, 200, "{text}");
        let received: Vec<_> = engines.iter().flat_map(Engine::received).collect();
        assert_eq!(received.len(), number + 1, "one worker, once: {text}");
        let own = received.iter().find(|one| one.body == *body).unwrap_or_else(|| panic!("{text}"));
        assert_eq!(own.target, *path);
        for line in headers.lines() {
            let (name, value) = line.split_once(": ").unwrap();
            assert_eq!(own.all(name), [value], "{text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_without_a_content_type_is_forwarded_without_one() {
    let engine = Engine::start().await;
    let edge = Edge::start(&model(&[], &[engine.url()])).await;
    let body = chat("m", "hello");
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: e\r\ncontent-length: {}\r\n\r\n", body.len());
    assert_eq!(exchange(edge.traffic, format!("{head}{body}").as_bytes()).await.status, 200);
    assert_eq!(engine.received()[0].header("content-type"), None);
}

/// Legal events that many parsers trip over, and what they say.
const EVENTS: &str = ": ping\n\n:\n\nretry: 3000\n\nid: 7\nevent: message\n\
    data:{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\u{8239}\u{1f6f3}\"},\"finish_reason\":null}]}\n\n\
    data: {\"id\":\"c1\",\ndata:  \"choices\":[{\"index\":0,\"delta\":{\"content\":\"b\"}}]}\n\n\
    data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"c\"},\"finish_reason\":\"stop\"}]}\r\n\r\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":42,\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\n\
    data:[DONE]\r\n\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_passes_unchanged_and_is_understood_however_it_is_cut() {
    for cut in [1, 3, 7, 1000] {
        let engine = Engine::start().await;
        engine.answer(move |_| {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-store\r\n\
                        x-accel-buffering: no\r\ntransfer-encoding: chunked\r\n\r\n";
            let mut steps = vec![Step::Write(head.into())];
            for piece in EVENTS.as_bytes().chunks(cut) {
                let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
                chunk.extend_from_slice(piece);
                chunk.extend_from_slice(b"\r\n");
                steps.push(Step::Write(chunk));
            }
            steps.push(Step::Write(b"0\r\n\r\n".to_vec()));
            Reply::steps(steps)
        });
        let edge = Edge::start(&model(&[], &[engine.url()])).await;
        let answer = post(edge.traffic, CHAT, &chat("m", "hello")).await;
        assert_eq!(answer.body, EVENTS.as_bytes(), "cut every {cut} bytes");
        assert_eq!(answer.header("content-length"), None);
        assert_eq!(answer.header("x-accel-buffering"), Some("no"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        let page = edge.booked(1).await;
        let tokens = |kind: &str| page.sum("tidegate_tokens_total", &[&format!("kind=\"{kind}\"")]);
        assert_eq!((tokens("prompt"), tokens("cached"), tokens("completion")), (11.0, 8.0, 42.0));
        assert_eq!(page.sum("tidegate_requests_total", &["outcome=\"ok\""]), 1.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_that_are_too_much_are_refused_and_the_edge_lives_on() {
    let engine = Engine::start().await;
    let edge = Edge::start(&model(&[DEFAULT], &[engine.url()])).await;
    let many: String = (0..300).map(|at| format!("x-n{at}: v\r\n")).collect();
    let big = format!("x-big: {}\r\n", "a".repeat(70_000));
    let long = format!("/{}", "aaaaaaaaa/".repeat(2000));
    let body = chat("m", "hello");
    for (target, headers) in [(CHAT, many.as_str()), (CHAT, &big), (&long, "")] {
        let mut client = Connection::open(edge.traffic).await;
        client.send(&request_with("POST", target, headers, body.as_bytes())).await;
        let status = client.head().await.status;
        assert!([200, 400, 414, 431].contains(&status), "{status}");
    }
    let token = format!("authorization: Bearer {}\r\n", "k".repeat(8000));
    let answer = exchange(edge.traffic, &request_with("POST", CHAT, &token, body.as_bytes())).await;
    assert_eq!(answer.status, 200, "a long token is not too much");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_on_ipv6_is_asked_polled_and_named_with_its_brackets() {
    let engine = Engine::at("[::1]:0").await;
    engine.set_queue(3, 1);
    let keys = ["load_reports: {interval: 20ms, format: get_load}"];
    let edge = Edge::start(&model(&keys, &[engine.url()])).await;
    edge.all_healthy().await;
    edge.reports_are("fresh").await;
    assert_eq!(post(edge.traffic, CHAT, &chat("m", "hello")).await.status, 200);
    let host = engine.received()[0].header("host").unwrap().to_owned();
    assert_eq!(host, format!("[::1]:{}", engine.address.port()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_removed_by_a_reload_owns_nothing_when_it_is_back() {
    let (_engines, urls) = engines(3).await;
    let ids = ["w0", "w1", "w2"];
    let edge = Edge::start(&model(&[], &urls)).await;
    edge.all_healthy().await;
    let body = chat("m", &"the ledger lists every crate. ".repeat(300));
    let goes_to = async || {
        let answer = post(edge.traffic, CHAT, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.header("x-tidegate-worker").unwrap().to_owned()
    };
    let owner = goes_to().await;
    let line = |yaml: &str| {
        let lines = yaml.lines().filter(|line| !line.contains(&format!("id: {owner},")));
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    assert!(ids.contains(&owner.as_str()));
    let without = line(&model(&[], &urls));
    assert_eq!(edge.reload(&without).await.status, 200);
    let heir = goes_to().await;
    assert_ne!(heir, owner);
    for _ in 0..5 {
        assert_eq!(goes_to().await, heir);
    }
    until("its series to be gone", || async {
        (!edge.metrics().await.0.contains(&format!("worker=\"{owner}\""))).then_some(())
    })
    .await;
    assert_eq!(edge.reload(&model(&[], &urls)).await.status, 200);
    edge.all_healthy().await;
    for _ in 0..5 {
        assert_eq!(goes_to().await, heir);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_workers_that_cannot_take_a_request_cancel_no_pin() {
    let (engines, urls) = engines(4).await;
    engines.iter().for_each(|engine| engine.set_queue(0, 0));
    let keys = [
        "load_reports: {interval: 20ms, format: get_load}",
        "health: {interval: 20ms, fall: 2, rise: 1}",
        "cache_aware: {selection: ladder, worker_queue_limit: 8, saturation_queue_floor: 4, min_matched_tokens: 256}",
    ];
    let other = format!(
        "    - name: elsewhere\n      load_reports: {{interval: 20ms, format: get_load}}\n      workers: [{{id: x, url: \"{}\"}}]\n",
        urls[3]
    );
    let edge = Edge::start(&format!("{}{other}", model(&keys, &urls[..3]))).await;
    edge.reports_are("fresh").await;
    edge.all_healthy().await;
    // One is ill, one drained, one serves another model: all idle, and none can take it.
    assert_eq!(edge.post("/v1/workers/w1/drain").await.status, 200);
    engines[2].set_healthy(false);
    until("the illness", || async {
        let rows = edge.workers().await;
        rows.iter().any(|row| row["id"] == "w2" && row["healthy"] == false).then_some(())
    })
    .await;
    let body = chat("m", &"the ledger lists every crate. ".repeat(300));
    assert_eq!(post(edge.traffic, CHAT, &body).await.header("x-tidegate-worker"), Some("w0"));
    engines[0].set_queue(50, 10);
    until("the queue", || async {
        let rows = edge.workers().await;
        rows.iter().any(|row| row["report"]["waiting"] == 50).then_some(())
    })
    .await;
    let answer = post(edge.traffic, CHAT, &body).await;
    assert_eq!(answer.header("x-tidegate-decision"), Some("saturation_pin"));
    assert_eq!(answer.header("x-tidegate-worker"), Some("w0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn when_every_report_is_lost_owners_keep_their_prompts_and_new_ones_spread() {
    let (engines, urls) = engines(4).await;
    engines.iter().for_each(|engine| engine.set_queue(0, 0));
    let keys = [
        "load_reports: {interval: 20ms, max_age: 200ms, format: get_load}",
        "cache_aware: {min_matched_tokens: 256}",
    ];
    let edge = Edge::start(&model(&keys, &urls)).await;
    edge.all_healthy().await;
    edge.reports_are("fresh").await;
    let goes_to = async |at: usize| {
        let body = chat("m", &format!("{at} lists every crate. ").repeat(200));
        let answer = post(edge.traffic, CHAT, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.header("x-tidegate-worker").unwrap().to_owned()
    };
    let mut owners = Vec::new();
    for at in 0..20 {
        owners.push(goes_to(at).await);
    }
    engines.iter().for_each(Engine::hang_reports);
    edge.reports_are("stale").await;
    for (at, owner) in owners.iter().enumerate() {
        assert_eq!(goes_to(at).await, *owner);
    }
    let mut shares = std::collections::BTreeMap::new();
    for at in 20..100 {
        *shares.entry(goes_to(at).await).or_insert(0) += 1;
    }
    assert!(
        shares.len() == 4 && shares.values().all(|share| (8..=40).contains(share)),
        "{shares:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_the_edge_does_not_know_count_as_load_and_spread() {
    let (engines, urls) = engines(4).await;
    let edge = Edge::start(&model(&[DEFAULT], &urls)).await;
    edge.all_healthy().await;
    engines.iter().for_each(|engine| engine.answer(|_| Reply::hang()));
    let mut clients = Vec::new();
    for at in 0..40 {
        let path = if at % 2 == 0 { "/inference/v1/generate" } else { "/v1/rerank" };
        let body = json!({"model": "m", "token_ids": [1, 2, 3], "query": "q"}).to_string();
        let mut client = Connection::open(edge.traffic).await;
        client.send(&request("POST", path, body.as_bytes())).await;
        until("it to be under way", || async {
            let page = edge.metrics().await;
            (page.sum("tidegate_in_flight", &[]) == f64::from(at + 1)).then_some(())
        })
        .await;
        clients.push(client);
    }
    let shares: Vec<usize> = engines.iter().map(|engine| engine.received().len()).collect();
    assert!(shares.iter().all(|share| (5..=20).contains(share)), "{shares:?}");
    drop(clients);
    until("their end", || async {
        (edge.metrics().await.sum("tidegate_in_flight", &[]) == 0.0).then_some(())
    })
    .await;
    assert_eq!(get(edge.admin, "/readyz").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn very_short_prompts_build_no_affinity() {
    let (engines, urls) = engines(4).await;
    let edge = Edge::start(&model(&[], &urls)).await;
    edge.all_healthy().await;
    for at in 0..80 {
        let body = chat("m", ["hi", "ok", "1+1?", ""][at % 4]);
        assert_eq!(post(edge.traffic, CHAT, &body).await.status, 200);
    }
    let shares: Vec<usize> = engines.iter().map(|engine| engine.received().len()).collect();
    assert!(shares.iter().all(|share| (10..=36).contains(share)), "{shares:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_fails_at_once_looks_fast_and_gets_no_more_for_it() {
    let (engines, urls) = engines(4).await;
    engines[0].answer(|_| Reply::json(500, "{}"));
    let edge = Edge::start(&model(&[], &urls)).await;
    edge.all_healthy().await;
    for at in 0..100 {
        let body = chat("m", &format!("{at} lists every crate. ").repeat(200));
        post(edge.traffic, CHAT, &body).await;
    }
    // Its breaker opens after three, and stays open for longer than this test.
    assert_eq!(engines[0].received().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn new_prompts_spread_over_an_idle_fleet() {
    let (engines, urls) = engines(4).await;
    let edge = Edge::start(&model(&[], &urls)).await;
    edge.all_healthy().await;
    for at in 0..200 {
        let body = chat("m", &format!("{at} lists every crate. ").repeat(200));
        assert_eq!(post(edge.traffic, CHAT, &body).await.status, 200);
    }
    let shares: Vec<usize> = engines.iter().map(|engine| engine.received().len()).collect();
    assert!(shares.iter().all(|share| (25..=85).contains(share)), "{shares:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_everybody_begins_with_does_not_keep_them_at_one_worker() {
    let (engines, urls) = engines(4).await;
    const SLOTS: u64 = 4;
    engines.iter().for_each(|engine| engine.set_queue(0, 0));
    let keys = [
        "load_reports: {interval: 20ms, format: get_load}",
        "cache_aware: {worker_queue_limit: 8, saturation_queue_floor: 4, min_matched_tokens: 256}",
    ];
    let edge = Edge::start(&model(&keys, &urls)).await;
    edge.all_healthy().await;
    edge.reports_are("fresh").await;
    let common = "the ledger lists every crate. ".repeat(200);
    let ask = |at: usize| {
        let system = json!({"role": "system", "content": common});
        let user = json!({"role": "user", "content": format!("question {at}")});
        json!({"model": "m", "messages": [system, user]}).to_string()
    };
    // Somebody owns it.
    assert_eq!(post(edge.traffic, CHAT, &ask(0)).await.status, 200);
    engines.iter().for_each(|engine| engine.answer(|_| Reply::hang()));
    let mut clients = Vec::new();
    for at in 1..=48 {
        let mut client = Connection::open(edge.traffic).await;
        client.send(&request("POST", CHAT, ask(at).as_bytes())).await;
        clients.push(client);
        until("it to be under way", || async {
            let received: usize = engines.iter().map(|engine| engine.received().len()).sum();
            (received == at + 1).then_some(())
        })
        .await;
        // Each says how many it has, and is heard.
        let held = engines.iter().map(|engine| u64::try_from(engine.received().len()).unwrap());
        let waiting: Vec<u64> = held.map(|held| held.saturating_sub(SLOTS)).collect();
        for (engine, waiting) in engines.iter().zip(&waiting) {
            engine.set_queue(*waiting, SLOTS);
        }
        until("the queues", || async {
            let rows = edge.workers().await;
            let said = rows.iter().map(|row| row["report"]["waiting"].as_u64());
            said.eq(waiting.iter().copied().map(Some)).then_some(())
        })
        .await;
    }
    let shares: Vec<usize> = engines.iter().map(|engine| engine.received().len()).collect();
    assert!(shares.iter().all(|share| (4..=30).contains(share)), "{shares:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_swallows_requests_delays_nobody_elses() {
    let (engines, urls) = engines(3).await;
    engines[0].answer(|_| Reply::hang());
    let keys = [
        "timeouts: {first_byte: 500ms}",
        "breaker: {threshold: 2, cool_down: 1h}",
        "health: {enabled: false}",
    ];
    let edge = Edge::start(&model(&keys, &urls)).await;
    let mut lost = 0;
    for at in 0..60 {
        let body = chat("m", &format!("{at} lists every crate. ").repeat(200));
        let answer = post(edge.traffic, CHAT, &body).await;
        match answer.status {
            200 => assert_ne!(answer.header("x-tidegate-worker"), Some("w0")),
            _ => {
                assert_eq!(answer.error_code(), "first_byte_timeout");
                lost += 1;
            }
        }
    }
    // As many as the breaker takes to open.
    assert_eq!((lost, engines[0].received().len()), (2, 2));
}

#[test]
fn the_list_above_is_true() {
    support::lists::is_true("field_cases.rs", 59);
}
