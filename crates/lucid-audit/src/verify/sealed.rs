//! Comparing records with the tiles and entry bundles of the log.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::fault::FaultClass;
use crate::merkle::{Hash, leaf_hash};
use crate::tile::{Tile, TileError, Tiles, WIDTH, partial_widths};

/// How a line compares with what was sealed under its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// There is nothing to compare it with.
    Unknown,
    /// Tile and bundle have the same.
    Same,
    /// The tile has it, the bundle does not.
    NotInBundle,
    /// The tile has another hash; whether the bundle still has what belongs to that hash.
    Other { bundle: bool },
}

/// What was sealed: the tiles of the tree that the checkpoint is of.
#[derive(Debug)]
pub(super) struct Sealed<'a> {
    pub(super) tiles: Tiles<'a>,
    /// How many records the tiles are of that are there; more than `tiles` has when the checkpoint is behind. What they have more is
    /// for comparing with, and may be incomplete.
    pub(super) ahead: u64,
    /// What is wrong with whole files, by path.
    problems: Mutex<BTreeMap<String, (FaultClass, u64, String)>>,
}

impl<'a> Sealed<'a> {
    /// To be called before the segments are listed: what the tiles have is in them by then.
    pub(super) fn new(tiles: Tiles<'a>) -> Self {
        Self { tiles, ahead: ahead(tiles), problems: Mutex::default() }
    }

    /// For one thread to compare with.
    pub(super) const fn cache(&self) -> SealedCache<'_> {
        SealedCache { sealed: self, at: (0, u64::MAX), hashes: None, entries: None }
    }

    /// A tile at level 0 and its bundle, as far as they can be had.
    fn read(&self, size: u64, index: u64) -> (Option<Vec<Hash>>, Option<Vec<Vec<u8>>>) {
        let tiles = Tiles { size, ..self.tiles };
        let (hashes, entries) = (Tile::hashes(0, index, size), Tile::entries(index, size));
        if size == self.tiles.size {
            let entries = entries.map(|tile| (tile, tiles.entries(tile)));
            let entries = entries.and_then(|(tile, read)| self.noting(FaultClass::Bundle, tile, read));
            return (hashes.and_then(|tile| self.hashes(tile)), entries);
        }
        // These may just be being written: it is no problem when they are not there.
        (hashes.and_then(|tile| tiles.hashes(tile).ok()), entries.and_then(|tile| tiles.entries(tile).ok()))
    }

    /// The hashes of a tile; `None`, and a problem, when they cannot be had.
    pub(super) fn hashes(&self, tile: Tile) -> Option<Vec<Hash>> {
        self.noting(FaultClass::Tile, tile, self.tiles.hashes(tile))
    }

    /// What the entry bundle has as record `seq`.
    pub(super) fn entry(&self, seq: u64) -> Option<Entry> {
        let tile = Tile::entries(seq / WIDTH, self.tiles.size)?;
        let entries = self.noting(FaultClass::Bundle, tile, self.tiles.entries(tile))?;
        let within = usize::try_from(seq % WIDTH).ok()?;
        let offset = entries.iter().take(within).map(|entry| 2 + entry.len() as u64).sum();
        Some(Entry { path: tile.path(), offset, leaf: leaf_hash(entries.get(within)?) })
    }

    fn noting<T>(&self, class: FaultClass, tile: Tile, read: Result<T, TileError>) -> Option<T> {
        read.map_err(|error| {
            let first = tile.index().saturating_mul(WIDTH);
            let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
            problems.insert(tile.path(), (class, first, cause(&error)));
        })
        .ok()
    }

    /// What is wrong with whole files: path, class, first record, and what.
    pub(super) fn problems(self) -> impl Iterator<Item = (String, FaultClass, u64, String)> {
        let problems = self.problems.into_inner().unwrap_or_else(PoisonError::into_inner);
        problems.into_iter().map(|(path, (class, first, what))| (path, class, first, what))
    }
}

/// A record in its entry bundle.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) path: String,
    /// Where it begins, with its length, in bytes.
    pub(super) offset: u64,
    pub(super) leaf: Hash,
}

/// How many records the tiles at level 0 are of, at least `tiles.size`.
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

/// Without the path, which the fault has already.
fn cause(error: &TileError) -> String {
    match error {
        TileError::Read { source, .. } => source.to_string(),
        TileError::Length { found, expected, .. } => format!("it has {found} bytes, not {expected}"),
        TileError::Bundle { expected, .. } => {
            format!("it is not {expected} entries, each after its length in two bytes")
        }
    }
}

/// The tile and the bundle that were needed last.
#[derive(Debug)]
pub(super) struct SealedCache<'a> {
    sealed: &'a Sealed<'a>,
    /// The size of their tree, and which they are.
    at: (u64, u64),
    hashes: Option<Vec<Hash>>,
    entries: Option<Vec<Vec<u8>>>,
}

impl SealedCache<'_> {
    /// Compares the line that claims to be number `seq`.
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
