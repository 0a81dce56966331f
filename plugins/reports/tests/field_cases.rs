//! Answers that misled others (`testdata/field-cases.json`; `case` names where they come from), and
//! what must be made of them.

#![allow(clippy::unwrap_used)]

use serde::Deserialize;
use tidegate_reports::{ReportError, parse};

#[derive(Deserialize)]
struct FieldCase {
    case: String,
    body: String,
    dp_size: Option<u32>,
    /// Fails to be read, and how that is said.
    error: Option<String>,
    waiting: Option<u64>,
    running: Option<u64>,
    total_tokens: Option<u64>,
    #[serde(default)]
    ranks: u32,
}

#[test]
fn answers_that_misled_others_are_understood() {
    let cases: Vec<FieldCase> =
        serde_json::from_str(include_str!("../testdata/field-cases.json")).unwrap();
    assert!(30 <= cases.len());
    for case in cases {
        let report = parse(case.body.as_bytes(), case.dp_size);
        if let Some(error) = case.error {
            assert_eq!(report.map_err(|e| e.to_string()), Err(error), "{}", case.case);
            continue;
        }
        let report = report.map_err(|e| format!("{}: {e}", case.case)).unwrap();
        assert_eq!(report.waiting, case.waiting, "{}: waiting", case.case);
        assert_eq!(report.running, case.running, "{}: running", case.case);
        assert_eq!(report.total_tokens, case.total_tokens, "{}: tokens", case.case);
        assert_eq!(report.ranks, case.ranks, "{}: ranks", case.case);
    }
}

#[test]
fn an_answer_longer_than_the_limit_is_not_read() {
    let mut body = b"[{\"dp_rank\":0,\"num_waiting_reqs\":1}]".to_vec();
    body.resize(tidegate_reports::MAX_BODY_BYTES, b' ');
    assert!(parse(&body, None).is_ok());
    body.push(b' ');
    assert_eq!(parse(&body, None), Err(ReportError::TooLong { limit: 1 << 20 }));
}

#[test]
fn ranks_are_bounded() {
    let list = |count: usize| {
        let ranks: Vec<_> =
            (0..count).map(|at| format!("{{\"dp_rank\":{at},\"num_waiting_reqs\":1}}")).collect();
        parse(format!("[{}]", ranks.join(",")).as_bytes(), None)
    };
    assert_eq!(list(1024).unwrap().waiting, Some(1024));
    assert_eq!(list(1025), Err(ReportError::TooManyRanks { limit: 1024 }));
    let text: String =
        (0..1025).map(|at| format!("vllm:num_requests_waiting{{engine=\"{at}\"}} 1\n")).collect();
    assert_eq!(parse(text.as_bytes(), None), Err(ReportError::TooManyRanks { limit: 1024 }));
}
