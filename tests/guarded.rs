//! Nobody is let in by an oversight.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use support::edge::{command, model};

#[test]
fn an_admin_listener_for_everybody_does_not_start_without_a_token() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("edge.yaml");
    let fleet = model(&[], &["http://127.0.0.1:1".to_owned()]);
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9909"] {
        let own = "listeners: [{address: '127.0.0.1:0'}]";
        let text = format!("tidegate:\n  {own}\n  admin: {{address: '{address}'}}\n{fleet}");
        std::fs::write(&file, text).unwrap();
        let output = command().arg("-c").arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{address}: {said}");
        assert!(said.contains("set `admin.token`"), "{said}");
    }
}

#[test]
fn neither_does_one_with_an_empty_token() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("edge.yaml");
    let fleet = model(&[], &["http://127.0.0.1:1".to_owned()]);
    let admin = "admin: {address: '0.0.0.0:0', token: '${ADMIN_TOKEN}'}";
    std::fs::write(&file, format!("tidegate:\n  {admin}\n{fleet}")).unwrap();
    let output = command().env("ADMIN_TOKEN", "").arg("-c").arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("admin.token"), "{said}");
}
