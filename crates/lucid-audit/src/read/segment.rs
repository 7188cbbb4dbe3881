use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::ReadError;
use crate::layout::{self, Line, SEGMENTS};

/// A file of consecutive lines.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// The number of its first line, as its name says.
    pub(crate) first: u64,
    /// Its path within the log.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// In bytes, when it was listed: it may have grown since.
    pub(crate) length: u64,
}

impl Segment {
    /// The number that its first line has; `None` when there is no such line.
    pub(crate) fn first_found(&self) -> Result<Option<u64>, ReadError> {
        let mut begin = Vec::new();
        let read = |begin: &mut Vec<u8>| File::open(&self.path)?.take(256).read_to_end(begin);
        read(&mut begin).map_err(ReadError::of(&self.path))?;
        Ok(Line::parse(&begin).ok().map(|line| line.seq))
    }
}

/// What is in a log's folder of segments.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listing {
    /// In the order of their names.
    pub(crate) segments: Vec<Segment>,
    /// What no writer puts there, by its path within the log.
    pub(crate) strangers: Vec<String>,
}

/// Lists the segments of the log in `directory`.
pub(crate) fn list(directory: &Path) -> Result<Listing, ReadError> {
    let folder = directory.join(SEGMENTS);
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).map_err(ReadError::of(&folder))? {
        names.push(entry.map_err(ReadError::of(&folder))?.file_name());
    }
    // In this order each but the last was complete before the next one had a name, so its length is final.
    names.sort();
    let mut listing = Listing::default();
    for name in names {
        let path = folder.join(&name);
        // Links are not followed: what they lead to is not part of the log.
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
