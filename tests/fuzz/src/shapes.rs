//! Inputs whose size is about proportional to a number, made to be expensive for a careless reader.

/// A target of `targets.rs`, what is in the input, and what makes it.
pub type Shape = (&'static str, &'static str, fn(usize) -> Vec<u8>);

pub const ALL: [Shape; 25] = [
    ("body", "many turns", |n| {
        let turns = vec![r#"{"role":"user","content":"a\nb"}"#; n].join(",");
        format!("\0{{\"messages\":[{turns}]}}").into_bytes()
    }),
    ("body", "one long turn", |n| {
        format!("\0{{\"messages\":[{{\"content\":\"{}\"}}]}}", r"\ud83d\ude00\\".repeat(n))
            .into_bytes()
    }),
    ("body", "brackets", |n| {
        format!("\0{{\"tools\":{}{},\"messages\":[]}}", "[".repeat(n), "]".repeat(n)).into_bytes()
    }),
    ("body", "open brackets", |n| format!("\0{{\"tools\":{}", "[".repeat(n)).into_bytes()),
    ("body", "ids", |n| format!("\x04{{\"input_ids\":[{}1]}}", "123,".repeat(n)).into_bytes()),
    ("encoding", "what is no gzip", |n| {
        [&b"\0\x1f\x8b\x08\0\0\0\0\0\0\0"[..], &vec![0x55; n]].concat()
    }),
    ("answer", "many events", |n| {
        let event = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
        format!("\0\x40{}", event.repeat(n)).into_bytes()
    }),
    ("answer", "one long event", |n| {
        format!("\0\x01data: {{\"a\":\"{}", "\\\"".repeat(n)).into_bytes()
    }),
    ("answer", "data in many lines", |n| format!("\0\x05{}", "data: [\n".repeat(n)).into_bytes()),
    ("answer", "deep", |n| format!("\x02\x10{}", "{\"usage\":".repeat(n)).into_bytes()),
    ("report", "many ranks", |n| {
        let rank = |at| {
            format!("{{\"dp_rank\":{at},\"num_reqs\":1,\"num_waiting_reqs\":1,\"num_tokens\":1}}")
        };
        format!("[{}]", (0..n).map(rank).collect::<Vec<_>>().join(",")).into_bytes()
    }),
    ("report", "many samples", |n| {
        let sample = |at| format!("vllm:num_requests_waiting{{engine=\"{at}\"}} 1\n");
        (0..n).map(sample).collect::<String>().into_bytes()
    }),
    ("report", "many labels", |n| {
        format!("vllm:num_requests_waiting{{{}}} 1\n", "a=\"\\\\\",".repeat(n)).into_bytes()
    }),
    ("config", "many workers", |n| {
        let worker = |at| format!("        - {{id: w{at}, url: \"http://h{at}:1\"}}\n");
        let workers: String = (0..n).map(worker).collect();
        format!("tidegate:\n  models:\n    - name: m\n      workers:\n{workers}").into_bytes()
    }),
    ("config", "many models of one name", |n| {
        let model = "    - {name: m, workers: [{id: w, url: \"http://h:1\"}]}\n";
        format!("tidegate:\n  models:\n{}", model.repeat(n)).into_bytes()
    }),
    ("config", "many models", |n| {
        // There may be a thousand. The settings they have by default are as long as their names.
        let worker = r#"workers: [{id: w, url: "http://h:1"}]"#;
        let model = |at| format!("    - {{name: {at:0>190}-m, {worker}}}\n");
        let models: String = (0..n / 10).map(model).collect();
        format!("tidegate:\n  models:\n{models}").into_bytes()
    }),
    ("config", "a long chain of shards", |n| {
        let worker = |at| {
            let held = format!("first_layer: {at}, last_layer: {at}");
            format!("        - {{id: w{at}, url: \"http://h{at}:1\", {held}}}\n")
        };
        let workers: String = (0..n).map(worker).collect();
        let model = format!("    - name: m\n      policy: learned\n      layers: {n}\n");
        format!("tidegate:\n  models:\n{model}      workers:\n{workers}").into_bytes()
    }),
    ("config", "a chain from its end", |n| {
        let worker = |at| {
            let held = format!("first_layer: {at}, last_layer: {at}");
            format!("        - {{id: w{at}, url: \"http://h{at}:1\", {held}}}\n")
        };
        let workers: String = (0..n).rev().map(worker).collect();
        let model = format!("    - name: m\n      policy: learned\n      layers: {n}\n");
        format!("tidegate:\n  models:\n{model}      workers:\n{workers}").into_bytes()
    }),
    ("config", "many unknown keys", |n| {
        let key = |at| format!("  key{at}: 1\n");
        format!("tidegate:\n{}", (0..n).map(key).collect::<String>()).into_bytes()
    }),
    ("snapshot", "many keys", |n| {
        // One model `m` of one worker `w0` with so many keys, as postcard writes it.
        let mut bytes =
            b"\x01\x01\x01m\x80\x04\0\0\0\0\0\0\x10\x40\0\x01\x02w0\x12http://127.0.0.1:1\x01\0"
                .to_vec();
        bytes.extend_from_slice(&1f64.to_le_bytes());
        let mut count = n;
        while 0x80 <= count {
            bytes.push((count & 0x7f) as u8 | 0x80);
            count >>= 7;
        }
        bytes.push(count as u8);
        bytes.extend(std::iter::repeat_n([0x85, 0x01], n).flatten());
        bytes.push(0);
        bytes
    }),
    ("route", "many nodes", |n| format!("[{}\"a\"]", "\"a\",".repeat(n)).into_bytes()),
    ("route", "one long name", |n| format!("[\"{}\"]", "\\u0061".repeat(n)).into_bytes()),
    ("scenario", "many workers", |n| {
        let worker = |at| format!("{{\"id\":\"w{at}\"}}");
        let workers: Vec<_> = (0..n).map(worker).collect();
        format!("{{\"request\":{{\"input_tokens\":9}},\"workers\":[{}]}}", workers.join(","))
            .into_bytes()
    }),
    ("admin", "a long query", |n| {
        format!("/v1/explain?{}path=%2Fx\n{{}}", "a=%zz&".repeat(n)).into_bytes()
    }),
    ("admin", "a long path", |n| format!("/v1/workers/{}/drain", "%77".repeat(n)).into_bytes()),
];
