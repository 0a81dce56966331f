//! How each proxy is started: one thread, on the first core, before the same engine.

use crate::process::{self, Side};
use std::net::SocketAddr;
use std::process::{Child, Command};
use std::time::Duration;
use tempfile::TempDir;

/// A proxy that runs.
pub struct Proxy {
    pub name: &'static str,
    pub address: SocketAddr,
    child: Option<Child>,
    pub directory: TempDir,
}

impl Proxy {
    pub fn cpu(&self) -> Duration {
        self.family().into_iter().map(process::cpu).sum()
    }

    pub fn resident_mib(&self) -> f64 {
        self.family().into_iter().map(process::resident_mib).fold(0.0, |all, one| all + one)
    }

    /// Is nothing between the generator and the engine?
    pub fn is_direct(&self) -> bool {
        self.child.is_none()
    }

    fn family(&self) -> Vec<u32> {
        self.child.as_ref().map(|child| process::family(child.id())).unwrap_or_default()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            process::stop(child);
        }
    }
}

/// A proxy to start.
pub struct Start {
    pub name: &'static str,
    address: SocketAddr,
    /// `None`: nothing is between the generator and the engine.
    command: Option<Command>,
    directory: TempDir,
}

impl Start {
    pub fn new(name: &'static str, make: impl FnOnce(SocketAddr, &TempDir) -> Command) -> Self {
        let (address, directory) = (process::free_address(), tempfile::tempdir().unwrap());
        let command = Some(make(address, &directory));
        Self { name, address, command, directory }
    }

    /// Nothing is between the generator and the engine.
    pub fn direct(engine: SocketAddr) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { name: "direct", address: engine, command: None, directory }
    }

    /// `None`: it is not installed.
    pub fn run(self) -> Option<Proxy> {
        let Self { name, address, command, directory } = self;
        let child = match command {
            Some(command) if !is_installed(&command) => {
                println!("{name} is not installed");
                return None;
            }
            Some(command) => Some(process::spawn(command, Side::Proxy)),
            None => None,
        };
        process::is_listening(address);
        Some(Proxy { name, address, child, directory })
    }
}

fn is_installed(command: &Command) -> bool {
    let program = command.get_program();
    let mut asked = Command::new("sh");
    asked.arg("-c").arg("command -v \"$0\"").arg(program);
    asked.output().is_ok_and(|output| output.status.success())
}

pub fn all(engine: SocketAddr) -> Vec<Start> {
    let round_robin = format!("policy: round_robin\n{}", workers(8, engine));
    let cache_aware = format!("policy: cache_aware\n{}", workers(8, engine));
    vec![
        Start::direct(engine),
        Start::new("nginx", |address, directory| nginx(address, directory, engine)),
        Start::new("haproxy", |address, directory| haproxy(address, directory, engine)),
        pingora("bare", engine),
        pingora("reading", engine),
        edge("round_robin", "", &round_robin),
        edge("tidegate", "", &cache_aware),
        edge("stealing", "work_stealing: true\n", &cache_aware),
    ]
}

/// The edge over that many workers, each of them scraped.
pub fn fleet(name: &'static str, count: usize, engine: SocketAddr) -> Start {
    edge(name, "", &format!("policy: cache_aware\n{}", workers(count, engine)))
}

/// This bench as a proxy of that name.
fn pingora(name: &'static str, engine: SocketAddr) -> Start {
    Start::new(name, |address, _| {
        process::itself(&[name, &address.to_string(), &engine.to_string()])
    })
}

/// The edge with that bound of its index, over workers that are believed to hold all of it.
pub fn bounded(max_entries: u64, engine: SocketAddr) -> Start {
    edge_of("edge", |address, directory| {
        let workers = workers(8, engine).replace("}\n", ", kv_capacity_tokens: 1000000000}\n");
        let model = format!("    - name: m\n      policy: cache_aware\n{workers}");
        let index = format!("tidegate:\n  index: {{max_entries: {max_entries}}}\n");
        yaml(address, directory, "", &model).replace("tidegate:\n", &index)
    })
}

fn workers(count: usize, engine: SocketAddr) -> String {
    let workers = (0..count).map(|at| worker(&format!("w{at}"), at, engine));
    std::iter::once("      workers:\n".to_owned()).chain(workers).collect()
}

/// The one of that number: each is another address of 127.0.0.0/8, which are all one engine.
pub fn worker(id: &str, number: usize, engine: SocketAddr) -> String {
    let (high, low, port) = (1 + number / 250, 1 + number % 250, engine.port());
    format!("        - {{id: {id}, url: \"http://127.0.{high}.{low}:{port}\"}}\n")
}

fn edge(name: &'static str, keys: &str, model: &str) -> Start {
    edge_of(name, |address, directory| {
        yaml(address, directory, keys, &format!("    - name: m\n      {model}"))
    })
}

/// The edge with the configuration that `made` makes, in [`FILE`] of its directory.
pub fn edge_of(name: &'static str, made: impl FnOnce(SocketAddr, &TempDir) -> String) -> Start {
    Start::new(name, |address, directory| {
        let file = directory.path().join(FILE);
        std::fs::write(&file, made(address, directory)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.arg("-c").arg(file);
        command
    })
}

/// An edge's configuration.
pub const FILE: &str = "edge.yaml";

/// One thread, these keys at the top, these models.
pub fn yaml(address: SocketAddr, directory: &TempDir, keys: &str, models: &str) -> String {
    let at = directory.path().display();
    format!(
        "version: 1\nthreads: 1\n{keys}pid_file: {at}/pid\nupgrade_sock: {at}/sock\ntidegate:\n  listeners: [{{address: \"{address}\"}}]\n  admin: {{address: \"{}\"}}\n  models:\n{models}",
        admin(address)
    )
}

/// Where an edge's admin listener is: at its traffic port too, at an address of its own.
pub fn admin(traffic: SocketAddr) -> SocketAddr {
    (std::net::Ipv4Addr::new(127, 0, 0, 2), traffic.port()).into()
}

fn nginx(address: SocketAddr, directory: &TempDir, engine: SocketAddr) -> Command {
    let at = directory.path().display();
    let text = format!(
        "daemon off; worker_processes 1; pid {at}/pid; error_log /dev/null;\n\
         events {{ worker_connections 4096; }}\n\
         http {{ access_log off; client_max_body_size 64m; client_body_buffer_size 1m;\n\
           client_body_temp_path {at}; proxy_temp_path {at}; fastcgi_temp_path {at}; uwsgi_temp_path {at}; scgi_temp_path {at};\n\
           upstream engines {{ server {engine}; keepalive 512; keepalive_requests 10000000; }}\n\
           server {{ listen {address}; keepalive_requests 10000000;\n\
             location / {{ proxy_pass http://engines; proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_buffering off; }} }} }}\n"
    );
    let file = directory.path().join("nginx.conf");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new("nginx");
    command.arg("-c").arg(file);
    command
}

fn haproxy(address: SocketAddr, directory: &TempDir, engine: SocketAddr) -> Command {
    let text = format!(
        "global\n  nbthread 1\n  maxconn 8192\ndefaults\n  mode http\n  timeout client 60s\n  timeout server 60s\n  timeout connect 5s\n  http-reuse always\n\
         frontend f\n  bind {address}\n  default_backend b\nbackend b\n  server s {engine}\n"
    );
    let file = directory.path().join("haproxy.cfg");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new("haproxy");
    command.arg("-f").arg(file);
    command
}
