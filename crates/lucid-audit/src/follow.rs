//! Followers for files written by other processes, which rotate them: the segments of a log, and the API server's audit log.
//!
//! Only complete lines are passed on. An incomplete last line is read again by the next poll.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use snafu::ResultExt;

use crate::checkpoint;
use crate::error::Error;
use crate::layout;
use crate::read::{self, Segment, found, reading};
use crate::tile::{Frontier, Tiles};

const BUFFER: usize = 1 << 20;
/// Length in bytes above which a line is passed on in pieces. Bounds memory; no writer produces such lines.
const LONGEST: u64 = 16 << 20;

/// Reads lines up to the last newline. Returns their total length in bytes.
fn lines(reader: impl Read, each: &mut dyn FnMut(&[u8])) -> io::Result<u64> {
    let mut reader = BufReader::with_capacity(BUFFER, reader);
    let mut line = Vec::new();
    let mut taken = 0;
    loop {
        line.clear();
        let count = reader.by_ref().take(LONGEST).read_until(b'\n', &mut line)? as u64;
        if line.pop_if(|byte| *byte == b'\n').is_none() && count < LONGEST {
            return Ok(taken);
        }
        taken += count;
        each(&line);
    }
}

/// Reads the lines of a file from `offset` up to the last newline. Returns the offset after it.
fn lines_from(file: &mut File, offset: u64, each: &mut dyn FnMut(&[u8])) -> io::Result<u64> {
    file.seek(SeekFrom::Start(offset))?;
    // Not further than it reaches now: after a crash the writer replaces an incomplete last line, and a second read would
    // join the begin of that line with the end of another.
    let length = file.metadata()?.len();
    Ok(offset + lines(file.take(length.saturating_sub(offset)), each)?)
}

/// Follows the lines of a log.
#[derive(Debug)]
pub struct LogFollower {
    pub(crate) directory: PathBuf,
    /// First record of the segment read last.
    pub(crate) segment: Option<u64>,
    offset: u64,
    /// Stamps of the segments when they were last re-read, by the sequence number of their first record.
    stamps: BTreeMap<u64, Stamp>,
}

/// Minimum index of a pruned log, not verified yet.
#[derive(Clone, Debug)]
pub(crate) struct MinimumIndex {
    pub(crate) note: String,
    /// Tree over the pruned records, if its tiles can be read.
    pub(crate) tree: Option<Frontier>,
}

/// Inode, length and modification time; changes with every write.
type Stamp = (u64, u64, i64, i64);

impl LogFollower {
    /// Creates a follower that starts at the first line of the log in `directory`.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), segment: None, offset: 0, stamps: BTreeMap::new() }
    }

    /// Reads the log's checkpoint and `vkey`, each `None` if missing.
    pub(crate) fn checkpoint(&self) -> Result<(Option<String>, Option<String>), Error> {
        let text = |name| read::text(&self.directory.join(name));
        Ok((text(layout::CHECKPOINT)?, text(layout::VKEY)?))
    }

    /// Reads the minimum index of a pruned log, `None` if it keeps all records.
    pub(crate) fn minimum(&self) -> Result<Option<MinimumIndex>, Error> {
        let directory = &self.directory;
        let Some(note) = read::text(&directory.join(layout::MINIMUM))? else { return Ok(None) };
        let size = checkpoint::parse(&note).ok().map(|(_, checkpoint)| checkpoint.size);
        let tree = size.and_then(|size| Frontier::load(Tiles { directory, size }).ok());
        Ok(Some(MinimumIndex { note, tree }))
    }

    /// Passes the lines written since the last poll to `each`. Returns `false` if a file is missing or shorter than what was
    /// already read.
    ///
    /// # Errors
    ///
    /// Returns an error if a segment cannot be read. A log that does not exist yet has no lines.
    pub fn poll(&mut self, mut each: impl FnMut(&[u8])) -> Result<bool, Error> {
        let segments = match read::list(&self.directory) {
            Err(error) if error.is_absence() && self.segment.is_none() => return Ok(true),
            listing => listing?.segments,
        };
        let current = self.segment;
        let holds = |first| segments.iter().any(|it| it.first == first && it.length >= self.offset);
        let is_complete = current.is_none_or(holds);
        for segment in segments.iter().filter(|it| current.is_none_or(|current| it.first >= current)) {
            if self.segment != Some(segment.first) {
                (self.segment, self.offset) = (Some(segment.first), 0);
            }
            if segment.length < self.offset {
                // Appended lines are read again once the segment has grown.
                self.offset = segment.length;
                continue;
            }
            let of = reading(&segment.path);
            let mut file = File::open(&segment.path).context(of)?;
            self.offset = lines_from(&mut file, self.offset, &mut each).context(of)?;
        }
        Ok(is_complete)
    }

    /// Passes the lines of segments modified since the last re-read to `each`, with the sequence number expected at their
    /// position, as far as [`Self::poll`] has read. A missing segment, or the first line missing at the end of one, yields an
    /// empty line. Returning `false` from `each` skips the rest of the segment.
    pub(crate) fn reread(&mut self, mut each: impl FnMut(u64, &[u8]) -> bool) -> Result<(), Error> {
        let Some(current) = self.segment else { return Ok(()) };
        let mut segments = read::list(&self.directory)?.segments;
        segments.retain(|it| it.first <= current);
        let gone = |first: &u64| !segments.iter().any(|it| it.first == *first);
        for (first, _) in self.stamps.extract_if(.., |first, _| gone(first)) {
            each(first, b"");
        }
        for (place, Segment { first, path, .. }) in segments.iter().enumerate() {
            let (first, of) = (*first, reading(path));
            let file = File::open(path).context(of)?;
            let stamp = stamp(&file.metadata().context(of)?);
            if self.stamps.get(&first) == Some(&stamp) {
                continue;
            }
            let end = if first == current { self.offset } else { u64::MAX };
            let mut seq = first;
            let mut goes_on = true;
            // Later lines of the current segment have not been polled yet.
            lines(file.take(end), &mut |line| {
                goes_on = goes_on && each(seq, line);
                seq += 1;
            })
            .context(of)?;
            // The segment ends before the next one begins.
            if goes_on && segments.get(place + 1).is_some_and(|next| seq < next.first) {
                each(seq, b"");
            }
            self.stamps.insert(first, stamp);
        }
        Ok(())
    }
}

fn stamp(metadata: &fs::Metadata) -> Stamp {
    use std::os::unix::fs::MetadataExt;
    (metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec())
}

#[derive(Debug)]
pub(crate) struct EventFollower {
    pub(crate) path: PathBuf,
    open: Option<(File, u64)>,
    /// Names of the rotated files already read.
    read: BTreeSet<PathBuf>,
    /// Rotated files that were skipped because they are compressed.
    pub(crate) compressed: Vec<PathBuf>,
}

impl EventFollower {
    /// Creates a follower that starts at the first line of the oldest rotated file.
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), open: None, read: BTreeSet::new(), compressed: Vec::new() }
    }

    /// Passes the lines written since the last poll to `each`. A file that does not exist yet has no lines.
    pub(crate) fn poll(&mut self, mut each: impl FnMut(&[u8])) -> Result<(), Error> {
        let path = self.path.clone();
        let of = reading(&path);
        // Lines appended before a rotation.
        self.read_open(&mut each).context(of)?;
        if self.is_same().context(of)? {
            return Ok(());
        }
        // The file may have been appended to between the read and the check.
        self.read_open(&mut each).context(of)?;
        let identity = |file: &File| file.metadata().map(|metadata| read::identity(&metadata)).ok();
        let was = self.open.take().and_then(|(file, offset)| Some((identity(&file)?, offset)));
        for rotated in self.rotated().context(of)? {
            if !self.read.insert(rotated.clone()) {
                continue;
            }
            let file = found(File::open(&rotated)).context(reading(&rotated))?;
            let Some(mut file) = file else { continue };
            // The previously open file, under its rotated name.
            let known = was.filter(|(it, _)| Some(*it) == identity(&file));
            let offset = known.map_or(0, |(_, offset)| offset);
            lines_from(&mut file, offset, &mut each).context(reading(&rotated))?;
        }
        self.open = found(File::open(&self.path)).context(of)?.map(|file| (file, 0));
        Ok(self.read_open(&mut each).context(of)?)
    }

    fn read_open(&mut self, each: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let Some((file, offset)) = &mut self.open else { return Ok(()) };
        // The file was truncated in place, so its content is new.
        if file.metadata()?.len() < *offset {
            *offset = 0;
        }
        *offset = lines_from(file, *offset, each)?;
        Ok(())
    }

    /// Returns `true` if the path still refers to the open file, or to no file.
    fn is_same(&self) -> io::Result<bool> {
        let Some((file, _)) = &self.open else { return Ok(false) };
        let opened = file.metadata()?;
        // If there is no file, it was rotated but not yet recreated.
        let now = found(fs::metadata(&self.path))?;
        Ok(now.is_none_or(|now| read::identity(&now) == read::identity(&opened)))
    }

    /// Lists the rotated files, oldest first.
    fn rotated(&mut self) -> io::Result<Vec<PathBuf>> {
        let folder = self.path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned() + "-";
        let suffix = self.path.extension().map(|it| format!(".{}", it.to_string_lossy())).unwrap_or_default();
        let mut rotated = Vec::new();
        let mut compressed = Vec::new();
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name();
            let path = folder.join(&name);
            let Some(name) = name.to_str() else { continue };
            let Some(rest) =
                name.strip_prefix(&stem).filter(|it| it.starts_with(|it: char| it.is_ascii_digit()))
            else {
                continue;
            };
            if rest.ends_with(&format!("{suffix}.gz")) {
                compressed.push(path);
            } else if rest.ends_with(&suffix) {
                rotated.push(path);
            }
        }
        rotated.sort();
        compressed.sort();
        self.compressed = compressed;
        Ok(rotated)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn append(path: &Path, text: &str) {
        fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }

    fn poll(follower: &mut EventFollower) -> Vec<String> {
        let mut found = Vec::new();
        follower.poll(|line| found.push(String::from_utf8(line.to_vec()).unwrap())).unwrap();
        found
    }

    #[test]
    fn rotation_neither_loses_nor_repeats_events() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let rotated = |number: u32| folder.path().join(format!("audit-2026-01-0{number}T00-00-00.000.jsonl"));
        let mut follower = EventFollower::new(&path);
        assert!(poll(&mut follower).is_empty());
        append(&folder.path().join("audit-policy.jsonl"), "no\n");
        append(&rotated(1), "a\nb\n");
        append(&path, "c\nd");
        assert_eq!(poll(&mut follower), ["a", "b", "c"]);
        append(&path, "\ne\n");
        fs::rename(&path, rotated(2)).unwrap();
        assert_eq!(poll(&mut follower), ["d", "e"]);
        append(&rotated(2), "f\n");
        append(&path, "g\n");
        assert_eq!(poll(&mut follower), ["f", "g"]);
        // Two rotations between two polls.
        append(&path, "h\n");
        fs::rename(&path, rotated(3)).unwrap();
        append(&path, "i\n");
        fs::rename(&path, rotated(4)).unwrap();
        append(&path, "j\n");
        assert_eq!(poll(&mut follower), ["h", "i", "j"]);
        assert!(poll(&mut follower).is_empty());
        // Truncated in place.
        fs::write(&path, "k\n").unwrap();
        append(&path, "");
        assert_eq!(poll(&mut follower), Vec::<String>::new(), "as long as before");
        fs::write(&path, "").unwrap();
        assert!(poll(&mut follower).is_empty());
        append(&path, "l\n");
        assert_eq!(poll(&mut follower), ["l"]);
        append(&folder.path().join("audit-2026-01-05T00-00-00.000.jsonl.gz"), "x");
        fs::rename(&path, rotated(6)).unwrap();
        append(&path, "m\n");
        assert_eq!(poll(&mut follower), ["m"]);
        assert_eq!(follower.compressed.len(), 1);
    }

    #[test]
    fn a_log_is_followed_over_its_segments() {
        let folder = tempfile::tempdir().unwrap();
        let mut follower = LogFollower::new(folder.path());
        let poll = |follower: &mut LogFollower| {
            let mut found = Vec::new();
            let complete =
                follower.poll(|line| found.push(String::from_utf8(line.to_vec()).unwrap())).unwrap();
            (found, !complete)
        };
        assert_eq!(poll(&mut follower), (vec![], false));
        fs::create_dir(folder.path().join("segments")).unwrap();
        let (one, other) = (layout::segment(folder.path(), 0), layout::segment(folder.path(), 2));
        append(&one, "a\nb");
        assert_eq!(poll(&mut follower).0, ["a"]);
        append(&one, "b\n");
        append(&other, "c\nd\n");
        assert_eq!(poll(&mut follower), (vec!["bb".to_owned(), "c".to_owned(), "d".to_owned()], false));
        // Truncating a torn line is not a loss.
        append(&other, "torn");
        assert_eq!(poll(&mut follower), (vec![], false));
        fs::write(&other, "c\nd\n").unwrap();
        assert_eq!(poll(&mut follower), (vec![], false));
        fs::write(&other, "c\n").unwrap();
        assert_eq!(poll(&mut follower), (vec![], true));
    }

    #[test]
    fn files_rewritten_while_followed_are_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut follower = LogFollower::new(folder.path());
        let again = |follower: &mut LogFollower| {
            let mut found = Vec::new();
            let each = |seq, line: &[u8]| {
                found.push(format!("{seq}{}", String::from_utf8_lossy(line)));
                line != b"stop"
            };
            follower.reread(each).unwrap();
            found
        };
        assert!(again(&mut follower).is_empty());
        fs::create_dir(folder.path().join("segments")).unwrap();
        let (one, other) = (layout::segment(folder.path(), 0), layout::segment(folder.path(), 3));
        append(&one, "a\nb\nc\n");
        append(&other, "d\n");
        follower.poll(|_| ()).unwrap();
        append(&other, "e\n");
        assert_eq!(again(&mut follower), ["0a", "1b", "2c", "3d"], "as far as it has come");
        assert_eq!(again(&mut follower), Vec::<String>::new());
        follower.poll(|_| ()).unwrap();
        fs::write(&one, "a\nBB\n").unwrap();
        append(&other, "f\n");
        assert_eq!(again(&mut follower), ["0a", "1BB", "2", "3d", "4e"]);
        fs::write(&one, "stop\nb\nc\n").unwrap();
        assert_eq!(again(&mut follower), ["0stop"]);
        fs::remove_file(&one).unwrap();
        assert_eq!(again(&mut follower), ["0"]);
        assert_eq!(again(&mut follower), Vec::<String>::new());
    }
}
