use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use snafu::Snafu;

use crate::checkpoint::CheckpointError;
use crate::layout::{LONGEST_RECORD, LineError};
use crate::merkle::Hash;
use crate::note::{NoteError, VerifierKey};

/// Error opening a log.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
#[non_exhaustive]
pub enum OpenError {
    /// The path is not a directory.
    #[snafu(display("{} is no directory; accepted is the directory of a log, which is made when it is not there", path.display()))]
    NotADirectory {
        /// Configured directory.
        path: PathBuf,
    },
    /// A system call failed.
    #[snafu(display("failed to {what} {}: {source}", path.display()))]
    Io {
        /// Operation, such as `read`.
        what: &'static str,
        /// File or directory of the operation.
        path: PathBuf,
        /// Underlying I/O error.
        source: io::Error,
    },
    /// Another process has the log open.
    #[snafu(display("another process writes the log in {}: each needs a directory of its own", directory.display()))]
    Locked {
        /// Directory of the log.
        directory: PathBuf,
    },
    /// A complete line is not a record. Torn lines are truncated instead.
    #[snafu(display("{}, byte {offset}: {source}", path.display()))]
    Line {
        /// Path of the segment.
        path: PathBuf,
        /// Byte offset of the line.
        offset: u64,
        /// Underlying error.
        source: LineError,
    },
    /// A line does not follow the previous one.
    #[snafu(display("{}, byte {offset}: found seq {found} with prev {prev}, expected seq {seq} with prev {hash}: a line was changed, added or taken out", path.display()))]
    Chain {
        /// Path of the segment.
        path: PathBuf,
        /// Byte offset of the line.
        offset: u64,
        /// Sequence number of the line.
        found: u64,
        /// `prev` of the line.
        prev: Hash,
        /// Expected sequence number.
        seq: u64,
        /// Leaf hash of the previous line.
        hash: Hash,
    },
    /// A segment, or records at its end, are missing.
    #[snafu(display("the segment with record {seq} is missing in {}", directory.display()))]
    Segment {
        /// Directory of the log.
        directory: PathBuf,
        /// First missing record.
        seq: u64,
    },
    /// The log has fewer records than were sealed.
    #[snafu(display("{} records were sealed in {}, but there are {found}: some were taken out", sealed, directory.display()))]
    Shrunk {
        /// Directory of the log.
        directory: PathBuf,
        /// Number of records that the checkpoint covers.
        sealed: u64,
        /// Number of records in the log.
        found: u64,
    },
    /// The sealed records do not have the root of the checkpoint.
    #[snafu(display("the records in {} are not those that were sealed: the first {size} have the root {found}, the checkpoint says {sealed}", directory.display()))]
    Inconsistent {
        /// Directory of the log.
        directory: PathBuf,
        /// Number of records that the checkpoint covers.
        size: u64,
        /// Root of these records.
        found: Hash,
        /// Root in the checkpoint.
        sealed: Hash,
    },
    /// The log does not match the checkpoint cosigned by witnesses.
    #[snafu(display("witnesses have cosigned {cosigned} records of the log in {}, {reason}: it is not the log that they saw", directory.display()))]
    Witnessed {
        /// Directory of the log.
        directory: PathBuf,
        /// Number of records that the cosigned checkpoint covers.
        cosigned: u64,
        /// Description of the mismatch.
        reason: String,
    },
    /// A record differs from the sealed one.
    #[snafu(display("{}, byte {offset}: record {seq} is not the one that was sealed: its hash is {found}, the tree says {sealed}", path.display()))]
    Rewritten {
        /// Path of the segment.
        path: PathBuf,
        /// Byte offset of the line.
        offset: u64,
        /// Sequence number of the record.
        seq: u64,
        /// Leaf hash of the line.
        found: Hash,
        /// Leaf hash in the tree.
        sealed: Hash,
    },
    /// The checkpoint is not a signed note.
    #[snafu(display("{}: {source}", path.display()))]
    Note {
        /// Path of the checkpoint.
        path: PathBuf,
        /// Underlying note error.
        source: NoteError,
    },
    /// The checkpoint is invalid or not signed by the configured key.
    #[snafu(display("{}: {source}; a change of the key has to be asked for, by Options::adopt", path.display()))]
    Checkpoint {
        /// Path of the checkpoint.
        path: PathBuf,
        /// Underlying checkpoint error.
        source: CheckpointError,
    },
    /// The name of the key is the origin of another log.
    #[snafu(display("the log in {} is {name}, and cannot go on as {asked}: that is the name of another log", directory.display()))]
    Origin {
        /// Directory of the log.
        directory: PathBuf,
        /// Origin of the log.
        name: String,
        /// Name of the key.
        asked: String,
    },
    /// The log was sealed, but its checkpoint is missing.
    #[snafu(display("the log in {} was sealed, but its checkpoint is gone", directory.display()))]
    CheckpointGone {
        /// Directory of the log.
        directory: PathBuf,
    },
    /// The log has records that were never sealed.
    #[snafu(display("the {records} records in {} were never sealed; sealing what is there has to be asked for, by Options::adopt", directory.display()))]
    Unsealed {
        /// Directory of the log.
        directory: PathBuf,
        /// Number of records.
        records: u64,
    },
    /// The log is sealed, but no key is configured.
    #[snafu(display("the log in {} is sealed{}: without its key nothing can be added", directory.display(), key.as_ref().map(|key| format!(" by {key}")).unwrap_or_default()))]
    KeyNeeded {
        /// Directory of the log.
        directory: PathBuf,
        /// Key published in the log, unverified.
        key: Option<VerifierKey>,
    },
    /// The initial records cannot be written.
    #[snafu(display("failed to write to the log in {}: {source}", directory.display()))]
    Begin {
        /// Directory of the log.
        directory: PathBuf,
        /// Underlying append error.
        source: AppendError,
    },
}

impl OpenError {
    /// Returns `true` if the log is damaged or inaccessible, `false` if the configuration conflicts with it.
    #[must_use]
    pub const fn is_fault(&self) -> bool {
        !matches!(
            self,
            Self::NotADirectory { .. }
                | Self::Locked { .. }
                | Self::Checkpoint { .. }
                | Self::Origin { .. }
                | Self::Unsealed { .. }
                | Self::KeyNeeded { .. }
        )
    }

    /// Returns `true` if a retry may succeed: another process holds the lock, or the disk is full or failing.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        use io::ErrorKind::{InvalidData, NotFound, Other, PermissionDenied};
        match self {
            Self::Locked { .. } | Self::Begin { .. } => true,
            // The first two indicate wrong settings, the others unexpected file contents.
            Self::Io { source, .. } => {
                !matches!(source.kind(), NotFound | PermissionDenied | InvalidData | Other)
            }
            _ => false,
        }
    }

    /// Returns `true` if [`Options::adopt`](super::Options::adopt) permits this operation.
    #[must_use]
    pub const fn needs_adoption(&self) -> bool {
        matches!(self, Self::Checkpoint { .. } | Self::Unsealed { .. })
    }
}

/// Error appending a record.
#[derive(Clone, Debug, Snafu)]
#[snafu(visibility(pub(super)))]
#[non_exhaustive]
pub enum AppendError {
    /// The disk is full. The log accepts records again once 1 MiB is free.
    #[snafu(display("the disk is full: {source}"))]
    Full {
        /// Underlying I/O error.
        source: Arc<io::Error>,
    },
    /// The record cannot be written.
    #[snafu(display("failed to write: {source}"))]
    Write {
        /// Underlying I/O error.
        source: Arc<io::Error>,
    },
    /// The record cannot be flushed to disk.
    #[snafu(display("failed to bring it to the disk: {source}"))]
    Sync {
        /// Underlying I/O error.
        source: Arc<io::Error>,
    },
    /// The log was deleted or replaced, or its volume is unavailable. The log accepts records again once it is back, such as
    /// on a remounted volume. Another log in its place is opened only after a restart of the process.
    #[snafu(display(
        "the log in {} is not as this process left it: {reason}; restore it, or restart the process",
        directory.display()
    ))]
    Lost {
        /// Directory of the log.
        directory: PathBuf,
        /// Description of the difference, such as missing records.
        reason: String,
    },
    /// The log is closed.
    #[snafu(display("the log is closed"))]
    Closed,
    /// The record is too long or not a valid one-line JSON object.
    #[snafu(display(
        "the record has {found} bytes, accepted are {LONGEST_RECORD}, of a JSON object in one line without seq and prev"
    ))]
    Unfit {
        /// Length of the record in bytes.
        found: usize,
    },
}

impl AppendError {
    /// Returns the label value for metrics.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Full { .. } => "full",
            Self::Write { .. } => "write",
            Self::Sync { .. } => "sync",
            Self::Lost { .. } => "lost",
            Self::Closed => "closed",
            Self::Unfit { .. } => "unfit",
        }
    }
}
