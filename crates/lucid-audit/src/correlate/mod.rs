//! Comparing logs with the API server's own audit log, which somebody else keeps.
//!
//! With each answer a webhook hands its record's [`Anchor`](crate::Anchor) to the API server, which writes it into the event of
//! the request. So there are two records of each decision, and who can change one of them cannot change the other. A
//! [`Correlator`] is given both, line by line and in any order, and names each [`Drift`]; nothing is reconciled.
//!
//! What is normal is no drift: a record whose event is still on its way, or lies before the first or behind the last event that is
//! there; a second call of a webhook within a request (the API server keeps the first anchor, and no second value of an
//! annotation), a call whose answer came too late for the API server, a record that a later one takes back because it came to
//! be kept too late, rotation on either side, torn ends.

mod drift;
mod event;
mod log;
mod records;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

pub use drift::{Drift, DriftClass};
pub use event::ANNOTATION;
use event::{Event, EventAnchor, Request};
use log::LogState;
use records::Window;

use crate::merkle::Hash;
use crate::note::VerifierKey;

/// A log among those that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogId(usize);

/// How much was compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Tally {
    /// Events of the API server.
    pub events: u64,
    /// Lines of its log that are no events.
    pub unreadable: u64,
    /// Anchors in events.
    pub anchors: u64,
    /// Records of the logs.
    pub records: u64,
    /// Records with an anchor that says the same.
    pub matched: u64,
    /// Records of a request that the API server has seen, without an anchor of their own: second calls within a request, answers
    /// that came too late.
    pub explained: u64,
    /// Records that a later one takes back, because they came to be kept when their requests had been refused for that.
    pub overruled: u64,
    /// Records that cannot be judged: outside of the time that the events are of.
    pub uncovered: u64,
    /// Records that a log has written about itself.
    pub own: u64,
    /// Records of requests that the API server does not know: as many as drifts of class `orphan`.
    pub orphans: u64,
    /// Records of which it is not known yet.
    pub pending: u64,
}

/// An anchor whose record was not found yet.
#[derive(Debug)]
struct Waiting {
    anchor: EventAnchor,
    audit_id: String,
    time: Timestamp,
    /// The event does not name the object.
    is_unnamed: bool,
}

/// Compares logs with the API server's audit log.
#[derive(Debug)]
pub struct Correlator {
    grace: SignedDuration,
    logs: Vec<LogState>,
    waiting: BTreeMap<u64, Vec<Waiting>>,
    windows: HashMap<Request, Vec<Window>>,
    /// What the records of requests whose events have no name call the object.
    names: HashMap<u64, Vec<String>>,
    first_event: Option<Timestamp>,
    last_event: Option<Timestamp>,
    /// Webhooks that hand out anchors.
    webhooks: BTreeSet<String>,
    /// Requests that a webhook has changed without handing out an anchor.
    silent: Vec<(String, String)>,
    told: HashSet<(DriftClass, String, Option<u64>, String)>,
    tally: Tally,
    hasher: RandomState,
}

impl Correlator {
    /// Compares nothing yet. What is not there after `grace` is missing.
    #[must_use]
    pub fn new(grace: SignedDuration) -> Self {
        Self {
            grace,
            logs: Vec::new(),
            waiting: BTreeMap::new(),
            windows: HashMap::new(),
            names: HashMap::new(),
            first_event: None,
            last_event: None,
            webhooks: BTreeSet::new(),
            silent: Vec::new(),
            told: HashSet::new(),
            tally: Tally::default(),
            hasher: RandomState::new(),
        }
    }

    /// Adds a log, under the name that drifts are to have. Without keys, the first `vkey` that is seen is believed.
    pub fn add_log(&mut self, name: impl Into<String>, keys: Vec<VerifierKey>) -> LogId {
        self.logs.push(LogState::new(name.into(), keys));
        LogId(self.logs.len() - 1)
    }

    /// How much was compared so far.
    #[must_use]
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    /// Takes the next line of a log, without its newline.
    pub fn record(&mut self, log: LogId, line: &[u8]) {
        let Some((seq, leaf)) = self.logs.get_mut(log.0).and_then(|log| log.line(line)) else { return };
        self.tally.records += 1;
        let Some(waiting) = self.waiting.get_mut(&seq) else { return };
        let origin = self.logs.get(log.0).and_then(|log| log.origin.as_deref());
        let of_this = |it: &mut Waiting| it.anchor.leaf == leaf && names(&it.anchor, origin);
        let found: Vec<_> = waiting.extract_if(.., of_this).collect();
        if waiting.is_empty() {
            self.waiting.remove(&seq);
        }
        for it in found {
            self.matched(log.0, &it);
        }
    }

    /// Takes the line that stands now where record `seq` was read before. Returns whether the lines behind it can be taken as
    /// well: not when it is one of another number.
    pub fn again(&mut self, log: LogId, seq: u64, line: &[u8]) -> bool {
        self.logs.get_mut(log.0).is_none_or(|log| log.again(seq, line))
    }

    /// Takes a log's checkpoint and its `vkey`, as they are now. Everything that the checkpoint seals can be read from the log
    /// afterwards.
    pub fn checkpoint(&mut self, log: LogId, note: &str, vkey: Option<&str>) {
        if let Some(log) = self.logs.get_mut(log.0) {
            log.checkpoint(note, vkey);
        }
    }

    /// Says of a log that has to be sealed that it has no checkpoint that could be read. One without records needs none.
    pub fn unsealed(&mut self, log: LogId, detail: &str) {
        if let Some(log) = self.logs.get_mut(log.0).filter(|log| log.size() > 0) {
            log.drift(DriftClass::KeyChange, None, detail);
        }
    }

    /// Says of a log that its files have become shorter than what was read of them.
    pub fn shrunk(&mut self, log: LogId, detail: &str) {
        if let Some(log) = self.logs.get_mut(log.0) {
            let size = log.size();
            log.drift(DriftClass::Shrink, Some(size), detail);
        }
    }

    /// Takes a line of the API server's audit log, without its newline.
    pub fn event(&mut self, line: &[u8]) {
        if line.trim_ascii().is_empty() {
            return;
        }
        let Some(event) = Event::parse(line) else {
            self.tally.unreadable += 1;
            return;
        };
        self.tally.events += 1;
        let (from, to) = (event.request_received_timestamp, event.stage_timestamp);
        // One without times says nothing of how far the log reaches.
        if from != Timestamp::UNIX_EPOCH && to != Timestamp::UNIX_EPOCH {
            self.first_event = Some(self.first_event.map_or(from, |first| first.min(from)));
            self.last_event = Some(self.last_event.map_or(to, |last| last.max(to)));
        }
        let request = event.request();
        let is_unnamed = event.name().is_empty();
        let mut anchored = BTreeSet::new();
        for (webhook, anchor) in event.anchors() {
            anchored.insert(webhook.to_owned());
            let audit_id = event.audit_id.clone();
            match anchor {
                Ok(anchor) => {
                    self.tally.anchors += 1;
                    self.anchor(Waiting { anchor, audit_id, time: to, is_unnamed });
                }
                Err(found) => {
                    let detail = format!("the event has {found:?} in place of an anchor of {webhook}");
                    let log = String::new();
                    let drift =
                        Drift { class: DriftClass::Missing, log, seq: None, last: None, audit_id, detail };
                    self.stray(drift);
                }
            }
        }
        for webhook in event.mutated_by().filter(|webhook| !anchored.contains(webhook)) {
            self.silent.push((webhook, event.audit_id.clone()));
        }
        self.webhooks.append(&mut anchored);
        if event.may_have_called() {
            let id = self.hasher.hash_one(&event.audit_id);
            let window = Window { from, to, name: event.name().to_owned(), id };
            self.windows.entry(request).or_default().push(window);
        }
    }

    /// A drift of no log in particular.
    fn stray(&mut self, drift: Drift) {
        if let Some(log) = self.logs.first_mut() {
            log.drifts.push(drift);
        }
    }

    fn anchor(&mut self, waiting: Waiting) {
        let fits = |log: &LogState| {
            let same = log.get(waiting.anchor.seq).is_some_and(|record| record.leaf == waiting.anchor.leaf);
            same && names(&waiting.anchor, log.origin.as_deref())
        };
        match self.logs.iter().position(fits) {
            Some(log) => self.matched(log, &waiting),
            None => self.waiting.entry(waiting.anchor.seq).or_default().push(waiting),
        }
    }

    fn matched(&mut self, log: usize, waiting: &Waiting) {
        let request = self.hasher.hash_one(&waiting.audit_id);
        let Some(log) = self.logs.get_mut(log) else { return };
        let seq = waiting.anchor.seq;
        let Some(record) = log.get_mut(seq) else { return };
        match record.anchored {
            None => {
                record.anchored = Some(request);
                let (about, overruled) = (record.about.take(), record.overruled);
                self.tally.matched += 1;
                if let Some(about) = about.filter(|about| !about.own) {
                    log.webhooks.insert(about.webhook);
                    if waiting.is_unnamed {
                        self.names.entry(request).or_default().push(about.name);
                    }
                }
                if let Some(by) = overruled {
                    log.taken_back(seq, by);
                }
            }
            // Each request has several events, one for each stage; they say the same.
            Some(first) if first == request => {}
            Some(_) => {
                log.drift(DriftClass::Duplicate, Some(seq), "two requests have the anchor of the record");
                if let Some(drift) = log.drifts.last_mut() {
                    drift.audit_id.clone_from(&waiting.audit_id);
                }
            }
        }
    }

    /// Judges what has had its time, and returns each drift that was not told before. `now` is how far the API server's
    /// log reaches: the present while it is followed.
    pub fn settle(&mut self, now: Timestamp) -> Vec<Drift> {
        self.judge(now, now, false)
    }

    /// Judges everything, when no more lines will come: the logs were read after the events, and the last event says how far the API
    /// server's log reaches. No record is of later than `now`.
    pub fn finish(&mut self, now: Timestamp) -> Vec<Drift> {
        self.judge(self.last_event.unwrap_or(Timestamp::MIN), now, true)
    }

    /// `reach` is how far the API server's log reaches.
    fn judge(&mut self, reach: Timestamp, now: Timestamp, finished: bool) -> Vec<Drift> {
        let before = reach.checked_sub(self.grace).unwrap_or(Timestamp::MIN);
        self.judge_anchors(before, finished);
        self.judge_silent();
        for log in &mut self.logs {
            log.settle(before, finished);
        }
        self.judge_records(before, now, finished);
        let mut drifts: Vec<Drift> =
            self.logs.iter_mut().flat_map(|log| std::mem::take(&mut log.drifts)).collect();
        // Who knows of the request tells more.
        drifts.sort_by(|a, b| {
            let [first, second] = [a, b].map(|it| (it.class, &it.log, it.seq, it.audit_id.is_empty()));
            first.cmp(&second).then_with(|| a.cmp(b))
        });
        let told = &mut self.told;
        drifts.retain(|it| {
            // What is said of a record is said once, whoever noticed it.
            let by = if it.log.is_empty() || it.seq.is_none() { it.audit_id.clone() } else { String::new() };
            told.insert((it.class, it.log.clone(), it.seq, by))
        });
        joined(drifts)
    }

    /// Anchors whose records did not come.
    fn judge_anchors(&mut self, before: Timestamp, finished: bool) {
        let mut due = Vec::new();
        self.waiting.retain(|_, waiting| {
            due.extend(waiting.extract_if(.., |it| finished || it.time < before));
            !waiting.is_empty()
        });
        for waiting in due {
            let Waiting { anchor, audit_id, .. } = &waiting;
            let of = |log: &&LogState| names(anchor, log.origin.as_deref());
            let candidates: Vec<&LogState> = self.logs.iter().filter(of).collect();
            let (class, log, detail) = lost(anchor, &candidates);
            let (seq, audit_id) = (Some(anchor.seq), audit_id.clone());
            self.stray(Drift { class, log, seq, last: None, audit_id, detail });
        }
    }

    /// Requests that a webhook has changed, which elsewhere hands out anchors, without one.
    fn judge_silent(&mut self) {
        for (webhook, audit_id) in std::mem::take(&mut self.silent) {
            if self.webhooks.contains(&webhook) {
                let detail = format!("{webhook} has changed the object and has handed out no anchor");
                let (class, log) = (DriftClass::Missing, String::new());
                self.stray(Drift { class, log, seq: None, last: None, audit_id, detail });
            }
        }
    }
}

/// A lost end is one drift, however many requests miss their records there.
fn joined(drifts: Vec<Drift>) -> Vec<Drift> {
    let mut joined: Vec<Drift> = Vec::with_capacity(drifts.len());
    for drift in drifts {
        match joined.last_mut() {
            Some(before) if before.is_followed_by(&drift) => {
                before.last = drift.seq;
                // The last one knows best how many there were.
                before.detail = drift.detail;
            }
            _ => joined.push(drift),
        }
    }
    joined
}

/// Whether the anchor can be one of the log with this origin.
fn names(anchor: &EventAnchor, origin: Option<&str>) -> bool {
    match (&anchor.log, origin) {
        (Some(named), Some(origin)) => named == origin,
        _ => true,
    }
}

/// What became of the record of an anchor that is in none of the logs as it was.
fn lost(anchor: &EventAnchor, candidates: &[&LogState]) -> (DriftClass, String, String) {
    let EventAnchor { seq, leaf, size, log } = anchor;
    let name = match candidates {
        [only] => only.name.clone(),
        _ => String::new(),
    };
    let found: Vec<(&LogState, Hash, bool)> = candidates
        .iter()
        .filter_map(|log| log.get(*seq).map(|record| (*log, record.leaf, record.anchored.is_some())))
        .collect();
    match &found[..] {
        [] if candidates.is_empty() => {
            let log = log.as_deref().unwrap_or_default();
            (
                DriftClass::Missing,
                name,
                format!("the log {log} of the anchor is none of those that were given"),
            )
        }
        [] if candidates.iter().all(|log| log.size() <= *seq) => {
            let longest = candidates.iter().map(|log| log.size()).max().unwrap_or_default();
            let was = (*size).max(seq.saturating_add(1));
            (DriftClass::Shrink, name, format!("there were {was} records, {longest} are there"))
        }
        [] => (DriftClass::Missing, name, "the record is not in the log".to_owned()),
        [(log, found, true)] => {
            let detail = format!("one request has the hash {leaf}, another one {found}, which is in the log");
            (DriftClass::Fork, log.name.clone(), detail)
        }
        [(log, found, false)] => {
            let detail = format!("the record has the hash {found}, the API server was told {leaf}");
            (DriftClass::Rewritten, log.name.clone(), detail)
        }
        _ => {
            let detail = format!("no log has the hash {leaf} there, of which the API server was told");
            (DriftClass::Rewritten, name, detail)
        }
    }
}
