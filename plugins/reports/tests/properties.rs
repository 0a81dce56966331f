//! What holds for any bytes whatever.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::sync::LazyLock;
use tidegate_reports::{MAX_BODY_BYTES, ReportError, dp_size_of_server_info, parse};

const LARGEST: u64 = 1 << 53;

/// Every page in `testdata/`.
static PAGES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let folder = std::fs::read_dir(format!("{}/testdata", env!("CARGO_MANIFEST_DIR"))).unwrap();
    folder.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect()
});

/// Replaces `cut` bytes at `at` by others.
#[derive(Clone, Debug)]
struct Edit {
    at: Index,
    cut: usize,
    put: Vec<u8>,
}

fn edit() -> impl Strategy<Value = Edit> {
    let token = select(vec![
        "\"", "\\", "{", "}", "[", "]", ",", "-", "null", "\n", " ", "=", "#", "9e99", "\u{3a9}",
    ]);
    let put = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..4),
        token.prop_map(|text| text.as_bytes().to_vec())
    ];
    (any::<Index>(), 0usize..8, put).prop_map(|(at, cut, put)| Edit { at, cut, put })
}

fn apply(body: &mut Vec<u8>, edit: Edit) {
    let at = edit.at.index(body.len() + 1);
    let end = (at + edit.cut).min(body.len());
    body.splice(at..end, edit.put);
}

/// A readable report keeps to what its fields promise.
fn check(body: &[u8]) -> Result<(), TestCaseError> {
    let _ = dp_size_of_server_info(body);
    let Ok(report) = parse(body, None) else {
        return Ok(());
    };
    let counts = [report.waiting, report.running, report.max_running, report.total_tokens];
    for count in counts.into_iter().flatten() {
        prop_assert!(count <= LARGEST);
    }
    prop_assert!(report.kv_usage.is_none_or(|usage| (0.0..=1.0).contains(&usage)));
    prop_assert!(report.prefill.is_empty() || report.prefill.len() == report.ranks as usize);
    let more = report.ranks + 1;
    let too_few = ReportError::TooFewRanks { seen: report.ranks, expected: more };
    prop_assert_eq!(parse(body, Some(more)), Err(too_few));
    Ok(())
}

fn rank(number: usize, (waiting, all, tokens): (u32, u32, u32)) -> String {
    let (busy, uncached) = (u64::from(tokens) * 3, u64::from(tokens) * 2);
    format!(
        r#"{{"dp_rank":{number},"num_waiting_reqs":{waiting},"num_reqs":{all},"num_running_reqs":{all},
        "num_tokens":{tokens},"num_total_tokens":{tokens},"total_prefill_uncached_tokens":{uncached},
        "total_prefill_busy_us":{busy},"token_usage":0.{waiting}}}"#
    )
}

proptest! {
    #[test]
    fn no_bytes_are_too_strange(body in prop::collection::vec(any::<u8>(), 0..2000)) {
        check(&body)?;
    }

    #[test]
    fn no_text_is_too_strange(text in r#"[\[{]?(vllm:num_requests_waiting|[ \t\n\r{}\[\]",:=\\#0-9eE.+-]|loads|load|null|Ω){0,60}"#) {
        check(text.as_bytes())?;
    }

    #[test]
    fn no_damaged_page_is_too_strange(page in select(PAGES.clone()), edits in prop::collection::vec(edit(), 1..6)) {
        let mut body = page;
        for edit in edits {
            apply(&mut body, edit);
        }
        check(&body)?;
    }

    #[test]
    fn a_page_cut_anywhere_never_invents_ranks(page in select(PAGES.clone()), at in any::<Index>()) {
        let whole = parse(&page, None).map_or(0, |report| report.ranks);
        if let Ok(report) = parse(&page[..at.index(page.len())], None) {
            prop_assert!(report.ranks <= whole);
        }
    }

    #[test]
    fn the_order_of_ranks_is_irrelevant(
        (loads, order) in prop::collection::vec(any::<(u32, u32, u32)>(), 1..9)
            .prop_flat_map(|loads| { let order: Vec<_> = (0..loads.len()).collect(); (Just(loads), Just(order).prop_shuffle()) })
    ) {
        let ranks: Vec<_> = loads.iter().enumerate().map(|(number, load)| rank(number, *load)).collect();
        let shuffled: Vec<_> = order.iter().map(|&at| ranks[at].clone()).collect();
        let list = |ranks: &[String]| parse(format!("[{}]", ranks.join(",")).as_bytes(), None);
        let loads = |ranks: &[String]| parse(format!("{{\"loads\":[{}]}}", ranks.join(",")).as_bytes(), None);
        prop_assert!(list(&ranks).is_ok());
        prop_assert_eq!(list(&ranks), list(&shuffled));
        prop_assert!(loads(&ranks).is_ok());
        prop_assert_eq!(loads(&ranks), loads(&shuffled));
    }

    #[test]
    fn the_order_of_samples_is_irrelevant(
        (values, order) in prop::collection::vec(0u32..1000, 1..9)
            .prop_flat_map(|values| { let order: Vec<_> = (0..values.len()).collect(); (Just(values), Just(order).prop_shuffle()) })
    ) {
        let sample = |at: usize| format!("vllm:num_requests_waiting{{engine=\"{at}\"}} {}\n", values[at]);
        let sorted: String = (0..values.len()).map(sample).collect();
        let shuffled: String = order.iter().map(|&at| sample(at)).collect();
        let report = parse(sorted.as_bytes(), None).unwrap();
        prop_assert_eq!(report.waiting, Some(values.iter().map(|&value| u64::from(value)).sum()));
        prop_assert_eq!(report.ranks as usize, values.len());
        prop_assert_eq!(parse(shuffled.as_bytes(), None).unwrap(), report);
    }
}

/// Each of these is quadratic, or deep, or large for a careless reader; the test ends at once for
/// one that is linear and iterative.
#[test]
fn the_largest_answers_are_read_in_one_go() {
    let fill = |unit: &str| unit.repeat(MAX_BODY_BYTES / unit.len());
    for body in [
        fill("["),
        fill("{\"a\":"),
        fill("[{},"),
        format!("[{}{{}}]", fill("{},").split_at(MAX_BODY_BYTES - 6).0),
        fill("\\"),
        format!("vllm:num_requests_waiting{{a=\"{}", fill("\\\\").split_at(MAX_BODY_BYTES - 30).0),
        format!("vllm:num_requests_waiting{{{}", fill("a=\"\",").split_at(MAX_BODY_BYTES - 30).0),
        fill("vllm:num_requests_waiting\n"),
        fill("\n"),
        fill("#"),
        fill("vllm:num_requests_waiting 9 "),
        format!("vllm:num_requests_waiting {}", fill("9").split_at(MAX_BODY_BYTES - 30).0),
        format!("[{{\"dp_rank\":{}", fill("9").split_at(MAX_BODY_BYTES - 30).0),
    ] {
        assert!(body.len() <= MAX_BODY_BYTES);
        assert!(parse(body.as_bytes(), None).is_err(), "{}", &body[..20]);
    }
}
