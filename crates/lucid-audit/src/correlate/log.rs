//! One log as the correlation sees it: line after line, and its checkpoints.

use std::collections::{BTreeSet, VecDeque};
use std::hash::{BuildHasher, RandomState};

use jiff::Timestamp;
use serde::Deserialize;

use super::drift::{Drift, DriftClass};
use super::event::Request;
use crate::checkpoint::Checkpoint;
use crate::layout::{Line, write_line};
use crate::merkle::{Frontier, Hash, leaf_hash};
use crate::note::{Note, VerifierKey};

/// A record of which it may not be known yet whether the API server knows of it.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) leaf: Hash,
    pub(super) time: Timestamp,
    /// The request whose event has its anchor.
    pub(super) anchored: Option<u64>,
    /// What it is about, until the record is accounted for.
    pub(super) about: Option<Box<About>>,
    /// Which call of which webhook it is about, as a hash.
    call: u64,
    /// The record that takes it back.
    pub(super) overruled: Option<u64>,
}

/// What a decision is about.
#[derive(Debug)]
pub(super) struct About {
    pub(super) request: Request,
    /// Name or `generateName`.
    pub(super) name: String,
    pub(super) webhook: String,
    /// Whether the log has written the record about itself: only its time is judged.
    pub(super) own: bool,
    /// Whether the record's own time contradicts those of the records around it.
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

/// What is known of one log.
#[derive(Debug)]
pub(super) struct LogState {
    pub(super) name: String,
    pub(super) origin: Option<String>,
    keys: Vec<VerifierKey>,
    /// By number; what is missing is `None`.
    pub(super) records: Vec<Option<Record>>,
    last: Hash,
    /// Records whose `prev` is not the hash of the one before.
    breaks: Vec<u64>,
    /// How many records are accounted for, without a gap.
    pub(super) settled: usize,
    /// The time of the last of them that the API server was told of.
    pub(super) anchored_time: Option<Timestamp>,
    /// The tree up to the last checkpoint, unless records are missing.
    tree: Option<Frontier>,
    /// The records behind it: leaf hashes.
    unsealed: VecDeque<Hash>,
    checkpoint: Option<Checkpoint>,
    /// A checkpoint of more records than were read.
    ahead: Option<Checkpoint>,
    /// Webhooks whose records the API server was told of.
    pub(super) webhooks: BTreeSet<String>,
    /// How many records were taken back.
    pub(super) overruled: u64,
    hasher: RandomState,
    pub(super) drifts: Vec<Drift>,
}

/// The most numbers that a line may skip: a made-up number must not take all memory.
const LARGEST_GAP: u64 = 1 << 20;

impl LogState {
    pub(super) fn new(name: String, keys: Vec<VerifierKey>) -> Self {
        Self {
            name,
            origin: None,
            keys,
            records: Vec::new(),
            last: Hash::ZERO,
            breaks: Vec::new(),
            settled: 0,
            anchored_time: None,
            tree: Some(Frontier::new()),
            unsealed: VecDeque::new(),
            checkpoint: None,
            ahead: None,
            webhooks: BTreeSet::new(),
            overruled: 0,
            hasher: RandomState::new(),
            drifts: Vec::new(),
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.records.len() as u64
    }

    pub(super) fn get(&self, seq: u64) -> Option<&Record> {
        self.records.get(usize::try_from(seq).ok()?)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, seq: u64) -> Option<&mut Record> {
        self.records.get_mut(usize::try_from(seq).ok()?)?.as_mut()
    }

    pub(super) fn drift(&mut self, class: DriftClass, seq: Option<u64>, detail: impl Into<String>) {
        let (log, audit_id) = (self.name.clone(), String::new());
        self.drifts.push(Drift { class, log, seq, last: None, audit_id, detail: detail.into() });
    }

    /// Takes the next line; returns the number and hash of the record in it.
    pub(super) fn line(&mut self, line: &[u8]) -> Option<(u64, Hash)> {
        let size = self.size();
        let fields = serde_json::from_slice::<Fields>(line);
        let (Ok(parsed), Ok(fields)) = (Line::parse(line), fields) else {
            self.drift(DriftClass::Rewritten, Some(size), "a line is no record");
            self.tree = None;
            return None;
        };
        let (seq, prev) = (parsed.seq, parsed.prev);
        if seq < size && self.get(seq).is_some() {
            self.drift(DriftClass::Duplicate, Some(seq), "the record stands in the log twice");
            return None;
        }
        if seq < size {
            self.drift(DriftClass::Rewritten, Some(seq), "the record stands behind later ones");
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
        let own = is_own(line, seq, &prev);
        let about = About { request, name: fields.name, webhook: fields.webhook, own, misplaced: false };
        let about = Some(Box::new(about));
        let record = Record { leaf, time: fields.time, anchored: None, about, call, overruled: None };
        match usize::try_from(seq).ok().and_then(|seq| self.records.get_mut(seq)) {
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

    /// Record `by` takes back record `of`.
    fn overrule(&mut self, of: u64, by: u64, call: u64) {
        let before =
            self.get_mut(of).filter(|record| of < by && record.call == call && record.overruled.is_none());
        let Some(record) = before else {
            let detail = format!("the record takes back record {of}, which is no decision of the same call");
            return self.drift(DriftClass::Rewritten, Some(by), detail);
        };
        record.overruled = Some(by);
        let told = record.anchored.is_some();
        self.overruled += 1;
        if told {
            self.taken_back(of, by);
        }
    }

    /// Record `by` takes back record `of`, of which the API server was told.
    pub(super) fn taken_back(&mut self, of: u64, by: u64) {
        let detail = format!("record {by} takes back what the API server was answered");
        self.drift(DriftClass::Rewritten, Some(of), detail);
    }

    /// Takes the line that now stands where record `seq` was read; returns whether those behind it can be compared.
    pub(super) fn again(&mut self, seq: u64, line: &[u8]) -> bool {
        let Some(record) = self.get(seq) else { return true };
        if record.leaf == leaf_hash(line) {
            return true;
        }
        self.drift(
            DriftClass::Rewritten,
            Some(seq),
            "the record is no longer what it was when it was read first",
        );
        Line::parse(line).is_ok_and(|line| line.seq == seq)
    }

    /// Takes the checkpoint as it is now.
    pub(super) fn checkpoint(&mut self, note: &str, vkey: Option<&str>) {
        let parsed = note.parse::<Note>().ok();
        let checkpoint = parsed.as_ref().and_then(|note| note.text().parse::<Checkpoint>().ok());
        let (Some(note), Some(checkpoint)) = (parsed, checkpoint) else {
            return self.drift(DriftClass::KeyChange, None, "the checkpoint cannot be read");
        };
        if self.keys.is_empty() {
            // Whoever was there first is believed from now on.
            self.keys.extend(vkey.and_then(|vkey| vkey.trim().parse().ok()));
        }
        if !self.keys.iter().any(|key| Checkpoint::verify(&note, key).is_ok()) {
            let found = note.signatures().iter().map(|it| format!("{}+{:08x}", it.name, it.id));
            let found = found.collect::<Vec<_>>().join(", ");
            let detail = format!(
                "the checkpoint has no valid signature by a key that is trusted; it is signed by {found}"
            );
            self.drift(DriftClass::KeyChange, None, detail);
        }
        self.origin.get_or_insert_with(|| checkpoint.origin.clone());
        if let Some(before) = &self.checkpoint
            && checkpoint.size < before.size
        {
            let detail =
                format!("the checkpoint was of {} records and is of {}", before.size, checkpoint.size);
            return self.drift(DriftClass::Shrink, Some(checkpoint.size), detail);
        }
        self.ahead = Some(checkpoint);
        self.advance();
    }

    /// Compares the tree with the checkpoint when it has its size.
    fn advance(&mut self) {
        let Some(checkpoint) = self.ahead.take_if(|it| it.size <= self.records.len() as u64) else { return };
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

    /// For each record that is not accounted for, and those between: the times of the nearest records before and behind it that
    /// the API server was told of.
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

    /// Goes on to the first record that is not accounted for; returns how many are not.
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

    /// What has been wrong for long enough: a chain that does not fit, and records that nobody seals.
    pub(super) fn settle(&mut self, before: Timestamp, finished: bool) {
        for seq in std::mem::take(&mut self.breaks) {
            // The API server vouches for the record before: then it is this one.
            let vouched =
                seq.checked_sub(1).is_none_or(|it| self.get(it).is_some_and(|it| it.anchored.is_some()));
            let (at, detail) = match seq.checked_sub(1) {
                Some(previous) if !vouched => {
                    (previous, "the record is not the one that the next record names")
                }
                _ => (seq, "prev is not the hash of the record before"),
            };
            self.drift(DriftClass::Rewritten, Some(at), detail);
        }
        if let Some(ahead) = self.ahead.take_if(|_| finished) {
            let detail = format!("the checkpoint is of {} records, {} are there", ahead.size, self.size());
            self.drift(DriftClass::Shrink, Some(self.size()), detail);
        }
        let Some(checkpoint) = &self.checkpoint else { return };
        let first = checkpoint.size;
        let tail = self.records.iter().skip(usize::try_from(first).unwrap_or(usize::MAX));
        if tail.flatten().any(|record| record.time < before) {
            let detail = "the record and those behind it have not been sealed for long";
            self.drift(DriftClass::UnsealedTail, Some(first), detail);
        }
    }
}

/// Whether the log has written the record about itself: such a record has nothing else in it.
fn is_own(line: &[u8], seq: u64, prev: &Hash) -> bool {
    let Ok(event) = serde_json::from_slice::<crate::Event>(line) else { return false };
    let mut written = Vec::new();
    write_line(&mut written, seq, prev, &event.to_record());
    written.strip_suffix(b"\n") == Some(line)
}

/// What the API server calls the kind of a record: `Pod/ephemeralcontainers` is `pods/ephemeralcontainers`.
fn resource(kind: &str) -> String {
    let kind = kind.to_ascii_lowercase();
    match kind.split_once('/') {
        Some((kind, subresource)) => format!("{kind}s/{subresource}"),
        None => format!("{kind}s"),
    }
}
