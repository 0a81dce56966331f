use super::super::routes::{Routes, Selection};
use super::super::testing::{HYBRID, MIXED, SLOW, Said, fleet, request, routes};
use super::*;
use crate::fleet::Millis;

const NODES: [Said<'_>; 4] =
    [MIXED[0], MIXED[1], ("gpu-c", 22, 39, 90.0, 0), ("gpu-d", 24, 39, 90.0, 0)];

fn take(json: &str) -> Result<Option<Selection>, PinError> {
    let routes: Routes = routes(&NODES);
    let Some(pin) = Pin::read(json)? else { return Ok(None) };
    routes.pinned(&fleet(&NODES), &request(Millis(0)), &pin).map(Some)
}

fn signature(json: &str) -> String {
    take(json).unwrap().unwrap().signature.to_string()
}

#[test]
fn ids_and_ids_with_their_layers_are_the_same_route() {
    assert_eq!(signature(r#"["cpu-b"]"#), SLOW);
    assert_eq!(signature(r#"["gpu-a", "cpu-b"]"#), HYBRID);
    assert_eq!(signature(r#" [ "gpu-a[0-21]" , "cpu-b[0-39]" ] "#), HYBRID);
    assert_eq!(signature(r#"["gpu\u002da", "gpu-c"]"#), "m | gpu-a[0-21] -> gpu-c[22-39]");
    assert_eq!(take("null"), Ok(None));
}

#[test]
fn what_is_no_route_is_refused_with_its_name_and_what_would_be_one() {
    for (json, message) in [
        ("7", "route must be a list"),
        (r#""cpu-b""#, "route must be a list"),
        (r#"{"cpu-b": 1}"#, "route must be a list"),
        ("[", "route must be a list"),
        ("[]", "route names no node"),
        (r#"["gpu-a", 7]"#, "route[1] must be a text"),
        (r#"["gpu-a", null]"#, "route[1] must be a text"),
        (r#"["gpu-z"]"#, "no node `gpu-z`"),
        (r#"[""]"#, "no node ``"),
        (r#"["gpu-a[0-20]", "cpu-b"]"#, "write `gpu-a` or `gpu-a[0-21]`"),
        (r#"["gpu-a[", "cpu-b"]"#, "write `gpu-a` or `gpu-a[0-21]`"),
        (
            r#"["gpu-c"]"#,
            "`gpu-c` starts at layer 22 and cannot be the first; that one must start at layer 0",
        ),
        (r#"["gpu-a", "gpu-d"]"#, "`gpu-d` starts at layer 24; layer 22 comes next"),
        (r#"["gpu-a", "gpu-a"]"#, "`gpu-a` ends at layer 21; layer 22 comes next"),
        (r#"["cpu-b", "gpu-c"]"#, "`gpu-c` ends at layer 39; layer 40 comes next"),
        (r#"["gpu-a"]"#, "ends at layer 21; the model's last layer is 39"),
    ] {
        let error = take(json).unwrap_err();
        assert!(error.to_string().contains(message), "{json}: {error}");
        assert!(error.is_invalid(), "{json}");
    }
}

#[test]
fn a_long_list_is_counted_and_not_kept() {
    let list = |count: usize| format!("[{}]", vec![r#""cpu-b""#; count].join(","));
    assert_eq!(take(&list(100_000)), Err(PinError::TooLong { hops: 100_000 }));
    assert_eq!(take(&list(MOST_HOPS + 1)), Err(PinError::TooLong { hops: MOST_HOPS + 1 }));
    assert!(matches!(take(&list(MOST_HOPS)), Err(PinError::NoAdvance { .. })));
}

#[test]
fn a_message_repeats_little_of_a_clients_text_and_no_control_characters() {
    let long = format!("[\"{}\"]", "ä".repeat(10_000));
    assert!(take(&long).unwrap_err().to_string().chars().count() < 150);
    let odd = take("[\"a\\u001b[31m\"]").unwrap_err().to_string();
    assert!(!odd.chars().any(char::is_control), "{odd}");
}

#[test]
fn a_route_that_cannot_be_used_now_is_no_invalid_one() {
    let routes: Routes = routes(&MIXED);
    let fleet = fleet(&MIXED);
    fleet.workers()[0].live.set_routable(false);
    let pin = Pin::read(r#"["gpu-a", "cpu-b"]"#).unwrap().unwrap();
    let error = routes.pinned(&fleet, &request(Millis(0)), &pin).unwrap_err();
    assert_eq!(error, PinError::Unavailable { node: fleet.workers()[0].id.clone() });
    assert!(!error.is_invalid());
}

#[test]
fn foreign_bytes_never_panic() {
    let text = r#"["gpu-a[0-21]", "cpu-b[0-39]", "\u0000", {"a": [1, 2.5e9]}, null]"#;
    for end in 0..text.len() {
        let _ = take(&text[..end]);
    }
    assert!(Pin::read(&"[".repeat(100_000)).is_err());
}
