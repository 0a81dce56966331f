//! The running edge as the kernel shows it, and its successor, which is started like it: with its
//! flags, its environment, its user, its log and its control group, so that whoever supervises the
//! one supervises the other.

use super::{UpgradeError, log};
use crate::cli::Args;
use crate::config::Overrides;
use clap::Parser;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A process of this machine.
pub(super) struct Running {
    pub(super) pid: u32,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    directory: PathBuf,
    owner: (u32, u32),
}

/// A process that was started to take over.
pub(super) struct Started {
    child: Child,
    /// Who serves: in the background that is not who was started.
    pid: u32,
    is_background: bool,
}

impl Running {
    pub(super) fn of(pid: u32) -> Result<Self, UpgradeError> {
        let failed = |error: io::Error| UpgradeError::NotRunning { pid, why: error.to_string() };
        let proc = PathBuf::from(format!("/proc/{pid}"));
        let arguments = strings(&fs::read(proc.join("cmdline")).map_err(failed)?);
        let environment = fs::read(proc.join("environ")).map_err(failed)?;
        let owner = fs::metadata(&proc).map_err(failed)?;
        Ok(Self {
            pid,
            arguments: arguments.into_iter().skip(1).collect(),
            environment: strings(&environment).into_iter().filter_map(variable).collect(),
            directory: fs::read_link(proc.join("cwd")).map_err(failed)?,
            owner: (owner.uid(), owner.gid()),
        })
    }

    /// Its flags and its environment, to read the configuration with.
    pub(super) fn overrides(&self) -> Overrides {
        let known: HashMap<_, _> = self.environment.iter().cloned().collect();
        let overrides = Overrides::default().with_environment(move |name| {
            known.get(OsStr::new(name)).and_then(|value| value.to_str()).map(str::to_owned)
        });
        let line = std::iter::once(OsString::new()).chain(self.arguments.iter().cloned());
        match Args::try_parse_from(line) {
            Ok(args) => args.run.policy.over(overrides),
            // Another version's; the successor will say so.
            Err(_) => overrides,
        }
    }

    /// Starts its successor, which waits for the sockets.
    pub(super) fn succeed(&self, binary: &Path, conf: &Path) -> Result<Started, UpgradeError> {
        let failed = |error| UpgradeError::Binary { path: binary.to_owned(), error };
        let conf = std::path::absolute(conf).map_err(failed)?;
        let mut command = Command::new(std::path::absolute(binary).map_err(failed)?);
        command.args(arguments(&self.arguments, &conf));
        command.env_clear().envs(self.environment.iter().cloned());
        command.current_dir(&self.directory).process_group(0).stdin(Stdio::null());
        let group = group(self.pid);
        let unit = group.as_deref().and_then(|group| group.rsplit('/').next());
        let unit = unit.filter(|name| name.ends_with(".service"));
        command.stdout(log::of(self.pid, 1, unit)).stderr(log::of(self.pid, 2, unit));
        if Self::of(std::process::id())?.owner != self.owner {
            command.uid(self.owner.0).gid(self.owner.1);
        }
        let child = command.spawn().map_err(failed)?;
        let pid = child.id();
        self.adopt(pid);
        self.limit(pid);
        Ok(Started { child, pid, is_background: false })
    }

    /// Tells it that a successor waits.
    pub(super) fn tell(&self) -> Result<(), UpgradeError> {
        signal(self.pid, Signal::SIGQUIT).map_err(|why| UpgradeError::Signal { pid: self.pid, why })
    }

    /// Into its control group: a service manager hears only from there.
    fn adopt(&self, pid: u32) {
        let (Some(own), Some(other)) = (group(self.pid), group(pid)) else { return };
        if own == other {
            return;
        }
        let file = format!("/sys/fs/cgroup{own}/cgroup.procs");
        if let Err(error) = fs::write(&file, pid.to_string()) {
            eprintln!("tidegate: process {pid} stays outside {own}: {file}: {error}");
        }
    }

    /// As many open files as it may have: a shell's limit is too small for an edge.
    fn limit(&self, pid: u32) {
        let (Some(own), other) = (open_files(self.pid), open_files(pid)) else { return };
        if other.as_ref() == Some(&own) {
            return;
        }
        let [pid, limit] = [format!("--pid={pid}"), format!("--nofile={own}")];
        match Command::new("prlimit").args([&pid, &limit]).status() {
            Ok(status) if status.success() => {}
            Ok(status) => eprintln!("tidegate: prlimit {pid} {limit}: {status}"),
            Err(error) => eprintln!("tidegate: prlimit {pid} {limit}: {error}"),
        }
    }
}

/// A process's control group.
fn group(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("0::").map(str::to_owned))
}

/// How many files a process may open, as `soft:hard`.
fn open_files(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let mut words = line.split_whitespace();
    Some(format!("{}:{}", words.next()?, words.next()?))
}

impl Started {
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Who was started is still there, or has gone into the background.
    pub(super) fn check(&mut self) -> Result<(), UpgradeError> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) if status.success() => {
                self.is_background = true;
                Ok(())
            }
            Some(status) => Err(UpgradeError::Ended(status)),
        }
    }

    /// This process said that it took over.
    pub(super) fn is(&mut self, pid: u32) {
        self.pid = pid;
    }

    /// Ends it. One in the background waits for the sockets no longer than some seconds.
    pub(super) fn end(&mut self) {
        if !self.is_background {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The old arguments with this file, and with `-u`.
fn arguments(old: &[OsString], conf: &Path) -> Vec<OsString> {
    let mut kept: Vec<OsString> = Vec::new();
    let mut old = old.iter();
    while let Some(argument) = old.next() {
        let text = argument.to_string_lossy();
        match &*text {
            "-u" | "--upgrade" => {}
            "-c" | "--conf" | "--config" => {
                let _ = old.next();
            }
            text if text.starts_with("--conf=") || text.starts_with("--config=") => {}
            text if text.starts_with("-c") => {}
            _ => kept.push(argument.clone()),
        }
    }
    kept.extend(["-u".into(), "-c".into(), conf.into()]);
    kept
}

/// Strings that each end in a zero byte.
fn strings(bytes: &[u8]) -> Vec<OsString> {
    let parts = bytes.split(|&byte| byte == 0).filter(|part| !part.is_empty());
    parts.map(|part| OsString::from_vec(part.to_vec())).collect()
}

fn variable(text: OsString) -> Option<(OsString, OsString)> {
    let bytes = text.into_vec();
    let at = bytes.iter().position(|&byte| byte == b'=')?;
    let (name, value) = bytes.split_at(at);
    Some((OsString::from_vec(name.to_vec()), OsString::from_vec(value[1..].to_vec())))
}

fn signal(pid: u32, signal: Signal) -> Result<(), String> {
    let pid = i32::try_from(pid).map_err(|_| "no process has this id".to_owned())?;
    kill(Pid::from_raw(pid), signal).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn new(line: &str) -> String {
        let old: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let new = arguments(&old, Path::new("/new.yaml"));
        let new: Vec<&str> = new.iter().map(|argument| argument.to_str().unwrap()).collect();
        new.join(" ")
    }

    #[test]
    fn a_successor_keeps_the_flags_and_gets_the_file() {
        let with = "--pin-order locality -d -u -c /new.yaml";
        for line in ["-c a -d", "-d --conf a", "-u --conf=a -d", "-ca --upgrade -d"] {
            let line = format!("--pin-order locality {line}");
            assert_eq!(new(&line), with, "{line}");
        }
    }

    #[test]
    fn an_environment_is_read_as_the_kernel_writes_it() {
        let read: Vec<_> =
            strings(b"A=1\0B=x=y\0broken\0C=\0").into_iter().filter_map(variable).collect();
        let named = |name: &str, value: &str| (name.into(), value.into());
        assert_eq!(read, [named("A", "1"), named("B", "x=y"), named("C", "")]);
    }

    #[test]
    fn this_process_can_be_read_and_no_other() {
        let own = Running::of(std::process::id()).unwrap();
        assert_eq!(own.directory, std::env::current_dir().unwrap());
        assert!(matches!(Running::of(u32::MAX), Err(UpgradeError::NotRunning { .. })));
    }
}
