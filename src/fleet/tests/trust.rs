//! Whose word is taken for an https worker.

use crate::config::{Config, Found, Overrides};
use crate::fleet::{Fleets, ModelFleet};
use crate::metrics::Metrics;
use std::fs;
use std::path::Path;

fn pem(name: &str) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tls");
    fs::read_to_string(directory.join(name)).unwrap()
}

/// Workers at one address, each with the authorities of a file.
fn checked(directory: &Path, files: &[&str]) -> Config {
    let worker = |(at, file): (usize, &&str)| {
        format!("        - {{id: w{at}, url: \"https://127.0.0.1:1\", tls: {{ca: {file}}}}}\n")
    };
    let workers: String = files.iter().enumerate().map(worker).collect();
    let yaml = format!("tidegate:\n  models:\n    - name: m\n      workers:\n{workers}");
    Config::from_yaml(&yaml, directory, &Overrides::default()).unwrap()
}

fn trusted(model: &ModelFleet) -> Vec<usize> {
    let count = |worker: &std::sync::Arc<crate::fleet::Worker>| {
        worker.authorities.as_ref().map_or(0, |authorities| authorities.len())
    };
    model.workers().iter().map(count).collect()
}

#[test]
fn a_worker_made_anew_is_believed_by_what_was_checked_whatever_its_file_says_since() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.pem");
    fs::write(&file, pem("one-ca.pem") + &pem("two-ca.pem")).unwrap();
    let config = checked(directory.path(), &["ca.pem"]);
    let metrics = Metrics::new().unwrap();
    let fleets = Fleets::new(&config, &metrics);
    assert_eq!(trusted(&fleets.models()[0]), [2]);
    for text in ["nothing".to_owned(), pem("one-ca.pem")] {
        fs::write(&file, text).unwrap();
        // As when a name begins to stand for other workers.
        let next = fleets.next(&config.with_found(&Found::default()), &metrics);
        assert_eq!(trusted(&next.models()[0]), [2]);
    }
    fs::remove_file(&file).unwrap();
    assert_eq!(trusted(&Fleets::new(&config, &metrics).models()[0]), [2]);
}

#[test]
fn workers_that_name_one_file_share_what_was_read_of_it() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("ca.pem"), pem("one-ca.pem")).unwrap();
    let config = checked(directory.path(), &["ca.pem", "ca.pem"]);
    let of =
        |at: usize| config.models[0].workers[at].tls.ca.as_ref().unwrap().certificates().as_ptr();
    assert_eq!(of(0), of(1));
}

#[test]
fn each_set_of_authorities_has_connections_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["one-ca.pem", "two-ca.pem"] {
        fs::write(directory.path().join(name), pem(name)).unwrap();
    }
    let config = checked(directory.path(), &["one-ca.pem", "two-ca.pem", "one-ca.pem"]);
    let fleets = Fleets::new(&config, &Metrics::new().unwrap());
    let pools: Vec<u64> = fleets.models()[0].workers().iter().map(|of| of.pool()).collect();
    assert_ne!(pools[0], pools[1]);
    assert_eq!(pools[0], pools[2]);
    fleets.models()[0].workers()[0].leave_pool();
    assert_ne!(fleets.models()[0].workers()[0].pool(), pools[0]);
}
