//! Warm state in a file.

use super::{Snapshot, SnapshotError};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes a snapshot beside the file and puts it in its place at once, readable by its owner only.
///
/// # Errors
/// It could not be written; an older file stays.
pub fn store(snapshot: &Snapshot, path: &Path) -> Result<(), SnapshotError> {
    let beside = path.with_added_extension("new");
    // One that an earlier process left may belong to somebody else.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        Ok(()) | Err(_) => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    let mut to = BufWriter::new(file);
    snapshot.write(&mut to)?;
    to.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    Ok(fs::rename(&beside, path)?)
}

/// Reads a snapshot; `None` if there is no such file.
///
/// # Errors
/// It cannot be used.
pub fn load(path: &Path) -> Result<Option<Snapshot>, SnapshotError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Snapshot::read(&mut BufReader::new(file)).map(Some)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_is_its_owners() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        assert!(load(&path).unwrap().is_none());
        let snapshot = Snapshot { taken_at: 7, ..Snapshot::default() };
        for _ in 0..2 {
            store(&snapshot, &path).unwrap();
            assert_eq!(load(&path).unwrap().as_ref(), Some(&snapshot));
        }
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(store(&snapshot, &directory.path().join("none/state")).is_err());
        fs::write(&path, b"rubbish").unwrap();
        assert!(matches!(load(&path), Err(SnapshotError::Foreign)));
        assert!(load(directory.path()).is_err());
    }
}
