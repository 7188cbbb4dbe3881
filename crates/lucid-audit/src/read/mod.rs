//! Reading a log that is being written meanwhile, or that somebody has damaged: nothing that is found in it is trusted.

mod segment;

pub(crate) use segment::{Listing, Segment, list};

use std::fs::{self, File};
use std::io::{self, Read};
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

/// How large a checkpoint or a key may be, in bytes.
pub(crate) const SMALL: u64 = 1 << 20;

/// Opens a regular file. Opening a pipe that somebody has put in its place would wait for a writer.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file"));
    }
    File::open(path)
}

/// What is in a file of at most `limit` bytes. Who writes to a log's folder may have put a file without an end there.
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

/// The text in a small file, such as a checkpoint; `None` when there is no such file.
pub(crate) fn text(path: &Path) -> io::Result<Option<String>> {
    match bounded(path, SMALL) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(bytes) => String::from_utf8(bytes)
            .map(Some)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)),
    }
}

/// Whether a line is one object of JSON.
pub(crate) fn is_object(line: &[u8]) -> bool {
    line.starts_with(b"{") && serde_json::from_slice::<IgnoredAny>(line).is_ok()
}
