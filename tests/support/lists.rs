//! Lists of tests in the documentation of others.

use std::path::Path;

/// Fails unless `file` lists so many rows, and every test it names is there.
pub fn is_true(file: &str, count: usize) {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let own = read(&tests.join(file));
    let rows: Vec<&str> = own.lines().filter(|line| line.starts_with("//! | ")).skip(1).collect();
    assert_eq!(rows.len(), count);
    for row in rows {
        let named: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "{row}");
        for name in named {
            let (file, test) = name.split_once("::").unwrap();
            let file = match file {
                "dispatch" | "engines" => format!("../src/fleet/tests/{file}.rs"),
                "hysteresis" => "../src/fleet/hysteresis.rs".to_owned(),
                "scrape" => "../src/fleet/scrape/tests.rs".to_owned(),
                "prompt_field_cases" => "../src/prompt/tests/field_cases.rs".to_owned(),
                "usage" => "../src/prompt/usage/tests.rs".to_owned(),
                "reports" => "../plugins/reports/tests/field_cases.rs".to_owned(),
                file => format!("{file}.rs"),
            };
            assert!(read(&tests.join(file)).contains(&format!("fn {test}(")), "{name}");
        }
    }
}
