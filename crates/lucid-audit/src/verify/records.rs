//! The records one after the other: what each says of its place and of the one before, and the tree over them.

use std::collections::BTreeSet;

use super::Report;
use super::expectations::{Expectations, Since};
use super::fault::{Fault, FaultClass};
use super::order::{Order, Place};
use super::scan::{Line, Scanned, Torn};
use super::sealed::{Match, Sealed};
use super::tree::Tree;
use crate::checkpoint::Checkpoint;
use crate::layout::LONGEST_LINE;
use crate::merkle::Hash;
use crate::read::Segment;
use crate::tile::{Tile, WIDTH};

/// A record where it stands.
#[derive(Clone, Copy, Debug)]
struct Found {
    seq: u64,
    segment: usize,
    offset: u64,
    leaf: Hash,
    sealed: Match,
}

/// A record whose `prev` is not the hash of the one before.
#[derive(Debug)]
struct Break {
    before: Option<Found>,
    at: Found,
}

pub(super) struct Records<'a> {
    segments: &'a [Segment],
    checkpoint: Option<&'a Checkpoint>,
    order: Order,
    /// The record before, unless something that is no record stands between.
    before: Option<Found>,
    /// A line that skips numbers and was not sealed so: whether it was inserted, the next one tells.
    held: Option<(Found, Hash)>,
    /// Lines since the last record that are none.
    framing: u64,
    /// The tree, as long as every record is there.
    tree: Option<Tree>,
    root_sealed: Option<Hash>,
    /// What is known from elsewhere, with what it is called.
    since: Vec<(&'a Since, &'a str, Option<Hash>)>,
    lines: u64,
    first_unsealed: Option<Found>,
    torn: Option<Torn>,
    breaks: Vec<Break>,
    /// Records that are others than what was sealed, and whether their bundle still has that.
    others: Vec<(Found, bool)>,
    not_in_bundle: Vec<Found>,
    inserted: Vec<Found>,
    /// Where records are missing before.
    jumps: Vec<Found>,
    faults: Vec<Fault>,
}

impl<'a> Records<'a> {
    pub(super) fn new(
        segments: &'a [Segment],
        checkpoint: Option<&'a Checkpoint>,
        since: &'a [(Since, String)],
    ) -> Self {
        let mut records = Self {
            segments,
            checkpoint,
            order: Order::default(),
            before: None,
            held: None,
            framing: 0,
            tree: Some(Tree::default()),
            root_sealed: None,
            since: since.iter().map(|(since, name)| (since, name.as_str(), None)).collect(),
            lines: 0,
            first_unsealed: None,
            torn: None,
            breaks: Vec::new(),
            others: Vec::new(),
            not_in_bundle: Vec::new(),
            inserted: Vec::new(),
            jumps: Vec::new(),
            faults: Vec::new(),
        };
        records.note_roots();
        records
    }

    pub(super) fn take(&mut self, scanned: Scanned) {
        for line in scanned.lines {
            self.lines += 1;
            match line.head {
                Some(head) => {
                    let (seq, prev) = (head.seq, head.prev);
                    let Line { segment, offset, leaf, sealed, .. } = line;
                    self.record(Found { seq, segment, offset, leaf, sealed }, prev);
                }
                None => self.no_record(&line),
            }
        }
        let Some(torn) = scanned.torn else { return };
        if torn.segment + 1 == self.segments.len() {
            self.torn = Some(torn);
            return;
        }
        let detail =
            format!("{} bytes stand behind the last newline, and another segment follows", torn.bytes);
        let seq = self.order.expected;
        self.fault(FaultClass::Framing, seq, torn.segment, torn.offset, detail);
    }

    fn fault(&mut self, class: FaultClass, seq: u64, segment: usize, offset: u64, detail: String) {
        let file = self.segments.get(segment).map_or("", |segment| &segment.name);
        self.faults.push(Fault::of_record(class, seq, file, offset, detail));
    }

    fn no_record(&mut self, line: &Line) {
        self.settle(None);
        let seq = self.order.expected.saturating_add(self.framing);
        self.framing += 1;
        self.before = None;
        let detail = format!(
            "the line is no record: not one object of JSON that begins with seq and prev, in at most {LONGEST_LINE} bytes"
        );
        self.fault(FaultClass::Framing, seq, line.segment, line.offset, detail);
    }

    fn record(&mut self, found: Found, prev: Hash) {
        self.settle(Some(found.seq));
        // A number that skips some may be made up, unless it was sealed; lines that are no records took some.
        let skips = found.seq > self.order.expected.saturating_add(self.framing);
        if skips && found.sealed != Match::Same && found.sealed != Match::NotInBundle {
            self.held = Some((found, prev));
        } else {
            self.place(found, prev);
        }
    }

    /// Decides about the line that is held, now that the number of the next one is known.
    fn settle(&mut self, next: Option<u64>) {
        let Some((held, prev)) = self.held.take() else { return };
        if next == Some(self.order.expected) {
            self.inserted.push(held);
        } else {
            self.place(held, prev);
        }
    }

    fn place(&mut self, found: Found, prev: Hash) {
        let framing = std::mem::take(&mut self.framing);
        let expected = self.order.expected;
        let place = self.order.see(found.seq);
        match found.sealed {
            Match::Other { bundle } if place != Place::Again => self.others.push((found, bundle)),
            Match::NotInBundle if place != Place::Again => self.not_in_bundle.push(found),
            _ => {}
        }
        match place {
            Place::Next => {
                let right = match (found.seq, self.before) {
                    (0, _) => prev == Hash::ZERO,
                    (_, Some(before)) => prev == before.leaf,
                    (_, None) => true,
                };
                if !right {
                    self.breaks.push(Break { before: self.before, at: found });
                }
                self.before = Some(found);
                if let Some(tree) = &mut self.tree {
                    tree.append(found.leaf);
                    self.note_roots();
                }
            }
            Place::Ahead => {
                self.tree = None;
                // Lines that are no records stand for some of those that are missing.
                for seq in expected..found.seq.min(expected.saturating_add(framing)) {
                    self.order.found(seq);
                }
                self.jumps.push(found);
                self.before = Some(found);
            }
            Place::Late => {
                let detail = "the record stands behind later ones".to_owned();
                self.fault(FaultClass::Reordered, found.seq, found.segment, found.offset, detail);
            }
            Place::Again => {
                let (class, detail) = match found.sealed {
                    Match::Other { .. } => {
                        (FaultClass::Inserted, "the record is none of those that were sealed")
                    }
                    _ => (FaultClass::Duplicate, "a record with this number stands further up"),
                };
                self.fault(class, found.seq, found.segment, found.offset, detail.to_owned());
            }
        }
        let sealed = self.checkpoint.map_or(u64::MAX, |checkpoint| checkpoint.size);
        if found.seq >= sealed && self.first_unsealed.is_none() {
            self.first_unsealed = Some(found);
        }
        for (since, _, hash) in &mut self.since {
            if let Since::Anchor(anchor) = since
                && anchor.seq == found.seq
                && place != Place::Again
            {
                *hash = Some(found.leaf);
            }
        }
    }

    /// Keeps the roots that are asked for when the tree has their size.
    fn note_roots(&mut self) {
        let Some(tree) = &self.tree else { return };
        let size = tree.size();
        if self.checkpoint.is_some_and(|checkpoint| checkpoint.size == size) {
            self.root_sealed = Some(tree.root());
        }
        for (since, _, hash) in &mut self.since {
            if let Since::Checkpoint(checkpoint) = since
                && checkpoint.size == size
            {
                *hash = Some(tree.root());
            }
        }
    }

    pub(super) fn report(mut self, sealed: Sealed<'_>, expected: &Expectations) -> Report {
        self.settle(None);
        self.judge_inserted();
        self.judge_gaps();
        let tiles = self.judge_seal(&sealed);
        self.judge_breaks();
        self.judge_end(expected);
        self.judge_since(tiles.as_ref());
        for (path, class, first, what) in sealed.problems() {
            let mut fault = Fault::of_file(class, path, format!("it cannot be used: {what}"));
            fault.seq = Some(first);
            self.faults.push(fault);
        }
        let size = self.checkpoint.map(|checkpoint| checkpoint.size);
        Report {
            records: self.lines,
            segments: self.segments.len(),
            sealed: size,
            unsealed: self.lines.saturating_sub(size.unwrap_or(0)),
            torn_bytes: self.torn.map_or(0, |torn| torn.bytes),
            root: self.tree.map(|tree| tree.root().to_base64()),
            faults: self.faults,
            ..Report::default()
        }
    }

    /// What was taken for inserted may be missing further down.
    fn judge_inserted(&mut self) {
        for found in std::mem::take(&mut self.inserted) {
            let (class, detail) = if self.order.found(found.seq) {
                (FaultClass::Reordered, "the record stands before earlier ones")
            } else {
                (FaultClass::Inserted, "the record stands between two that follow one another")
            };
            self.fault(class, found.seq, found.segment, found.offset, detail.to_owned());
        }
    }

    fn judge_gaps(&mut self) {
        let missing: Vec<_> = self.order.missing().collect();
        for (first, last) in missing {
            let next = self.jumps.iter().filter(|jump| jump.seq > last).min_by_key(|jump| jump.seq);
            let Some(next) = next.copied() else { continue };
            let whole = next.offset == 0;
            let what = if whole {
                "the segment with them is missing"
            } else {
                "the records before this place are missing"
            };
            let count = self.faults.len();
            self.fault(FaultClass::Gap, first, next.segment, next.offset, what.to_owned());
            if let Some(fault) = self.faults.get_mut(count).filter(|_| last > first) {
                fault.last = Some(last);
            }
        }
    }

    /// Compares lines, tiles and checkpoint: of those that disagree, the checkpoint tells which was changed. Returns the tree
    /// of the tiles when it had to be looked at.
    fn judge_seal(&mut self, sealed: &Sealed<'_>) -> Option<Tree> {
        let checkpoint = self.checkpoint?;
        let lines_are_right = self.root_sealed == Some(checkpoint.root);
        // Only when something is wrong: it means to read the tiles once more.
        let tiles = if lines_are_right { None } else { tree_of_tiles(sealed) };
        let tiles_root = tiles.as_ref().map(Tree::root);
        let tiles_are_right = tiles_root == Some(checkpoint.root);
        let others = std::mem::take(&mut self.others);
        for (found, bundle) in &others {
            if lines_are_right {
                let Some(tile) = Tile::hashes(0, found.seq / WIDTH, checkpoint.size) else { continue };
                let (path, offset) = (tile.path(), found.seq % WIDTH * 32);
                let detail =
                    "the tile has another hash than the record, and the checkpoint has that of the record";
                self.faults.push(Fault::of_record(
                    FaultClass::Tile,
                    found.seq,
                    &path,
                    offset,
                    detail.to_owned(),
                ));
                continue;
            }
            let rescue = if *bundle { "; its entry bundle still has what was sealed" } else { "" };
            let detail = format!("the record is not the one that was sealed{rescue}");
            self.fault(FaultClass::Rewritten, found.seq, found.segment, found.offset, detail);
        }
        for found in std::mem::take(&mut self.not_in_bundle) {
            let Some(tile) = Tile::entries(found.seq / WIDTH, checkpoint.size) else { continue };
            let detail = "the entry bundle has another record than the one that was sealed".to_owned();
            let mut fault = Fault::of_record(FaultClass::Bundle, found.seq, &tile.path(), 0, detail);
            fault.offset = None;
            self.faults.push(fault);
        }
        self.others = others;
        if let Some(found) = self.root_sealed.filter(|_| !lines_are_right && !tiles_are_right) {
            let (size, root) = (checkpoint.size, checkpoint.root.to_base64());
            let found = found.to_base64();
            let detail =
                format!("it signs {size} records with the root {root}, the records have the root {found}");
            self.faults.push(Fault::of_file(FaultClass::Fork, crate::layout::CHECKPOINT, detail));
        } else if let Some(found) = tiles_root.filter(|_| !lines_are_right && !tiles_are_right) {
            let (size, root) = (checkpoint.size, checkpoint.root.to_base64());
            let found = found.to_base64();
            let detail =
                format!("it signs {size} records with the root {root}, the tiles have the root {found}");
            self.faults.push(Fault::of_file(FaultClass::Fork, crate::layout::CHECKPOINT, detail));
        }
        // The tree that the checkpoint is of says what the upper tiles hold.
        let right =
            if lines_are_right { self.tree.as_ref() } else { tiles.as_ref().filter(|_| tiles_are_right) };
        if let Some(tree) = right {
            self.faults.extend(upper_tiles(tree, checkpoint.size, sealed));
        }
        tiles
    }

    fn judge_breaks(&mut self) {
        let at: BTreeSet<u64> = self.breaks.iter().map(|it| it.at.seq).collect();
        let known: BTreeSet<u64> = self.others.iter().map(|(found, _)| found.seq).collect();
        for Break { before, at: found } in std::mem::take(&mut self.breaks) {
            let explained = known.contains(&found.seq) || before.is_some_and(|it| known.contains(&it.seq));
            if explained {
                continue;
            }
            // Of two unsealed records that do not fit, the one that the record behind vouches for is the right one.
            let blamed = before.filter(|before| {
                before.sealed == Match::Unknown
                    && found.seq.checked_add(1).is_none_or(|next| !at.contains(&next))
            });
            let (class, found, detail) = match blamed {
                Some(before) => {
                    let detail = "the record is not the one whose hash the next record has as prev";
                    (FaultClass::Rewritten, before, detail)
                }
                None => (FaultClass::Chain, found, "prev is not the hash of the record before"),
            };
            self.fault(class, found.seq, found.segment, found.offset, detail.to_owned());
        }
    }

    /// The end of the log: records that were sealed and are gone, and what stands behind the last one.
    fn judge_end(&mut self, expected: &Expectations) {
        let (size, torn) = (self.order.expected, self.torn);
        if let Some(checkpoint) = self.checkpoint.filter(|checkpoint| checkpoint.size > size) {
            let detail = format!("the checkpoint signs {} records, {size} are there", checkpoint.size);
            self.shrunk(size, checkpoint.size, detail);
        }
        if !expected.sealed {
            return;
        }
        if let Some(first) = self.first_unsealed {
            let detail = "the records stand behind the last checkpoint";
            let count = self.faults.len();
            self.fault(FaultClass::UnsealedTail, first.seq, first.segment, first.offset, detail.to_owned());
            if let Some(fault) = self.faults.get_mut(count).filter(|_| size - 1 > first.seq) {
                fault.last = Some(size - 1);
            }
        }
        if let Some(torn) = torn {
            let detail = format!("{} bytes stand behind the last newline", torn.bytes);
            self.fault(FaultClass::Torn, size, torn.segment, torn.offset, detail);
        }
    }

    fn shrunk(&mut self, size: u64, was: u64, detail: String) {
        let end = self.segments.last().map_or(0, |segment| segment.length);
        let (segment, offset) = match self.torn {
            Some(torn) => (torn.segment, torn.offset),
            None => (self.segments.len().saturating_sub(1), end),
        };
        let count = self.faults.len();
        self.fault(FaultClass::Shrink, size, segment, offset, detail);
        if let Some(fault) = self.faults.get_mut(count).filter(|_| was - 1 > size) {
            fault.last = Some(was - 1);
        }
    }

    fn judge_since(&mut self, tiles: Option<&Tree>) {
        let size = self.order.expected;
        for (since, name, found) in std::mem::take(&mut self.since) {
            match since {
                Since::Checkpoint(earlier) if earlier.size > size => {
                    let detail = format!("{name} signs {} records, {size} are there", earlier.size);
                    self.shrunk(size, earlier.size, detail);
                }
                Since::Checkpoint(earlier) => {
                    let of_tiles = tiles.filter(|tree| tree.size() == earlier.size).map(Tree::root);
                    let (size, root) = (earlier.size, earlier.root.to_base64());
                    let detail = match found.or(of_tiles) {
                        Some(found) if found == earlier.root => continue,
                        Some(found) => format!(
                            "{name} signs {size} records with the root {root}, the records have the root {}",
                            found.to_base64()
                        ),
                        // What keeps them from being compared is a fault of its own.
                        None => {
                            format!("the records cannot be compared with {name}, of {size}")
                        }
                    };
                    self.faults.push(Fault::of_file(FaultClass::Fork, crate::layout::SEGMENTS, detail));
                }
                Since::Anchor(anchor) => match found {
                    Some(leaf) if leaf == anchor.leaf && anchor.size <= size => {}
                    Some(leaf) if leaf == anchor.leaf => {
                        let detail = format!(
                            "there were {} records when the anchor was given, {size} are there",
                            anchor.size
                        );
                        self.shrunk(size, anchor.size, detail);
                    }
                    Some(leaf) => {
                        let detail =
                            format!("the record has the hash {leaf}, its anchor says {}", anchor.leaf);
                        let mut fault =
                            Fault::of_file(FaultClass::Rewritten, crate::layout::SEGMENTS, detail);
                        fault.seq = Some(anchor.seq);
                        self.faults.push(fault);
                    }
                    None if anchor.seq >= size => {
                        let detail = format!("record {} of an anchor is gone, {size} are there", anchor.seq);
                        self.shrunk(size, anchor.size, detail);
                    }
                    // It is missing between others, which is a fault of its own.
                    None => {}
                },
            }
        }
    }
}

/// The tree over the hashes of the tiles at level 0; `None` when some cannot be had.
fn tree_of_tiles(sealed: &Sealed<'_>) -> Option<Tree> {
    let mut tree = Tree::default();
    for index in 0..sealed.tiles.size.div_ceil(WIDTH) {
        let tile = Tile::hashes(0, index, sealed.tiles.size)?;
        sealed.hashes(tile)?.into_iter().for_each(|hash| tree.append(hash));
    }
    Some(tree)
}

/// What is wrong with the tiles above level 0.
fn upper_tiles(tree: &Tree, size: u64, sealed: &Sealed<'_>) -> Vec<Fault> {
    let mut faults = Vec::new();
    for level in 1..8_u8 {
        let count = (size >> (u32::from(level) * 8)).div_ceil(WIDTH);
        for index in 0..count {
            let Some(tile) = Tile::hashes(level, index, size) else { continue };
            let Some(found) = sealed.hashes(tile) else { continue };
            let right = tree.tile(level, index);
            if let Some(at) = found.iter().zip(&right).position(|(found, right)| found != right) {
                let detail = format!("hash {at} is not the root of what is below it");
                let mut fault = Fault::of_file(FaultClass::Tile, tile.path(), detail);
                fault.offset = Some(at as u64 * 32);
                fault.seq = Some((index * WIDTH + at as u64) << (u32::from(level) * 8));
                faults.push(fault);
            }
        }
    }
    faults
}
