//! Following files that others write, over their rotation: a log's segments, and the API server's audit log.
//!
//! Only whole lines are handed out; what stands behind the last newline is read again when there is more.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::layout;
use crate::read::{self, ReadError};

/// How much is read at once, in bytes.
const PIECE: usize = 1 << 20;
/// A line that is longer is handed out in pieces: nobody writes such, and memory has an end.
const LONGEST: usize = 16 << 20;

/// Reads lines up to the last newline; returns how many bytes they are.
fn lines(reader: &mut impl Read, each: &mut dyn FnMut(&[u8])) -> io::Result<u64> {
    let mut buffer: Vec<u8> = Vec::new();
    let mut taken = 0;
    loop {
        let kept = buffer.len();
        let count = reader.by_ref().take(PIECE as u64).read_to_end(&mut buffer)?;
        let mut begin = 0;
        for newline in memchr::memchr_iter(b'\n', &buffer[kept..]) {
            let end = kept + newline;
            each(&buffer[begin..end]);
            begin = end + 1;
        }
        if buffer.len() - begin > LONGEST {
            each(&buffer[begin..]);
            begin = buffer.len();
        }
        buffer.drain(..begin);
        taken += begin as u64;
        if count == 0 {
            return Ok(taken);
        }
    }
}

/// Reads the lines of one file from `offset`, up to the last newline; returns where that is.
fn lines_from(file: &mut File, offset: u64, each: &mut dyn FnMut(&[u8])) -> io::Result<u64> {
    file.seek(SeekFrom::Start(offset))?;
    Ok(offset + lines(file, each)?)
}

/// Follows the lines of a log.
#[derive(Debug)]
pub struct LogFollower {
    directory: PathBuf,
    segment: Option<u64>,
    offset: u64,
    /// How the files were when they were read again, by the first record of each.
    read_again: BTreeMap<u64, Stamp>,
}

/// What differs when a file was written to: inode, length and time.
type Stamp = (u64, u64, i64, i64);

/// What happened to the files besides growing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Polled {
    /// How many lines were read.
    pub lines: u64,
    /// A file has become shorter than what was read of it, or is gone.
    pub shrunk: bool,
}

impl LogFollower {
    /// From the first line of the log in `directory`.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), segment: None, offset: 0, read_again: BTreeMap::new() }
    }

    /// From the lines that come next.
    ///
    /// # Errors
    ///
    /// When the segments cannot be listed.
    pub fn from_end(directory: impl Into<PathBuf>) -> Result<Self, ReadError> {
        let mut follower = Self::new(directory);
        if let Some(last) = read::list(&follower.directory)?.segments.last() {
            (follower.segment, follower.offset) = (Some(last.first), last.length);
        }
        Ok(follower)
    }

    /// The log's directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The log's checkpoint and its `vkey`, as far as they are there.
    ///
    /// # Errors
    ///
    /// When one cannot be read, or is no small file of text.
    pub fn checkpoint(&self) -> Result<(Option<String>, Option<String>), ReadError> {
        let [checkpoint, vkey] = [layout::CHECKPOINT, layout::VKEY].map(|name| {
            let path = self.directory.join(name);
            read::text(&path).map_err(ReadError::of(&path))
        });
        Ok((checkpoint?, vkey?))
    }

    /// Hands out the lines that were written since the last time.
    ///
    /// # Errors
    ///
    /// When a segment cannot be read. A log that is not there yet is one without lines.
    pub fn poll(&mut self, mut each: impl FnMut(&[u8])) -> Result<Polled, ReadError> {
        let mut polled = Polled::default();
        let mut each = |line: &[u8]| {
            polled.lines += 1;
            each(line);
        };
        let listing = match read::list(&self.directory) {
            Err(error) if error.is_absence() && self.segment.is_none() => return Ok(polled),
            listing => listing?,
        };
        let mut shrunk = false;
        let current = self.segment;
        if let Some(current) = current {
            shrunk = !listing.segments.iter().any(|it| it.first == current && it.length >= self.offset);
        }
        for segment in listing.segments.iter().filter(|it| current.is_none_or(|current| it.first >= current))
        {
            if self.segment != Some(segment.first) {
                (self.segment, self.offset) = (Some(segment.first), 0);
            }
            if segment.length < self.offset {
                // What comes behind is read anew once there is more.
                self.offset = segment.length;
                continue;
            }
            let path = layout::segment(&self.directory, segment.first);
            let mut file = File::open(&path).map_err(ReadError::of(&path))?;
            self.offset = lines_from(&mut file, self.offset, &mut each).map_err(ReadError::of(&path))?;
        }
        polled.shrunk = shrunk;
        Ok(polled)
    }

    /// Hands out again the lines of segments that were written to since they were handed out again last, each with the number that it
    /// has to have, as far as [`Self::poll`] has come; for one that is gone, an empty one. A segment is left where `each` returns
    /// `false`.
    ///
    /// # Errors
    ///
    /// When a segment cannot be read.
    pub fn read_again(&mut self, mut each: impl FnMut(u64, &[u8]) -> bool) -> Result<(), ReadError> {
        let Some(current) = self.segment else { return Ok(()) };
        let listing = read::list(&self.directory)?;
        let firsts: Vec<u64> =
            listing.segments.iter().map(|it| it.first).filter(|it| *it <= current).collect();
        let gone: Vec<u64> =
            self.read_again.keys().copied().filter(|first| !firsts.contains(first)).collect();
        for first in gone {
            self.read_again.remove(&first);
            each(first, b"");
        }
        for (place, &first) in firsts.iter().enumerate() {
            let path = layout::segment(&self.directory, first);
            let of = |error| ReadError::of(&path)(error);
            let mut file = File::open(&path).map_err(of)?;
            let stamp = stamp(&file.metadata().map_err(of)?);
            if self.read_again.get(&first) == Some(&stamp) {
                continue;
            }
            let end = if first == current { self.offset } else { u64::MAX };
            let mut seq = first;
            let mut goes_on = true;
            // Of the last one, what comes behind was not read yet.
            lines(&mut (&mut file).take(end), &mut |line| {
                goes_on = goes_on && each(seq, line);
                seq += 1;
            })
            .map_err(of)?;
            // It ends before the next one begins.
            if goes_on && firsts.get(place + 1).is_some_and(|next| seq < *next) {
                each(seq, b"");
            }
            self.read_again.insert(first, stamp);
        }
        Ok(())
    }
}

fn stamp(metadata: &fs::Metadata) -> Stamp {
    use std::os::unix::fs::MetadataExt;
    (metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec())
}

/// Follows the API server's audit log: the file of `--audit-log-path`, and those that it was rotated into, oldest first
/// (`audit.log` becomes `audit-2026-01-31T23-59-59.000.log`). Compressed ones are left out.
#[derive(Debug)]
pub struct EventFollower {
    path: PathBuf,
    open: Option<(File, u64)>,
    /// The rotated files that were read, by name.
    read: std::collections::BTreeSet<PathBuf>,
    compressed: Vec<PathBuf>,
}

impl EventFollower {
    /// From the first line of the oldest rotated file.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let (open, read, compressed) = (None, std::collections::BTreeSet::new(), Vec::new());
        Self { path: path.into(), open, read, compressed }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Rotated files that were left out because they are compressed.
    #[must_use]
    pub fn compressed(&self) -> &[PathBuf] {
        &self.compressed
    }

    /// Hands out the lines that were written since the last time.
    ///
    /// # Errors
    ///
    /// When a file cannot be read. One that is not there yet is one without lines.
    pub fn poll(&mut self, mut each: impl FnMut(&[u8])) -> Result<(), ReadError> {
        let path = self.path.clone();
        let of = |error| ReadError::of(&path)(error);
        // What was appended before the file was rotated away.
        self.read_open(&mut each).map_err(of)?;
        let same = self.is_same().map_err(of)?;
        if same {
            return Ok(());
        }
        // Between the two, it may have been written for the last time.
        self.read_open(&mut each).map_err(of)?;
        let was = self.open.take().map(|(file, offset)| (identity(&file.metadata()), offset));
        for rotated in self.rotated().map_err(of)? {
            if !self.read.insert(rotated.clone()) {
                continue;
            }
            let mut file = match File::open(&rotated) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file.map_err(ReadError::of(&rotated))?,
            };
            // This is what the one that was read is called now.
            let known = was.as_ref().filter(|(it, _)| it.is_some() && *it == identity(&file.metadata()));
            let offset = known.map_or(0, |(_, offset)| *offset);
            lines_from(&mut file, offset, &mut each).map_err(ReadError::of(&rotated))?;
        }
        match File::open(&self.path) {
            Ok(file) => self.open = Some((file, 0)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(of(error)),
        }
        self.read_open(&mut each).map_err(of)
    }

    fn read_open(&mut self, each: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let Some((file, offset)) = &mut self.open else { return Ok(()) };
        // Emptied in place: what is in it now is new.
        if file.metadata()?.len() < *offset {
            *offset = 0;
        }
        *offset = lines_from(file, *offset, each)?;
        Ok(())
    }

    /// Whether the open file still has the name.
    fn is_same(&self) -> io::Result<bool> {
        let Some((file, _)) = &self.open else { return Ok(false) };
        match fs::metadata(&self.path) {
            Ok(metadata) => Ok(identity(&Ok(metadata)) == identity(&file.metadata())),
            // Rotated, and not written since.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// The files that it was rotated into, oldest first.
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

/// What stays the same when a file gets another name.
fn identity(metadata: &io::Result<fs::Metadata>) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    metadata.as_ref().ok().map(|it| (it.dev(), it.ino()))
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
    fn no_event_is_lost_or_seen_twice_over_rotation() {
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
        // Twice between two looks.
        append(&path, "h\n");
        fs::rename(&path, rotated(3)).unwrap();
        append(&path, "i\n");
        fs::rename(&path, rotated(4)).unwrap();
        append(&path, "j\n");
        assert_eq!(poll(&mut follower), ["h", "i", "j"]);
        assert!(poll(&mut follower).is_empty());
        // Emptied in place.
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
        assert_eq!(follower.compressed().len(), 1);
    }

    #[test]
    fn a_log_is_followed_over_its_segments() {
        let folder = tempfile::tempdir().unwrap();
        let mut follower = LogFollower::new(folder.path());
        let poll = |follower: &mut LogFollower| {
            let mut found = Vec::new();
            let polled = follower.poll(|line| found.push(String::from_utf8(line.to_vec()).unwrap())).unwrap();
            (found, polled.shrunk)
        };
        assert_eq!(poll(&mut follower), (vec![], false));
        fs::create_dir(folder.path().join("segments")).unwrap();
        let (one, other) = (layout::segment(folder.path(), 0), layout::segment(folder.path(), 2));
        append(&one, "a\nb");
        assert_eq!(poll(&mut follower).0, ["a"]);
        append(&one, "b\n");
        append(&other, "c\nd\n");
        assert_eq!(poll(&mut follower), (vec!["bb".to_owned(), "c".to_owned(), "d".to_owned()], false));
        // A torn end that the writer takes away is no loss.
        append(&other, "torn");
        assert_eq!(poll(&mut follower), (vec![], false));
        fs::write(&other, "c\nd\n").unwrap();
        assert_eq!(poll(&mut follower), (vec![], false));
        assert_eq!(LogFollower::from_end(folder.path()).unwrap().offset, 4);
        fs::write(&other, "c\n").unwrap();
        assert_eq!(poll(&mut follower), (vec![], true));
    }

    #[test]
    fn what_is_changed_behind_who_follows_is_handed_out_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut follower = LogFollower::new(folder.path());
        let again = |follower: &mut LogFollower| {
            let mut found = Vec::new();
            let each = |seq, line: &[u8]| {
                found.push(format!("{seq}{}", String::from_utf8_lossy(line)));
                line != b"stop"
            };
            follower.read_again(each).unwrap();
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
