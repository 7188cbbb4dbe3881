//! Tree stored in tiles.

use std::io;
use std::path::{Path, PathBuf};
use std::{fs, mem};

use crate::merkle::Hash;
use crate::read::FileError;
use crate::tile::{Frontier, Tile, Tiles, WIDTH, push_entry};

use super::files;

/// A tree whose tiles are written as it grows.
#[derive(Debug, Default)]
pub(super) struct Tree {
    directory: PathBuf,
    frontier: Frontier,
    /// Partial entry bundle.
    bundle: Vec<u8>,
    /// Full tiles and bundles that are not written yet.
    unwritten: Vec<(Tile, Vec<u8>)>,
    /// Partial tiles and bundle that were last written.
    written: Vec<Tile>,
}

impl Tree {
    pub(super) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), ..Self::default() }
    }

    /// Loads the tree over the first `size` leaves from its tiles.
    pub(super) fn load(directory: &Path, size: u64) -> Result<Self, FileError> {
        let tiles = Tiles { directory, size };
        let mut tree = Self { frontier: Frontier::load(tiles)?, ..Self::new(directory) };
        if let Some(tile) = Tile::entries(size / WIDTH, size) {
            tiles.entries(tile)?.iter().for_each(|entry| push_entry(&mut tree.bundle, entry));
        }
        Ok(tree)
    }

    pub(super) const fn size(&self) -> u64 {
        self.frontier.size()
    }

    pub(super) fn root(&self) -> Hash {
        self.frontier.root()
    }

    /// Appends a leaf. [`Self::write_full`] must follow.
    pub(super) fn append(&mut self, leaf: Hash, line: &[u8]) {
        push_entry(&mut self.bundle, line);
        for (tile, hashes) in self.frontier.append(leaf) {
            if let Some(entries) =
                Tile::entries(tile.index(), self.size()).filter(|_| tile.level() == Some(0))
            {
                self.unwritten.push((entries, mem::take(&mut self.bundle)));
            }
            self.unwritten.push((tile, bytes(&hashes)));
        }
    }

    pub(super) fn write_full(&mut self) -> io::Result<()> {
        for (tile, bytes) in &self.unwritten {
            files::replace(&self.directory.join(tile.path()), bytes)?;
        }
        for (tile, _) in self.unwritten.drain(..) {
            // Leftover files only waste space.
            let _ = fs::remove_dir_all(self.directory.join(tile.partials()));
        }
        Ok(())
    }

    /// Writes the partial tiles, which completes the stored tree.
    pub(super) fn write_partial(&mut self) -> io::Result<()> {
        let tiles = self.frontier.partial().map(|(tile, hashes)| (tile, bytes(hashes)));
        let entries = Tile::entries(self.size() / WIDTH, self.size()).map(|tile| (tile, self.bundle.clone()));
        let partial: Vec<_> = tiles.chain(entries).collect();
        for (tile, bytes) in &partial {
            if !self.written.contains(tile) {
                files::replace(&self.directory.join(tile.path()), bytes)?;
            }
        }
        self.written = partial.into_iter().map(|(tile, _)| tile).collect();
        Ok(())
    }

    /// Removes the partial tiles at the right edge except those of the trees with `sizes` leaves. None of these trees is
    /// larger than this one.
    pub(super) fn prune(&self, sizes: [u64; 2]) {
        for (tile, _) in self.frontier.partial() {
            let Some(level) = tile.level() else { continue };
            self.keep(tile, sizes.map(|size| Tile::hashes(level, tile.index(), size)));
        }
        let index = self.size() / WIDTH;
        if let Some(tile) = Tile::entries(index, self.size()) {
            self.keep(tile, sizes.map(|size| Tile::entries(index, size)));
        }
    }

    fn keep(&self, tile: Tile, kept: [Option<Tile>; 2]) {
        let kept = kept.map(|tile| tile.map(|tile| self.directory.join(tile.path())));
        let files = fs::read_dir(self.directory.join(tile.partials())).into_iter().flatten();
        for path in files.filter_map(|it| Some(it.ok()?.path())) {
            if !kept.iter().flatten().any(|it| *it == path) {
                // Leftover files only waste space.
                let _ = fs::remove_file(path);
            }
        }
    }
}

fn bytes(hashes: &[Hash]) -> Vec<u8> {
    hashes.iter().flat_map(|hash| hash.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merkle::{leaf_hash, root};

    #[test]
    fn trees_are_stored_and_loaded_at_every_size() {
        let directory = tempfile::tempdir().unwrap();
        let mut tree = Tree::new(directory.path());
        let mut leaves = Vec::new();
        for number in 0..66_000_u32 {
            let line = number.to_string();
            leaves.push(leaf_hash(line.as_bytes()));
            tree.append(leaf_hash(line.as_bytes()), line.as_bytes());
            tree.write_full().unwrap();
            let size = u64::from(number) + 1;
            if size < 1000 && size % 37 == 0
                || [255, 256, 257, 511, 512, 65_535, 65_536, 65_537, 66_000].contains(&size)
            {
                tree.write_partial().unwrap();
                let expected = root(&leaves[..], size).unwrap();
                assert_eq!(tree.root(), expected, "{size}");
                let tiles = Tiles { directory: directory.path(), size };
                assert_eq!(root(&tiles, size).unwrap(), expected, "{size}");
                tree = Tree::load(directory.path(), size).unwrap();
                assert_eq!(tree.root(), expected, "{size}");
            }
        }
        // Partial tiles are removed once the full one exists.
        assert!(directory.path().join("tile/entries/000").exists());
        assert!(!directory.path().join("tile/entries/000.p").exists());
        assert!(!directory.path().join("tile/0/255.p").exists());
        let tiles = Tiles { directory: directory.path(), size: 66_000 };
        let entries = tiles.entries(Tile::entries(257, 66_000).unwrap()).unwrap();
        assert_eq!(entries.last().unwrap(), b"65999");
    }
}
