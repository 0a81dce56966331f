//! Processes beside the bench: where they run, what they have used, how they end.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Which core.
#[derive(Clone, Copy)]
pub enum Side {
    /// What is measured.
    Proxy,
    /// Engine and generator.
    Load,
}

impl Side {
    fn core(self) -> &'static str {
        match self {
            Self::Proxy => "0",
            Self::Load => "1",
        }
    }
}

/// This bench as another process.
pub fn itself(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(arguments);
    command
}

/// The command on the core of its side.
pub fn pinned(command: &Command, side: Side) -> Command {
    let mut pinned = Command::new("taskset");
    pinned.args(["-c", side.core()]).arg(command.get_program()).args(command.get_args());
    pinned
}

pub fn spawn(command: Command, side: Side) -> Child {
    let mut pinned = pinned(&command, side);
    pinned.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

pub fn stop(child: &mut Child) {
    // nginx and HAProxy take their workers with them only when asked.
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
    let deadline = Instant::now() + Duration::from_secs(3);
    while child.try_wait().unwrap().is_none() {
        if deadline < Instant::now() {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

pub fn is_listening(address: SocketAddr) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < deadline, "nobody listens on {address}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process and its children.
pub fn family(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut at = 0;
    while at < all.len() {
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", all[at]));
        let children = children.unwrap_or_default();
        all.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        at += 1;
    }
    all
}

/// User and system time.
pub fn cpu(pid: u32) -> Duration {
    // Run time in ns, which is finer than the clock ticks of `stat`; threads are summed.
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let nanos = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

/// The same of the children that have ended.
pub fn cpu_of_children() -> Duration {
    /// Linux gives every process 100 a second.
    const TICK: Duration = Duration::from_millis(10);
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    // Behind the name, which may have spaces: state is the third field, these are 16 and 17.
    let fields = text.rsplit(") ").next().unwrap().split(' ').skip(13).take(2);
    TICK * fields.map(|field| field.parse::<u32>().unwrap()).sum()
}

pub fn resident_mib(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}
