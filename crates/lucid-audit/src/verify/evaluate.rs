//! Evaluation of a log after all lines were read.
//!
//! One rule resolves contradictions about a record: the version that leads to the signed root is right. If neither lines nor
//! tiles have that root, or nothing is sealed, it is the version that the next record refers to.

use std::collections::BTreeSet;

use super::fault::{Fault, FaultClass};
use super::records::{Break, Known, Records, Tree};
use super::scan::Found;
use super::sealed::{Match, Sealed};
use super::{Earlier, Expectations, Report};
use crate::checkpoint::Checkpoint;
use crate::layout::{CHECKPOINT, SEGMENTS};
use crate::merkle::{consistency_proof, verify_consistency};
use crate::tile::{Frontier, Tile, WIDTH};

/// Authority on sealed records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Authority {
    /// The lines, which have the root of the checkpoint.
    Lines,
    /// The tiles, which have the root of the checkpoint.
    Tiles,
    /// The next record, since neither lines nor tiles have the root.
    Next,
}

impl Records<'_> {
    pub(super) fn report(mut self, sealed: Sealed<'_>, expected: &Expectations) -> Report {
        self.finish();
        let mut reported = BTreeSet::new();
        self.evaluate_surplus(&mut reported);
        self.evaluate_gaps();
        let (authority, tiles) = self.evaluate_roots(&sealed);
        self.evaluate_sealed(authority, &sealed, &mut reported);
        self.evaluate_breaks(authority, &reported);
        let tiled = sealed.ahead;
        self.evaluate_end(expected, tiled);
        self.evaluate_known(tiles.as_ref(), &sealed);
        self.faults.extend(sealed.faults());
        Report {
            records: self.lines,
            segments: self.segments.len(),
            sealed: self.checkpoint.map(|checkpoint| checkpoint.size),
            unsealed: self.unsealed,
            tiled: self.checkpoint.filter(|it| it.size < tiled).map(|_| tiled),
            torn_bytes: self.torn.map_or(0, |torn| torn.bytes),
            pruned: self.anchors_pruned,
            root: self.tree.map(|tree| tree.frontier.root().to_base64()),
            faults: self.faults,
            ..Report::default()
        }
    }

    fn fault_at(&mut self, class: FaultClass, found: Found, detail: impl Into<String>) {
        self.fault(class, found.seq, found.segment, found.offset, detail);
    }

    /// Returns the break after record `seq` if the next record refers to another one.
    fn break_after(&self, seq: u64) -> Option<Break> {
        seq.checked_add(1).and_then(|next| self.breaks.get(&next).copied())
    }

    /// Evaluates surplus records. A duplicate number belongs to the record that was sealed, or that the next one refers to.
    fn evaluate_surplus(&mut self, reported: &mut BTreeSet<u64>) {
        for found in std::mem::take(&mut self.surplus) {
            let seq = found.seq;
            if self.order.found(seq) {
                self.fault_at(FaultClass::Reordered, found, "the record is out of order");
                self.keep(found);
                continue;
            }
            let was_sealed = matches!(found.sealed, Match::Same | Match::NotInBundle);
            let other = self.others.get(&seq).map(|(other, _)| *other).filter(|_| was_sealed);
            let before =
                self.break_after(seq).filter(|next| next.at.prev == found.leaf).and_then(|it| it.before);
            if let Some(other) = other.or(before).filter(|_| !reported.contains(&seq)) {
                self.others.remove(&seq);
                reported.insert(seq);
                let detail = "the line precedes the record with this number";
                self.fault_at(FaultClass::Inserted, other, detail);
            } else if !self.order.has(seq) || matches!(found.sealed, Match::Other { .. }) {
                let detail = "the line is between two consecutive records";
                self.fault_at(FaultClass::Inserted, found, detail);
            } else {
                self.fault_at(FaultClass::Duplicate, found, "an earlier record has this number");
            }
        }
    }

    fn evaluate_gaps(&mut self) {
        let missing: Vec<_> = self.order.missing().collect();
        for (first, last) in missing {
            let next = self.after_gaps.iter().filter(|jump| jump.seq > last).min_by_key(|jump| jump.seq);
            let Some(next) = next.copied() else { continue };
            let begun = self.segments.iter().any(|segment| (first..=last).contains(&segment.first));
            let what = match (next.offset, begun) {
                (0, false) => "the segment with them is missing",
                (0, true) => "the segment that they were in is there without them",
                _ => "the records before this place are missing",
            };
            let fault = self.fault(FaultClass::Gap, first, next.segment, next.offset, what);
            fault.last = (last > first).then_some(last);
        }
    }

    /// Compares the roots of lines and tiles with the root of the checkpoint. Returns the authority on sealed records, and
    /// the tree of the tiles if it was read.
    fn evaluate_roots(&mut self, sealed: &Sealed<'_>) -> (Authority, Option<Tree>) {
        let Some(checkpoint) = self.checkpoint else { return (Authority::Next, None) };
        let (size, root) = (checkpoint.size, checkpoint.root);
        if self.root_sealed == Some(root) {
            // The checkpoint's tree determines the upper tiles.
            self.faults.extend(self.tree.iter().flat_map(|tree| upper_tiles(tree, sealed)));
            return (Authority::Lines, None);
        }
        // Read all tiles again only after a mismatch.
        let tiles = self.pruned.clone().and_then(|pruned| tree_of_tiles(pruned, sealed));
        let tiles_root = tiles.as_ref().map(|tree| tree.frontier.root());
        if let Some(tree) = tiles.as_ref().filter(|_| tiles_root == Some(root)) {
            self.faults.extend(upper_tiles(tree, sealed));
            return (Authority::Tiles, tiles);
        }
        let lines = self.root_sealed.map(|found| ("records", found));
        if let Some((what, found)) = lines.or(tiles_root.map(|found| ("tiles", found))) {
            let (root, found) = (root.to_base64(), found.to_base64());
            let detail = format!("it signs {size} records with root {root}, the {what} have root {found}");
            self.faults.push(Fault::of_file(FaultClass::Fork, CHECKPOINT, detail));
        }
        (Authority::Next, tiles)
    }

    /// Evaluates records that differ from tiles or bundles.
    fn evaluate_sealed(&mut self, authority: Authority, sealed: &Sealed<'_>, reported: &mut BTreeSet<u64>) {
        let size = self.size();
        for (seq, (found, bundle)) in std::mem::take(&mut self.others) {
            let refuted = self.break_after(seq);
            let is_confirmed =
                refuted.is_none() && seq.checked_add(1).is_some_and(|next| self.order.has(next));
            let (by, tile_is_wrong) = match authority {
                Authority::Lines => ("checkpoint", true),
                Authority::Next => ("next record", is_confirmed),
                Authority::Tiles => ("", false),
            };
            if let Some(tile) = Tile::hashes(0, seq / WIDTH, size).filter(|_| tile_is_wrong && seq < size) {
                let detail =
                    format!("the tile has another hash than the record, and the {by} confirms the record");
                self.faults.push(Fault::of_record(
                    FaultClass::Tile,
                    seq,
                    &tile.path(),
                    seq % WIDTH * 32,
                    detail,
                ));
                continue;
            }
            reported.insert(seq);
            let hint = if bundle { "; its entry bundle still has what was sealed" } else { "" };
            let detail = match seq < size {
                true => format!("the record is not the one that was sealed{hint}"),
                false => {
                    format!("the record is not the one in the tiles, which cover {} records", sealed.ahead)
                }
            };
            self.fault_at(FaultClass::Rewritten, found, detail);
        }
        for found in std::mem::take(&mut self.not_in_bundle) {
            let Some(entry) = sealed.entry(found.seq) else { continue };
            let refuted = self.break_after(found.seq).filter(|_| authority == Authority::Next);
            if refuted.is_some_and(|next| next.at.prev == entry.leaf) {
                reported.insert(found.seq);
                let detail = "the next record refers to another record; its entry bundle still has that";
                self.fault_at(FaultClass::Rewritten, found, detail);
                continue;
            }
            let detail = "the entry bundle has another record than the sealed one".to_owned();
            self.faults.push(Fault::of_record(
                FaultClass::Bundle,
                found.seq,
                &entry.path,
                entry.offset,
                detail,
            ));
        }
    }

    fn evaluate_breaks(&mut self, authority: Authority, reported: &BTreeSet<u64>) {
        let breaks = std::mem::take(&mut self.breaks);
        for (seq, Break { before, at }) in &breaks {
            if reported.contains(seq) || before.is_some_and(|before| reported.contains(&before.seq)) {
                continue;
            }
            // If the following record confirms one of two contradicting records, that one is right.
            let refuted = seq.checked_add(1).is_some_and(|next| breaks.contains_key(&next));
            let is_resolved =
                |before: &Found| before.sealed != Match::Unknown && authority != Authority::Next;
            match before.filter(|before| !refuted && !is_resolved(before)) {
                Some(before) => {
                    let detail = "the next record refers to another record";
                    self.fault_at(FaultClass::Rewritten, before, detail);
                }
                None => self.fault_at(FaultClass::Chain, *at, "prev is not the hash of the record before"),
            }
        }
    }

    /// Evaluates the end of the log: missing sealed records, unsealed records and torn lines.
    fn evaluate_end(&mut self, expected: &Expectations, tiled: u64) {
        let (size, torn) = (self.order.expected, self.torn);
        if self.size() > size {
            let detail = format!("the checkpoint signs {} records, {size} are there", self.size());
            self.shrunk(self.size(), detail);
        } else if tiled > size {
            self.shrunk(tiled, format!("the tiles are of {tiled} records, {size} are there"));
        }
        if !expected.sealed {
            return;
        }
        if let Some(Found { seq, segment, offset, .. }) = self.first_unsealed {
            let detail = "the records follow the last checkpoint";
            let fault = self.fault(FaultClass::UnsealedTail, seq, segment, offset, detail);
            fault.last = size.checked_sub(1).filter(|last| *last > seq);
        }
        if let Some(torn) = torn {
            let detail = format!("{} bytes follow the last newline", torn.bytes);
            self.fault(FaultClass::Torn, size, torn.segment, torn.offset, detail);
        }
    }

    fn shrunk(&mut self, was: u64, detail: String) {
        let size = self.order.expected;
        let end = self.segments.last().map_or(0, |segment| segment.length);
        let (segment, offset) = match self.torn {
            Some(torn) => (torn.segment, torn.offset),
            None => (self.segments.len().saturating_sub(1), end),
        };
        let fault = self.fault(FaultClass::Shrink, size, segment, offset, detail);
        fault.last = was.checked_sub(1).filter(|last| *last > size);
    }

    /// Returns `true` if the tiles prove that the sealed log has grown from an `earlier` checkpoint of pruned records.
    fn grew_from(&self, earlier: &Checkpoint, sealed: &Sealed<'_>) -> bool {
        let Some(now) = self.checkpoint.filter(|now| now.size >= earlier.size) else { return false };
        consistency_proof(&sealed.tiles, earlier.size, now.size)
            .is_ok_and(|proof| verify_consistency(earlier.size, &earlier.root, now.size, &now.root, &proof))
    }

    /// Compares the log with independent knowledge.
    fn evaluate_known(&mut self, tiles: Option<&Tree>, with: &Sealed<'_>) {
        let (size, sealed) = (self.order.expected, self.checkpoint.map(|checkpoint| checkpoint.size));
        for Known { since, name, root, record } in std::mem::take(&mut self.known) {
            match &since.0 {
                Earlier::Checkpoint(earlier) if earlier.size > size => {
                    self.shrunk(
                        earlier.size,
                        format!("{name} signs {} records, {size} are there", earlier.size),
                    );
                }
                Earlier::Checkpoint(earlier) => {
                    if let Some(sealed) = sealed.filter(|sealed| *sealed < earlier.size) {
                        let detail = format!("it signs {sealed} records, {name} signs {}", earlier.size);
                        self.faults.push(Fault::of_file(FaultClass::Shrink, CHECKPOINT, detail));
                    }
                    if self.minimum.first > earlier.size && self.grew_from(earlier, with) {
                        continue;
                    }
                    let of_tiles = tiles.map(|tree| &tree.frontier);
                    let of_tiles = of_tiles.filter(|tree| tree.size() == earlier.size).map(Frontier::root);
                    let (size, root_signed) = (earlier.size, earlier.root.to_base64());
                    let detail = match root.or(of_tiles) {
                        Some(found) if found == earlier.root => continue,
                        Some(found) => format!(
                            "{name} signs {size} records with the root {root_signed}, the records have the root {}",
                            found.to_base64()
                        ),
                        // The obstacle to the comparison is reported as a separate fault.
                        None if size < self.minimum.first => format!(
                            "the records cannot be compared with {name}, of {size}: the first {} were pruned",
                            self.minimum.first
                        ),
                        None => {
                            format!("the records cannot be compared with {name}, of {size}")
                        }
                    };
                    self.faults.push(Fault::of_file(FaultClass::Fork, SEGMENTS, detail));
                }
                Earlier::Anchor(anchor) => match record {
                    Some(found) if found.leaf != anchor.leaf => {
                        let detail = format!(
                            "the record has the hash {}, its anchor says {}",
                            found.leaf, anchor.leaf
                        );
                        self.fault_at(FaultClass::Rewritten, found, detail);
                    }
                    None if anchor.seq >= size => {
                        let detail =
                            format!("record {} of an anchor is missing, there are {size}", anchor.seq);
                        self.shrunk(anchor.size, detail);
                    }
                    _ if anchor.size > size => {
                        let was = anchor.size;
                        let detail =
                            format!("there were {was} records when the anchor was given, {size} are there");
                        self.shrunk(was, detail);
                    }
                    None if anchor.seq < self.minimum.first => self.anchors_pruned.push(anchor.seq),
                    // A gap is reported as a separate fault.
                    _ => {}
                },
            }
        }
    }
}

/// Computes the tree over the hashes of the tiles at level 0, or `None` if a tile cannot be read.
fn tree_of_tiles(pruned: Frontier, sealed: &Sealed<'_>) -> Option<Tree> {
    let mut tree = Tree { frontier: pruned, ..Tree::default() };
    let size = sealed.tiles.size;
    for index in tree.frontier.size() / WIDTH..size.div_ceil(WIDTH) {
        let hashes = sealed.hashes(Tile::hashes(0, index, size)?)?;
        let known = usize::try_from(tree.frontier.size() - index * WIDTH).ok()?;
        hashes.into_iter().skip(known).for_each(|hash| tree.append(hash, size));
    }
    Some(tree)
}

fn upper_tiles(tree: &Tree, sealed: &Sealed<'_>) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (tile, right) in &tree.upper {
        let Some(found) = sealed.hashes(*tile) else { continue };
        if let Some(at) = found.iter().zip(right).position(|(found, right)| found != right) {
            let (at, level) = (at as u64, tile.level().unwrap_or_default());
            let seq = (tile.index() * WIDTH + at) << (u32::from(level) * 8);
            let detail = format!("hash {at} is not the root of what is below it");
            faults.push(Fault::of_record(FaultClass::Tile, seq, &tile.path(), at * 32, detail));
        }
    }
    faults
}
