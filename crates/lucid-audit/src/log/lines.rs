//! Sequential reading of segments.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use snafu::ResultExt;

use crate::layout;
use crate::read::{self, FileError, FileSnafu};

use super::files::FileIdentity;

/// Lists the segments by the sequence numbers of their first records, in order.
pub(super) fn segments(directory: &Path) -> Result<Vec<u64>, FileError> {
    let path = directory.join(layout::SEGMENTS);
    let list = FileSnafu { what: "list", path: &path };
    let mut segments = Vec::new();
    for entry in fs::read_dir(&path).context(list)? {
        segments.extend(entry.context(list)?.file_name().to_str().and_then(layout::parse_segment));
    }
    segments.sort_unstable();
    Ok(segments)
}

/// Returns the offset of the last line of a segment, and that line without its newline. The line is empty if there is none.
pub(super) fn last(path: &Path) -> io::Result<(u64, Vec<u8>)> {
    let mut file = read::open(path)?;
    let longest = layout::LONGEST_LINE as u64 + 2;
    let from = file.seek(SeekFrom::Start(file.metadata()?.len().saturating_sub(longest)))?;
    let mut end = Vec::new();
    file.take(longest).read_to_end(&mut end)?;
    let whole = end.strip_suffix(b"\n").unwrap_or_default();
    let begin = memchr::memrchr(b'\n', whole).map_or(0, |newline| newline + 1);
    Ok((from + begin as u64, whole.get(begin..).unwrap_or_default().to_vec()))
}

#[derive(Debug)]
pub(super) struct Lines {
    identity: FileIdentity,
    reader: BufReader<File>,
    /// Byte offset of the next line.
    offset: u64,
    line: Vec<u8>,
}

impl Lines {
    pub(super) fn open(directory: &Path, first: u64) -> io::Result<Self> {
        let path = layout::segment(directory, first);
        let file = read::open(&path)?;
        let identity = FileIdentity::of(&file, path)?;
        Ok(Self { identity, reader: BufReader::with_capacity(1 << 18, file), offset: 0, line: Vec::new() })
    }

    /// Returns an error if the path refers to another file or to none.
    pub(super) fn check_path(&self) -> io::Result<()> {
        self.identity.check()
    }

    pub(super) const fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the next line without its newline, or `None` at the end or at a torn line.
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
