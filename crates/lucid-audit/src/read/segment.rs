use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::ReadError;
use crate::layout::{self, Line, SEGMENTS};

/// A file of consecutive lines.
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
    pub(crate) fn first_found(&self) -> Result<Option<u64>, ReadError> {
        let mut begin = Vec::new();
        let read = |begin: &mut Vec<u8>| File::open(&self.path)?.take(256).read_to_end(begin);
        read(&mut begin).map_err(ReadError::of(&self.path))?;
        Ok(Line::parse(&begin).ok().map(|line| line.seq))
    }
}

/// Contents of a log's segments folder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listing {
    /// Segments sorted by name.
    pub(crate) segments: Vec<Segment>,
    /// Unexpected files, as paths relative to the log's directory.
    pub(crate) strangers: Vec<String>,
}

/// Lists the segments of the log in `directory`.
pub(crate) fn list(directory: &Path) -> Result<Listing, ReadError> {
    let folder = directory.join(SEGMENTS);
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).map_err(ReadError::of(&folder))? {
        names.push(entry.map_err(ReadError::of(&folder))?.file_name());
    }
    // All but the last segment were complete before the next name appeared. Reading lengths in this order yields final ones.
    names.sort();
    let mut listing = Listing::default();
    for name in names {
        let path = folder.join(&name);
        // Do not follow links: their targets are not part of the log.
        let metadata = match fs::symlink_metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(ReadError::of(&path)(error)),
        };
        let name = name.to_string_lossy();
        let within = format!("{SEGMENTS}/{name}");
        match layout::parse_segment(&name).filter(|_| metadata.is_file()) {
            Some(first) => {
                listing.segments.push(Segment { first, name: within, path, length: metadata.len() });
            }
            None => listing.strangers.push(within),
        }
    }
    Ok(listing)
}
