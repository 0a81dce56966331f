//! The files under `conf/` that others run the edge by agree with each other and with what the edge
//! does: ports, names, times.

#![allow(clippy::unwrap_used, clippy::panic)]

use serde_yaml::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tidegate::config::{Address, Config, Discovery, Overrides};

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("conf").join(path)
}

fn text(path: &str) -> String {
    std::fs::read_to_string(file(path)).unwrap()
}

/// Every document of a manifest.
fn documents(name: &str) -> Vec<Value> {
    let text = text(&format!("kubernetes/{name}"));
    text.split("\n---\n").map(|document| serde_yaml::from_str(document).unwrap()).collect()
}

/// The object of a kind and name.
fn object(kind: &str, name: &str) -> Value {
    let names = strings(&kustomization()["resources"]);
    let all = names.iter().flat_map(|file| documents(file));
    let mut found = all.filter(|it| it["kind"] == kind && it["metadata"]["name"] == name);
    found.next().unwrap_or_else(|| panic!("no {kind} {name}"))
}

fn kustomization() -> Value {
    documents("kustomization.yaml").remove(0)
}

fn pod() -> Value {
    object("Deployment", "tidegate")["spec"]["template"]["spec"].clone()
}

fn container() -> Value {
    pod()["containers"][0].clone()
}

fn strings(list: &Value) -> Vec<String> {
    list.as_sequence().unwrap().iter().map(|item| item.as_str().unwrap().to_owned()).collect()
}

/// The configuration in the ConfigMap, with the token its variable would have.
fn config() -> Config {
    let text = text("kubernetes/edge.yaml").replace("${ADMIN_TOKEN}", "secret");
    Config::from_yaml(&text, Path::new(""), &Overrides::default()).unwrap()
}

fn port(address: &Address) -> u64 {
    match address {
        Address::Tcp(address) => address.port().into(),
        Address::Unix(path) => panic!("{} has no port", path.display()),
    }
}

/// Those of traffic and of the admin listener.
fn ports() -> [u64; 2] {
    let config = config();
    [port(&config.listeners[0].address), port(&config.admin.address)]
}

#[test]
fn the_configuration_of_the_cluster_passes_check_with_its_token_and_not_without() {
    let variable = &container()["env"][0]["name"];
    let check = |token: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.arg("check").arg("-c").arg(file("kubernetes/edge.yaml"));
        let variable = variable.as_str().unwrap();
        command.env_remove(variable);
        command.envs(token.map(|token| (variable, token))).output().unwrap()
    };
    let output = check(Some("secret"));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(check(None).status.code(), Some(2));
}

#[test]
fn the_manifests_have_the_ports_of_the_configuration() {
    let [traffic, admin] = ports();
    let container = container();
    let named = |name: &str| {
        let ports = container["ports"].as_sequence().unwrap();
        ports.iter().find(|port| port["name"] == name).unwrap()["containerPort"].as_u64().unwrap()
    };
    assert_eq!((named("http"), named("admin")), (traffic, admin));
    for (service, port) in [("tidegate", "http"), ("tidegate-admin", "admin")] {
        assert_eq!(object("Service", service)["spec"]["ports"][0]["targetPort"], port);
    }
    for (probe, path) in [("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
        assert_eq!(container[probe]["httpGet"]["path"], path);
        assert_eq!(container[probe]["httpGet"]["port"], "admin");
    }
    let rules = object("NetworkPolicy", "tidegate")["spec"]["ingress"].clone();
    // Traffic from everywhere, the admin listener not.
    assert_eq!(rules[0]["ports"][0]["port"], traffic);
    assert!(rules[0].get("from").is_none());
    assert_eq!(rules[1]["ports"][0]["port"], admin);
    assert!(rules[1].get("from").is_some());
    assert!(text("Containerfile").contains(&format!("\nEXPOSE {traffic} {admin}\n")));
}

#[test]
fn pods_and_units_wait_longer_than_the_edge_may_take() {
    let config = config();
    let longest = config.shutdown.drain_delay + config.grace_period;
    let given = pod()["terminationGracePeriodSeconds"].as_u64().map(Duration::from_secs).unwrap();
    assert!(longest < given, "{longest:?} < {given:?}");

    let plain = "version: 1\ntidegate:\n  models:\n    - {name: m, workers: [{id: w, url: 'http://w:1'}]}\n";
    let plain = Config::from_yaml(plain, Path::new(""), &Overrides::default()).unwrap();
    let longest = plain.shutdown.drain_delay + plain.grace_period;
    let unit = text("tidegate.service");
    let given = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).unwrap();
    let given = Duration::from_secs(given.parse().unwrap());
    assert!(longest < given, "{longest:?} < {given:?}");
}

#[test]
fn engines_are_found_by_the_name_of_their_headless_service() {
    let config = config();
    let Some(Discovery::Dns { name, .. }) = &config.models[0].discovery else {
        panic!("no discovery by name")
    };
    let service = object("Service", "engines");
    let namespace = kustomization()["namespace"].as_str().unwrap().to_owned();
    let port = service["spec"]["ports"][0]["port"].as_u64().unwrap();
    assert_eq!(name.to_string(), format!("engines.{namespace}.svc:{port}"));
    assert_eq!(service["spec"]["clusterIP"], "None");
}

#[test]
fn the_configuration_is_mounted_as_a_directory_where_the_container_looks() {
    let (container, kustomization) = (container(), kustomization());
    let generated = &kustomization["configMapGenerator"][0];
    assert_eq!(pod()["volumes"][0]["configMap"]["name"], generated["name"]);
    assert_eq!(kustomization["generatorOptions"]["disableNameSuffixHash"], true);
    let mount = &container["volumeMounts"][0];
    assert!(mount.get("subPath").is_none(), "a file mounted alone never changes");
    let directory = mount["mountPath"].as_str().unwrap();
    let path = format!("{directory}/{}", generated["files"][0].as_str().unwrap());
    assert_eq!(strings(&container["args"]), ["-c", &path]);
    assert!(text("Containerfile").ends_with(&format!("CMD [\"-c\", \"{path}\"]\n")));
}

#[test]
fn every_manifest_is_applied_and_its_selectors_fit() {
    let kustomization = kustomization();
    let used: BTreeSet<String> = strings(&kustomization["resources"]).into_iter().collect();
    let there = std::fs::read_dir(file("kubernetes")).unwrap();
    let there = there.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let other = ["kustomization.yaml", "edge.yaml"];
    let there: BTreeSet<String> = there.filter(|name| !other.contains(&name.as_str())).collect();
    assert_eq!(there, used);

    let deployment = object("Deployment", "tidegate");
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    assert_eq!(&deployment["spec"]["selector"]["matchLabels"], labels);
    for service in ["tidegate", "tidegate-admin"] {
        assert_eq!(&object("Service", service)["spec"]["selector"], labels);
    }
    for (kind, selector) in [("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")]
    {
        assert_eq!(&object(kind, "tidegate")["spec"][selector]["matchLabels"], labels);
    }
}

#[test]
fn prometheus_finds_the_admin_service_with_its_token_as_the_job_of_the_alerts() {
    let monitor = object("ServiceMonitor", "tidegate")["spec"].clone();
    let service = object("Service", "tidegate-admin");
    assert_eq!(monitor["selector"]["matchLabels"], service["metadata"]["labels"]);
    let endpoint = &monitor["endpoints"][0];
    assert_eq!(endpoint["port"], service["spec"]["ports"][0]["name"]);
    let secret = &container()["env"][0]["valueFrom"]["secretKeyRef"];
    assert_eq!(&endpoint["authorization"]["credentials"], secret);
    let job = &service["metadata"]["labels"][monitor["jobLabel"].as_str().unwrap()];
    let asked = format!("{{job=\"{}\"", job.as_str().unwrap());
    let alerts = text("prometheus-alerts.yml");
    let selects = |at: usize| alerts[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
    for (at, _) in alerts.match_indices('{').filter(|(at, _)| selects(*at)) {
        assert!(alerts[at..].starts_with(&asked), "{}", alerts[at..].lines().next().unwrap());
    }
}

#[test]
fn the_container_runs_as_nobody_in_particular_with_one_process() {
    let text = text("Containerfile");
    let last = text.rsplit("\nFROM ").next().unwrap();
    let user = last.lines().find_map(|line| line.strip_prefix("USER ")).unwrap();
    let (user, group) = user.split_once(':').unwrap();
    let security = &pod()["securityContext"];
    assert_eq!(security["runAsUser"].as_u64(), user.parse().ok());
    assert_eq!(security["runAsGroup"].as_u64(), group.parse().ok());
    assert!(last.contains("\nENTRYPOINT [\"/usr/local/bin/tidegate\"]\n"));
    assert!(last.contains("\nSTOPSIGNAL SIGTERM\n"));
}
