//! Recovery of a log's state when it is opened.

use std::path::Path;

use jiff::Timestamp;
use snafu::{ResultExt, ensure, ensure_whatever, whatever};

use crate::checkpoint::{self, Checkpoint};
use crate::event::Event;
use crate::layout::{self, Line};
use crate::merkle::{self, Hash, leaf_hash};
use crate::minimum::Minimum;
use crate::note::{Note, NoteError, NoteErrorKind, SigningKey, VerifierKey};
use crate::read::{self, FileSnafu, reading};
use crate::tile::{Tile, Tiles, WIDTH};

use super::error::{ConflictSnafu, OpenError, OpenProblem, UnadoptedSnafu};
use super::lines::{self, Lines};
use super::tree::Tree;

#[derive(Debug, Default)]
pub(super) struct End {
    pub(super) size: u64,
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

pub(super) fn minimum(
    directory: &Path,
    key: Option<&VerifierKey>,
    adopt: bool,
) -> Result<Minimum, OpenProblem> {
    let path = directory.join(layout::MINIMUM);
    let Some((key, text)) = key.zip(read::text(&path)?) else { return Ok(Minimum::default()) };
    let before = published(directory)?.filter(|_| adopt);
    let keys: Vec<_> = [key.clone()].into_iter().chain(before).collect();
    Minimum::verify(&text, &keys).map_err(|error| unadopted(&path, &error))
}

/// Reads the end of the records, of which `minimum` is the first.
pub(super) fn end(directory: &Path, minimum: &Minimum) -> Result<End, OpenProblem> {
    let mut segments = lines::segments(directory)?;
    // Left by a process that was killed while it pruned.
    segments.retain(|first| *first >= minimum.first);
    let mut end = End { size: minimum.first, prev: minimum.prev, before: minimum.prev, ..End::default() };
    ensure_present(segments.first().is_none_or(|first| *first == minimum.first), directory, minimum.first)?;
    let Some((&last, before)) = segments.split_last() else {
        ensure_present(minimum.first == 0, directory, minimum.first)?;
        return Ok(end);
    };
    for (first, next) in before.iter().zip(before.iter().skip(1)) {
        let path = layout::segment(directory, *first);
        let (offset, line) = lines::last(&path).context(reading(&path))?;
        let seq = parse(&line, &path, offset)?.seq.saturating_add(1);
        ensure_present(seq == *next, directory, seq)?;
    }
    // The first line of the last segment refers to the last line of the previous one.
    if let Some(&first) = before.last() {
        let whole = scan(directory, first, None)?;
        let next = first + whole.leaves.len() as u64;
        ensure_present(whole.torn == 0 && next == last, directory, next)?;
        end.before = whole.leaves.last().map_or(end.before, |(_, leaf)| *leaf);
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
fn scan(directory: &Path, first: u64, prev: Option<Hash>) -> Result<Scan, OpenProblem> {
    let path = layout::segment(directory, first);
    let mut lines = Lines::open(directory, first).context(reading(&path))?;
    let mut leaves: Vec<(u64, Hash)> = Vec::new();
    let mut offset = 0;
    while let Some(line) = lines.next().context(reading(&path))? {
        let found = parse(line, &path, offset)?;
        let seq = first + leaves.len() as u64;
        let hash = leaves.last().map(|(_, leaf)| *leaf).or(prev).unwrap_or(found.prev);
        ensure_whatever!(
            (found.seq, found.prev) == (seq, hash),
            "{}, byte {offset}: expected seq {seq} with prev {hash}, found seq {} with prev {}: a line was changed, added or removed",
            path.display(),
            found.seq,
            found.prev
        );
        leaves.push((offset, leaf_hash(line)));
        offset = lines.offset();
    }
    let length = std::fs::metadata(&path).context(reading(&path))?.len();
    Ok(Scan { length: offset, torn: length - offset, leaves })
}

fn ensure_present(present: bool, directory: &Path, seq: u64) -> Result<(), OpenProblem> {
    ensure_whatever!(present, "the segment with record {seq} is missing in {}", directory.display());
    Ok(())
}

fn parse<'a>(line: &'a [u8], path: &Path, offset: u64) -> Result<Line<'a>, OpenProblem> {
    match Line::parse(line) {
        Ok(line) => Ok(line),
        Err(error) => whatever!("{}, byte {offset}: {error}", path.display()),
    }
}

pub(super) struct Seal {
    /// Tree at the time of the last seal.
    pub(super) tree: Tree,
    /// `true` if the checkpoint is signed by the configured key.
    pub(super) signed: bool,
    pub(super) change: Option<Event>,
}

/// Checks that a log without a key has no seal.
pub(super) fn unsealed(directory: &Path) -> Result<(), OpenProblem> {
    let sealed = directory.join(layout::CHECKPOINT).exists() || directory.join(layout::TILES).exists();
    let key = published(directory)?;
    let by = key.as_ref().map(|key| format!(" by {key}")).unwrap_or_default();
    let message = format!("the log in {} is sealed{by} and needs its key", directory.display());
    ensure!(!sealed && key.is_none(), ConflictSnafu { message });
    Ok(())
}

/// Reads the seal and checks that it matches the records.
pub(super) fn seal(
    directory: &Path,
    key: &SigningKey,
    adopt: bool,
    (minimum, end): (&Minimum, &End),
) -> Result<Seal, OpenProblem> {
    let path = directory.join(layout::CHECKPOINT);
    let Some(text) = read::text(&path)? else {
        let gone =
            [layout::TILES, layout::VKEY, layout::COSIGNED].iter().any(|name| directory.join(name).exists());
        ensure_whatever!(!gone, "the log in {} was sealed, but its checkpoint is gone", directory.display());
        let message = format!(
            "the {} records in {} were never sealed; sealing them is permitted by Options::with_adoption",
            end.size,
            directory.display()
        );
        ensure!(adopt || end.size == 0, UnadoptedSnafu { message });
        let change = (end.size > 0).then(|| key_changed(None, key));
        return Ok(Seal { tree: Tree::new(directory), signed: false, change });
    };
    let note: Note = match text.parse() {
        Ok(note) => note,
        Err(error) => whatever!("{}: {error}", path.display()),
    };
    let (checkpoint, before) = match Checkpoint::verify(&note, key.verifier()) {
        Ok(checkpoint) => (checkpoint, None),
        Err(error) => {
            let may_adopt = adopt && error.kind != NoteErrorKind::Malformed;
            let before = published(directory)?.filter(|before| before != key.verifier());
            let Some(before) = before.filter(|_| may_adopt) else { return Err(unadopted(&path, &error)) };
            let (name, asked) = (before.name(), key.verifier().name());
            let message = format!(
                "the log in {} is {name} and cannot continue as {asked}, the name of another log",
                directory.display()
            );
            ensure!(name == asked, ConflictSnafu { message });
            let verified = Checkpoint::verify(&note, &before).map_err(|error| unadopted(&path, &error))?;
            (verified, Some(before))
        }
    };
    let Checkpoint { size: sealed, root, .. } = checkpoint;
    ensure_whatever!(
        sealed <= end.size,
        "{sealed} records were sealed in {}, but there are {}: some were removed",
        directory.display(),
        end.size
    );
    ensure_whatever!(
        minimum.first <= sealed,
        "the checkpoint in {} is of {sealed} records, but the first {} were pruned: it is an earlier one",
        directory.display(),
        minimum.first
    );
    let tree = match Tree::load(directory, sealed) {
        Ok(tree) if tree.root() == root => tree,
        // Tiles are derived from the records and can be rebuilt.
        read => {
            let found =
                read.err().map_or_else(|| "they have another root".to_owned(), |error| error.to_string());
            tracing::warn!("rebuilding the tiles of the log in {}: {found}", directory.display());
            rebuild(directory, sealed, minimum)?
        }
    };
    let found = tree.root();
    ensure_whatever!(
        found == root,
        "the records in {} are not those that were sealed: the first {sealed} have the root {found}, the checkpoint says {root}",
        directory.display()
    );
    compare(directory, sealed, (minimum, end))?;
    witnessed(directory, sealed, before.as_ref().unwrap_or(key.verifier()), minimum)?;
    let change = before.map(|before| key_changed(Some(before), key));
    Ok(Seal { tree, signed: change.is_none(), change })
}

fn unadopted(path: &Path, error: &NoteError) -> OpenProblem {
    let path = path.display();
    let message = format!("{path}: {error}; another key is permitted by Options::with_adoption");
    OpenProblem::Unadopted { message }
}

fn key_changed(from: Option<VerifierKey>, key: &SigningKey) -> Event {
    Event::KeyChanged { time: Timestamp::now(), from, to: key.verifier().clone() }
}

/// Compares the log with the checkpoint cosigned by witnesses, if one is signed by this key. It never covers more records than
/// the log's own checkpoint.
fn witnessed(directory: &Path, sealed: u64, key: &VerifierKey, minimum: &Minimum) -> Result<(), OpenProblem> {
    let note = read::text(&directory.join(layout::COSIGNED))?.and_then(|text| text.parse::<Note>().ok());
    let Some(seen) = note.and_then(|note| Checkpoint::verify(&note, key).ok()) else { return Ok(()) };
    let cosigned = seen.size;
    let reason = if cosigned > sealed {
        format!("the checkpoint is of {sealed}")
    } else {
        let found = match merkle::root(&Tiles { directory, size: sealed }, cosigned) {
            // Its tile may be pruned.
            Err(_) if cosigned < minimum.first => return Ok(()),
            found => found?,
        };
        if found == seen.root {
            return Ok(());
        }
        format!("with the root {}, the records have the root {found}", seen.root)
    };
    whatever!(
        "witnesses have cosigned {cosigned} records of the log in {}, {reason}: it is another log than theirs",
        directory.display()
    )
}

fn rebuild(directory: &Path, size: u64, minimum: &Minimum) -> Result<Tree, OpenProblem> {
    let write = FileSnafu { what: "write the tree in", path: directory };
    // The leaves of pruned records are gone.
    minimum.frontier(directory)?;
    let mut tree = Tree::load(directory, minimum.first)?;
    for first in lines::segments(directory)?.into_iter().filter(|first| *first >= minimum.first) {
        ensure_present(first == tree.size() || tree.size() == size, directory, tree.size())?;
        let path = layout::segment(directory, first);
        let mut lines = Lines::open(directory, first).context(reading(&path))?;
        while tree.size() < size
            && let Some(line) = lines.next().context(reading(&path))?
        {
            tree.append(leaf_hash(line), line);
            tree.write_full().context(write)?;
        }
    }
    ensure_present(tree.size() == size, directory, tree.size())?;
    tree.write_partial().context(write)?;
    Ok(tree)
}

/// Compares the lines of the last segment and the line before it with the tree. Earlier ones are left to `verify`.
fn compare(directory: &Path, sealed: u64, (minimum, end): (&Minimum, &End)) -> Result<(), OpenProblem> {
    let Some((first, _)) = end.segment else { return Ok(()) };
    let tiles = Tiles { directory, size: sealed };
    if let Some(seq) = first.checked_sub(1).filter(|seq| (minimum.first..sealed).contains(seq))
        && let Some(tile) = Tile::hashes(0, seq / WIDTH, sealed)
    {
        let at = usize::try_from(seq % WIDTH).unwrap_or(usize::MAX);
        let expected = tiles.hashes(tile)?.get(at).copied().unwrap_or(Hash::ZERO);
        ensure_whatever!(
            end.before == expected,
            "{}: record {seq} is not the one that was sealed: its hash is {}, the tree says {expected}",
            directory.display(),
            end.before
        );
    }
    let mut hashes: (u64, Vec<Hash>) = (u64::MAX, Vec::new());
    for (seq, (offset, found)) in (first..sealed).zip(&end.leaves) {
        let index = seq / WIDTH;
        if hashes.0 != index
            && let Some(tile) = Tile::hashes(0, index, sealed)
        {
            hashes = (index, tiles.hashes(tile)?);
        }
        let at = usize::try_from(seq % WIDTH).unwrap_or(usize::MAX);
        let expected = hashes.1.get(at).copied().unwrap_or(Hash::ZERO);
        ensure_whatever!(
            *found == expected,
            "{}, byte {offset}: record {seq} is not the one that was sealed: its hash is {found}, the tree says {expected}",
            layout::segment(directory, first).display()
        );
    }
    Ok(())
}

/// Returns the origin of the log in `directory`, from its checkpoint or else its key; `None` if it was never sealed.
///
/// # Errors
///
/// Returns an error if the directory is not a log, or one of these files exists but cannot be read.
pub fn origin(directory: &Path) -> Result<Option<String>, OpenError> {
    Ok(find_origin(directory)?)
}

fn find_origin(directory: &Path) -> Result<Option<String>, OpenProblem> {
    if !directory.join(layout::SEGMENTS).is_dir() {
        let name = directory.display();
        let message = format!("{name} is not a log: it has no directory {}", layout::SEGMENTS);
        return ConflictSnafu { message }.fail();
    }
    let text = read::text(&directory.join(layout::CHECKPOINT))?;
    match text.and_then(|text| checkpoint::parse(&text).ok()) {
        Some((_, checkpoint)) => Ok(Some(checkpoint.origin)),
        None => Ok(published(directory)?.map(|key| key.name().to_owned())),
    }
}

/// Reads the key published in the log's directory, which is not authenticated.
fn published(directory: &Path) -> Result<Option<VerifierKey>, OpenProblem> {
    Ok(read::text(&directory.join(layout::VKEY))?.and_then(|text| text.trim().parse().ok()))
}
