use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use snafu::Snafu;

use crate::layout::LONGEST_RECORD;

/// Error opening a log.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
#[non_exhaustive]
pub enum OpenError {
    /// The path is not a directory, or a sealed log is opened without its key.
    #[snafu(display("{message}"))]
    Conflict {
        /// Description of the conflict with the configuration.
        message: String,
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
    /// The log has fewer records than were sealed.
    #[snafu(display("{sealed} records were sealed in {}, but there are {found}: some were taken out", directory.display()))]
    Shrunk {
        /// Directory of the log.
        directory: PathBuf,
        /// Number of records that the checkpoint covers.
        sealed: u64,
        /// Number of records in the log.
        found: u64,
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
    /// The checkpoint is not signed by the configured key, or the log has records that were never sealed.
    #[snafu(display("{message}"))]
    Unadopted {
        /// Description of the conflict with the configuration.
        message: String,
    },
    /// The records, the checkpoint or the cosigned checkpoint were changed.
    #[snafu(whatever, display("{message}"))]
    Damaged {
        /// Description and location of the fault.
        message: String,
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
            Self::Conflict { .. } | Self::Locked { .. } | Self::Origin { .. } | Self::Unadopted { .. }
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
        matches!(self, Self::Unadopted { .. })
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
