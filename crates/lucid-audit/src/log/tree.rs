//! Tree stored in tiles.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::merkle::{Hash, empty_root, node_hash};
use crate::read::ReadError;
use crate::tile::{Tile, Tiles, WIDTH, full_root, push_entry};

use super::files;

/// Right edge of a tree, stored in partial tiles. Full tiles are written as they fill up.
#[derive(Debug, Default)]
pub(super) struct Tree {
    directory: PathBuf,
    size: u64,
    /// Hashes of the partial tile at each level, fewer than 256.
    levels: Vec<Vec<Hash>>,
    /// Partial entry bundle.
    bundle: Vec<u8>,
    /// Number of hashes at each level when its partial tile was last written.
    written: Vec<u64>,
}

impl Tree {
    pub(super) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), ..Self::default() }
    }

    /// Loads the tree over the first `size` leaves from its tiles.
    pub(super) fn load(directory: &Path, size: u64) -> Result<Self, ReadError> {
        let tiles = Tiles { directory, size };
        let mut tree = Self { size, ..Self::new(directory) };
        for level in (0..8_u8).take_while(|level| width_at(size, *level) > 0) {
            let partial = tree.partial(level).map(|tile| tiles.hashes(tile)).transpose()?;
            tree.levels.push(partial.unwrap_or_default());
        }
        if let Some(tile) = tree.partial_entries() {
            tiles.entries(tile)?.iter().for_each(|entry| push_entry(&mut tree.bundle, entry));
        }
        Ok(tree)
    }

    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn root(&self) -> Hash {
        let mut root = None;
        // From right to left, smallest subtrees first.
        for hashes in &self.levels {
            let mut rest = &hashes[..];
            while !rest.is_empty() {
                let (left, subtree) = rest.split_at(rest.len() - (1 << rest.len().trailing_zeros()));
                let left_of_root = full_root(subtree);
                root = Some(root.map_or(left_of_root, |root| node_hash(&left_of_root, &root)));
                rest = left;
            }
        }
        root.unwrap_or_else(empty_root)
    }

    /// Appends a leaf. Leaves the tree unchanged on error.
    pub(super) fn append(&mut self, leaf: Hash, line: &[u8]) -> io::Result<()> {
        let full = self.levels.iter().take_while(|hashes| hashes.len() as u64 == WIDTH - 1).count();
        let mut carried = leaf;
        let mut filled = Vec::with_capacity(full);
        for hashes in self.levels.iter().take(full) {
            let hashes = [&hashes[..], &[carried]].concat();
            carried = full_root(&hashes);
            filled.push(hashes);
        }
        if full > 0 {
            let mut bundle = self.bundle.clone();
            push_entry(&mut bundle, line);
            self.write_full(&filled, &bundle)?;
        }
        for hashes in self.levels.iter_mut().take(full) {
            hashes.clear();
        }
        match self.levels.get_mut(full) {
            Some(hashes) => hashes.push(carried),
            None => self.levels.push(vec![carried]),
        }
        if full > 0 {
            self.bundle.clear();
        } else {
            push_entry(&mut self.bundle, line);
        }
        self.size += 1;
        Ok(())
    }

    fn write_full(&self, filled: &[Vec<Hash>], bundle: &[u8]) -> io::Result<()> {
        let size = self.size + 1;
        let mut written = Vec::new();
        for (level, hashes) in (0..).zip(filled) {
            let index = (width_at(size, level) / WIDTH).saturating_sub(1);
            written.extend(Tile::hashes(level, index, size).map(|tile| (tile, bytes(hashes))));
        }
        written.extend(
            Tile::entries((size / WIDTH).saturating_sub(1), size).map(|tile| (tile, bundle.to_vec())),
        );
        for (tile, bytes) in &written {
            files::replace(&self.directory.join(tile.path()), bytes)?;
        }
        for (tile, _) in written {
            // Leftover files only waste space.
            let _ = fs::remove_dir_all(self.directory.join(tile.partials()));
        }
        Ok(())
    }

    /// Writes the partial tiles, which completes the stored tree.
    pub(super) fn write_partial(&mut self) -> io::Result<()> {
        self.written.resize(self.levels.len(), 0);
        for (level, hashes) in (0..).zip(&self.levels) {
            let width = width_at(self.size, level);
            let written = &mut self.written[usize::from(level)];
            if *written == width {
                continue;
            }
            if let Some(tile) = self.partial(level) {
                files::replace(&self.directory.join(tile.path()), &bytes(hashes))?;
            }
            if let Some(tile) = self.partial_entries().filter(|_| level == 0) {
                files::replace(&self.directory.join(tile.path()), &self.bundle)?;
            }
            self.written[usize::from(level)] = width;
        }
        Ok(())
    }

    /// Removes the partial tiles at the right edge except those of the trees with `sizes` leaves. None of these trees is
    /// larger than this one.
    pub(super) fn prune(&self, sizes: [u64; 2]) {
        for (level, _) in (0..).zip(&self.levels) {
            let index = width_at(self.size, level) / WIDTH;
            self.keep(Tile::hashes(level, index, u64::MAX), sizes.map(|it| Tile::hashes(level, index, it)));
        }
        let index = self.size / WIDTH;
        self.keep(Tile::entries(index, u64::MAX), sizes.map(|size| Tile::entries(index, size)));
    }

    /// Removes the partial files of `tile` except those in `kept`.
    fn keep(&self, tile: Option<Tile>, kept: [Option<Tile>; 2]) {
        let Some(folder) = tile.map(|tile| self.directory.join(tile.partials())) else { return };
        let kept = kept.map(|tile| tile.map(|tile| self.directory.join(tile.path())));
        for path in fs::read_dir(folder).into_iter().flatten().filter_map(|it| Some(it.ok()?.path())) {
            if !kept.iter().flatten().any(|it| *it == path) {
                // Leftover files only waste space.
                let _ = fs::remove_file(path);
            }
        }
    }

    fn partial(&self, level: u8) -> Option<Tile> {
        let tile = Tile::hashes(level, width_at(self.size, level) / WIDTH, self.size);
        tile.filter(|tile| tile.width() < WIDTH)
    }

    fn partial_entries(&self) -> Option<Tile> {
        Tile::entries(self.size / WIDTH, self.size).filter(|tile| tile.width() < WIDTH)
    }
}

/// Returns the number of hashes in a level of tiles.
const fn width_at(size: u64, level: u8) -> u64 {
    match size.checked_shr(8 * level as u32) {
        Some(width) => width,
        None => 0,
    }
}

fn bytes(hashes: &[Hash]) -> Vec<u8> {
    hashes.iter().flat_map(|hash| hash.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merkle::{Frontier, leaf_hash, root};

    #[test]
    fn a_tree_grows_in_its_files_and_is_found_there_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut tree = Tree::new(directory.path());
        let mut frontier = Frontier::new();
        for number in 0..66_000_u32 {
            let line = number.to_string();
            let leaf = leaf_hash(line.as_bytes());
            tree.append(leaf, line.as_bytes()).unwrap();
            frontier.append(leaf);
            let size = u64::from(number) + 1;
            if size < 1000 && size % 37 == 0
                || [255, 256, 257, 511, 512, 65_535, 65_536, 65_537, 66_000].contains(&size)
            {
                tree.write_partial().unwrap();
                assert_eq!(tree.root(), frontier.root(), "{size}");
                let tiles = Tiles { directory: directory.path(), size };
                assert_eq!(root(&tiles, size).unwrap(), frontier.root(), "{size}");
                tree = Tree::load(directory.path(), size).unwrap();
                assert_eq!(tree.root(), frontier.root(), "{size}");
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
