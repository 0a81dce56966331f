//! The shape of the source: who may name whom, how long a file gets, and that none is orphaned.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Lines of a file, its tests left out.
const LONGEST: usize = 400;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below `directory`, as a path from the root.
fn sources(directory: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root().join(directory)];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path.strip_prefix(root()).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// A file without comments and without what follows its first `#[cfg(test)]`.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(root().join(path)).unwrap();
    let text = text.split("\n#[cfg(test)]").next().unwrap_or_default();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn is_test(path: &Path) -> bool {
    let name = path.file_name().unwrap().to_string_lossy();
    name == "tests.rs" || path.components().any(|part| part.as_os_str() == "tests")
}

/// Fails for each file outside `allowed` (path prefixes) whose code contains one of `words`.
fn only(allowed: &[&str], words: &[&str], directories: &[&str]) {
    let mut wrong = Vec::new();
    for path in directories.iter().flat_map(|directory| sources(directory)) {
        let may = allowed.iter().any(|prefix| path.starts_with(prefix));
        if may || is_test(&path) {
            continue;
        }
        let code = code(&path);
        for word in words.iter().filter(|word| code.contains(**word)) {
            wrong.push(format!("{} names {word}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn only_proxy_boot_and_what_dials_workers_name_pingora() {
    let allowed = [
        "src/proxy",
        "src/boot.rs",
        "src/boot",
        "src/fleet/health.rs",
        "src/fleet/discovery.rs",
        "src/fleet/authorities.rs",
    ];
    only(&allowed, &["pingora::", "pingora_proxy", "pingora_load_balancing"], &["src"]);
}

#[test]
fn only_the_configuration_names_yaml() {
    only(&["src/config"], &["serde_yaml"], &["src"]);
}

#[test]
fn only_scraping_probing_and_the_tools_open_client_sockets() {
    let allowed = [
        "src/fleet/scrape",
        "src/fleet/scrape.rs",
        "src/fleet/health.rs",
        "src/boot/upgrade/successor.rs",
        "src/simulate",
        "src/cli",
        // Two processes of one edge.
        "src/boot/upgrade",
    ];
    let words =
        ["TcpStream::connect", "UnixStream::connect", "hyper_util::client", "hyper::client"];
    only(&allowed, &words, &["src"]);
}

/// Decisions, ages and bounds go by clocks that nobody sets; the time of day is shown, and handed to
/// what outlives the process.
#[test]
fn only_the_state_reads_the_time_of_day() {
    only(&["src/state.rs"], &["SystemTime", "UNIX_EPOCH"], &["src"]);
    let told = [
        "src/state.rs",
        "src/state",
        "src/admin/overview.rs",
        "src/history.rs",
        "src/metrics/process.rs",
        "src/proxy/observe.rs",
        "src/boot.rs",
        "src/boot/lifecycle.rs",
        "src/boot/upgrade/predecessor.rs",
    ];
    only(&told, &["unix_seconds"], &["src"]);
}

#[test]
fn the_plugins_are_pure() {
    let words = [
        "pingora",
        "tokio",
        "hyper",
        "log::",
        "std::net",
        "std::fs",
        "std::thread",
        "Instant::now",
        "SystemTime::now",
        "fastrand",
        "rand::",
    ];
    only(&[], &words, &["plugins/policy/src", "plugins/reports/src"]);
}

#[test]
fn layers_call_downwards_only() {
    // Each layer with what it must not name; main > cli > boot > proxy, admin > fleet > config.
    let above: [(&str, &[&str]); 6] = [
        (
            "src/config",
            &["crate::fleet", "crate::proxy", "crate::admin", "crate::boot", "crate::cli"],
        ),
        (
            "src/metrics",
            &["crate::config", "crate::fleet", "crate::proxy", "crate::admin", "crate::boot"],
        ),
        (
            "src/prompt",
            &["crate::config", "crate::fleet", "crate::proxy", "crate::admin", "crate::boot"],
        ),
        (
            "src/fleet",
            &["crate::proxy", "crate::admin", "crate::boot", "crate::cli", "crate::state"],
        ),
        ("src/proxy", &["crate::admin", "crate::boot", "crate::cli"]),
        ("src/admin", &["crate::proxy", "crate::boot", "crate::cli"]),
    ];
    for (layer, words) in above {
        only(&[], words, &[layer]);
    }
}

#[test]
fn files_are_short() {
    let directories = ["src", "plugins/policy/src", "plugins/reports/src"];
    let long: Vec<String> = directories
        .iter()
        .flat_map(|directory| sources(directory))
        .filter(|path| !is_test(path))
        .map(|path| (code(&path).lines().count(), path))
        .filter(|(lines, _)| LONGEST < *lines)
        .map(|(lines, path)| format!("{}: {lines} lines", path.display()))
        .collect();
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn no_file_is_orphaned() {
    for directory in ["src", "plugins/policy/src", "plugins/reports/src"] {
        let all: BTreeSet<PathBuf> = sources(directory).into_iter().collect();
        let mut reached = BTreeSet::new();
        let mut open: Vec<PathBuf> =
            ["lib.rs", "main.rs"].iter().map(|name| Path::new(directory).join(name)).collect();
        while let Some(path) = open.pop() {
            if all.contains(&path) && reached.insert(path.clone()) {
                open.extend(children(&path));
            }
        }
        let orphans: Vec<_> = all.difference(&reached).collect();
        assert!(orphans.is_empty(), "{orphans:?}");
    }
}

/// The files a file's `mod name;` lines can mean.
fn children(path: &Path) -> Vec<PathBuf> {
    let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
    let parent = path.parent().unwrap();
    let home = match stem.as_str() {
        "lib" | "main" | "mod" => parent.to_owned(),
        _ => parent.join(&stem),
    };
    let text = fs::read_to_string(root().join(path)).unwrap();
    let names = text.lines().filter_map(|line| {
        let (_, rest) = line.trim().split_once("mod ")?;
        rest.strip_suffix(';').map(str::to_owned)
    });
    names
        .flat_map(|name| [home.join(format!("{name}.rs")), home.join(name).join("mod.rs")])
        .collect()
}
