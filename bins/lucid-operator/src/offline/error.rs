//! Why a command cannot do its work at all.

use std::io;
use std::path::PathBuf;

use snafu::Snafu;

use crate::files::FilesError;

/// Why a command cannot do its work at all. What is wrong with single documents it writes to standard error.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
#[non_exhaustive]
pub enum OfflineError {
    /// A file, or the configuration in it, cannot be used.
    #[snafu(transparent)]
    Files {
        /// Which, and why.
        source: FilesError,
    },
    /// The file holds no review that the webhook would answer.
    #[snafu(display("failed to review {}: {problem}", path.display()))]
    Review {
        /// Which file.
        path: PathBuf,
        /// What the webhook said.
        problem: String,
    },
    /// Nobody reads what is written.
    #[snafu(display("failed to write the result: {source}"))]
    Output {
        /// What the system said.
        source: io::Error,
    },
}

impl OfflineError {
    /// Whether the command was called wrongly, rather than unable to write.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        !matches!(self, Self::Output { .. })
    }
}
