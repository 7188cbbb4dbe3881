//! Comparison of records with the tiles and entry bundles of a log.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::fault::{Fault, FaultClass};
use crate::merkle::{Hash, leaf_hash};
use crate::read::FileError;
use crate::tile::{Tile, Tiles, WIDTH, partial_widths};

/// Comparison of a line with the record sealed under its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// Nothing to compare with.
    Unknown,
    /// The line matches the tile and the bundle, as far as they are readable.
    Same,
    /// The line matches the tile, but not the bundle.
    NotInBundle,
    /// The line does not match; `bundle` is `true` if the bundle matches the tile.
    Other { bundle: bool },
}

/// Sealed records: the tiles of the checkpoint's tree.
#[derive(Debug)]
pub(super) struct Sealed<'a> {
    pub(super) tiles: Tiles<'a>,
    /// Number of records covered by existing tiles, which is greater than the size of `tiles` if the checkpoint is behind. The
    /// additional tiles may be incomplete and serve for comparison only.
    pub(super) ahead: u64,
    /// Faults of unusable files, by path.
    faults: Mutex<BTreeMap<String, Fault>>,
}

impl<'a> Sealed<'a> {
    /// Must be called before listing the segments, which then contain everything in the tiles.
    pub(super) fn new(tiles: Tiles<'a>) -> Self {
        Self { tiles, ahead: ahead(tiles), faults: Mutex::default() }
    }

    pub(super) const fn cache(&self) -> SealedCache<'_> {
        SealedCache { sealed: self, at: (0, u64::MAX), hashes: None, entries: None }
    }

    fn read(&self, size: u64, index: u64) -> (Option<Vec<Hash>>, Option<Vec<Vec<u8>>>) {
        let tiles = Tiles { size, ..self.tiles };
        let (hashes, entries) = (Tile::hashes(0, index, size), Tile::entries(index, size));
        if size == self.tiles.size {
            let entries = entries.map(|tile| (tile, tiles.entries(tile)));
            let entries = entries.and_then(|(tile, read)| self.or_fault(FaultClass::Bundle, tile, read));
            return (hashes.and_then(|tile| self.hashes(tile)), entries);
        }
        // These may be incomplete while the log is open, so missing ones are not a fault.
        (hashes.and_then(|tile| tiles.hashes(tile).ok()), entries.and_then(|tile| tiles.entries(tile).ok()))
    }

    /// Reads the hashes of a tile. Records a fault and returns `None` if that fails.
    pub(super) fn hashes(&self, tile: Tile) -> Option<Vec<Hash>> {
        self.or_fault(FaultClass::Tile, tile, self.tiles.hashes(tile))
    }

    pub(super) fn entry(&self, seq: u64) -> Option<Entry> {
        let tile = Tile::entries(seq / WIDTH, self.tiles.size)?;
        let entries = self.or_fault(FaultClass::Bundle, tile, self.tiles.entries(tile))?;
        let within = usize::try_from(seq % WIDTH).ok()?;
        let offset = entries.iter().take(within).map(|entry| 2 + entry.len() as u64).sum();
        Some(Entry { path: tile.path(), offset, leaf: leaf_hash(entries.get(within)?) })
    }

    fn or_fault<T>(&self, class: FaultClass, tile: Tile, read: Result<T, FileError>) -> Option<T> {
        let outcome = read.map_err(|FileError { source, .. }| {
            let mut fault = Fault::of_file(class, tile.path(), format!("it cannot be used: {source}"));
            fault.seq = Some(tile.index().saturating_mul(WIDTH));
            self.faults.lock().unwrap_or_else(PoisonError::into_inner).insert(tile.path(), fault);
        });
        outcome.ok()
    }

    pub(super) fn faults(self) -> impl Iterator<Item = Fault> {
        self.faults.into_inner().unwrap_or_else(PoisonError::into_inner).into_values()
    }
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) path: String,
    /// Byte offset of the entry, including its length prefix.
    pub(super) offset: u64,
    pub(super) leaf: Hash,
}

/// Returns the number of records covered by the tiles at level 0, at least `tiles.size`.
fn ahead(tiles: Tiles<'_>) -> u64 {
    let tile = |index| Tile::hashes(0, index, u64::MAX);
    let mut index = tiles.size / WIDTH;
    while tile(index).is_some_and(|tile| tiles.directory.join(tile.path()).is_file()) {
        index += 1;
    }
    let partial = tile(index).map(|tile| partial_widths(&tiles.directory.join(tile.partials())));
    let width = partial.into_iter().flatten().max().unwrap_or(0);
    tiles.size.max(index * WIDTH + width)
}

/// Cache of the last tile and bundle.
#[derive(Debug)]
pub(super) struct SealedCache<'a> {
    sealed: &'a Sealed<'a>,
    /// Size of the tree, and index of the tile.
    at: (u64, u64),
    hashes: Option<Vec<Hash>>,
    entries: Option<Vec<Vec<u8>>>,
}

impl SealedCache<'_> {
    /// Compares a line that claims to be record `seq`.
    pub(super) fn compare(&mut self, seq: u64, line: &[u8], leaf: &Hash) -> Match {
        let Sealed { tiles, ahead, .. } = *self.sealed;
        if seq >= ahead {
            return Match::Unknown;
        }
        let index = seq / WIDTH;
        let size = if seq < tiles.size { tiles.size } else { ahead };
        if self.at != (size, index) {
            self.at = (size, index);
            (self.hashes, self.entries) = self.sealed.read(size, index);
        }
        let within = usize::try_from(seq % WIDTH).unwrap_or_default();
        let hash = self.hashes.as_ref().and_then(|hashes| hashes.get(within));
        let entry = self.entries.as_ref().and_then(|entries| entries.get(within));
        let in_bundle = entry.map(|entry| entry == line);
        match (hash, in_bundle) {
            (Some(hash), Some(false)) if hash == leaf => Match::NotInBundle,
            (Some(hash), _) if hash == leaf => Match::Same,
            (Some(hash), _) => Match::Other { bundle: entry.is_some_and(|entry| leaf_hash(entry) == *hash) },
            (None, Some(true)) => Match::Same,
            (None, Some(false)) => Match::Other { bundle: false },
            (None, None) => Match::Unknown,
        }
    }
}
