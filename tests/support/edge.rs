//! The binary in a process of its own, on ports nobody else has, and the processes that come after
//! it in upgrades.

use super::client::{Answer, exchange, get, request};
use super::metrics::Page;
use super::relay::pem;
use super::until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{File, OpenOptions};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A running edge; killed when dropped, with all that took over from it, its log shown if the test
/// fails.
pub struct Edge {
    pub traffic: SocketAddr,
    pub admin: SocketAddr,
    pub directory: TempDir,
    child: Child,
}

/// Attempts to find ports that nobody takes between looking and listening.
const TRIES: usize = 5;
/// Its configuration, in its directory.
const FILE: &str = "edge.yaml";
/// Its log, in its directory.
const LOG: &str = "log";

impl Edge {
    /// Starts with `body` under `tidegate:`, which must not set listeners or admin, and waits
    /// until it is ready.
    pub async fn start(body: &str) -> Self {
        let edge = Self::start_unready(body).await;
        edge.ready().await;
        edge
    }

    /// The same; waits only until it is alive.
    pub async fn start_unready(body: &str) -> Self {
        Self::from_file(body, "").await
    }

    /// With HTTP/2 without TLS.
    pub async fn start_h2c(body: &str) -> Self {
        let edge = Self::from_file(body, ", h2c: true").await;
        edge.ready().await;
        edge
    }

    /// Without a file: flags besides `--listen` and `--admin`.
    pub async fn start_without_file(flags: &[&str]) -> Self {
        let edge = Self::alive(|_, traffic, admin| {
            let mut command = command();
            command.args(flags).args(["--listen", &traffic.to_string()]);
            command.args(["--admin", &admin.to_string()]);
            command
        })
        .await;
        edge.ready().await;
        edge
    }

    /// With more flags; waits only until it is alive.
    pub async fn start_with_flags(body: &str, flags: &[&str]) -> Self {
        Self::alive(|directory, traffic, admin| {
            std::fs::write(directory.join(FILE), yaml(directory, traffic, admin, body)).unwrap();
            let mut command = command();
            command.arg("-c").arg(directory.join(FILE)).args(flags);
            command
        })
        .await
    }

    /// With a command that `change` has changed.
    pub async fn start_made(body: &str, change: impl Fn(&mut Command)) -> Self {
        let edge = Self::alive(|directory, traffic, admin| {
            std::fs::write(directory.join(FILE), yaml(directory, traffic, admin, body)).unwrap();
            let mut command = command();
            command.arg("-c").arg(directory.join(FILE));
            change(&mut command);
            command
        })
        .await;
        edge.ready().await;
        edge
    }

    /// With listeners of its own: a YAML list that has the traffic address, written once the files it
    /// names are in the directory.
    pub async fn start_listening(
        body: &str,
        listeners: impl Fn(&Path, SocketAddr) -> String,
    ) -> Self {
        let edge = Self::alive(|directory, traffic, admin| {
            let one = format!("[{{address: \"{traffic}\"}}]");
            let yaml = yaml(directory, traffic, admin, body);
            let yaml = yaml.replacen(&one, &listeners(directory, traffic), 1);
            std::fs::write(directory.join(FILE), yaml).unwrap();
            let mut command = command();
            command.arg("-c").arg(directory.join(FILE));
            command
        })
        .await;
        edge.ready().await;
        edge
    }

    /// With a TLS listener, whose `edge.pem` and `edge.key` in its directory are the pair `one`.
    pub async fn start_tls(body: &str) -> Self {
        Self::start_listening(body, |directory, traffic| {
            std::fs::copy(pem("one.pem"), directory.join("edge.pem")).unwrap();
            std::fs::copy(pem("one.key"), directory.join("edge.key")).unwrap();
            format!("[{{address: \"{traffic}\", tls: {{cert: edge.pem, key: edge.key}}}}]")
        })
        .await
    }

    /// In the background, with these keys at the top of the file: who started it has ended well.
    pub async fn start_daemon(body: &str, keys: &str) -> Self {
        for _ in 0..TRIES {
            let directory = tempfile::tempdir().unwrap();
            let (traffic, admin) = (free_address(), free_address());
            let at = directory.path();
            let log = at.join(LOG);
            let yaml = yaml(at, traffic, admin, body);
            let yaml = format!("error_log: {}\n{keys}{yaml}", log.display());
            std::fs::write(at.join(FILE), yaml).unwrap();
            let mut command = command();
            command.arg("-d").arg("-c").arg(at.join(FILE)).stderr(log_of(at));
            let mut child = command.spawn().unwrap();
            let ended = || std::future::ready(child.try_wait().unwrap());
            let status = until("who starts it", ended).await;
            let edge = Self { traffic, admin, directory, child };
            if status.success() {
                edge.ready().await;
                return edge;
            }
            eprintln!("{}", edge.log());
        }
        panic!("no free ports in {TRIES} tries, or the edge does not start (see its log above)");
    }

    /// From a file in a directory as Kubernetes mounts it: `..data` links to where the files are.
    pub async fn start_mounted(body: &str) -> Self {
        let edge = Self::alive(|directory, traffic, admin| {
            let yaml = yaml(directory, traffic, admin, body);
            std::fs::create_dir(directory.join("..1")).unwrap();
            std::fs::write(directory.join("..1").join(FILE), yaml).unwrap();
            symlink("..1", directory.join("..data")).unwrap();
            symlink(Path::new("..data").join(FILE), directory.join(FILE)).unwrap();
            let mut command = command();
            command.arg("-c").arg(directory.join(FILE));
            command
        })
        .await;
        edge.ready().await;
        edge
    }

    /// With these files in a directory beside the configuration; waits only until it is alive.
    pub async fn start_beside(home: &str, files: &[(&str, &str)], body: &str) -> Self {
        Self::alive(|directory, traffic, admin| {
            std::fs::create_dir(directory.join(home)).unwrap();
            for (name, text) in files {
                std::fs::write(directory.join(home).join(name), text).unwrap();
            }
            std::fs::write(directory.join(FILE), yaml(directory, traffic, admin, body)).unwrap();
            let mut command = command();
            command.arg("-c").arg(directory.join(FILE));
            command
        })
        .await
    }

    /// Its configuration with another `body`.
    pub fn yaml(&self, body: &str) -> String {
        yaml(self.directory.path(), self.traffic, self.admin, body)
    }

    /// Its configuration file.
    pub fn file(&self) -> PathBuf {
        self.directory.path().join(FILE)
    }

    /// Writes another `body` and has it read; the answer.
    pub async fn reload(&self, body: &str) -> Answer {
        std::fs::write(self.file(), self.yaml(body)).unwrap();
        self.post("/v1/reload").await
    }

    pub async fn post(&self, path: &str) -> Answer {
        exchange(self.admin, &request("POST", path, b"")).await
    }

    /// The generation in force.
    pub async fn generation(&self) -> u64 {
        self.admin("/v1/config").await.json()["generation"].as_u64().unwrap()
    }

    /// Waits for a generation.
    pub async fn is_at(&self, generation: u64) {
        until("a generation", || async { (self.generation().await == generation).then_some(()) })
            .await;
    }

    async fn from_file(body: &str, listener: &str) -> Self {
        Self::alive(|directory, traffic, admin| {
            let yaml = yaml(directory, traffic, admin, body);
            let end = format!("{{address: \"{traffic}\"");
            let yaml = yaml.replacen(&end, &format!("{end}{listener}"), 1);
            let file = directory.join(FILE);
            std::fs::write(&file, yaml).unwrap();
            let mut command = command();
            command.arg("-c").arg(&file);
            command
        })
        .await
    }

    async fn alive(made: impl Fn(&Path, SocketAddr, SocketAddr) -> Command) -> Self {
        for _ in 0..TRIES {
            let directory = tempfile::tempdir().unwrap();
            let (traffic, admin) = (free_address(), free_address());
            let log = log_of(directory.path());
            let child = made(directory.path(), traffic, admin).stderr(log).spawn().unwrap();
            let mut edge = Self { traffic, admin, directory, child };
            if edge.is_alive().await {
                return edge;
            }
            eprintln!("{}", edge.log());
        }
        panic!("no free ports in {TRIES} tries, or the edge does not start (see its log above)");
    }

    /// False: it ended instead.
    async fn is_alive(&mut self) -> bool {
        let (traffic, admin) = (self.traffic, self.admin);
        until("a living edge", || {
            let exited = self.child.try_wait().unwrap();
            async move {
                match exited {
                    Some(_) => Some(false),
                    // In this order: it tries the traffic address before it is alive.
                    None => (is_live(admin).await && is_listening(traffic).await).then_some(true),
                }
            }
        })
        .await
    }

    async fn ready(&self) {
        until("readiness", || async {
            // In the background it may not listen yet.
            (is_live(self.admin).await && get(self.admin, "/readyz").await.status == 200)
                .then_some(())
        })
        .await;
    }

    /// What it wrote to stderr so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join(LOG)).unwrap()
    }

    /// Sends a signal, by its name without `SIG`, to the process that was started first.
    pub fn signal(&self, name: &str) {
        send(self.pid(), format!("SIG{name}").parse().unwrap());
    }

    /// Starts a successor by hand; it waits for the sockets when this returns, or has ended.
    pub async fn successor(&self) -> Child {
        let mut child = self.spawn_successor();
        until("a successor that waits", || {
            let is_there = self.upgrade_sock().exists() || child.try_wait().unwrap().is_some();
            std::future::ready(is_there.then_some(()))
        })
        .await;
        child
    }

    /// The same, without waiting.
    pub fn spawn_successor(&self) -> Child {
        let log = log_of(self.directory.path());
        command().arg("-u").arg("-c").arg(self.file()).stderr(log).spawn().unwrap()
    }

    /// `tidegate upgrade` with these arguments.
    pub async fn upgrade(&self, arguments: &[&str]) -> Output {
        let mut command = command();
        command.arg("upgrade").arg("-c").arg(self.file()).args(arguments);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap());
        output.await.unwrap()
    }

    /// An upgrade that has to succeed, to its end: only the new process accepts then. Its id.
    pub async fn upgraded(&self) -> u32 {
        let closed = || self.log().matches("the listeners are closed").count();
        let (old, closed_before) = (self.serving().await, closed());
        let output = self.upgrade(&[]).await;
        assert!(output.status.success(), "{output:?}");
        self.settled().await;
        assert_eq!(closed(), closed_before + 1, "an upgrade is over when nobody else accepts");
        let new = self.serving().await;
        assert_ne!(old, new);
        new
    }

    /// Waits until no upgrade is under way.
    pub async fn settled(&self) {
        until("the end of the upgrade", || {
            let is_over = !tidegate::boot::is_upgrade_under_way(&self.upgrade_sock());
            std::future::ready(is_over.then_some(()))
        })
        .await;
    }

    /// Waits until this process is the one that answers, and the upgrade is over.
    pub async fn settled_with(&self, pid: u32) {
        until("the new process", || async { (self.serving().await == pid).then_some(()) }).await;
        self.settled().await;
    }

    /// The process that answers.
    pub async fn serving(&self) -> u32 {
        let pid = self.admin("/v1/config").await.json()["pid"].as_u64().unwrap();
        u32::try_from(pid).unwrap()
    }

    /// Where a successor waits.
    pub fn upgrade_sock(&self) -> PathBuf {
        self.directory.path().join("upgrade.sock")
    }

    /// Every process that runs with its file.
    pub fn processes(&self) -> Vec<u32> {
        let own = self.file().to_string_lossy().into_owned();
        let pids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            line.split(|&byte| byte == 0).any(|part| part == own.as_bytes()).then_some(pid)
        });
        pids.collect()
    }

    /// Waits until this process is the only one left.
    pub async fn is_alone(&mut self, pid: u32) {
        until("the end of all but one", || {
            // Reaped, if it was the first.
            let _ = self.child.try_wait();
            std::future::ready((self.processes() == [pid]).then_some(()))
        })
        .await;
    }

    /// Open files and resident KiB of one of its processes, once nobody is connected to it and it to
    /// nobody.
    pub async fn size(&self, pid: u32) -> (usize, u64) {
        const LISTENING: &str = "0A";
        let at = format!("/proc/{}", pid);
        let files = until("the end of all connections", async || {
            let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
            let connected: Vec<String> = table
                .lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>())
                .filter(|row| 9 < row.len() && row[3] != LISTENING)
                .map(|row| format!("socket:[{}]", row[9]))
                .collect();
            let files = std::fs::read_dir(format!("{at}/fd")).unwrap();
            // One that was closed since the directory was read counts as open: it is looked at again.
            let links: Vec<_> =
                files.map(|file| std::fs::read_link(file.unwrap().path()).ok()).collect();
            let is_idle = links.iter().all(|link| match link {
                Some(link) => !connected.iter().any(|socket| link.as_os_str() == socket.as_str()),
                None => false,
            });
            is_idle.then_some(links.len())
        })
        .await;
        (files, resident_kib(pid))
    }

    /// Waits for a line in the log.
    pub async fn logs(&self, word: &str) {
        until(word, || std::future::ready(self.log().contains(word).then_some(()))).await;
    }

    pub async fn metrics(&self) -> Page {
        let answer = get(self.admin, "/metrics").await;
        assert_eq!(answer.status, 200);
        Page(answer.text())
    }

    /// How many requests are over and booked.
    pub async fn ended(&self) -> usize {
        let decisions = self.admin("/v1/decisions").await.json();
        decisions["decisions"].as_array().unwrap().len()
    }

    /// Waits until that many requests are over; the metrics, with all of them booked. A client may
    /// have its answer before that.
    pub async fn booked(&self, count: usize) -> Page {
        until("the booking", || async { (self.ended().await == count).then_some(()) }).await;
        self.metrics().await
    }

    pub async fn admin(&self, path: &str) -> Answer {
        get(self.admin, path).await
    }

    /// The rows of `/v1/workers`.
    pub async fn workers(&self) -> Vec<serde_json::Value> {
        self.admin("/v1/workers").await.json()["workers"].as_array().unwrap().clone()
    }

    /// Waits until every worker's probe passed.
    pub async fn all_healthy(&self) {
        until("health", || async {
            let rows = self.workers().await;
            rows.iter().all(|row| row["healthy"] == true).then_some(())
        })
        .await;
    }

    /// Waits until the probes of a model's workers passed.
    pub async fn all_routable(&self, model: &str) {
        until("health", || async {
            let rows = self.workers().await;
            let mut rows = rows.iter().filter(|row| row["model"] == model);
            rows.all(|row| row["healthy"] == true).then_some(())
        })
        .await;
    }

    /// Waits until every worker's report is in this state.
    pub async fn reports_are(&self, state: &str) {
        until("reports", || async {
            let rows = self.workers().await;
            rows.iter().all(|row| row["report"]["state"] == state).then_some(())
        })
        .await;
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the process to end; its exit code.
    pub async fn exit_code(&mut self) -> Option<i32> {
        let child = &mut self.child;
        until("the end of the edge", || std::future::ready(child.try_wait().unwrap())).await.code()
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for pid in self.processes() {
            send(pid, Signal::SIGKILL);
        }
        if std::thread::panicking() {
            eprintln!("log of the edge:\n{}", self.log());
        }
    }
}

/// One thread is another runtime than two, so either gets half of the suites.
pub const THREADS: usize = 1 + env!("CARGO_CRATE_NAME").len() % 2;

fn yaml(directory: &Path, traffic: SocketAddr, admin: SocketAddr, body: &str) -> String {
    let at = directory.display();
    format!(
        "version: 1\nthreads: {THREADS}\npid_file: {at}/pid\nupgrade_sock: {at}/upgrade.sock\ntidegate:\n  \
         listeners: [{{address: \"{traffic}\"}}]\n  admin: {{address: \"{admin}\"}}\n{body}"
    )
}

/// Memory of a process that is in use, KiB.
pub fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Sends a signal; it may have ended by itself.
pub fn send(pid: u32, signal: Signal) {
    let _ = kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal);
}

/// Its log, which several processes write to.
fn log_of(directory: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(directory.join(LOG)).unwrap()
}

/// The binary, without what the test's own environment would change.
pub fn command() -> Command {
    let mut command = Command::new(binary());
    command.env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

pub fn binary() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_tidegate"))
}

pub async fn is_listening(address: SocketAddr) -> bool {
    TcpStream::connect(address).await.is_ok()
}

/// Does the edge's admin listener answer there?
async fn is_live(admin: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(admin).await else { return false };
    let asked = stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let mut head = [0; 12];
    asked.is_ok() && stream.read_exact(&mut head).await.is_ok() && head == *b"HTTP/1.1 200"
}

/// An address nobody else of this process gets, of a port the system gives to nobody who asks for
/// any: an engine or an outgoing connection cannot take it before it is used.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes that start together have neighbouring ids, and should not look for the same ports.
    let first = std::process::id().wrapping_mul(0x9E37_79B1) % u32::from(PORTS.end - PORTS.start);
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let at = (first + u32::from(step)) % u32::from(PORTS.end - PORTS.start);
        let port = PORTS.start + u16::try_from(at).unwrap();
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return listener.local_addr().unwrap();
        }
    }
}

/// Below what Linux takes for port 0 and for outgoing connections.
const PORTS: std::ops::Range<u16> = 12_000..32_000;

/// A list of workers in YAML, one line each, `w0` and so on.
pub fn workers(urls: &[String]) -> String {
    let rows =
        urls.iter().enumerate().map(|(i, url)| format!("        - {{id: w{i}, url: \"{url}\"}}\n"));
    rows.collect()
}

/// One model `m` with these keys, a line each, and these workers.
pub fn model(keys: &[&str], urls: &[String]) -> String {
    let keys: String = keys.iter().map(|key| format!("      {key}\n")).collect();
    format!("  models:\n    - name: m\n{keys}      workers:\n{}", workers(urls))
}
