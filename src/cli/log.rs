//! Where the binary's log lines go: stderr, most by env_logger at once, the access log's in batches.
//!
//! One access log line a request is the most of what an edge writes. A write of its own for each
//! costs a request a system call, and a reader of stderr that is slow would stop every thread that
//! serves. So the lines are collected, and one thread writes them 50 ms after the first of a batch.
//! Its memory is bounded: where it is full lines are lost, and counted as
//! `tidegate_access_log_lost_lines_total`.
//!
//! The few other lines are written by whoever has something to say, so that the last one is there
//! whatever ends the process; where nobody reads stderr any more, they wait.

use crate::journal::{ACCESS_LOG, LOST_LINES};
use ::log::{Level, Log, Metadata, Record};
use env_logger::{Env, Logger};
use std::fmt;
use std::io::{ErrorKind, Write};
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, Once, PoisonError, mpsc};
use std::time::Duration;

/// From a batch's first line until it is written.
const DELAY: Duration = Duration::from_millis(50);
/// How long the end of the process waits for the last batch.
const AT_LAST: Duration = Duration::from_secs(1);
/// Most bytes of lines that wait.
const CAPACITY: usize = 4 << 20;

/// Installs it. `filter` is what is logged without `RUST_LOG`.
pub fn init(filter: &str) {
    let others = env_logger::Builder::from_env(Env::default().default_filter_or(filter)).build();
    ::log::set_max_level(others.filter());
    let log = Box::new(EdgeLog { others });
    // Fails if there is one already, which then is an embedding program's.
    let _ = ::log::set_boxed_logger(log);
}

struct EdgeLog {
    others: Logger,
}

impl Log for EdgeLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.others.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        match record.target() {
            ACCESS_LOG if self.others.matches(record) => BATCH.push(record),
            ACCESS_LOG => {}
            // Libraries print whole requests there, with whatever is secret in them.
            target if Level::Info < record.level() && !target.starts_with("tidegate") => {}
            _ => self.others.log(record),
        }
    }

    fn flush(&self) {
        BATCH.flush();
        self.others.flush();
    }
}

static BATCH: Batch =
    Batch { lines: Mutex::new(Vec::new()), begun: Condvar::new(), writer: Once::new() };

/// Lines that wait for the writer.
struct Batch {
    lines: Mutex<Vec<u8>>,
    begun: Condvar,
    /// Started by the first line: a process that goes into the background before would leave it behind.
    writer: Once,
}

impl Batch {
    fn push(&'static self, record: &Record<'_>) {
        self.writer.call_once(|| {
            let write = || self.write();
            if std::thread::Builder::new().name("access log".to_owned()).spawn(write).is_err() {
                eprintln!("tidegate: no thread for the access log, which is lost");
            }
        });
        self.add(record.args());
    }

    fn add(&self, line: &fmt::Arguments<'_>) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let length = lines.len();
        let written = lines.write_fmt(*line);
        lines.push(b'\n');
        if written.is_err() || CAPACITY < lines.len() {
            lines.truncate(length);
            LOST_LINES.fetch_add(1, Ordering::Relaxed);
        }
        drop(lines);
        if length == 0 {
            self.begun.notify_one();
        }
    }

    fn write(&self) {
        let mut batch = Vec::new();
        loop {
            let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            let lines = self.begun.wait_while(lines, |lines| lines.is_empty());
            drop(lines);
            std::thread::sleep(DELAY);
            self.put(&mut batch);
        }
    }

    /// Writes what is there. The batch is taken once stderr is ours, so that no later one comes first.
    fn put(&self, batch: &mut Vec<u8>) {
        let mut stderr = std::io::stderr().lock();
        self.take(batch);
        let lost = unwritten(&mut stderr, batch);
        LOST_LINES.fetch_add(lost, Ordering::Relaxed);
    }

    fn take(&self, batch: &mut Vec<u8>) {
        batch.clear();
        std::mem::swap(batch, &mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Before the process ends; not waited for where nobody reads.
    fn flush(&'static self) {
        let (done, is_done) = mpsc::channel();
        let put = move || {
            self.put(&mut Vec::new());
            let _ = done.send(());
        };
        if std::thread::Builder::new().spawn(put).is_ok() {
            let _ = is_done.recv_timeout(AT_LAST);
        }
    }
}

/// Lines that could not be written, the one that was cut in two among them.
fn unwritten(to: &mut impl Write, batch: &[u8]) -> u64 {
    let mut left = batch;
    while !left.is_empty() {
        match to.write(left) {
            Ok(written @ 1..) => left = &left[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return memchr::memchr_iter(b'\n', left).count() as u64,
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_lost_whole_and_counted() {
        let batch = Batch { lines: Mutex::default(), begun: Condvar::new(), writer: Once::new() };
        let half = "x".repeat(CAPACITY / 2);
        let before = LOST_LINES.load(Ordering::Relaxed);
        for line in [&half, &half, &"short".to_owned()] {
            batch.add(&format_args!("{line}"));
        }
        let mut taken = Vec::new();
        batch.take(&mut taken);
        assert_eq!(taken, format!("{half}\nshort\n").into_bytes());
        assert_eq!(LOST_LINES.load(Ordering::Relaxed), before + 1);
        batch.take(&mut taken);
        assert!(taken.is_empty());
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                let written = bytes.len().min(self.0).min(3);
                self.0 -= written;
                if written == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(written) }
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let lines = b"one\ntwo\nthree\n";
        for (room, lost) in [(0, 3), (4, 2), (5, 2), (8, 1), (13, 1), (14, 0), (99, 0)] {
            assert_eq!(unwritten(&mut Full(room), lines), lost, "{room}");
        }
    }
}
