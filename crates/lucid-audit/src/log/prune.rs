//! Removal of the oldest segments.
//!
//! The minimum index is signed before a segment is removed, so that a missing segment is either below it or a fault.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use snafu::ResultExt;

use crate::layout::{self, LONGEST_LINE, segment_on_disk};
use crate::merkle::{Hash, consistency_proof, leaf_hash, verify_consistency};
use crate::minimum::Minimum;
use crate::read::{self, FileError, FileSnafu, Segment, found, reading};
use crate::tile::{Tile, Tiles, WIDTH};

use super::lines::{self, Lines};
use super::options::Options;

/// Maximum time between two attempts to prune a log by age.
const LONGEST_INTERVAL: Duration = Duration::from_hours(1);

/// Returns the age at which a segment ends, if records are kept for `age`.
pub(super) fn segment_age(age: Duration) -> Duration {
    age / 8
}

#[derive(Deserialize)]
struct Timed {
    time: Timestamp,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Retention {
    bytes: Option<u64>,
    age: Option<Duration>,
}

impl Retention {
    pub(super) fn new(options: &Options) -> Self {
        Self { bytes: options.keep_bytes, age: options.keep_age }
    }

    /// Returns the interval at which a log without new records is pruned.
    pub(super) fn interval(self) -> Option<Duration> {
        self.age.map(|age| segment_age(age).min(LONGEST_INTERVAL))
    }

    /// Returns the new minimum index of a log of `size` sealed records with this `root`, or `None` if no segment exceeds the
    /// limits.
    ///
    /// # Errors
    ///
    /// Returns an error if a segment to be removed is not the one that was sealed. Pruning would destroy the evidence.
    pub(super) fn minimum(
        self,
        directory: &Path,
        before: &Minimum,
        (size, root): (u64, Hash),
    ) -> io::Result<Option<Minimum>> {
        if self.bytes.is_none() && self.age.is_none() {
            return Ok(None);
        }
        let mut segments = read::list(directory)?.segments;
        segments.retain(|it| it.first >= before.first);
        let surplus = self.surplus(&segments, size)?;
        if surplus.is_empty() {
            return Ok(None);
        }
        let mut tree = before.frontier(directory)?;
        let mut prev = before.prev;
        for (segment, next) in surplus.iter().zip(segments.iter().skip(1)) {
            let changed = || {
                let path = segment.path.display();
                io::Error::other(format!("{path} is not the segment that was sealed; it is not pruned"))
            };
            let longest = (next.first - segment.first).saturating_mul(LONGEST_LINE as u64 + 1);
            if segment.first != tree.size() || segment.length > longest {
                return Err(changed());
            }
            let mut lines = Lines::open(directory, segment.first).context(reading(&segment.path))?;
            while let Some(line) = lines.next().context(reading(&segment.path))? {
                prev = leaf_hash(line);
                tree.append(prev);
            }
            if tree.size() != next.first || lines.offset() != segment.length {
                return Err(changed());
            }
        }
        let (first, removed) = (tree.size(), tree.root());
        let proof = consistency_proof(&Tiles { directory, size }, first, size)?;
        if !verify_consistency(first, &removed, size, &root, &proof) {
            let problem = format!("the first {first} records are not those that were sealed");
            return Err(io::Error::other(problem));
        }
        Ok(Some(Minimum { first, root: removed, prev }))
    }

    /// Returns the segments that exceed the limits. The last one and unsealed ones never do.
    ///
    /// Without the key, nothing may hasten it: files that are larger than their records, and files for records that
    /// are not sealed yet, do not count, and the age is that of the last record.
    fn surplus(self, segments: &[Segment], size: u64) -> Result<&[Segment], FileError> {
        let segments = segments.get(..segments.partition_point(|it| it.first <= size)).unwrap_or_default();
        let on_disk = |segment: &Segment, end: u64| {
            let records = end.saturating_sub(segment.first);
            segment_on_disk(segment.length.min(records.saturating_mul(LONGEST_LINE as u64 + 1)), records)
        };
        let last = segments.last().map_or(0, |last| on_disk(last, size));
        let on_disk = |pair: &[Segment]| match pair {
            [segment, next] => on_disk(segment, next.first),
            _ => 0,
        };
        let mut bytes: u64 = segments.windows(2).map(on_disk).sum::<u64>().saturating_add(last);
        let mut count = 0;
        for pair in segments.windows(2) {
            let [segment, _] = pair else { break };
            let is_old = match self.age {
                Some(age) => {
                    let (_, line) = lines::last(&segment.path).context(reading(&segment.path))?;
                    let record: Option<Timed> = serde_json::from_slice(&line).ok();
                    record.is_some_and(|it| Timestamp::now().duration_since(it.time).unsigned_abs() > age)
                }
                None => false,
            };
            if !is_old && self.bytes.is_none_or(|most| bytes <= most) {
                break;
            }
            bytes = bytes.saturating_sub(on_disk(pair));
            count += 1;
        }
        Ok(segments.get(..count).unwrap_or_default())
    }
}

/// Removes the segments below the minimum index, and their entries and hashes. Keeps the tile that proves to witnesses that
/// the log has only grown since they saw `cosigned` records.
pub(super) fn remove(directory: &Path, minimum: &Minimum, cosigned: u64) -> Result<(), FileError> {
    let remove =
        |path: &Path| found(fs::remove_file(path)).map(drop).context(FileSnafu { what: "remove", path });
    for first in lines::segments(directory)?.into_iter().filter(|first| *first < minimum.first) {
        remove(&layout::segment(directory, first))?;
    }
    let tiles = |index| {
        let full = [Tile::entries(index, u64::MAX), Tile::hashes(0, index, u64::MAX)];
        full.into_iter().flatten().map(|tile| directory.join(tile.path()))
    };
    // In ascending order: after a crash, those that are left adjoin the minimum index.
    let end = minimum.first / WIDTH;
    let is_there = |index: &u64| tiles(*index).any(|path| path.exists());
    let begin = (0..end).rev().take_while(is_there).last().unwrap_or(end);
    for index in (begin..end).filter(|index| cosigned == 0 || *index != cosigned / WIDTH) {
        tiles(index).try_for_each(|path| remove(&path))?;
    }
    Ok(())
}
