//! Comparing records with the tiles and entry bundles of the log.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::fault::FaultClass;
use crate::merkle::{Hash, leaf_hash};
use crate::tile::{Tile, TileError, Tiles, WIDTH};

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
    /// What is wrong with whole files, by path.
    problems: Mutex<BTreeMap<String, (FaultClass, u64, String)>>,
}

impl<'a> Sealed<'a> {
    pub(super) fn new(tiles: Tiles<'a>) -> Self {
        Self { tiles, problems: Mutex::default() }
    }

    /// For one thread to compare with.
    pub(super) const fn cache(&self) -> SealedCache<'_> {
        SealedCache { sealed: self, index: u64::MAX, hashes: None, entries: None }
    }

    /// The hashes of a tile; `None`, and a problem, when they cannot be had.
    pub(super) fn hashes(&self, tile: Tile) -> Option<Vec<Hash>> {
        self.noting(FaultClass::Tile, tile, self.tiles.hashes(tile))
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
    index: u64,
    hashes: Option<Vec<Hash>>,
    entries: Option<Vec<Vec<u8>>>,
}

impl SealedCache<'_> {
    /// Compares the line that claims to be number `seq`.
    pub(super) fn compare(&mut self, seq: u64, line: &[u8], leaf: &Hash) -> Match {
        let tiles = self.sealed.tiles;
        if seq >= tiles.size {
            return Match::Unknown;
        }
        let index = seq / WIDTH;
        if index != self.index {
            self.index = index;
            self.hashes = Tile::hashes(0, index, tiles.size).and_then(|tile| self.sealed.hashes(tile));
            self.entries = Tile::entries(index, tiles.size)
                .and_then(|tile| self.sealed.noting(FaultClass::Bundle, tile, tiles.entries(tile)));
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
