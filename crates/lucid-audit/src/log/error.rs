use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use snafu::Snafu;

use crate::layout::LONGEST_RECORD;
use crate::read::FileError;

/// Error opening a log.
#[derive(Debug, Snafu)]
#[snafu(source(from(exact)))]
pub struct OpenError(OpenProblem);

#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
pub(super) enum OpenProblem {
    /// The path is not a directory, a sealed log is opened without its key, or the name of the key is that of another log.
    #[snafu(display("{message}"))]
    Conflict { message: String },
    #[snafu(transparent)]
    File { source: FileError },
    #[snafu(display("another process writes the log in {}: each process needs its own directory", directory.display()))]
    Locked { directory: PathBuf },
    #[snafu(display("{message}"))]
    Unadopted { message: String },
    #[snafu(whatever, display("{message}"))]
    Damaged { message: String },
    #[snafu(display("failed to write to the log in {}: {source}", directory.display()))]
    Begin { directory: PathBuf, source: AppendError },
}

/// Kinds of [`OpenError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenErrorKind {
    /// Another process has the log open: a retry may succeed.
    Locked,
    /// The disk is full or failing: a retry may succeed.
    Transient,
    /// The log is damaged or inaccessible.
    Damaged,
    /// The configuration conflicts with the log.
    Conflict,
    /// The checkpoint is not signed by the configured key, or the log has records that were never sealed.
    /// [`Options::with_adoption`](super::Options::with_adoption) continues such a log.
    Unadopted,
}

impl OpenError {
    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> OpenErrorKind {
        use io::ErrorKind::{InvalidData, NotFound, Other, PermissionDenied};
        match &self.0 {
            OpenProblem::Locked { .. } => OpenErrorKind::Locked,
            OpenProblem::Conflict { .. } => OpenErrorKind::Conflict,
            OpenProblem::Unadopted { .. } => OpenErrorKind::Unadopted,
            OpenProblem::Begin { .. } => OpenErrorKind::Transient,
            OpenProblem::Damaged { .. } => OpenErrorKind::Damaged,
            OpenProblem::File { source: FileError { source, .. } } => match source.kind() {
                // The first two indicate wrong settings, the others unexpected file contents.
                NotFound | PermissionDenied | InvalidData | Other => OpenErrorKind::Damaged,
                _ => OpenErrorKind::Transient,
            },
        }
    }
}

/// Error recording a decision, or appending another record.
#[derive(Clone, Debug, Snafu)]
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
    #[snafu(display("failed to flush it to disk: {source}"))]
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
        "expected a one-line JSON object without seq and prev of up to {LONGEST_RECORD} bytes, found {found} bytes"
    ))]
    Unfit {
        /// Length of the record in bytes.
        found: usize,
    },
    /// The log did not confirm the record in time.
    #[snafu(display("the disk took longer than {} ms", patience.as_millis()))]
    Late {
        /// Time waited.
        patience: Duration,
    },
    /// The log is not open.
    #[snafu(display("{reason}"))]
    Unavailable {
        /// Reason why the log could not be opened.
        reason: String,
    },
    /// Unauthenticated callers have exhausted their budget of the log.
    #[snafu(display("callers without a client certificate have exhausted their budget"))]
    Budget,
}

impl AppendError {
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Full { .. } => "full",
            Self::Write { .. } => "write",
            Self::Sync { .. } => "sync",
            Self::Lost { .. } => "lost",
            Self::Closed => "closed",
            Self::Unfit { .. } => "unfit",
            Self::Late { .. } => "late",
            Self::Unavailable { .. } => "unavailable",
            Self::Budget => "budget",
        }
    }
}
