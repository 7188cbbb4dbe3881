//! Format of a log, with hashes, tiles and signatures by third-party implementations.

use std::fmt;
use std::path::{Path, PathBuf};

use lucid_audit::note::{Note, SigningKey};
use lucid_audit::verify::Since;
use signed_note::StandardSigner;
use tlog_tiles::{Error, HashReader, Tile, node_hash, record_hash, split_stored_hash_index};

pub(crate) const CHECKPOINT: &str = "checkpoint";
pub(crate) const COSIGNED: &str = "checkpoint.cosigned";
pub(crate) const KEY: &str = "key";
pub(crate) const LOCK: &str = "lock";
pub(crate) const MINIMUM: &str = "minimum";
pub(crate) const SEGMENTS: &str = "segments";
pub(crate) const TILES: &str = "tile";
pub(crate) const VKEY: &str = "vkey";

/// Signs a text, or adds a signature to those of a note.
pub(crate) fn sign(note: &str, key: &SigningKey) -> Note {
    let signer = StandardSigner::new(&key.to_secret()).unwrap();
    let mut note = match signed_note::Note::from_bytes(note.as_bytes()) {
        Ok(note) => note,
        Err(_) => signed_note::Note::new(note.as_bytes(), &[]).unwrap(),
    };
    note.add_sigs(&[&signer]).unwrap();
    String::from_utf8(note.to_bytes()).unwrap().parse().unwrap()
}

/// Hash with the format of a log's lines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Hash(pub(crate) [u8; 32]);

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[derive(Clone)]
pub(crate) struct Checkpoint {
    pub(crate) origin: String,
    pub(crate) size: u64,
    pub(crate) root: Hash,
    extensions: String,
}

impl Checkpoint {
    pub(crate) fn parse(text: &str) -> Self {
        let mut lines = text.splitn(4, '\n');
        let mut next = || lines.next().unwrap();
        Self {
            origin: next().to_owned(),
            size: next().parse().unwrap(),
            root: Hash(tlog_tiles::Hash::parse_hash(next()).unwrap().0),
            extensions: next().to_owned(),
        }
    }

    pub(crate) fn since(&self) -> Since {
        self.to_string().parse().unwrap()
    }
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, size, root, extensions } = self;
        write!(f, "{origin}\n{size}\n{}\n{extensions}", tlog_tiles::Hash(root.0))
    }
}

pub(crate) fn checkpoint(origin: &str, size: u64, root: Hash) -> Checkpoint {
    Checkpoint { origin: origin.to_owned(), size, root, extensions: String::new() }
}

/// `prev` of the first record.
pub(crate) const ZERO: Hash = Hash([0; 32]);

pub(crate) fn segment(directory: &Path, first: usize) -> PathBuf {
    directory.join(SEGMENTS).join(format!("{first:020}.jsonl"))
}

pub(crate) fn first(segment: &Path) -> usize {
    segment.file_stem().unwrap().to_str().unwrap().parse().unwrap()
}

pub(crate) fn line(seq: u64, prev: &Hash, record: &str) -> Vec<u8> {
    format!("{{\"seq\":{seq},\"prev\":\"{prev}\",{}", &record[1..]).into_bytes()
}

/// Returns the fields of a line that follow `seq` and `prev`, as a record.
pub(crate) fn record(line: &[u8]) -> String {
    let (_, fields) = str::from_utf8(line).unwrap().split_once("\",").unwrap();
    format!("{{{fields}")
}

pub(crate) fn leaf_hash(entry: &[u8]) -> Hash {
    Hash(record_hash(entry).0)
}

/// Returns the root of the tree over `leaves`, by the definition of RFC 6962, section 2.1.
pub(crate) fn root(leaves: &[Hash]) -> Hash {
    let theirs = |hash: Hash| tlog_tiles::Hash(hash.0);
    match leaves {
        [] => Hash(tlog_tiles::EMPTY_HASH.0),
        [leaf] => *leaf,
        _ => {
            let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
            Hash(node_hash(theirs(root(left)), theirs(root(right))).0)
        }
    }
}

struct Leaves(Vec<Hash>);

impl HashReader for Leaves {
    fn read_hashes(&self, indexes: &[u64]) -> Result<Vec<tlog_tiles::Hash>, Error> {
        let hash = |index: &u64| {
            let (level, number) = split_stored_hash_index(*index);
            let first = (number as usize) << level;
            tlog_tiles::Hash(root(&self.0[first..first + (1 << level)]).0)
        };
        Ok(indexes.iter().map(hash).collect())
    }
}

pub(crate) fn tiles(lines: &[Vec<u8>]) -> Vec<(String, Vec<u8>)> {
    let leaves = Leaves(lines.iter().map(|line| leaf_hash(line)).collect());
    let mut tiles = Vec::new();
    for tile in Tile::new_tiles(8, 0, lines.len() as u64) {
        tiles.push((path(&tile), tile.read_data(&leaves).unwrap()));
        if tile.level() == 0 {
            let first = tile.level_index() as usize * 256;
            let entries = &lines[first..first + tile.width() as usize];
            let mut bundle = Vec::new();
            for entry in entries {
                bundle.extend(u16::try_from(entry.len()).unwrap().to_be_bytes());
                bundle.extend(entry);
            }
            let mut tile = tile;
            tile.set_is_data();
            tiles.push((path(&tile), bundle));
        }
    }
    tiles
}

/// Returns the path of a tile. tlog_tiles has those of Go's checksum database, which contain the height.
pub(crate) fn path(tile: &Tile) -> String {
    tile.path().replacen("tile/8/data/", "tile/entries/", 1).replacen("tile/8/", "tile/", 1)
}
