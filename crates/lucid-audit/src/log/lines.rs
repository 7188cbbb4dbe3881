//! The lines of the segments, one after the other.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::layout;

/// The first records of the segments there are, in order.
pub(super) fn segments(directory: &Path) -> io::Result<Vec<u64>> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(directory.join(layout::SEGMENTS))? {
        segments.extend(entry?.file_name().to_str().and_then(layout::parse_segment));
    }
    segments.sort_unstable();
    Ok(segments)
}

/// Reads a segment.
#[derive(Debug)]
pub(super) struct Lines {
    path: PathBuf,
    reader: BufReader<File>,
    /// Where the next line begins.
    offset: u64,
    line: Vec<u8>,
}

impl Lines {
    pub(super) fn open(directory: &Path, first: u64, offset: u64) -> io::Result<Self> {
        let path = layout::segment(directory, first);
        let mut file = File::open(&path)?;
        file.seek(SeekFrom::Start(offset))?;
        Ok(Self { path, reader: BufReader::with_capacity(1 << 18, file), offset, line: Vec::new() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) const fn offset(&self) -> u64 {
        self.offset
    }

    /// The next line without its newline; `None` at the end and at a torn end.
    pub(super) fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        let read = self.reader.read_until(b'\n', &mut self.line)?;
        if self.line.pop_if(|byte| *byte == b'\n').is_none() {
            return Ok(None);
        }
        self.offset += read as u64;
        Ok(Some(&self.line))
    }
}
