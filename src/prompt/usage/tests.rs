//! Answers of every dialect, cut anywhere.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::*;
use proptest::prelude::*;

/// All that is learned, without the times.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Learned {
    content_events: u64,
    usage: Usage,
    completion_tokens: Option<u64>,
    finished: bool,
}

fn learned(reader: &UsageReader) -> Learned {
    Learned {
        content_events: reader.content_events(),
        usage: reader.usage(),
        completion_tokens: reader.completion_tokens(),
        finished: reader.finished_normally(),
    }
}

fn read_pieces<'a>(
    content_type: &str,
    dialect: Dialect,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> UsageReader {
    let mut reader = UsageReader::new(Some(content_type), None, dialect);
    for piece in pieces {
        reader.push(piece);
    }
    reader
}

fn events(dialect: Dialect, stream: &str) -> Learned {
    learned(&read_pieces("text/event-stream", dialect, [stream.as_bytes()]))
}

fn whole(dialect: Dialect, body: &str) -> Learned {
    learned(&read_pieces("application/json", dialect, [body.as_bytes()]))
}

fn usage(prompt: u64, cached: u64, completion: u64) -> Usage {
    Usage {
        prompt_tokens: Some(prompt),
        cached_tokens: Some(cached),
        completion_tokens: Some(completion),
    }
}

const XYZ: &str = concat!(
    r#"data: {"id":"c1","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}],"usage":null}"#,
    "\n\n",
    r#"data: {"id":"c1","choices":[{"index":0,"delta":{"content":"y"},"finish_reason":null}]}"#,
    "\n\n",
    r#"data: {"id":"c1","choices":[{"index":0,"delta":{"content":"z"},"finish_reason":null}]}"#,
    "\n\n",
);

const SPENT: &str = r#""usage":{"prompt_tokens":11,"completion_tokens":42,"total_tokens":53,"prompt_tokens_details":{"cached_tokens":8}}"#;

const CUT: &str = concat!(
    r#"data: {"id":"c1","choices":[{"index":0,"delta":{"content":"船🛳船"},"finish_reason":null}]}"#,
    "\n\n",
    r#"data: {"id":"c1","choices":[{"index":0,"delta":{"content":"caf\u00e9 \"x\\"},"finish_reason":null}]}"#,
    "\n\ndata: [DONE]\n\n",
);

const TRIPS: &str = concat!(
    ": ping\n\n:\n\nretry: 3000\n\nid: 7\nevent: message\n",
    r#"data:{"id":"c1","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}"#,
    "\n\ndata: {\"id\":\"c1\",\ndata:  \"choices\":[{\"index\":0,\"delta\":{\"content\":\"b\"}}]}\n\n",
    r#"data: {"id":"c1","choices":[{"index":0,"delta":{"content":"c"},"finish_reason":null}]}"#,
    "\r\n\r\ndata:[DONE]\r\n\r\n",
);

const ANTHROPIC: &str = concat!(
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"role\":\"assistant\",\"content\":[],\
        \"stop_reason\":null,\"usage\":{\"input_tokens\":25,\"cache_read_input_tokens\":100,\"cache_creation_input_tokens\":7,\"output_tokens\":1}}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
    "event: ping\ndata: {\"type\": \"ping\"}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"Eq\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":15}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
);

const RESPONSES: &str = concat!(
    "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"status\":\"in_progress\",\"error\":null,\"output\":[]}}\n\n",
    "data: {\"type\":\"response.output_item.added\",\"item\":{\"type\":\"message\",\"status\":\"in_progress\",\"content\":[]}}\n\n",
    "data: {\"type\":\"response.output_text.delta\",\"delta\":\"Hel\"}\n\n",
    "data: {\"type\":\"response.output_text.delta\",\"delta\":\"lo\"}\n\n",
    "data: {\"type\":\"response.output_text.done\",\"text\":\"Hello\"}\n\n",
    "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"Hello\"}]}],\
        \"usage\":{\"input_tokens\":30,\"input_tokens_details\":{\"cached_tokens\":16},\"output_tokens\":9,\"output_tokens_details\":{\"reasoning_tokens\":4}}}}\n\n",
);

const SGLANG: &str = concat!(
    r#"data: {"text":"","meta_info":{"id":"r","finish_reason":null,"prompt_tokens":20,"completion_tokens":0,"cached_tokens":16}}"#,
    "\n\n",
    r#"data: {"text":"He","meta_info":{"id":"r","finish_reason":null,"prompt_tokens":20,"completion_tokens":1,"cached_tokens":16}}"#,
    "\n\n",
    r#"data: {"text":"Hello","meta_info":{"id":"r","finish_reason":{"type":"stop","matched":7},"prompt_tokens":20,"completion_tokens":2,"cached_tokens":16}}"#,
    "\n\ndata: [DONE]\n\n",
);

#[test]
fn usage_in_a_chunk_of_its_own_counts_once() {
    let ends = [
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"\"}},\"finish_reason\":\"stop\"}}]}}\n\ndata: {{\"choices\":[],{SPENT}}}\n\n"
        ),
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{}}}}],{SPENT}}}\n\n"),
        format!(
            "data: {{\"choices\":[{{\"delta\":{{}},\"finish_reason\":\"stop\"}}],{SPENT}}}\n\ndata: {{\"choices\":[],{SPENT}}}\n\n"
        ),
    ];
    for end in ends {
        let learned = events(Dialect::Chat, &format!("{XYZ}{end}data: [DONE]\n\n"));
        let expected = Learned {
            content_events: 3,
            usage: usage(11, 8, 42),
            completion_tokens: Some(42),
            finished: true,
        };
        assert_eq!(learned, expected, "{end}");
    }
}

#[test]
fn without_usage_events_with_content_are_counted() {
    let end = "data: {\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":\"stop\"}]}\n\n";
    let learned = events(Dialect::Chat, &format!("{XYZ}{end}data: [DONE]\n\n"));
    assert_eq!(learned.usage, Usage::default());
    assert_eq!(learned.completion_tokens, Some(3));
    assert!(learned.finished);
}

#[test]
fn a_stream_that_breaks_off_did_not_finish() {
    let learned = events(Dialect::Chat, XYZ);
    assert!(!learned.finished);
    assert_eq!(learned.content_events, 3);
}

#[test]
fn every_form_of_events_is_read() {
    let learned = events(Dialect::Chat, TRIPS);
    assert_eq!((learned.content_events, learned.finished), (3, true));
    for ends in ["\r", "\n", "\r\n"] {
        let stream = format!("\u{FEFF}{}", TRIPS.replace("\r\n", "\n").replace('\n', ends));
        assert_eq!(events(Dialect::Chat, &stream), learned, "{ends:?}");
    }
    // No line end behind the last marker.
    assert_eq!(events(Dialect::Chat, TRIPS.trim_end()), learned);
}

#[test]
fn anthropic_counts_the_cached_part_beside_the_input() {
    let learned = events(Dialect::Messages, ANTHROPIC);
    let expected = Learned {
        content_events: 2,
        usage: usage(132, 100, 15),
        completion_tokens: Some(15),
        finished: true,
    };
    assert_eq!(learned, expected);
}

#[test]
fn responses_state_their_usage_at_the_end() {
    let learned = events(Dialect::Responses, RESPONSES);
    let expected = Learned {
        content_events: 2,
        usage: usage(30, 16, 9),
        completion_tokens: Some(9),
        finished: true,
    };
    assert_eq!(learned, expected);
}

#[test]
fn sglang_counts_grow_with_every_event() {
    let learned = events(Dialect::Generate, SGLANG);
    let expected = Learned {
        content_events: 2,
        usage: usage(20, 16, 2),
        completion_tokens: Some(2),
        finished: true,
    };
    assert_eq!(learned, expected);
}

#[test]
fn prompt_tokens_that_include_the_cached_ones_are_not_added_to() {
    let body = r#"{"usage":{"prompt_tokens":50,"input_tokens":10,"cache_read_input_tokens":40,"completion_tokens":3}}"#;
    assert_eq!(whole(Dialect::Chat, body).usage, usage(50, 40, 3));
}

#[test]
fn only_what_was_generated_is_content() {
    let silent = [
        r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
        r#"{"choices":[{"delta":{"role":"assistant","content":null,"tool_calls":[]}}]}"#,
        r#"{"choices":[{"delta":{},"text":"","finish_reason":null}]}"#,
        r#"{"content":"x","text":"x","note":{"delta":{"content":"x"}}}"#,
        r#"{"choices":[],"usage":{"content":"x"}}"#,
    ];
    for event in silent {
        assert_eq!(
            events(Dialect::Chat, &format!("data: {event}\n\n")).content_events,
            0,
            "{event}"
        );
    }
    let speaking = [
        r#"{"choices":[{"delta":{"role":"assistant","content":" "}}]}"#,
        r#"{"choices":[{"delta":{"content":"\n"}}]}"#,
        r#"{"choices":[{"delta":{"content":"a","reasoning_content":"b"}},{"delta":{"content":"c"}}]}"#,
        r#"{"choices":[{"delta":{"reasoning_content":"b"}}]}"#,
        r#"{"choices":[{"delta":{"reasoning":"b"}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":""}}]}}]}"#,
        r#"{"choices":[{"text":"b"}]}"#,
        r#"{"type":"content_block_start","content_block":{"type":"tool_use","name":"f","input":{}}}"#,
    ];
    for event in speaking {
        assert_eq!(
            events(Dialect::Chat, &format!("data: {event}\n\n")).content_events,
            1,
            "{event}"
        );
    }
}

#[test]
fn content_is_told_with_the_piece_it_comes_in() {
    let role = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n";
    let text = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    let mut reader = UsageReader::new(Some("text/event-stream"), None, Dialect::Chat);
    let events = [": hello\n\n", role, text, text, "data: [DONE]\n\n"].map(|piece| {
        reader.push(piece.as_bytes());
        reader.content_events()
    });
    assert_eq!(events, [0, 0, 1, 2, 2]);
}

#[test]
fn engines_that_give_up_do_not_finish_normally() {
    let ends = [
        r#"{"choices":[{"delta":{},"finish_reason":"abort"}]}"#,
        r#"{"meta_info":{"finish_reason":{"type":"abort","message":"x"}}}"#,
        r#"{"error":{"message":"out of memory"}}"#,
        r#"{"error":"out of memory"}"#,
        r#"{"type":"error","error":{"type":"overloaded_error"}}"#,
        r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"x"}}}"#,
    ];
    for end in ends {
        let learned = events(Dialect::Responses, &format!("{XYZ}data: {end}\n\ndata: [DONE]\n\n"));
        assert!(!learned.finished, "{end}");
    }
    assert!(
        events(Dialect::Chat, "data: {\"error\":null,\"choices\":[]}\n\ndata: [DONE]\n\n").finished
    );
}

#[test]
fn plain_answers_of_every_dialect_are_read() {
    let cases = [
        (Dialect::Chat, format!(r#"{{"choices":[{{"message":{{"content":"Hi"}},"finish_reason":"stop"}}],{SPENT}}}"#)),
        (Dialect::Completions, format!(r#"{{"choices":[{{"text":"Hi","finish_reason":"length"}}],{SPENT}}}"#)),
        (
            Dialect::Messages,
            r#"{"content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","usage":{"input_tokens":3,"cache_read_input_tokens":8,"output_tokens":42}}"#.into(),
        ),
        (
            Dialect::Responses,
            r#"{"status":"completed","error":null,"output":[{"content":[{"text":"Hi"}]}],"usage":{"input_tokens":11,"input_tokens_details":{"cached_tokens":8},"output_tokens":42}}"#.into(),
        ),
        (
            Dialect::Generate,
            r#"{"text":"Hi","meta_info":{"finish_reason":{"type":"length"},"prompt_tokens":11,"completion_tokens":42,"cached_tokens":8}}"#.into(),
        ),
    ];
    for (dialect, body) in cases {
        let expected = Learned {
            content_events: 1,
            usage: usage(11, 8, 42),
            completion_tokens: Some(42),
            finished: true,
        };
        assert_eq!(whole(dialect, &body), expected, "{dialect:?}");
    }
}

#[test]
fn a_plain_answer_without_usage_is_unknown_and_not_one_token() {
    let learned = whole(
        Dialect::Chat,
        r#"{"choices":[{"message":{"content":"Hi there"},"finish_reason":"stop"}]}"#,
    );
    assert_eq!(learned.completion_tokens, None);
}

#[test]
fn the_answer_to_a_batch_adds_its_completions_up() {
    let one = |prompt: u64, completion: u64| {
        format!(
            r#"{{"text":"x","meta_info":{{"prompt_tokens":{prompt},"completion_tokens":{completion},"cached_tokens":4,"finish_reason":{{"type":"stop"}}}}}}"#
        )
    };
    let learned = whole(Dialect::Generate, &format!("[{},{}]", one(9, 3), one(12, 5)));
    assert_eq!(learned.usage, usage(12, 4, 8));
}

#[test]
fn lines_of_json_are_read_and_a_broken_one_harms_no_other() {
    let line = r#"{"choices":[{"delta":{"content":"x"}}]}"#;
    let stream = format!("{line}\n{{\"choices\":[{{\"delta\":\r\n{line}\n{{{SPENT}}}");
    for content_type in ["application/x-ndjson", "application/jsonl; charset=utf-8"] {
        let learned = learned(&read_pieces(content_type, Dialect::Chat, [stream.as_bytes()]));
        assert_eq!((learned.content_events, learned.usage), (2, usage(11, 8, 42)));
    }
}

#[test]
fn a_broken_event_harms_no_other() {
    let stream = format!("data: {{\"choices\":[{{\"delta\":\"\n\n{XYZ}data: {{{SPENT}}}\n\n");
    let learned = events(Dialect::Chat, &stream);
    assert_eq!((learned.content_events, learned.usage), (3, usage(11, 8, 42)));
}

#[test]
fn usage_behind_a_huge_text_is_found_in_constant_memory() {
    let mut reader = UsageReader::new(Some("application/json"), None, Dialect::Chat);
    reader.push(br#"{"choices":[{"message":{"content":""#);
    for _ in 0..1000 {
        reader.push(&[b'a'; 16_384]);
    }
    reader.push(format!(r#""}}}}],{SPENT}}}"#).as_bytes());
    assert_eq!(reader.usage(), usage(11, 8, 42));
    assert!(size_of::<UsageReader>() <= 512);
}

#[test]
fn markers_inside_text_are_only_text() {
    let body =
        r#"{"choices":[{"message":{"content":"\"usage\":{\"prompt_tokens\":1}} data: [DONE]"}}]}"#;
    let learned = whole(Dialect::Chat, body);
    assert_eq!((learned.usage, learned.finished), (Usage::default(), false));
}

#[test]
fn what_cannot_be_read_is_unknown() {
    let heads = [
        (Some("text/event-stream"), Some("gzip")),
        (Some("application/json"), Some("br")),
        (Some("text/html"), None),
        (Some("application/octet-stream"), None),
        (None, None),
    ];
    for (content_type, encoding) in heads {
        let mut reader = UsageReader::new(content_type, encoding, Dialect::Chat);
        reader.push(XYZ.as_bytes());
        assert!(!reader.is_readable());
        assert_eq!(reader.content_events(), 0);
        assert_eq!(reader.completion_tokens(), None);
        assert!(!reader.finished_normally());
    }
    let spelled =
        [("Text/Event-Stream; charset=utf-8", "identity"), ("application/vnd.api+JSON", "")];
    for (content_type, encoding) in spelled {
        assert!(UsageReader::new(Some(content_type), Some(encoding), Dialect::Chat).is_readable());
    }
}

#[test]
fn absurd_counts_are_not_counts() {
    for count in
        ["-1", "1.5", "1e3", "99999999999999999999999999999999999999999", "true", "null", "\"7\""]
    {
        let body = format!(r#"{{"usage":{{"prompt_tokens":{count}}}}}"#);
        assert_eq!(whole(Dialect::Chat, &body).usage.prompt_tokens, None, "{count}");
    }
    let most =
        format!(r#"{{"usage":{{"input_tokens":{0},"cache_read_input_tokens":{0}}}}}"#, u64::MAX);
    assert_eq!(whole(Dialect::Chat, &most).usage.prompt_tokens, Some(u64::MAX));
}

#[test]
fn nesting_of_any_depth_is_passed_over() {
    let deep = format!(r#"{{"x":{}{},{SPENT}}}"#, "[{\"a\":".repeat(50_000), "}]".repeat(50_000));
    assert_eq!(whole(Dialect::Chat, &deep).usage, usage(11, 8, 42));
}

#[test]
fn an_escaped_quote_ends_no_string() {
    for text in
        [r#"say \"hi\""#, r"a\\", r#"\\\""#, r"\u0022", r#"a\"b\\\"c\n\\"#, r#"\","usage":"#]
    {
        let document = format!(r#"{{"id":"{text}","{text}":["{text}"],{SPENT}}}"#);
        let in_bytes =
            read_pieces("application/json", Dialect::Chat, document.as_bytes().chunks(1));
        assert_eq!(whole(Dialect::Chat, &document).usage, usage(11, 8, 42), "{document}");
        assert_eq!(learned(&in_bytes), whole(Dialect::Chat, &document));
    }
}

const STREAMS: [(Dialect, &str); 6] = [
    (Dialect::Chat, XYZ),
    (Dialect::Chat, CUT),
    (Dialect::Chat, TRIPS),
    (Dialect::Messages, ANTHROPIC),
    (Dialect::Responses, RESPONSES),
    (Dialect::Generate, SGLANG),
];

const TYPES: [&str; 3] = ["text/event-stream", "application/x-ndjson", "application/json"];

#[test]
fn one_byte_at_a_time_gives_the_same() {
    for (dialect, stream) in STREAMS {
        let bytes = read_pieces("text/event-stream", dialect, stream.as_bytes().chunks(1));
        assert_eq!(learned(&bytes), events(dialect, stream));
    }
}

/// Cuts a text at these places.
fn pieces(text: &[u8], mut cuts: Vec<usize>) -> Vec<&[u8]> {
    cuts.sort_unstable();
    let mut start = 0;
    let mut pieces = Vec::new();
    for cut in cuts.into_iter().chain([text.len()]) {
        pieces.push(&text[start..cut]);
        start = cut;
    }
    pieces
}

proptest! {
    #[test]
    fn any_cut_gives_the_same(
        which in 0..STREAMS.len(),
        content_type in prop::sample::select(&TYPES[..]),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        carriage in any::<bool>(),
    ) {
        let (dialect, stream) = STREAMS[which];
        let stream = if carriage { stream.replace('\n', "\r\n") } else { stream.to_owned() };
        let cuts = cuts.iter().map(|cut| cut.index(stream.len())).collect();
        let cut = read_pieces(content_type, dialect, pieces(stream.as_bytes(), cuts));
        prop_assert_eq!(learned(&cut), learned(&read_pieces(content_type, dialect, [stream.as_bytes()])));
    }

    #[test]
    fn any_bytes_do_no_harm_and_may_be_cut(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(&b"data: \r\n{}[]\",:\\1x\xEF\xBB\xBF"[..])], 0..200),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        for content_type in TYPES {
            let cuts = cuts.iter().map(|cut| cut.index(bytes.len().max(1))).collect();
            let cut = read_pieces(content_type, Dialect::Chat, pieces(&bytes, cuts));
            prop_assert_eq!(learned(&cut), learned(&read_pieces(content_type, Dialect::Chat, [&bytes[..]])));
        }
    }
}
