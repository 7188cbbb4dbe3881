//! State of one log in the correlation: its lines in order, and its checkpoints.

use std::collections::{BTreeSet, VecDeque};
use std::hash::{BuildHasher, RandomState};

use jiff::Timestamp;
use serde::Deserialize;

use super::drift::{Drift, DriftClass};
use super::event::Request;
use crate::checkpoint::{self, Checkpoint};
use crate::follow::MinimumIndex;
use crate::layout::{Line, write_line};
use crate::merkle::{Hash, leaf_hash};
use crate::minimum::Minimum;
use crate::note::VerifierKey;
use crate::tile::Frontier;

/// A record that may not yet have been matched with an event.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) leaf: Hash,
    pub(super) time: Timestamp,
    /// Hash of the request whose event has the record's anchor.
    pub(super) anchored: Option<u64>,
    /// Details of the decision, dropped when the record is accounted for.
    pub(super) about: Option<Box<About>>,
    /// Hash of the webhook and the UID of the call.
    call: u64,
    /// Sequence number of the record that supersedes this one.
    pub(super) overruled: Option<u64>,
}

#[derive(Debug)]
pub(super) struct About {
    pub(super) request: Request,
    /// Name or `generateName` of the object.
    pub(super) name: String,
    pub(super) webhook: String,
    /// `true` if no request caused the record. Only the time of such a record is checked.
    pub(super) own: bool,
    pub(super) misplaced: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Fields {
    time: Timestamp,
    webhook: String,
    uid: String,
    kind: String,
    namespace: String,
    name: String,
    user: String,
    overrules: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct LogState {
    pub(super) name: String,
    pub(super) origin: Option<String>,
    keys: Vec<VerifierKey>,
    pub(super) minimum: Minimum,
    /// Sequence number of the first record. Those before it were pruned before they were read.
    pub(super) first: u64,
    /// Records from `first` on; `None` if missing.
    pub(super) records: Vec<Option<Record>>,
    last: Hash,
    /// Sequence numbers of records whose `prev` is not the hash of the previous record.
    breaks: Vec<u64>,
    /// Length of the prefix in which every record is accounted for.
    pub(super) settled: usize,
    /// Time of the last anchored record in that prefix.
    pub(super) anchored_time: Option<Timestamp>,
    /// Tree up to the last checkpoint; `None` if records are missing.
    tree: Option<Frontier>,
    /// Leaf hashes of the records after the last checkpoint.
    unsealed: VecDeque<Hash>,
    checkpoint: Option<Checkpoint>,
    /// Checkpoint that covers more records than were read.
    ahead: Option<Checkpoint>,
    pub(super) webhooks: BTreeSet<String>,
    pub(super) overruled: u64,
    hasher: RandomState,
    pub(super) drifts: Vec<Drift>,
}

/// Description of a record whose segment was removed, or truncated before it.
const GONE: &str = "the record is no longer there";

/// Maximum number of sequence numbers that a line may skip. Bounds the memory that a forged number can allocate.
const LARGEST_GAP: u64 = 1 << 20;

impl LogState {
    pub(super) fn new(name: String, keys: Vec<VerifierKey>) -> Self {
        Self { name, keys, tree: Some(Frontier::new()), ..Self::default() }
    }

    /// Returns `true` if the log must have a checkpoint, since its key is known.
    pub(super) const fn must_be_sealed(&self) -> bool {
        !self.keys.is_empty()
    }

    pub(super) fn size(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    /// Returns `true` if the record was pruned before it was read.
    pub(super) fn has_pruned(&self, seq: u64) -> bool {
        seq < self.minimum.first && self.get(seq).is_none()
    }

    fn index(&self, seq: u64) -> Option<usize> {
        usize::try_from(seq.checked_sub(self.first)?).ok()
    }

    pub(super) fn get(&self, seq: u64) -> Option<&Record> {
        self.records.get(self.index(seq)?)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, seq: u64) -> Option<&mut Record> {
        let index = self.index(seq)?;
        self.records.get_mut(index)?.as_mut()
    }

    pub(super) fn drift(&mut self, class: DriftClass, seq: Option<u64>, detail: impl Into<String>) {
        self.drifts.push(Drift::new(class, &self.name, seq, detail));
    }

    /// Processes the next line. Returns the sequence number and hash of its record.
    pub(super) fn line(&mut self, line: &[u8]) -> Option<(u64, Hash)> {
        let size = self.size();
        let fields = serde_json::from_slice::<Fields>(line);
        let (Ok(parsed), Ok(fields)) = (Line::parse(line), fields) else {
            self.drift(DriftClass::Rewritten, Some(size), "a line is not a record");
            self.tree = None;
            return None;
        };
        let (seq, prev) = (parsed.seq, parsed.prev);
        if seq < self.first {
            // Left by a process that was killed while it pruned.
            return None;
        }
        if seq < size && self.get(seq).is_some() {
            self.drift(DriftClass::Duplicate, Some(seq), "the record is in the log twice");
            return None;
        }
        if seq < size {
            self.drift(DriftClass::Rewritten, Some(seq), "the record follows later ones");
        } else if seq - size > LARGEST_GAP {
            self.drift(
                DriftClass::Rewritten,
                Some(seq),
                "the record has a number far ahead of the one before",
            );
            return None;
        } else if seq > size {
            self.drift(DriftClass::Gap, Some(size), "records are missing in the log");
            if let Some(gap) = self.drifts.last_mut().filter(|_| seq - 1 > size) {
                gap.last = Some(seq - 1);
            }
            self.records.extend((size..seq).map(|_| None));
            self.tree = None;
        } else if prev != self.last {
            self.breaks.push(seq);
        }
        let leaf = leaf_hash(line);
        let call = self.hasher.hash_one((&fields.webhook, &fields.uid));
        if let Some(of) = fields.overrules {
            self.overrule(of, seq, call);
        }
        let request =
            Request { resource: resource(&fields.kind), namespace: fields.namespace, user: fields.user };
        // A switch of the admission mode has no call.
        let own = is_own(line, seq, &prev) || fields.uid.is_empty();
        let about = About { request, name: fields.name, webhook: fields.webhook, own, misplaced: false };
        let about = Some(Box::new(about));
        let record = Record { leaf, time: fields.time, anchored: None, about, call, overruled: None };
        match self.index(seq).and_then(|index| self.records.get_mut(index)) {
            Some(place) => *place = Some(record),
            None => {
                self.records.push(Some(record));
                self.last = leaf;
                self.unsealed.push_back(leaf);
                self.advance();
            }
        }
        Some((seq, leaf))
    }

    fn overrule(&mut self, of: u64, by: u64, call: u64) {
        if of < self.first {
            return;
        }
        let before =
            self.get_mut(of).filter(|record| of < by && record.call == call && record.overruled.is_none());
        let Some(record) = before else {
            let detail =
                format!("the record supersedes record {of}, which is not a decision of the same call");
            return self.drift(DriftClass::Rewritten, Some(by), detail);
        };
        record.overruled = Some(by);
        let is_anchored = record.anchored.is_some();
        self.overruled += 1;
        if is_anchored {
            self.overruled_after_anchor(of, by);
        }
    }

    /// Reports that record `by` supersedes record `of`, whose anchor the API server has received.
    pub(super) fn overruled_after_anchor(&mut self, of: u64, by: u64) {
        let detail = format!("record {by} supersedes a response that the API server received");
        self.drift(DriftClass::Rewritten, Some(of), detail);
    }

    /// Compares a line that was read again with record `seq`. Returns `true` if the following lines can be compared as well.
    pub(super) fn reread(&mut self, seq: u64, line: &[u8]) -> bool {
        let Some(record) = self.get(seq) else { return true };
        if record.leaf == leaf_hash(line) {
            return true;
        }
        let detail = if line.is_empty() { GONE } else { "the record has changed since it was read" };
        self.drift(DriftClass::Rewritten, Some(seq), detail);
        Line::parse(line).is_ok_and(|line| line.seq == seq)
    }

    pub(super) fn minimum(&mut self, MinimumIndex { note, tree }: &MinimumIndex) {
        let minimum = match Minimum::verify(note, &self.keys) {
            Ok(minimum) if minimum.first < self.minimum.first => return,
            Ok(minimum) => minimum,
            Err(error) => {
                let detail = format!("the minimum index is not trusted: {error}");
                return self.drift(DriftClass::KeyChange, None, detail);
            }
        };
        self.minimum = minimum;
        if self.size() == 0 {
            (self.first, self.last) = (minimum.first, minimum.prev);
            self.tree = tree.clone().filter(|tree| tree.root() == minimum.root);
        }
        // Pruned before they were read, or read again.
        self.drifts.retain(|it| {
            let is_missing = it.class == DriftClass::Gap || it.detail == GONE;
            !is_missing || it.last.or(it.seq).is_none_or(|seq| seq >= minimum.first)
        });
    }

    pub(super) fn checkpoint(&mut self, note: &str, vkey: Option<&str>) {
        let Ok((note, checkpoint)) = checkpoint::parse(note) else {
            return self.drift(DriftClass::KeyChange, None, "the checkpoint cannot be read");
        };
        if self.keys.is_empty() {
            // Trust on first use.
            self.keys.extend(vkey.and_then(|vkey| vkey.trim().parse().ok()));
        }
        if !self.keys.iter().any(|key| Checkpoint::verify(&note, key).is_ok()) {
            let detail = format!(
                "the checkpoint has no valid signature by a key that is trusted; it is signed by {}",
                note.signers()
            );
            self.drift(DriftClass::KeyChange, None, detail);
        }
        self.origin.get_or_insert_with(|| checkpoint.origin.clone());
        if let Some(before) = &self.checkpoint
            && checkpoint.size < before.size
        {
            let detail =
                format!("the checkpoint covered {} records and covers {}", before.size, checkpoint.size);
            return self.drift(DriftClass::Shrink, Some(checkpoint.size), detail);
        }
        self.ahead = Some(checkpoint);
        self.advance();
    }

    /// Compares the tree with the pending checkpoint once all its records were read.
    fn advance(&mut self) {
        let size = self.size();
        let Some(checkpoint) = self.ahead.take_if(|it| it.size <= size) else { return };
        if let Some(tree) = &mut self.tree {
            while tree.size() < checkpoint.size
                && let Some(leaf) = self.unsealed.pop_front()
            {
                tree.append(leaf);
            }
            if tree.size() == checkpoint.size && tree.root() != checkpoint.root {
                let detail = "the checkpoint has another root than the records";
                self.drift(DriftClass::Fork, Some(checkpoint.size.saturating_sub(1)), detail);
            }
        }
        self.checkpoint = Some(checkpoint);
    }

    /// Returns the times of the nearest anchored records before and after each record, starting at the first one that is not
    /// accounted for.
    pub(super) fn neighbours(&self) -> Vec<(Option<Timestamp>, Option<Timestamp>)> {
        let anchored = |record: &Option<Record>| {
            record.as_ref().filter(|it| it.anchored.is_some()).map(|record| record.time)
        };
        let open = self.records.get(self.settled..).unwrap_or_default();
        let mut behind = None;
        let mut times: Vec<_> = open
            .iter()
            .rev()
            .map(|record| {
                let next = behind;
                behind = anchored(record).or(behind);
                (None, next)
            })
            .collect();
        times.reverse();
        let mut before = self.anchored_time;
        for (record, (previous, _)) in open.iter().zip(&mut times) {
            *previous = before;
            before = anchored(record).or(before);
        }
        times
    }

    /// Advances to the first record that is not accounted for. Returns the number of such records.
    pub(super) fn advance_settled(&mut self) -> u64 {
        let open = |it: &&Record| it.anchored.is_none() && it.about.is_some();
        while let Some(record) = self.records.get(self.settled) {
            let record = record.as_ref();
            if record.as_ref().is_some_and(open) {
                break;
            }
            self.anchored_time =
                record.filter(|it| it.anchored.is_some()).map(|it| it.time).or(self.anchored_time);
            self.settled += 1;
        }
        self.records.iter().skip(self.settled).flatten().filter(open).count() as u64
    }

    /// Reports broken chain links, and records that remained unsealed past the deadline.
    pub(super) fn settle(&mut self, before: Timestamp, finished: bool) {
        for seq in std::mem::take(&mut self.breaks) {
            // An anchored predecessor is intact, so the fault is in this record.
            let is_intact =
                seq.checked_sub(1).is_none_or(|it| self.get(it).is_some_and(|it| it.anchored.is_some()));
            let (at, detail) = match seq.checked_sub(1) {
                Some(previous) if !is_intact => (previous, "the next record refers to another record"),
                _ => (seq, "prev is not the hash of the record before"),
            };
            self.drift(DriftClass::Rewritten, Some(at), detail);
        }
        if let Some(ahead) = self.ahead.take_if(|_| finished) {
            let detail = format!("the checkpoint covers {} records, there are {}", ahead.size, self.size());
            self.drift(DriftClass::Shrink, Some(self.size()), detail);
        }
        let Some(checkpoint) = &self.checkpoint else { return };
        let first = checkpoint.size;
        let tail = self.records.iter().skip(self.index(first).unwrap_or_default());
        if tail.flatten().any(|record| record.time < before) {
            let detail = "the records from here on have not been sealed for too long";
            self.drift(DriftClass::UnsealedTail, Some(first), detail);
        }
    }
}

/// Returns `true` if the log wrote the record about itself. Such a record contains nothing but the event.
fn is_own(line: &[u8], seq: u64, prev: &Hash) -> bool {
    let Ok(event) = serde_json::from_slice::<crate::event::Event>(line) else { return false };
    let mut written = Vec::new();
    write_line(&mut written, seq, prev, &event.to_record());
    written.strip_suffix(b"\n") == Some(line)
}

/// Returns the API resource of a record's kind: `Pod/ephemeralcontainers` becomes `pods/ephemeralcontainers`.
fn resource(kind: &str) -> String {
    let kind = kind.to_ascii_lowercase();
    match kind.split_once('/') {
        Some((kind, subresource)) => format!("{kind}s/{subresource}"),
        None => format!("{kind}s"),
    }
}
