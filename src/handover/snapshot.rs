//! The form of warm state: `TIDEGATE`, version, length, checksum, then the state itself.

use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use thiserror::Error;
use tidegate_policy::learned::Saved;
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: [u8; 8] = *b"TIDEGATE";
/// To be raised with every change of what is below.
pub const VERSION: u32 = 2;
/// Magic, version, length and checksum.
const HEAD_BYTES: usize = 8 + 4 + 8 + 8;
/// Largest state that is read or written. A prefix block takes about 10 bytes, and an index of the
/// default size holds 4 million.
const MOST_BYTES: u64 = 1 << 30;

/// What an edge has learned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// When it was taken, seconds since 1970.
    pub(super) taken_at: u64,
    pub(super) models: Vec<ModelState>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ModelState {
    pub(super) name: String,
    /// Prefix keys of blocks of another size mean nothing.
    pub(super) block_bytes: u32,
    pub(super) bytes_per_token: f64,
    pub(super) mean_uncached: Option<u64>,
    pub(super) workers: Vec<WorkerState>,
    /// Under the policy `learned`.
    pub(super) routes: Option<Saved>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct WorkerState {
    pub(super) id: String,
    pub(super) url: String,
    /// Did its probes pass?
    pub(super) healthy: bool,
    /// Did an operator or the file take it out?
    pub(super) draining: bool,
    /// See [`tidegate_policy::index::Warm`].
    pub(super) capacity_correction: f64,
    pub(super) keys: Vec<u64>,
}

/// Why a snapshot is not used, or could not be written.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// It could not be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("it is no snapshot of a Tidegate edge")]
    Foreign,
    /// Another version of the edge wrote it.
    #[error("it has version {0}, this edge reads version {VERSION}")]
    Version(u32),
    /// More than this edge reads or writes.
    #[error("it has {0} bytes, the most is {MOST_BYTES}")]
    TooLarge(u64),
    /// Its end is missing.
    #[error("it is cut short: {found} of {expected} bytes")]
    Truncated {
        /// Bytes there.
        found: u64,
        /// Bytes announced.
        expected: u64,
    },
    /// Its checksum is another one.
    #[error("its checksum does not match")]
    Corrupt,
    /// The checksum matches, and still it is not what it should be.
    #[error("its content cannot be read: {0}")]
    Content(postcard::Error),
}

impl Snapshot {
    /// Writes it.
    ///
    /// # Errors
    /// What the writer says, or that it is too large.
    pub fn write(&self, to: &mut impl Write) -> Result<(), SnapshotError> {
        let body = postcard::to_allocvec(self).map_err(SnapshotError::Content)?;
        let length = body.len() as u64;
        if MOST_BYTES < length {
            return Err(SnapshotError::TooLarge(length));
        }
        to.write_all(&MAGIC)?;
        to.write_all(&VERSION.to_le_bytes())?;
        to.write_all(&length.to_le_bytes())?;
        to.write_all(&xxh3_64(&body).to_le_bytes())?;
        to.write_all(&body)?;
        Ok(to.flush()?)
    }

    /// Reads one, and not a byte more than it has.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(from: &mut impl Read) -> Result<Self, SnapshotError> {
        let mut head = Vec::with_capacity(HEAD_BYTES);
        from.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head)?;
        let (version, length, checksum) = fields(&head).ok_or(SnapshotError::Foreign)?;
        if version != VERSION {
            return Err(SnapshotError::Version(version));
        }
        if MOST_BYTES < length {
            return Err(SnapshotError::TooLarge(length));
        }
        // Grows with what is really there, whatever was announced.
        let mut body = Vec::new();
        from.by_ref().take(length).read_to_end(&mut body)?;
        let found = body.len() as u64;
        if found < length {
            return Err(SnapshotError::Truncated { found, expected: length });
        }
        if xxh3_64(&body) != checksum {
            return Err(SnapshotError::Corrupt);
        }
        postcard::from_bytes(&body).map_err(SnapshotError::Content)
    }
}

/// Version, length and checksum; `None` if the head is not ours.
fn fields(head: &[u8]) -> Option<(u32, u64, u64)> {
    let (magic, rest) = head.split_first_chunk::<8>()?;
    let (version, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (checksum, _) = rest.split_first_chunk()?;
    let known = *magic == MAGIC;
    known.then(|| {
        let length = u64::from_le_bytes(*length);
        (u32::from_le_bytes(*version), length, u64::from_le_bytes(*checksum))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn snapshot() -> Snapshot {
        let worker = |id: &str| WorkerState {
            id: id.to_owned(),
            url: format!("http://{id}:1"),
            healthy: true,
            draining: false,
            capacity_correction: 0.5,
            keys: (0..1_000_u64).map(|key| key.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect(),
        };
        let model = ModelState {
            name: "m".to_owned(),
            block_bytes: 512,
            bytes_per_token: 3.7,
            mean_uncached: Some(812),
            workers: vec![worker("a"), worker("b")],
            routes: Some(Saved { epoch: 3, nodes: vec!["a[0-0]".to_owned()], arms: Vec::new() }),
        };
        Snapshot { taken_at: 1_700_000_000, models: vec![model] }
    }

    fn written() -> Vec<u8> {
        let mut bytes = Vec::new();
        snapshot().write(&mut bytes).unwrap();
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Snapshot, SnapshotError> {
        Snapshot::read(&mut &*bytes)
    }

    #[test]
    fn what_was_written_is_read_and_nothing_behind_it() {
        let mut bytes = written();
        bytes.extend_from_slice(b"rest");
        let mut from = &bytes[..];
        assert_eq!(Snapshot::read(&mut from).unwrap(), snapshot());
        assert_eq!(from, b"rest");
    }

    #[test]
    fn every_damage_has_its_name() {
        let good = written();
        assert!(matches!(read(b""), Err(SnapshotError::Foreign)));
        assert!(matches!(read(b"not a snapshot, but long enough"), Err(SnapshotError::Foreign)));
        let with = |at: usize, bytes: &[u8]| {
            let mut other = good.clone();
            other[at..at + bytes.len()].copy_from_slice(bytes);
            read(&other)
        };
        let next = VERSION + 1;
        let version = with(8, &next.to_le_bytes());
        assert!(matches!(version, Err(SnapshotError::Version(version)) if version == next));
        let huge = MOST_BYTES + 1;
        let too_large = with(12, &huge.to_le_bytes());
        assert!(matches!(too_large, Err(SnapshotError::TooLarge(bytes)) if bytes == huge));
        let truncated = with(12, &MOST_BYTES.to_le_bytes());
        assert!(matches!(truncated, Err(SnapshotError::Truncated { expected: MOST_BYTES, .. })));
        assert!(matches!(with(good.len() - 1, b"!"), Err(SnapshotError::Corrupt)));
        let short = read(&good[..good.len() - 1]);
        assert!(matches!(short, Err(SnapshotError::Truncated { .. })));
        let mut empty = Vec::new();
        empty.extend_from_slice(&good[..12]);
        empty.extend_from_slice(&0u64.to_le_bytes());
        empty.extend_from_slice(&xxh3_64(b"").to_le_bytes());
        assert!(matches!(read(&empty), Err(SnapshotError::Content(_))));
    }

    proptest! {
        #[test]
        fn foreign_bytes_are_refused_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            is_signed: bool,
        ) {
            let mut from = Vec::new();
            if is_signed {
                // A true head, so that the content is what is foreign.
                from.extend_from_slice(&MAGIC);
                from.extend_from_slice(&VERSION.to_le_bytes());
                from.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
                from.extend_from_slice(&xxh3_64(&bytes).to_le_bytes());
            }
            from.extend_from_slice(&bytes);
            if let Ok(read) = read(&from) {
                prop_assert!(is_signed);
                prop_assert!(read.models.len() <= bytes.len());
            }
        }
    }
}
