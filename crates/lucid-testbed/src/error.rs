//! Error of the test bed.

use std::{fmt, path::Path};

use snafu::{Report, Snafu};

/// Error of building programs, or of starting or operating a cluster.
///
/// `Debug` prints the message with its causes, which is the output of a test's `unwrap`.
#[derive(Snafu)]
#[snafu(whatever, display("{message}"))]
pub struct Error {
    message: String,
    #[snafu(source(from(Box<dyn std::error::Error + Send + Sync>, Some)))]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Report::from_error(self), f)
    }
}

pub(crate) const FILES: &str = "failed to write the files of the cluster";
pub(crate) const KEYS: &str = "failed to make the keys and certificates of the cluster";
pub(crate) const PORT: &str = "failed to reserve a port";

pub(crate) fn failed_to(action: &str, path: &Path) -> String {
    format!("failed to {action} {}", path.display())
}
