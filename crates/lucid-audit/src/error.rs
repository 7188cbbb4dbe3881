use snafu::Snafu;

use crate::note::NoteError;
use crate::read::FileError;

/// Error reading, verifying, proving or cosigning records of a log.
#[derive(Debug, Snafu)]
#[snafu(source(from(exact)))]
pub struct Error(Problem);

#[derive(Debug, Snafu)]
#[snafu(visibility(pub(crate)))]
pub(crate) enum Problem {
    #[snafu(transparent)]
    File { source: FileError },
    #[snafu(transparent)]
    Note { source: NoteError },
    #[snafu(display(
        "the witness has seen {seen} records of {origin}, the log has {size}: it was rolled back"
    ))]
    RolledBack { origin: String, seen: u64, size: u64 },
    #[snafu(display("no trusted key was given"))]
    NoKey,
    #[snafu(display("the proof contains no record, and none was given"))]
    NoRecord,
    #[snafu(whatever, display("{message}"))]
    Invalid { message: String },
}

impl Error {
    /// Returns `true` if a file of the log cannot be read or written.
    #[must_use]
    pub const fn is_file(&self) -> bool {
        matches!(self.0, Problem::File { .. })
    }

    /// Returns `true` if a witness has seen more records than the log has.
    #[must_use]
    pub const fn is_rollback(&self) -> bool {
        matches!(self.0, Problem::RolledBack { .. })
    }

    /// Returns `true` if a proof cannot be checked: there is no trusted key, or no record.
    #[must_use]
    pub const fn is_incomplete(&self) -> bool {
        matches!(self.0, Problem::NoKey | Problem::NoRecord)
    }
}

impl From<FileError> for Error {
    fn from(source: FileError) -> Self {
        Self(source.into())
    }
}
