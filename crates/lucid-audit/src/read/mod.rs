//! Reading a log that is being written meanwhile, or that somebody has damaged: nothing that is found in it is trusted.

mod segment;

pub(crate) use segment::{Listing, Segment, list};

use std::io;
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;
use snafu::Snafu;

/// A part of a log could not be read.
#[derive(Debug, Snafu)]
#[snafu(display("failed to read {}: {source}", path.display()))]
pub struct ReadError {
    path: PathBuf,
    source: io::Error,
}

impl ReadError {
    /// Turns an error of the system into one that names the file.
    pub(crate) fn of(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self { path, source }
    }

    /// Whether there is no such file.
    pub(crate) fn is_absence(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

/// Whether a line is one object of JSON.
pub(crate) fn is_object(line: &[u8]) -> bool {
    line.starts_with(b"{") && serde_json::from_slice::<IgnoredAny>(line).is_ok()
}
