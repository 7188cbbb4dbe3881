//! Recovery of a log's state when it is opened.

use std::path::{Path, PathBuf};

use snafu::{OptionExt, ResultExt, ensure};

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::layout::{self, Line};
use crate::merkle::{self, Hash, leaf_hash};
use crate::note::{Note, SigningKey, VerifierKey};
use crate::tile::{Tile, Tiles, WIDTH};

use super::error::{
    ChainSnafu, CheckpointGoneSnafu, CheckpointSnafu, InconsistentSnafu, IoSnafu, KeyNeededSnafu, LineSnafu,
    NoteSnafu, OpenError, OriginSnafu, RewrittenSnafu, SegmentSnafu, ShrunkSnafu, UnsealedSnafu,
    WitnessedSnafu,
};
use super::files;
use super::lines::{self, Lines};
use super::tree::Tree;

/// End of the records.
#[derive(Debug)]
pub(super) struct End {
    /// Number of records.
    pub(super) size: u64,
    /// Leaf hash of the last record.
    pub(super) prev: Hash,
    /// First record of the last segment and the length of its complete lines; `None` in a new log.
    pub(super) segment: Option<(u64, u64)>,
    /// Number of bytes of the torn line that follows.
    pub(super) torn: u64,
    /// Offsets and leaf hashes of the lines in the last segment.
    leaves: Vec<(u64, Hash)>,
    /// Leaf hash of the last record before that segment.
    before: Hash,
}

impl End {
    /// Returns the leaf hash of record `size - 1`, or `None` if it is missing or in an earlier segment.
    pub(super) fn hash(&self, size: u64) -> Option<Hash> {
        let first = self.segment.map_or(0, |(first, _)| first);
        match usize::try_from(size.checked_sub(first)?).ok()?.checked_sub(1) {
            None => Some(self.before),
            Some(index) => self.leaves.get(index).map(|(_, leaf)| *leaf),
        }
    }
}

/// Reads the end of the records.
pub(super) fn end(directory: &Path) -> Result<End, OpenError> {
    let path = directory.join(layout::SEGMENTS);
    let segments = lines::segments(directory).context(IoSnafu { what: "list", path })?;
    let mut end =
        End { size: 0, prev: Hash::ZERO, segment: None, torn: 0, leaves: Vec::new(), before: Hash::ZERO };
    let Some((&last, before)) = segments.split_last() else { return Ok(end) };
    if let Some(first) = before.first() {
        ensure!(*first == 0, SegmentSnafu { directory, seq: 0_u64 });
    }
    for (first, next) in before.iter().zip(before.iter().skip(1)) {
        let path = layout::segment(directory, *first);
        let (offset, line) = lines::last(&path).context(IoSnafu { what: "read", path: &path })?;
        let seq = Line::parse(&line).context(LineSnafu { path, offset })?.seq.saturating_add(1);
        ensure!(seq == *next, SegmentSnafu { directory, seq });
    }
    if last > 0 {
        // The first line of the last segment refers to the last line of the previous one.
        let first = before.last().copied().context(SegmentSnafu { directory, seq: last - 1 })?;
        let whole = scan(directory, first, None)?;
        let next = first + whole.leaves.len() as u64;
        ensure!(whole.torn == 0 && next == last, SegmentSnafu { directory, seq: next });
        end.before = whole.leaves.last().map_or(Hash::ZERO, |(_, leaf)| *leaf);
    }
    let scanned = scan(directory, last, Some(end.before))?;
    end.size = last + scanned.leaves.len() as u64;
    end.prev = scanned.leaves.last().map_or(end.before, |(_, leaf)| *leaf);
    end.segment = Some((last, scanned.length));
    end.torn = scanned.torn;
    end.leaves = scanned.leaves;
    Ok(end)
}

struct Scan {
    length: u64,
    torn: u64,
    leaves: Vec<(u64, Hash)>,
}

/// Reads a segment and checks its chain, including the first line if `prev` is known.
fn scan(directory: &Path, first: u64, prev: Option<Hash>) -> Result<Scan, OpenError> {
    let path = layout::segment(directory, first);
    let read = IoSnafu { what: "read", path: &path };
    let mut lines = Lines::open(directory, first, 0).context(read)?;
    let mut leaves: Vec<(u64, Hash)> = Vec::new();
    let mut offset = 0;
    while let Some(line) = lines.next().context(read)? {
        let found = Line::parse(line).context(LineSnafu { path: &path, offset })?;
        let seq = first + leaves.len() as u64;
        let hash = leaves.last().map(|(_, leaf)| *leaf).or(prev).unwrap_or(found.prev);
        let follows = (found.seq, found.prev) == (seq, hash);
        ensure!(follows, ChainSnafu { path: &path, offset, found: found.seq, prev: found.prev, seq, hash });
        leaves.push((offset, leaf_hash(line)));
        offset = lines.offset();
    }
    let length = std::fs::metadata(lines.path()).context(read)?.len();
    Ok(Scan { length: offset, torn: length - offset, leaves })
}

/// Seal of a log.
pub(super) struct Seal {
    /// Tree at the time of the last seal.
    pub(super) tree: Tree,
    /// `true` if the checkpoint is signed by the configured key.
    pub(super) signed: bool,
    /// Key change to be recorded, with the previous key if there was one.
    pub(super) change: Option<Option<VerifierKey>>,
}

/// Checks that a log without a key has no seal.
pub(super) fn unsealed(directory: &Path) -> Result<(), OpenError> {
    let sealed = directory.join(layout::CHECKPOINT).exists() || directory.join(layout::TILES).exists();
    let key = published(directory)?;
    ensure!(!sealed && key.is_none(), KeyNeededSnafu { directory, key });
    Ok(())
}

/// Reads the seal and checks that it matches the records.
pub(super) fn seal(directory: &Path, key: &SigningKey, adopt: bool, end: &End) -> Result<Seal, OpenError> {
    let path = directory.join(layout::CHECKPOINT);
    let Some(text) = files::read(&path).context(IoSnafu { what: "read", path: &path })? else {
        let gone =
            [layout::TILES, layout::VKEY, layout::COSIGNED].iter().any(|name| directory.join(name).exists());
        ensure!(!gone, CheckpointGoneSnafu { directory });
        ensure!(adopt || end.size == 0, UnsealedSnafu { directory, records: end.size });
        let change = (end.size > 0).then_some(None);
        return Ok(Seal { tree: Tree::new(directory), signed: false, change });
    };
    let note: Note = text.parse().context(NoteSnafu { path: &path })?;
    let (checkpoint, change) = match Checkpoint::verify(&note, key.verifier()) {
        Ok(checkpoint) => (checkpoint, None),
        Err(error) => {
            let unsigned = matches!(error, CheckpointError::Verify { .. });
            let before = published(directory)?.filter(|before| before != key.verifier());
            match before.filter(|_| adopt && unsigned) {
                Some(before) => {
                    let (name, asked) = (before.name(), key.verifier().name());
                    ensure!(name == asked, OriginSnafu { directory, name, asked });
                    let checkpoint = Checkpoint::verify(&note, &before);
                    (checkpoint.context(CheckpointSnafu { path: &path })?, Some(Some(before)))
                }
                None => return Err(error).context(CheckpointSnafu { path: &path }),
            }
        }
    };
    let Checkpoint { size: sealed, root, .. } = checkpoint;
    ensure!(sealed <= end.size, ShrunkSnafu { directory, sealed, found: end.size });
    let tree = match Tree::load(directory, sealed) {
        Ok(tree) if tree.root() == root => tree,
        // Tiles are derived from the records and can be rebuilt.
        read => {
            let found =
                read.err().map_or_else(|| "they have another root".to_owned(), |error| error.to_string());
            tracing::warn!("the tiles of the log in {} are made anew: {found}", directory.display());
            rebuild(directory, sealed)?
        }
    };
    let found = tree.root();
    ensure!(found == root, InconsistentSnafu { directory, size: sealed, found, sealed: root });
    compare(directory, sealed, end)?;
    let signer = change.clone().flatten().unwrap_or_else(|| key.verifier().clone());
    witnessed(directory, sealed, &signer)?;
    Ok(Seal { tree, signed: change.is_none(), change })
}

/// Compares the log with the checkpoint cosigned by witnesses, if one is signed by this key. It never covers more records than
/// the log's own checkpoint.
fn witnessed(directory: &Path, sealed: u64, key: &VerifierKey) -> Result<(), OpenError> {
    let path = directory.join(layout::COSIGNED);
    let text = files::read(&path).context(IoSnafu { what: "read", path })?;
    let note = text.and_then(|text| text.parse::<Note>().ok());
    let Some(seen) = note.and_then(|note| Checkpoint::verify(&note, key).ok()) else { return Ok(()) };
    let cosigned = seen.size;
    ensure!(
        cosigned <= sealed,
        WitnessedSnafu { directory, cosigned, reason: format!("the checkpoint is of {sealed}") }
    );
    let tiles = Tiles { directory, size: sealed };
    let found = merkle::root(&tiles, cosigned).map_err(std::io::Error::other);
    let found = found.context(IoSnafu { what: "read the tree in", path: directory })?;
    let reason = || format!("with the root {}, the records have the root {found}", seen.root);
    ensure!(found == seen.root, WitnessedSnafu { directory, cosigned, reason: reason() });
    Ok(())
}

/// Rebuilds the tiles of the first `size` records.
fn rebuild(directory: &Path, size: u64) -> Result<Tree, OpenError> {
    let write = IoSnafu { what: "write the tree in", path: directory };
    let mut tree = Tree::new(directory);
    for first in lines::segments(directory).context(IoSnafu { what: "list", path: directory })? {
        ensure!(first == tree.size() || tree.size() == size, SegmentSnafu { directory, seq: tree.size() });
        let read = IoSnafu { what: "read", path: layout::segment(directory, first) };
        let mut lines = Lines::open(directory, first, 0).context(read.clone())?;
        while tree.size() < size
            && let Some(line) = lines.next().context(read.clone())?
        {
            tree.append(leaf_hash(line), line).context(write)?;
        }
    }
    ensure!(tree.size() == size, SegmentSnafu { directory, seq: tree.size() });
    tree.write_partial().context(write)?;
    Ok(tree)
}

/// Compares the lines of the last segment with the tree. Earlier segments are left to `verify`.
fn compare(directory: &Path, sealed: u64, end: &End) -> Result<(), OpenError> {
    let Some((first, _)) = end.segment else { return Ok(()) };
    let tiles = Tiles { directory, size: sealed };
    let mut hashes: (u64, Vec<Hash>) = (u64::MAX, Vec::new());
    for (seq, (offset, found)) in (first..sealed).zip(&end.leaves) {
        let index = seq / WIDTH;
        if hashes.0 != index
            && let Some(tile) = Tile::hashes(0, index, sealed)
        {
            let read = tiles.hashes(tile).map_err(std::io::Error::other);
            hashes = (index, read.context(IoSnafu { what: "read the tree in", path: directory })?);
        }
        let at = usize::try_from(seq % WIDTH).unwrap_or(usize::MAX);
        let expected = hashes.1.get(at).copied().unwrap_or(Hash::ZERO);
        let path = || layout::segment(directory, first);
        ensure!(
            *found == expected,
            RewrittenSnafu { path: path(), offset: *offset, seq, found: *found, sealed: expected }
        );
    }
    Ok(())
}

/// Returns the origin of the log in `directory`, from its checkpoint or else its key; `None` if it was never sealed.
///
/// # Errors
///
/// Returns an error if one of these files exists but cannot be read.
pub fn origin(directory: &Path) -> Result<Option<String>, OpenError> {
    let path = directory.join(layout::CHECKPOINT);
    let text = files::read(&path).context(IoSnafu { what: "read", path })?;
    let checkpoint = text.and_then(|text| text.parse::<Note>().ok()?.text().parse::<Checkpoint>().ok());
    match checkpoint {
        Some(checkpoint) => Ok(Some(checkpoint.origin)),
        None => Ok(published(directory)?.map(|key| key.name().to_owned())),
    }
}

/// Reads the key published in the log's directory, which is not authenticated.
fn published(directory: &Path) -> Result<Option<VerifierKey>, OpenError> {
    let path: PathBuf = directory.join(layout::VKEY);
    let text = files::read(&path).context(IoSnafu { what: "read", path })?;
    Ok(text.and_then(|text| text.trim().parse().ok()))
}
