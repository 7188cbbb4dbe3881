//! Tiles (C2SP tlog-tiles): the nodes of a tree in files of 256 hashes.
//!
//! Tiles at level 0 contain the hashes of leaves, tiles above contain the roots of full tiles below. Entries are stored in
//! *bundles* of 256, each entry after its length in two bytes, big-endian. Tiles at the right edge of a tree may be partial.
//! They are kept until the second next checkpoint, or until the full tile exists.

use std::path::{Path, PathBuf};
use std::{fs, mem};

use snafu::ResultExt;

use crate::layout::{HASH, LONGEST_LINE};
use crate::merkle::{self, Hash, Nodes, empty_root, node_hash};
use crate::read::{FileError, bounded, reading};

/// Number of hashes in a full tile, and of entries in a full bundle.
pub(crate) const WIDTH: u64 = 256;

/// Number of attempts to find a partial tile that the writer keeps replacing by wider ones.
const ATTEMPTS: usize = 10;

/// Identifies a tile or an entry bundle, which is partial at the right edge of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tile {
    /// `None` for an entry bundle.
    level: Option<u8>,
    index: u64,
    width: u64,
}

impl Tile {
    /// Returns tile `index` at `level` with its width in a tree of `size` leaves, or `None` if that tree does not reach the
    /// tile.
    pub(crate) fn hashes(level: u8, index: u64, size: u64) -> Option<Self> {
        let hashes = size.checked_shr(u32::from(level) * 8).unwrap_or(0);
        Some(Self { level: Some(level), index, width: width(index, hashes)? })
    }

    /// Returns entry bundle `index` with its width in a tree of `size` leaves, or `None` if that tree does not reach the
    /// bundle.
    pub(crate) fn entries(index: u64, size: u64) -> Option<Self> {
        Some(Self { level: None, index, width: width(index, size)? })
    }

    pub(crate) const fn level(&self) -> Option<u8> {
        self.level
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.width == WIDTH
    }

    /// Returns the index within the level, from 0.
    pub(crate) const fn index(&self) -> u64 {
        self.index
    }

    /// Returns the maximum number of bytes to read: a full bundle of the longest entries, or eight full tiles, so that a wrong
    /// length can be reported.
    const fn longest(self) -> u64 {
        match self.level {
            Some(_) => 8 * WIDTH * HASH as u64,
            None => WIDTH * (2 + LONGEST_LINE as u64),
        }
    }

    /// Returns the full tile with the same index.
    pub(crate) const fn full(self) -> Self {
        Self { width: WIDTH, ..self }
    }

    /// Returns the path relative to the log's directory, such as `tile/0/x001/234/067.p/8`.
    pub(crate) fn path(&self) -> String {
        let kind = self.level.map_or_else(|| "entries".to_owned(), |level| level.to_string());
        let mut path = format!("{:03}", self.index % 1000);
        let mut rest = self.index / 1000;
        while rest > 0 {
            path = format!("x{:03}/{path}", rest % 1000);
            rest /= 1000;
        }
        match self.width {
            WIDTH => format!("tile/{kind}/{path}"),
            width => format!("tile/{kind}/{path}.p/{width}"),
        }
    }

    /// Returns the folder of its partial tiles, such as `tile/0/x001/234/067.p`.
    pub(crate) fn partials(&self) -> String {
        format!("{}.p", self.full().path())
    }
}

fn width(index: u64, count: u64) -> Option<u64> {
    let before = index.checked_mul(WIDTH)?;
    count.checked_sub(before).filter(|width| *width > 0).map(|width| width.min(WIDTH))
}

/// Tiles of a tree of `size` leaves in a log's directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiles<'a> {
    pub(crate) directory: &'a Path,
    /// Size of the tree, which determines the partial tiles.
    pub(crate) size: u64,
}

impl Tiles<'_> {
    pub(crate) fn hashes(&self, tile: Tile) -> Result<Vec<Hash>, FileError> {
        let (path, bytes, wide) = self.read(tile)?;
        let (hashes, rest) = bytes.as_chunks();
        if hashes.len() as u64 != wide.width || !rest.is_empty() {
            let expected = wide.width * HASH as u64;
            return Err(FileError::invalid(&path, format!("it has {} bytes, not {expected}", bytes.len())));
        }
        Ok(hashes.iter().zip(0..tile.width).map(|(hash, _)| Hash(*hash)).collect())
    }

    pub(crate) fn entries(&self, tile: Tile) -> Result<Vec<Vec<u8>>, FileError> {
        let (path, bytes, wide) = self.read(tile)?;
        let mut entries = Vec::new();
        let mut rest = &bytes[..];
        while let Some((length, after)) = rest.split_first_chunk() {
            let Some((entry, after)) = after.split_at_checked(usize::from(u16::from_be_bytes(*length)))
            else {
                break;
            };
            entries.push(entry.to_vec());
            rest = after;
        }
        if !rest.is_empty() || entries.len() as u64 != wide.width {
            let problem = format!("it is not {} entries, each after its length in two bytes", wide.width);
            return Err(FileError::invalid(&path, problem));
        }
        entries.truncate(usize::try_from(tile.width).unwrap_or(usize::MAX));
        Ok(entries)
    }

    /// Reads a tile, or a wider one that has replaced it.
    fn read(&self, tile: Tile) -> Result<(PathBuf, Vec<u8>, Tile), FileError> {
        let read = |tile: Tile| {
            let path = self.directory.join(tile.path());
            let bytes = bounded(&path, tile.longest()).context(reading(&path))?;
            Ok((path, bytes, tile))
        };
        let absence = match read(tile) {
            Err(error) if FileError::is_absence(&error) => error,
            found => return found,
        };
        for _ in 0..ATTEMPTS {
            let wider = self.widest(tile);
            // The writer removes a partial tile only after writing a wider one.
            if let Some(found) = wider.into_iter().chain([tile.full()]).find_map(|tile| read(tile).ok()) {
                return Ok(found);
            }
            if wider.is_none() {
                break;
            }
        }
        Err(absence)
    }

    /// Returns the widest existing partial tile, if it is wider than `tile`.
    fn widest(&self, tile: Tile) -> Option<Tile> {
        let widths = partial_widths(&self.directory.join(tile.partials()));
        let width = widths.max().filter(|width| *width > tile.width)?;
        Some(Tile { width, ..tile })
    }
}

impl Nodes for Tiles<'_> {
    type Error = FileError;

    fn node(&self, level: u8, index: u64) -> Result<Hash, FileError> {
        let within = level % 8;
        let first = index << within;
        let Some(tile) = Tile::hashes(level / 8, first / WIDTH, self.size) else { return Ok(Hash::ZERO) };
        let hashes = self.hashes(tile)?;
        let begin = usize::try_from(first % WIDTH).unwrap_or(usize::MAX);
        let Ok(hash) = hashes.get(begin..).unwrap_or_default().node(within, 0);
        Ok(hash)
    }
}

pub(crate) fn partial_widths(folder: &Path) -> impl Iterator<Item = u64> + use<> {
    let names = fs::read_dir(folder).into_iter().flatten();
    let widths = names.filter_map(|it| it.ok()?.file_name().to_str()?.parse().ok());
    widths.filter(|width| (1..WIDTH).contains(width))
}

/// Right edge of a growing tree, sufficient for appending leaves and computing the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frontier {
    size: u64,
    /// Hashes of the partial tile at each level, fewer than 256.
    levels: Vec<Vec<Hash>>,
}

impl Frontier {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn load(tiles: Tiles<'_>) -> Result<Self, FileError> {
        let mut levels = Vec::new();
        for (level, count) in counts(tiles.size) {
            let last = Tile::hashes(level, count / WIDTH, tiles.size);
            levels.push(last.map(|tile| tiles.hashes(tile)).transpose()?.unwrap_or_default());
        }
        Ok(Self { size: tiles.size, levels })
    }

    /// Appends a leaf. Returns the tiles that it completes with their hashes, from level 0 up.
    pub(crate) fn append(&mut self, leaf: Hash) -> Vec<(Tile, Vec<Hash>)> {
        self.size += 1;
        self.levels.resize(counts(self.size).count(), Vec::new());
        let mut full = Vec::new();
        let mut carried = leaf;
        for ((level, count), hashes) in counts(self.size).zip(&mut self.levels) {
            hashes.push(carried);
            let Some(tile) = Tile::hashes(level, (count - 1) / WIDTH, self.size).filter(Tile::is_full) else {
                break;
            };
            carried = full_root(hashes);
            full.push((tile, mem::take(hashes)));
        }
        full
    }

    pub(crate) fn partial(&self) -> impl Iterator<Item = (Tile, &[Hash])> {
        counts(self.size).zip(&self.levels).filter_map(|((level, count), hashes)| {
            Some((Tile::hashes(level, count / WIDTH, self.size)?, &hashes[..]))
        })
    }

    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn root(&self) -> Hash {
        let mut root = None;
        // From right to left, smallest subtrees first.
        for hashes in &self.levels {
            let mut rest = &hashes[..];
            while !rest.is_empty() {
                let (left, subtree) = rest.split_at(rest.len() - (1 << rest.len().trailing_zeros()));
                let hash = full_root(subtree);
                root = Some(root.map_or(hash, |root| node_hash(&hash, &root)));
                rest = left;
            }
        }
        root.unwrap_or_else(empty_root)
    }
}

/// Returns the levels of tiles in a tree of `size` leaves, with the number of hashes in each.
fn counts(size: u64) -> impl Iterator<Item = (u8, u64)> {
    (0..8_u8).map(move |level| (level, size >> (u32::from(level) * 8))).take_while(|(_, count)| *count > 0)
}

/// Appends an entry to a bundle: its length in two bytes, big-endian, and its bytes. Does nothing if the entry is longer than
/// 65,535 bytes.
pub(crate) fn push_entry(bundle: &mut Vec<u8>, entry: &[u8]) {
    if let Ok(length) = u16::try_from(entry.len()) {
        bundle.extend_from_slice(&length.to_be_bytes());
        bundle.extend_from_slice(entry);
    }
}

/// Returns the root over the hashes of a full tile, which represents it at the level above.
pub(crate) fn full_root(hashes: &[Hash]) -> Hash {
    let Ok(root) = merkle::root(hashes, hashes.len() as u64);
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_specification() {
        // Example of tlog-tiles with 70,000 leaves.
        let tile = |level, index| Tile::hashes(level, index, 70_000).map(|tile| tile.path());
        assert_eq!(tile(0, 0).as_deref(), Some("tile/0/000"));
        assert_eq!(tile(0, 272).as_deref(), Some("tile/0/272"));
        assert_eq!(tile(0, 273).as_deref(), Some("tile/0/273.p/112"));
        assert_eq!(tile(0, 274), None);
        assert_eq!(tile(1, 0).as_deref(), Some("tile/1/000"));
        assert_eq!(tile(1, 1).as_deref(), Some("tile/1/001.p/17"));
        assert_eq!(tile(2, 0).as_deref(), Some("tile/2/000.p/1"));
        assert_eq!(tile(3, 0), None);
        assert_eq!(tile(63, 0), None);
        // Example of tlog-tiles with 256 leaves.
        assert_eq!(Tile::hashes(0, 0, 256).unwrap().path(), "tile/0/000");
        assert_eq!(Tile::hashes(0, 1, 256), None);
        assert_eq!(Tile::hashes(1, 0, 256).unwrap().path(), "tile/1/000.p/1");
        assert_eq!(Tile::entries(1, 300).unwrap().path(), "tile/entries/001.p/44");
        assert_eq!(Tile::entries(1_234_067, u64::MAX).unwrap().path(), "tile/entries/x001/x234/067");
        assert_eq!(Tile::entries(1_000, u64::MAX).unwrap().path(), "tile/entries/x001/000");
    }

    /// Writes the tiles of a tree, straight from the definition.
    fn write(directory: &Path, leaves: &[Hash]) {
        let mut hashes = leaves.to_vec();
        for level in 0.. {
            if hashes.is_empty() {
                break;
            }
            for (index, tile) in (0..).zip(hashes.chunks(256)) {
                let path = directory.join(Tile::hashes(level, index, leaves.len() as u64).unwrap().path());
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, tile.iter().flat_map(|hash| hash.0).collect::<Vec<_>>()).unwrap();
            }
            hashes = hashes.chunks_exact(256).map(full_root).collect();
        }
    }

    #[test]
    fn tiles_hold_every_node_of_the_tree() {
        let directory = tempfile::tempdir().unwrap();
        let leaves: Vec<_> = (0..70_000_u32).map(|leaf| merkle::leaf_hash(&leaf.to_be_bytes())).collect();
        write(directory.path(), &leaves);
        let tiles = Tiles { directory: directory.path(), size: 70_000 };
        assert_eq!(merkle::root(&tiles, 70_000).unwrap(), merkle::root(&leaves[..], 70_000).unwrap());
        // A reader with an older checkpoint finds wider or full tiles in place of the partial ones.
        for size in [69_999, 69_889, 66_000, 65_536, 300, 1] {
            let older = Tiles { directory: directory.path(), size };
            assert_eq!(
                merkle::root(&older, size).unwrap(),
                merkle::root(&leaves[..], size).unwrap(),
                "{size}"
            );
        }
        fs::write(directory.path().join("tile/0/273.p/112"), [0; 31]).unwrap();
        let error = merkle::root(&tiles, 70_000).unwrap_err().to_string();
        assert!(error.ends_with("has 31 bytes, not 3584"), "{error}");
        fs::remove_file(directory.path().join("tile/0/273.p/112")).unwrap();
        assert!(merkle::root(&tiles, 70_000).is_err());
        // A narrower tile is not a replacement.
        fs::write(directory.path().join("tile/0/273.p/111"), [0; 111 * HASH]).unwrap();
        assert!(merkle::root(&tiles, 70_000).is_err());
    }

    #[test]
    fn bundle_entries_round_trip() {
        let directory = tempfile::tempdir().unwrap();
        let entries: Vec<_> = (0..300_usize).map(|length| vec![b'x'; length * 200]).collect();
        for (index, chunk) in (0..).zip(entries.chunks(256)) {
            let mut bundle = Vec::new();
            chunk.iter().for_each(|entry| push_entry(&mut bundle, entry));
            let path = directory.path().join(Tile::entries(index, 300).unwrap().path());
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bundle).unwrap();
        }
        let tiles = Tiles { directory: directory.path(), size: 300 };
        assert_eq!(tiles.entries(Tile::entries(0, 300).unwrap()).unwrap(), entries[..256]);
        assert_eq!(tiles.entries(Tile::entries(1, 300).unwrap()).unwrap(), entries[256..]);
        for (index, size) in [(0, 3), (1, 280)] {
            let older = Tiles { directory: directory.path(), size };
            let found = older.entries(Tile::entries(index, size).unwrap()).unwrap();
            assert_eq!(found, entries[index as usize * 256..size as usize]);
        }
        let path = directory.path().join("tile/entries/001.p/44");
        let mut bytes = fs::read(&path).unwrap();
        bytes.pop();
        fs::write(&path, bytes).unwrap();
        assert!(tiles.entries(Tile::entries(1, 300).unwrap()).is_err());
    }
}
