//! Assignment of lines to records in order, and the tree over them.
//!
//! A line is accepted as the record it claims to be if it has the next number, matches the sealed record, or the next line
//! refers to it. All other lines, including those that are not records, are *loose*: they stand for the records missing at
//! their position, and the rest of them is surplus.

use std::collections::BTreeMap;

use super::fault::{Fault, FaultClass};
use super::order::Order;
use super::scan::{Found, Scanned, Torn};
use super::sealed::Match;
use super::{Earlier, Since};
use crate::checkpoint::Checkpoint;
use crate::layout::{LONGEST_LINE, SEGMENTS};
use crate::merkle::Hash;
use crate::minimum::Minimum;
use crate::read::Segment;
use crate::tile::{Frontier, Tile};

/// A line not accepted as the record it claims to be.
#[derive(Debug)]
struct Loose {
    segment: usize,
    offset: u64,
    /// Claimed record, or the reason why the line is not a record.
    record: Result<Found, String>,
}

/// A record whose `prev` is not the hash of the previous one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Break {
    pub(super) before: Option<Found>,
    pub(super) at: Found,
}

/// Independent knowledge, and the corresponding state of the log.
#[derive(Debug)]
pub(super) struct Known<'a> {
    pub(super) since: &'a Since,
    pub(super) name: &'a str,
    /// Root of the tree at the size of the checkpoint.
    pub(super) root: Option<Hash>,
    /// Record of the anchor.
    pub(super) record: Option<Found>,
}

/// Tree over records, and its tiles above level 0.
#[derive(Default)]
pub(super) struct Tree {
    pub(super) frontier: Frontier,
    /// Tiles in the tree of the checkpoint.
    pub(super) upper: Vec<(Tile, Vec<Hash>)>,
}

impl Tree {
    /// Appends a leaf. The checkpoint covers `sealed` leaves.
    pub(super) fn append(&mut self, leaf: Hash, sealed: u64) {
        let is_upper = |tile: &Tile| tile.level() > Some(0);
        let full = self.frontier.append(leaf);
        if self.frontier.size() <= sealed {
            self.upper.extend(full.into_iter().filter(|(tile, _)| is_upper(tile)));
        }
        if self.frontier.size() == sealed {
            let partial = self.frontier.partial().filter(|(tile, _)| is_upper(tile));
            self.upper.extend(partial.map(|(tile, hashes)| (tile, hashes.to_vec())));
        }
    }
}

#[derive(Default)]
pub(super) struct Records<'a> {
    pub(super) segments: &'a [Segment],
    pub(super) checkpoint: Option<&'a Checkpoint>,
    pub(super) minimum: Minimum,
    /// Tree over the pruned records, unless it cannot be used.
    pub(super) pruned: Option<Frontier>,
    pub(super) order: Order,
    /// Previous record, unless something else is in its place.
    before: Option<Found>,
    loose: Vec<Loose>,
    /// Number of loose lines that are not records.
    no_records: u64,
    /// Tree over the records, unless one is missing.
    pub(super) tree: Option<Tree>,
    pub(super) root_sealed: Option<Hash>,
    pub(super) known: Vec<Known<'a>>,
    pub(super) lines: u64,
    pub(super) unsealed: u64,
    pub(super) first_unsealed: Option<Found>,
    pub(super) torn: Option<Torn>,
    pub(super) breaks: BTreeMap<u64, Break>,
    /// Records that differ from the tiles; `true` if the bundle matches the tile.
    pub(super) others: BTreeMap<u64, (Found, bool)>,
    pub(super) not_in_bundle: Vec<Found>,
    pub(super) surplus: Vec<Found>,
    pub(super) after_gaps: Vec<Found>,
    pub(super) faults: Vec<Fault>,
    pub(super) anchors_pruned: Vec<u64>,
}

impl<'a> Records<'a> {
    pub(super) fn new(
        segments: &'a [Segment],
        checkpoint: Option<&'a Checkpoint>,
        since: &'a [(Since, String)],
        (minimum, pruned): (Minimum, Option<Frontier>),
    ) -> Self {
        let known = since.iter().map(|(since, name)| Known { since, name, root: None, record: None });
        let known = known.collect();
        let tree = pruned.clone().map(|frontier| Tree { frontier, ..Tree::default() });
        let mut records = Self { segments, checkpoint, minimum, pruned, known, tree, ..Self::default() };
        records.order.expected = minimum.first;
        records.record_roots();
        records
    }

    pub(super) fn size(&self) -> u64 {
        self.checkpoint.map_or(0, |checkpoint| checkpoint.size)
    }

    pub(super) fn fault(
        &mut self,
        class: FaultClass,
        seq: u64,
        segment: usize,
        offset: u64,
        detail: impl Into<String>,
    ) -> &mut Fault {
        let detail = detail.into();
        let fault = match self.segments.get(segment) {
            Some(segment) => Fault::of_record(class, seq, &segment.name, offset, detail),
            None => Fault { seq: Some(seq), ..Fault::of_file(class, SEGMENTS, detail) },
        };
        let last = self.faults.len();
        self.faults.push(fault);
        &mut self.faults[last]
    }

    pub(super) fn take(&mut self, scanned: Scanned) {
        for line in scanned.lines {
            self.lines += 1;
            match line {
                Ok(found) => self.record(found),
                Err(offset) => {
                    let detail = format!(
                        "the line is not a record: expected one JSON object that begins with seq and prev, of at most {LONGEST_LINE} bytes"
                    );
                    self.no_record(scanned.segment, offset, detail);
                }
            }
        }
        let Some(torn) = scanned.torn else { return };
        if torn.segment + 1 == self.segments.len() {
            self.torn = Some(torn);
            return;
        }
        let Torn { segment, offset, bytes } = torn;
        let detail = format!("{bytes} bytes follow the last newline, and another segment follows");
        self.no_record(segment, offset, detail);
    }

    fn no_record(&mut self, segment: usize, offset: u64, detail: String) {
        self.no_records += 1;
        self.loose.push(Loose { segment, offset, record: Err(detail) });
    }

    fn record(&mut self, found: Found) {
        let continues =
            |before: &Found| before.seq.checked_add(1) == Some(found.seq) && before.leaf == found.prev;
        if self.loose.last().is_some_and(|line| line.record.as_ref().is_ok_and(continues)) {
            self.accept_last();
        }
        let expected = self.order.expected;
        // Lines that are not records may stand for some numbers.
        let follows = (expected..=expected.saturating_add(self.no_records)).contains(&found.seq);
        let was_sealed = matches!(found.sealed, Match::Same | Match::NotInBundle);
        if was_sealed && found.seq < expected {
            self.surplus.push(found);
        } else if follows || was_sealed {
            self.settle(found.seq);
            self.place(found);
        } else {
            let Found { segment, offset, .. } = found;
            self.loose.push(Loose { segment, offset, record: Ok(found) });
        }
    }

    fn accept_last(&mut self) {
        if let Some(Loose { record: Ok(found), .. }) = self.loose.pop() {
            if found.seq < self.order.expected {
                return self.surplus.push(found);
            }
            self.settle(found.seq);
            self.place(found);
        }
    }

    /// Assigns the remaining loose lines at the end.
    pub(super) fn finish(&mut self) {
        let expected = self.order.expected;
        let ahead = |found: &Found| found.seq > expected && expected >= self.size();
        if self.loose.last().is_some_and(|line| line.record.as_ref().is_ok_and(ahead)) {
            self.accept_last();
        }
        self.settle(self.size().max(self.order.expected));
    }

    /// Assigns the loose lines, given that record `next` follows them.
    fn settle(&mut self, next: u64) {
        self.no_records = 0;
        let mut more = 0;
        for Loose { segment, offset, record } in std::mem::take(&mut self.loose) {
            let expected = self.order.expected;
            let missing = expected < next;
            if missing && !record.as_ref().is_ok_and(|found| (expected..next).contains(&found.seq)) {
                self.order.see(expected);
                (self.before, self.tree) = (None, None);
                match record {
                    Ok(found) => {
                        let detail = format!("the record has the number {} there", found.seq);
                        self.fault(FaultClass::Rewritten, expected, segment, offset, detail);
                    }
                    Err(detail) => {
                        self.fault(FaultClass::Framing, expected, segment, offset, detail);
                    }
                }
                continue;
            }
            match record {
                Ok(found) if missing => self.place(found),
                Ok(found) => self.surplus.push(found),
                Err(detail) => {
                    self.fault(FaultClass::Framing, expected.saturating_add(more), segment, offset, detail);
                    more += 1;
                }
            }
        }
    }

    fn place(&mut self, found: Found) {
        let expected = self.order.expected;
        self.order.see(found.seq);
        if found.seq > expected {
            self.tree = None;
            self.after_gaps.push(found);
        } else {
            let fits = match (found.seq, self.before) {
                (seq, _) if seq == self.minimum.first => found.prev == self.minimum.prev,
                (_, before) => before.is_none_or(|before| found.prev == before.leaf),
            };
            if !fits {
                self.breaks.insert(found.seq, Break { before: self.before, at: found });
            }
            let sealed = self.size();
            if let Some(tree) = &mut self.tree {
                tree.append(found.leaf, sealed);
                self.record_roots();
            }
        }
        self.before = Some(found);
        self.keep(found);
    }

    /// Stores facts about a record for the later evaluation.
    pub(super) fn keep(&mut self, found: Found) {
        match found.sealed {
            Match::Other { bundle } => drop(self.others.insert(found.seq, (found, bundle))),
            Match::NotInBundle => self.not_in_bundle.push(found),
            Match::Same | Match::Unknown => {}
        }
        if found.seq >= self.size() {
            self.unsealed += 1;
            if self.checkpoint.is_some() {
                self.first_unsealed.get_or_insert(found);
            }
        }
        for known in &mut self.known {
            if matches!(&known.since.0, Earlier::Anchor(anchor) if anchor.seq == found.seq) {
                known.record = Some(found);
            }
        }
    }

    fn record_roots(&mut self) {
        let Some(Tree { frontier: tree, .. }) = &self.tree else { return };
        let size = tree.size();
        if self.checkpoint.is_some_and(|checkpoint| checkpoint.size == size) {
            self.root_sealed = Some(tree.root());
        }
        for known in &mut self.known {
            if matches!(&known.since.0, Earlier::Checkpoint(checkpoint) if checkpoint.size == size) {
                known.root = Some(tree.root());
            }
        }
    }
}
