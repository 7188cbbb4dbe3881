//! Parallel reading of a log's lines.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use snafu::ResultExt;

use super::sealed::{Match, Sealed, SealedCache};
use crate::layout::Line;
use crate::merkle::{Hash, leaf_hash};
use crate::read::{FileError, Segment, is_object, reading};

/// Number of bytes of a segment per read.
const RANGE: u64 = 4 << 20;

#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) seq: u64,
    pub(super) segment: usize,
    pub(super) offset: u64,
    pub(super) prev: Hash,
    pub(super) leaf: Hash,
    /// Comparison with the sealed record.
    pub(super) sealed: Match,
}

/// Bytes after the last newline of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Torn {
    pub(super) segment: usize,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

#[derive(Debug)]
struct Range {
    segment: usize,
    start: u64,
    end: u64,
}

#[derive(Debug, Default)]
pub(super) struct Scanned {
    /// Records, and the offsets of lines that are not records.
    pub(super) lines: Vec<Result<Found, u64>>,
    pub(super) segment: usize,
    pub(super) torn: Option<Torn>,
}

/// Reads the segments with one thread per processor. Passes the contents to `each` in order.
pub(super) fn scan(
    segments: &[Segment],
    sealed: &Sealed<'_>,
    mut each: impl FnMut(Scanned),
) -> Result<(), FileError> {
    let ranges: Vec<Range> =
        segments.iter().enumerate().flat_map(|(segment, it)| ranges(segment, it)).collect();
    let next = AtomicUsize::new(0);
    let threads = thread::available_parallelism().map_or(1, usize::from).min(ranges.len());
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::sync_channel(2 * threads);
        for _ in 0..threads {
            let (sender, next, ranges) = (sender.clone(), &next, &ranges);
            scope.spawn(move || {
                let mut worker = Worker { cache: sealed.cache(), buffer: Vec::new() };
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(range) = ranges.get(index) else { return };
                    let segment = &segments[range.segment];
                    let scanned = worker.scan(segment, range).context(reading(&segment.path));
                    let failed = scanned.is_err();
                    if sender.send((index, scanned)).is_err() || failed {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut early = BTreeMap::new();
        let mut expected = 0;
        for (index, scanned) in receiver {
            early.insert(index, scanned?);
            while let Some(scanned) = early.remove(&expected) {
                each(scanned);
                expected += 1;
            }
        }
        Ok(())
    })
}

fn ranges(segment: usize, it: &Segment) -> impl Iterator<Item = Range> + use<> {
    let length = it.length;
    (0..length.div_ceil(RANGE)).map(move |number| {
        let start = number * RANGE;
        Range { segment, start, end: length.min(start + RANGE) }
    })
}

struct Worker<'s> {
    cache: SealedCache<'s>,
    buffer: Vec<u8>,
}

impl Worker<'_> {
    fn scan(&mut self, segment: &Segment, range: &Range) -> io::Result<Scanned> {
        let mut file = File::open(&segment.path)?;
        // The byte before the range shows whether a line begins at its start.
        let from = range.start.saturating_sub(1);
        file.seek(SeekFrom::Start(from))?;
        self.buffer.clear();
        (&mut file).take(range.end - from).read_to_end(&mut self.buffer)?;
        let mut scanned = Scanned { segment: range.segment, ..Scanned::default() };
        let mut begin = 0;
        if range.start > 0 {
            // The bytes before the first newline belong to an earlier range.
            match memchr::memchr(b'\n', &self.buffer) {
                Some(newline) => begin = newline + 1,
                None => return Ok(scanned),
            }
        }
        // The last line continues after the range. Of overlong lines, only the end is located.
        let mut skipped = 0;
        if begin < self.buffer.len() && self.buffer.last() != Some(&b'\n') {
            skipped = read_to_newline(file.take(segment.length - range.end), &mut self.buffer)?;
        }
        while begin < self.buffer.len() {
            let rest = &self.buffer[begin..];
            let offset = from + begin as u64;
            let Some(length) = memchr::memchr(b'\n', rest) else {
                let bytes = rest.len() as u64 + skipped;
                scanned.torn = Some(Torn { segment: range.segment, offset, bytes });
                break;
            };
            let line = &rest[..length];
            let leaf = leaf_hash(line);
            let found = Line::parse(line).ok().map(|Line { seq, prev, .. }| {
                let sealed = self.cache.compare(seq, line, &leaf);
                Found { seq, segment: range.segment, offset, prev, leaf, sealed }
            });
            // The hash decides about lines with a sealed counterpart. Only the others must parse as JSON.
            let found = found.filter(|it| it.sealed != Match::Unknown || is_object(line));
            scanned.lines.push(found.ok_or(offset));
            begin += length + 1;
        }
        Ok(scanned)
    }
}

/// Reads up to a newline, dropping the middle of overlong lines. Returns the number of bytes dropped.
fn read_to_newline(mut file: impl Read, buffer: &mut Vec<u8>) -> io::Result<u64> {
    const PIECE: usize = 1 << 16;
    let kept = buffer.len() + 16 * PIECE;
    let mut skipped = 0;
    let mut piece = vec![0; PIECE];
    loop {
        let count = match file.read(&mut piece) {
            Ok(0) => return Ok(skipped),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let newline = memchr::memchr(b'\n', &piece[..count]);
        let end = newline.map_or(count, |newline| newline + 1);
        if newline.is_some() || buffer.len() < kept {
            buffer.extend_from_slice(&piece[..end]);
        } else {
            skipped += count as u64;
        }
        if newline.is_some() {
            return Ok(skipped);
        }
    }
}
