use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use snafu::Snafu;

use crate::checkpoint::CheckpointError;
use crate::layout::{LONGEST_RECORD, LineError};
use crate::merkle::Hash;
use crate::note::{NoteError, VerifierKey};

/// Why a log is not opened.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
#[non_exhaustive]
pub enum OpenError {
    /// There is something else.
    #[snafu(display("{} is no directory; accepted is the directory of a log, which is made when it is not there", path.display()))]
    NotADirectory {
        /// What was to be the directory.
        path: PathBuf,
    },
    /// The system refuses something.
    #[snafu(display("failed to {what} {}: {source}", path.display()))]
    Io {
        /// What was tried, such as `read`.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process writes to it.
    #[snafu(display("another process writes the log in {}: each needs a directory of its own", directory.display()))]
    Locked {
        /// The log.
        directory: PathBuf,
    },
    /// A whole line is not what was written: not a torn end, which is cut off.
    #[snafu(display("{}, byte {offset}: {source}", path.display()))]
    Line {
        /// The segment.
        path: PathBuf,
        /// Where the line begins.
        offset: u64,
        /// What is wrong with it.
        source: LineError,
    },
    /// A line does not follow the one before.
    #[snafu(display("{}, byte {offset}: found seq {found} with prev {prev}, expected seq {seq} with prev {hash}: a line was changed, added or taken out", path.display()))]
    Chain {
        /// The segment.
        path: PathBuf,
        /// Where the line begins.
        offset: u64,
        /// Its seq.
        found: u64,
        /// Its prev.
        prev: Hash,
        /// The seq that is next.
        seq: u64,
        /// The leaf hash of the line before.
        hash: Hash,
    },
    /// Records before the last segment are missing.
    #[snafu(display("the segment with record {seq} is missing in {}", directory.display()))]
    Segment {
        /// The log.
        directory: PathBuf,
        /// The record.
        seq: u64,
    },
    /// There are fewer records than were sealed.
    #[snafu(display("{} records were sealed in {}, but there are {found}: some were taken out", sealed, directory.display()))]
    Shrunk {
        /// The log.
        directory: PathBuf,
        /// How many the checkpoint covers.
        sealed: u64,
        /// How many there are.
        found: u64,
    },
    /// The records are others than were sealed.
    #[snafu(display("the records in {} are not those that were sealed: the first {size} have the root {found}, the checkpoint says {sealed}", directory.display()))]
    Inconsistent {
        /// The log.
        directory: PathBuf,
        /// How many the checkpoint covers.
        size: u64,
        /// What they make.
        found: Hash,
        /// What the checkpoint says.
        sealed: Hash,
    },
    /// The log is not the one that witnesses have seen.
    #[snafu(display("witnesses have cosigned {cosigned} records of the log in {}, {reason}: it is not the log that they saw", directory.display()))]
    Witnessed {
        /// The log.
        directory: PathBuf,
        /// How many records they have cosigned.
        cosigned: u64,
        /// What does not fit.
        reason: String,
    },
    /// A record is another than was sealed.
    #[snafu(display("{}, byte {offset}: record {seq} is not the one that was sealed: its hash is {found}, the tree says {sealed}", path.display()))]
    Rewritten {
        /// The segment.
        path: PathBuf,
        /// Where the line begins.
        offset: u64,
        /// The record.
        seq: u64,
        /// Its hash.
        found: Hash,
        /// What the tree says.
        sealed: Hash,
    },
    /// The checkpoint is none.
    #[snafu(display("{}: {source}", path.display()))]
    Note {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: NoteError,
    },
    /// The checkpoint is not by this key.
    #[snafu(display("{}: {source}; a change of the key has to be asked for, by Options::adopt", path.display()))]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: CheckpointError,
    },
    /// The key is one of another log.
    #[snafu(display("the log in {} is {name}, and cannot go on as {asked}: that is the name of another log", directory.display()))]
    Origin {
        /// The log.
        directory: PathBuf,
        /// Its origin.
        name: String,
        /// The name of the key.
        asked: String,
    },
    /// There was a seal.
    #[snafu(display("the log in {} was sealed, but its checkpoint is gone", directory.display()))]
    CheckpointGone {
        /// The log.
        directory: PathBuf,
    },
    /// There are records but no seal.
    #[snafu(display("the {records} records in {} were never sealed; sealing what is there has to be asked for, by Options::adopt", directory.display()))]
    Unsealed {
        /// The log.
        directory: PathBuf,
        /// How many.
        records: u64,
    },
    /// There is a seal but no key.
    #[snafu(display("the log in {} is sealed{}: without its key nothing can be added", directory.display(), key.as_ref().map(|key| format!(" by {key}")).unwrap_or_default()))]
    KeyNeeded {
        /// The log.
        directory: PathBuf,
        /// Who seals it, as the log says itself.
        key: Option<VerifierKey>,
    },
    /// What has to stand in the log first cannot be written.
    #[snafu(display("failed to write to the log in {}: {source}", directory.display()))]
    Begin {
        /// The log.
        directory: PathBuf,
        /// Why.
        source: AppendError,
    },
}

impl OpenError {
    /// Whether it is the log that is not as it was left, or out of reach: nothing that who configured it did wrong.
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

    /// Returns true when the same attempt may succeed later: another process holds the log, or the disk is full or fails.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        use io::ErrorKind::{InvalidData, NotFound, Other, PermissionDenied};
        match self {
            Self::Locked { .. } | Self::Begin { .. } => true,
            // The first two are settings; the others are files that hold something else.
            Self::Io { source, .. } => {
                !matches!(source.kind(), NotFound | PermissionDenied | InvalidData | Other)
            }
            _ => false,
        }
    }

    /// Whether [`Options::adopt`](super::Options::adopt) is what asks for what is refused here.
    #[must_use]
    pub const fn needs_adoption(&self) -> bool {
        matches!(self, Self::Checkpoint { .. } | Self::Unsealed { .. })
    }
}

/// Why a record is not kept.
#[derive(Clone, Debug, Snafu)]
#[snafu(visibility(pub(super)))]
#[non_exhaustive]
pub enum AppendError {
    /// There is no room on the disk. Records are kept again when there is room for 1 MiB.
    #[snafu(display("the disk is full: {source}"))]
    Full {
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// It cannot be written.
    #[snafu(display("failed to write: {source}"))]
    Write {
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The disk does not say that it has it.
    #[snafu(display("failed to bring it to the disk: {source}"))]
    Sync {
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The log was deleted or replaced, or its volume is gone. Records are kept again when the log is back, as on a volume that
    /// returns; a log in its place is opened by the next process.
    #[snafu(display(
        "the log in {} is not as this process left it: {reason}; restore it, or restart the process",
        directory.display()
    ))]
    Lost {
        /// The log.
        directory: PathBuf,
        /// The difference, such as missing records.
        reason: String,
    },
    /// The log was closed.
    #[snafu(display("the log is closed"))]
    Closed,
    /// It cannot be a line.
    #[snafu(display(
        "the record has {found} bytes, accepted are {LONGEST_RECORD}, of a JSON object in one line without seq and prev"
    ))]
    Unfit {
        /// How many it has.
        found: usize,
    },
}

impl AppendError {
    /// What it is counted as.
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
