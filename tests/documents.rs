//! What the documents point at is there: files, tests, benches, metrics, and configurations that pass.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use tidegate::config::{Config, Overrides};
use tidegate::metrics::Metrics;

const DOCUMENTS: [&str; 5] =
    ["README.md", "benches/README.md", "conf/README.md", "conf/metrics.md", "plugins/README.md"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn texts() -> Vec<(&'static str, String)> {
    let read = |name| (name, std::fs::read_to_string(root().join(name)).unwrap());
    DOCUMENTS.into_iter().map(read).collect()
}

/// What stands between two marks, everywhere.
fn between<'a>(text: &'a str, open: &str, close: &str) -> Vec<&'a str> {
    let ends = |part: &'a str| part.find(close).map(|end| &part[..end]);
    text.split(open).skip(1).filter_map(ends).collect()
}

#[test]
fn links_lead_somewhere() {
    for (name, text) in texts() {
        let home = root().join(name).parent().unwrap().to_owned();
        let links = between(&text, "](", ")").into_iter().chain(between(&text, "src=\"", "\""));
        for link in links.chain(between(&text, "srcset=\"", "\"")) {
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            if link.contains("://") {
                continue;
            }
            let file = if path.is_empty() { root().join(name) } else { home.join(path) };
            assert!(file.exists(), "{name}: {link}");
            let anchors = |text: String| {
                let lines =
                    text.lines().filter_map(|line| line.trim_start_matches('#').strip_prefix(' '));
                lines.map(anchor).any(|anchor| anchor == heading)
            };
            let is_there = heading.is_empty() || anchors(std::fs::read_to_string(&file).unwrap());
            assert!(is_there, "{name}: no heading for {link}");
        }
    }
}

/// As the sites that show such files make them of headings.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// The file of a test or bench of this package or one beside it.
fn target(kind: &str, name: &str) -> PathBuf {
    let folder = if kind == "test" { "tests" } else { "benches" };
    let homes = ["", "plugins/policy", "plugins/reports"];
    let files = [format!("{name}.rs"), format!("{name}/main.rs")];
    let mut files = homes
        .into_iter()
        .flat_map(|home| files.iter().map(move |file| root().join(home).join(folder).join(file)));
    files.find(|file| file.exists()).unwrap_or_else(|| panic!("there is no {kind} {name}"))
}

#[test]
fn commands_name_tests_and_benches_that_exist() {
    let mut seen = 0;
    for (name, text) in texts() {
        for kind in ["test", "bench"] {
            for rest in between(&text, &format!("cargo {kind} "), "\n") {
                let command = rest.split(['`', '#', ';']).next().unwrap();
                let words: Vec<&str> = command.split_whitespace().collect();
                let flag = format!("--{kind}");
                for (at, _) in words.iter().enumerate().filter(|(_, word)| **word == flag) {
                    let file = target(kind, words[at + 1]);
                    seen += 1;
                    // A filter is the word after the name.
                    let Some(filter) = words.get(at + 2).filter(|word| !word.starts_with('-'))
                    else {
                        continue;
                    };
                    let source = std::fs::read_to_string(file).unwrap();
                    let mut functions = source.lines().filter(|line| line.contains("fn "));
                    let is_there = functions.any(|line| line.contains(filter));
                    assert!(is_there, "{name}: nothing is called {filter}: {command}");
                }
            }
        }
    }
    assert!(10 < seen);
}

#[test]
fn metrics_are_called_what_they_are() {
    let metrics = Metrics::new().unwrap();
    for (name, text) in texts() {
        let word = |at: usize| {
            let rest = &text[at..];
            let end =
                rest.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(rest.len());
            &rest[..end]
        };
        // Paths and files begin like metrics.
        let begins = text
            .match_indices("tidegate_")
            .filter(|(at, _)| text[..*at].ends_with(['`', ' ', '(']));
        for word in begins.map(|(at, _)| word(at)) {
            let is_known = metrics.families().iter().any(|family| family.name == word);
            assert!(is_known, "{name}: {word}");
        }
    }
}

#[test]
fn configurations_pass_the_check() {
    let mut seen = 0;
    for (name, text) in texts() {
        let blocks = between(&text, "```yaml\n", "```");
        for block in blocks.into_iter().filter(|block| block.contains("\n  models:")) {
            seen += 1;
            let checked = Config::from_yaml(block, Path::new("conf"), &Overrides::default());
            let config = checked.unwrap_or_else(|errors| panic!("{name}: {errors}"));
            assert!(config.warnings.iter().next().is_none(), "{name}: {}", config.warnings);
        }
    }
    assert_ne!(seen, 0);
}
