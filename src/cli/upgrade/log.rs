//! Where the successor writes: where the running edge does.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

/// Where systemd's journal takes streams of lines.
const JOURNAL: &str = "/run/systemd/journal/stdout";
/// Of lines that do not say how bad they are: informational, as syslog counts.
const PRIORITY: u8 = 6;

/// What a process's descriptor leads to, opened once more: a file, a pipe, a terminal, or the
/// journal, which knows the service as `unit`. This process's own, if it cannot be.
pub(super) fn of(pid: u32, descriptor: u32, unit: Option<&str>) -> Stdio {
    let path = format!("/proc/{pid}/fd/{descriptor}");
    if let Ok(file) = OpenOptions::new().append(true).open(&path) {
        return Stdio::from(file);
    }
    let is_socket =
        fs::read_link(&path).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
    match unit {
        // A service's sockets are the journal's.
        Some(unit) if is_socket => match journal(Path::new(JOURNAL), unit) {
            Ok(stream) => Stdio::from(OwnedFd::from(stream)),
            Err(error) => {
                eprintln!("tidegate: the new process logs here: {JOURNAL}: {error}");
                Stdio::inherit()
            }
        },
        Some(_) | None => Stdio::inherit(),
    }
}

/// A stream of lines in the name of a unit. The head is what `sd_journal_stream_fd(3)` sends:
/// identifier, unit, priority, and four switches, for priorities within lines and for copies to
/// syslog, kernel log and console.
fn journal(path: &Path, unit: &str) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(path)?;
    write!(stream, "tidegate\n{unit}\n{PRIORITY}\n0\n0\n0\n0\n")?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixListener;

    #[test]
    fn the_journal_hears_the_units_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("stdout");
        let listener = UnixListener::bind(&path).unwrap();
        let mut stream = journal(&path, "edge.service").unwrap();
        stream.write_all(b"a line\n").unwrap();
        drop(stream);
        let mut heard = String::new();
        listener.accept().unwrap().0.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "tidegate\nedge.service\n6\n0\n0\n0\n0\na line\n");
        assert!(journal(&directory.path().join("none"), "edge.service").is_err());
    }
}
