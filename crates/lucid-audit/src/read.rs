//! Reading of logs that may be damaged, or open for writing. File contents are untrusted.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::de::IgnoredAny;
use snafu::{IntoError, ResultExt, Snafu};

use crate::checkpoint::{self, Checkpoint};
use crate::layout::{self, CHECKPOINT, Line, MINIMUM, SEGMENTS};
use crate::note::Note;

#[derive(Debug, Snafu)]
#[snafu(display("failed to {what} {}: {source}", path.display()), visibility(pub(crate)))]
pub(crate) struct FileError {
    /// Operation, such as `read`.
    pub(crate) what: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) source: io::Error,
}

pub(crate) const fn reading(path: &Path) -> FileSnafu<&'static str, &Path> {
    FileSnafu { what: "read", path }
}

impl FileError {
    pub(crate) fn invalid(path: &Path, problem: String) -> Self {
        reading(path).into_error(io::Error::new(io::ErrorKind::InvalidData, problem))
    }

    pub(crate) fn is_absence(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

impl From<FileError> for io::Error {
    fn from(error: FileError) -> Self {
        Self::new(error.source.kind(), error)
    }
}

/// Maximum size of a checkpoint or key file, in bytes.
const SMALL: u64 = 1 << 20;

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
        let problem = format!("expected at most {limit} bytes, found {length}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a small file, such as a checkpoint. Returns `None` if it does not exist.
pub(crate) fn small(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    found(bounded(path, SMALL)).context(reading(path))
}

/// Converts the error of a file that does not exist to `None`.
pub(crate) fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// Returns device and inode of a file, which survive a rename and are unique while it is open.
pub(crate) fn identity(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Reads a small UTF-8 file. Returns `None` if it does not exist.
pub(crate) fn text(path: &Path) -> Result<Option<String>, FileError> {
    let text = small(path)?.map(String::from_utf8).transpose();
    text.map_err(|error| FileError::invalid(path, error.to_string()))
}

/// Reads a small UTF-8 file. A missing one is an error.
pub(crate) fn existing(path: &Path) -> Result<String, FileError> {
    text(path)?.ok_or_else(|| reading(path).into_error(io::ErrorKind::NotFound.into()))
}

/// Reads the checkpoint of the log in `directory`, without verifying it.
pub(crate) fn checkpoint(directory: &Path) -> Result<(Note, Checkpoint), FileError> {
    let path = directory.join(CHECKPOINT);
    checkpoint::parse(&existing(&path)?).map_err(|error| FileError::invalid(&path, error.to_string()))
}

/// Reads the number of records that were pruned from the log in `directory`, without verifying it.
pub(crate) fn first(directory: &Path) -> Result<u64, FileError> {
    let minimum = text(&directory.join(MINIMUM))?;
    Ok(minimum.and_then(|text| checkpoint::parse(&text).ok()).map_or(0, |(_, checkpoint)| checkpoint.size))
}

pub(crate) fn is_object(line: &[u8]) -> bool {
    line.starts_with(b"{") && serde_json::from_slice::<IgnoredAny>(line).is_ok()
}

#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// Sequence number of the first line, from the file name.
    pub(crate) first: u64,
    /// Path relative to the log's directory.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// Length in bytes when listed. The file may have grown since.
    pub(crate) length: u64,
}

impl Segment {
    /// Reads the sequence number of the first line; `None` if there is no valid one.
    pub(crate) fn first_found(&self) -> Result<Option<u64>, FileError> {
        let mut begin = Vec::new();
        let read = |begin: &mut Vec<u8>| File::open(&self.path)?.take(256).read_to_end(begin);
        read(&mut begin).context(reading(&self.path))?;
        Ok(Line::parse(&begin).ok().map(|line| line.seq))
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Listing {
    /// Segments sorted by name.
    pub(crate) segments: Vec<Segment>,
    /// Unexpected files, as paths relative to the log's directory.
    pub(crate) unexpected: Vec<String>,
}

pub(crate) fn list(directory: &Path) -> Result<Listing, FileError> {
    let folder = directory.join(SEGMENTS);
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).context(reading(&folder))? {
        names.push(entry.context(reading(&folder))?.file_name());
    }
    // All but the last segment were complete before the next name appeared. Reading lengths in this order yields final ones.
    names.sort();
    let mut listing = Listing::default();
    for name in names {
        let path = folder.join(&name);
        // Do not follow links: their targets are not part of the log.
        let metadata = found(fs::symlink_metadata(&path)).context(reading(&path))?;
        let Some(metadata) = metadata else { continue };
        let name = name.to_string_lossy();
        let within = format!("{SEGMENTS}/{name}");
        match layout::parse_segment(&name).filter(|_| metadata.is_file()) {
            Some(first) => {
                listing.segments.push(Segment { first, name: within, path, length: metadata.len() });
            }
            None => listing.unexpected.push(within),
        }
    }
    Ok(listing)
}
