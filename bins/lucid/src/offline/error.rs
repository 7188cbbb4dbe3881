//! Errors of the offline commands.

use std::io;
use std::path::PathBuf;

use snafu::Snafu;

use crate::files::FilesError;

/// Errors of the offline commands. Problems of single documents are written to standard error instead.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
#[non_exhaustive]
pub(crate) enum OfflineError {
    /// A file, or the configuration in it, is invalid.
    #[snafu(transparent)]
    Files {
        /// Cause, with the path.
        source: FilesError,
    },
    /// The file is not an AdmissionReview that the webhook answers.
    #[snafu(display("failed to review {}: {problem}", path.display()))]
    Review {
        /// Path of the file.
        path: PathBuf,
        /// Error message of the webhook.
        problem: String,
    },
    /// The output could not be written.
    #[snafu(display("failed to write the result: {source}"))]
    Output {
        /// Cause.
        source: io::Error,
    },
}

impl OfflineError {
    /// Returns `true` if the inputs are invalid, `false` if the output could not be written.
    #[must_use]
    pub(crate) fn is_usage(&self) -> bool {
        !matches!(self, Self::Output { .. })
    }
}
