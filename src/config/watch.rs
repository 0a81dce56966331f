//! Notices that files of the configuration changed, however that was done: written in place, renamed
//! over, or a symlink swapped as Kubernetes does for a whole directory.
//!
//! Directories are watched, not files: whoever renames over a file leaves a watch of the file with
//! what nobody reads any more. Every directory on the way through symlinks is watched. What happens
//! there is only a reason to look; what counts is whether another text is read.

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

/// Quiet this long after something happened: a writer of several files is done.
const SETTLED: Duration = Duration::from_millis(50);
/// The same while a file is being written and was not closed.
const WRITTEN: Duration = Duration::from_millis(500);
/// Not waited for longer, or a writer that never stops would keep everything as it was.
const AT_LAST: Duration = Duration::from_secs(2);
/// Between looks without any reason: some file systems tell nothing.
const LOOK: Duration = Duration::from_secs(5);
/// Events that wait to be seen; what does not fit changes nothing, as one is enough.
const EVENTS: usize = 64;
/// Symlinks followed on the way to a file.
const MOST_LINKS: usize = 32;

/// See the module.
#[derive(Debug)]
pub struct Watch {
    /// `None`: the system gives none; there are looks all the same.
    watcher: Option<RecommendedWatcher>,
    events: mpsc::Receiver<Event>,
    watched: BTreeSet<Directory>,
    /// Something happened: when to look, and at the latest.
    due: Option<Due>,
}

#[derive(Clone, Copy, Debug)]
struct Due {
    at: Instant,
    latest: Instant,
}

/// A directory under a name; another one under the same name is another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Directory {
    path: PathBuf,
    device: u64,
    inode: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// A file has other content and may still be written.
    Writing,
    Done,
}

impl Watch {
    /// Watches nothing yet.
    pub fn new() -> Self {
        let (sender, events) = mpsc::channel(EVENTS);
        let tell = move |event: notify::Result<notify::Event>| {
            if let Some(event) = event.map_or(Some(Event::Done), |event| meaning(event.kind)) {
                let _ = sender.try_send(event);
            }
        };
        let watcher = notify::recommended_watcher(tell)
            .map_err(|error| log::warn!("files are looked at every {LOOK:?} only: {error}"))
            .ok();
        Self { watcher, events, watched: BTreeSet::new(), due: None }
    }

    /// Watches these files and no others. To be called again after each change, which may have led
    /// to other directories.
    pub fn set(&mut self, files: &[PathBuf]) {
        let wanted: BTreeSet<Directory> =
            files.iter().flat_map(|file| directories(file)).filter_map(Directory::at).collect();
        let Some(watcher) = &mut self.watcher else { return };
        for gone in self.watched.difference(&wanted) {
            // It may be gone from the disk as well.
            let _ = watcher.unwatch(&gone.path);
        }
        let mut watched = BTreeSet::new();
        for directory in wanted {
            let is_watched = self.watched.contains(&directory)
                || watcher.watch(&directory.path, RecursiveMode::NonRecursive).is_ok();
            if is_watched {
                watched.insert(directory);
            }
        }
        self.watched = watched;
    }

    /// Waits for a reason to look. May be dropped and called again at any time.
    pub async fn changed(&mut self) {
        loop {
            let Some(due) = self.due else {
                tokio::select! {
                    event = next(&mut self.events) => self.happened(event),
                    () = sleep(LOOK) => return,
                }
                continue;
            };
            tokio::select! {
                event = next(&mut self.events) => self.happened(event),
                () = sleep_until(due.at.min(due.latest)) => {
                    self.due = None;
                    return;
                }
            }
        }
    }

    fn happened(&mut self, event: Event) {
        let now = Instant::now();
        let quiet = match event {
            Event::Writing => WRITTEN,
            Event::Done => SETTLED,
        };
        let latest = self.due.map_or(now + AT_LAST, |due| due.latest);
        self.due = Some(Due { at: now + quiet, latest });
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}

/// The next event; never, if there is no watcher.
async fn next(events: &mut mpsc::Receiver<Event>) -> Event {
    match events.recv().await {
        Some(event) => event,
        None => std::future::pending().await,
    }
}

/// `None`: reading a file is no reason to read it.
fn meaning(kind: EventKind) -> Option<Event> {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => Some(Event::Done),
        EventKind::Access(_) => None,
        EventKind::Modify(ModifyKind::Data(_)) => Some(Event::Writing),
        EventKind::Any
        | EventKind::Create(_)
        | EventKind::Modify(_)
        | EventKind::Remove(_)
        | EventKind::Other => Some(Event::Done),
    }
}

impl Directory {
    fn at(path: PathBuf) -> Option<Self> {
        let metadata = std::fs::metadata(&path).ok()?;
        Some(Self { path, device: metadata.dev(), inode: metadata.ino() })
    }
}

/// The directories through which a path leads to a file, link by link.
fn directories(file: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut at = file.to_owned();
    for _ in 0..MOST_LINKS {
        let Some(name) = at.file_name() else { break };
        let parent = match at.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            Some(_) | None => PathBuf::from("."),
        };
        let target = std::fs::read_link(parent.join(name));
        found.push(parent.clone());
        let Ok(target) = target else { break };
        at = parent.join(target);
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn every_directory_on_the_way_is_watched() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path();
        fs::create_dir(at.join("..2026")).unwrap();
        fs::write(at.join("..2026/edge.yaml"), "x").unwrap();
        symlink("..2026", at.join("..data")).unwrap();
        symlink("..data/edge.yaml", at.join("edge.yaml")).unwrap();
        let found = directories(&at.join("edge.yaml"));
        assert_eq!(found, [at.to_owned(), at.join("..data")]);
        symlink(at.join("loop"), at.join("loop")).unwrap();
        assert!(directories(&at.join("loop")).len() <= MOST_LINKS);
    }

    #[test]
    fn reading_a_file_is_no_event_and_closing_a_written_one_is_the_end_of_it() {
        let read = EventKind::Access(AccessKind::Close(AccessMode::Read));
        let written = EventKind::Access(AccessKind::Close(AccessMode::Write));
        assert_eq!(meaning(read), None);
        assert_eq!(meaning(written), Some(Event::Done));
        let content = notify::event::DataChange::Any;
        let writing = EventKind::Modify(ModifyKind::Data(content));
        assert_eq!(meaning(writing), Some(Event::Writing));
    }
}
