//! Reading of logs that may be damaged, or open for writing. File contents are untrusted.

mod segment;

pub(crate) use segment::{Listing, Segment, list};

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;
use snafu::Snafu;

/// Error reading a part of a log.
#[derive(Debug, Snafu)]
#[snafu(display("failed to read {}: {source}", path.display()))]
pub struct ReadError {
    path: PathBuf,
    source: io::Error,
}

impl ReadError {
    /// Adds the path to an I/O error.
    pub(crate) fn of(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self { path, source }
    }

    /// Creates an error for a file with unexpected contents.
    pub(crate) fn invalid(path: &Path, problem: String) -> Self {
        Self::of(path)(io::Error::new(io::ErrorKind::InvalidData, problem))
    }

    /// Returns the cause without the path.
    pub(crate) fn cause(&self) -> String {
        self.source.to_string()
    }

    /// Returns `true` if the file does not exist.
    pub(crate) fn is_absence(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

/// Maximum size of a checkpoint or key file, in bytes.
pub(crate) const SMALL: u64 = 1 << 20;

/// Opens a regular file. Opening a pipe in its place would block until a writer appears.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file"));
    }
    File::open(path)
}

/// Reads a file of at most `limit` bytes. Other users of the log's folder may have put an endless file there.
pub(crate) fn bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let length = file.metadata()?.len();
    if length > limit {
        let problem = format!("it has {length} bytes, at most {limit} are accepted");
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a small UTF-8 file, such as a checkpoint. Returns `None` if it does not exist.
pub(crate) fn text(path: &Path) -> io::Result<Option<String>> {
    match bounded(path, SMALL) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(bytes) => String::from_utf8(bytes)
            .map(Some)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
    }
}

/// Reads a small UTF-8 file that must exist.
pub(crate) fn required_text(path: &Path) -> Result<String, ReadError> {
    let absent = || io::Error::from(io::ErrorKind::NotFound);
    text(path).and_then(|text| text.ok_or_else(absent)).map_err(ReadError::of(path))
}

/// Returns `true` if the line is a JSON object.
pub(crate) fn is_object(line: &[u8]) -> bool {
    line.starts_with(b"{") && serde_json::from_slice::<IgnoredAny>(line).is_ok()
}
