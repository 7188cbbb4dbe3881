//! Correlation of logs with the API server's audit log, which is kept independently.
//!
//! Each webhook response passes the [`Anchor`](crate::Anchor) of its record to the API server, which writes it into the event of
//! the request. Each decision is therefore recorded twice, and no single party can change both records. A [`Correlator`] reads
//! logs, takes events in any order, and reports each [`Drift`]; it repairs nothing.
//!
//! The following differences are expected and not reported:
//!
//! - records whose event has not arrived yet, or that lie outside the period covered by events
//! - repeated calls of a webhook within a request: the API server keeps only the first value of an annotation
//! - calls whose response reached the API server too late
//! - records that a later one supersedes because they became durable too late
//! - rotation on either side, and torn lines at the end

mod drift;
mod event;
mod log;
mod read;
mod records;
mod seen;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasher, RandomState};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

pub use drift::Drift;
use drift::DriftClass;
use event::{Event, EventAnchor, Request};
use log::{LogState, Record};
use records::Window;
pub use seen::{SeenAnchor, seen_anchors};

use crate::follow::{EventFollower, LogFollower};

/// Counters of a correlation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tally {
    events: u64,
    /// Lines of the API server's audit log that are not events.
    unreadable: u64,
    anchors: u64,
    records: u64,
    /// Records whose anchor is in an event.
    matched: u64,
    /// Records of known requests without their own anchor: repeated calls within a request, and responses that
    /// arrived too late.
    explained: u64,
    /// Records superseded by a later one, because they became durable after their request had been denied.
    overruled: u64,
    /// Records outside the period covered by events.
    uncovered: u64,
    /// Anchors of records that were pruned before they were read.
    pruned: u64,
    /// Records that a log wrote about itself.
    own: u64,
    /// Records of requests unknown to the API server, each reported as a drift of class `orphan`.
    orphans: u64,
    /// Records not yet accounted for.
    pending: u64,
    /// Rotated files of the API server's audit log that were skipped because they are compressed.
    compressed: u64,
}

impl Tally {
    /// Returns the number of events read.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns the number of anchors found in events. Without any, nothing was compared.
    #[must_use]
    pub fn anchors(&self) -> u64 {
        self.anchors
    }
}

/// Formats the main counters on one line, and each other counter on a separate line unless it is 0.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { events, anchors, records, matched, .. } = self;
        write!(f, "{records} records, {events} events with {anchors} anchors, {matched} match")?;
        for (count, what) in [
            (
                self.explained,
                "records without an anchor of their own, of requests that the API server has seen",
            ),
            (
                self.overruled,
                "records that later ones revoke: they were written for requests that were then denied",
            ),
            (self.uncovered, "records before the first or after the last event of the API server's log"),
            (self.pruned, "anchors of records that were pruned"),
            (self.own, "records that logs wrote about themselves"),
            (self.pending, "records waiting for their events"),
            (self.unreadable, "lines of the API server's log that are not events"),
            (self.compressed, "rotated files skipped because they are compressed"),
        ] {
            if count > 0 {
                write!(f, "\n  {what}: {count}")?;
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Waiting {
    anchor: EventAnchor,
    audit_id: String,
    time: Timestamp,
    /// `true` if the event does not name the object.
    is_unnamed: bool,
}

/// Compares logs with the API server's audit log.
#[derive(Debug, Default)]
pub struct Correlator {
    grace: SignedDuration,
    logs: Vec<LogState>,
    /// Followers of `logs`, in the same order.
    followers: Vec<LogFollower>,
    events: Option<EventFollower>,
    waiting: BTreeMap<u64, Vec<Waiting>>,
    windows: HashMap<Request, Vec<Window>>,
    /// Object names from records of requests whose events have no name, by the hash of the request.
    names: HashMap<u64, Vec<String>>,
    first_event: Option<Timestamp>,
    last_event: Option<Timestamp>,
    webhooks: BTreeSet<String>,
    /// Webhook and audit ID of requests that a webhook changed without providing an anchor.
    silent: Vec<(String, String)>,
    /// New drifts that may not belong to a known log.
    drifts: Vec<Drift>,
    reported: HashSet<(DriftClass, String, Option<u64>, String)>,
    tally: Tally,
    counts: BTreeMap<DriftClass, u64>,
    hasher: RandomState,
}

impl Correlator {
    /// Creates a correlator without logs. A missing counterpart is reported after `grace`.
    #[must_use]
    pub fn new(grace: SignedDuration) -> Self {
        Self { grace, ..Self::default() }
    }

    /// Returns the current counters.
    #[must_use]
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    /// Returns the number of drifts that were reported, for each class.
    pub fn drifts(&self) -> impl Iterator<Item = (impl fmt::Display, u64)> {
        DriftClass::ALL.into_iter().map(|class| (class, self.counts.get(&class).copied().unwrap_or_default()))
    }

    fn record(&mut self, log: usize, line: &[u8]) {
        let Some((seq, leaf)) = self.logs.get_mut(log).and_then(|log| log.line(line)) else { return };
        self.tally.records += 1;
        let Some(waiting) = self.waiting.get_mut(&seq) else { return };
        let origin = self.logs.get(log).and_then(|log| log.origin.as_deref());
        let of_this = |it: &mut Waiting| it.anchor.leaf == leaf && may_belong(&it.anchor, origin);
        let found: Vec<_> = waiting.extract_if(.., of_this).collect();
        if waiting.is_empty() {
            self.waiting.remove(&seq);
        }
        for it in found {
            self.matched(log, &it);
        }
    }

    /// Processes a line of the API server's audit log, without its newline.
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
        // Events without timestamps do not extend the covered period.
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
                    let detail = format!("the event has {found:?} instead of an anchor of {webhook}");
                    self.drifts.push(Drift::new(DriftClass::Missing, "", None, detail).of_request(audit_id));
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

    fn anchor(&mut self, waiting: Waiting) {
        let fits = |log: &LogState| {
            let same = log.get(waiting.anchor.seq).is_some_and(|record| record.leaf == waiting.anchor.leaf);
            same && may_belong(&waiting.anchor, log.origin.as_deref())
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
                    log.overruled_after_anchor(seq, by);
                }
            }
            // A request has one event per stage, all with the same annotations.
            Some(first) if first == request => {}
            Some(_) => {
                let detail = "two requests have the anchor of the record";
                let drift = Drift::new(DriftClass::Duplicate, &log.name, Some(seq), detail);
                log.drifts.push(drift.of_request(waiting.audit_id.clone()));
            }
        }
    }

    /// Evaluates everything older than the grace period and returns drifts that were not reported before. `now` is the time up
    /// to which the API server's log was read: the present time when following it.
    pub fn settle(&mut self, now: Timestamp) -> Vec<Drift> {
        self.evaluate(now, now, false)
    }

    /// Evaluates everything, when no more lines will come. The logs must have been read after the events. The last event
    /// determines the end of the period covered by the API server's log. Records are taken to be no later than `now`.
    pub fn finish(&mut self, now: Timestamp) -> Vec<Drift> {
        self.evaluate(self.last_event.unwrap_or(Timestamp::MIN), now, true)
    }

    /// `reach` is the time up to which the API server's log was read.
    fn evaluate(&mut self, reach: Timestamp, now: Timestamp, finished: bool) -> Vec<Drift> {
        let before = reach.checked_sub(self.grace).unwrap_or(Timestamp::MIN);
        self.evaluate_anchors(before, finished);
        self.evaluate_silent();
        for log in &mut self.logs {
            log.settle(before, finished);
        }
        self.evaluate_records(before, now, finished);
        let mut drifts = std::mem::take(&mut self.drifts);
        drifts.extend(self.logs.iter_mut().flat_map(|log| log.drifts.drain(..)));
        // Prefer drifts with an audit ID: deduplication keeps the first.
        drifts.sort_by(|a, b| {
            let [first, second] = [a, b].map(|it| (it.class, &it.log, it.seq, it.audit_id.is_empty()));
            first.cmp(&second).then_with(|| a.cmp(b))
        });
        let reported = &mut self.reported;
        drifts.retain(|it| {
            // Report each drift of a record once, even if both sides reveal it.
            let by = if it.log.is_empty() || it.seq.is_none() { it.audit_id.clone() } else { String::new() };
            reported.insert((it.class, it.log.clone(), it.seq, by))
        });
        let drifts = joined(drifts);
        for drift in &drifts {
            *self.counts.entry(drift.class).or_default() += 1;
        }
        drifts
    }

    fn evaluate_anchors(&mut self, before: Timestamp, finished: bool) {
        let mut due = Vec::new();
        self.waiting.retain(|_, waiting| {
            due.extend(waiting.extract_if(.., |it| finished || it.time < before));
            !waiting.is_empty()
        });
        for Waiting { anchor, audit_id, .. } in due {
            let may_be = |log: &&LogState| may_belong(&anchor, log.origin.as_deref());
            let candidates: Vec<&LogState> = self.logs.iter().filter(may_be).collect();
            if candidates.iter().any(|log| log.has_pruned(anchor.seq)) {
                self.tally.pruned += 1;
                continue;
            }
            let (class, log, detail) = lost(&anchor, &candidates);
            self.drifts.push(Drift::new(class, log, Some(anchor.seq), detail).of_request(audit_id));
        }
    }

    /// Reports requests that a webhook changed without an anchor, although the webhook provides anchors for others.
    fn evaluate_silent(&mut self) {
        for (webhook, audit_id) in std::mem::take(&mut self.silent) {
            if self.webhooks.contains(&webhook) {
                let detail = format!("{webhook} changed the object without an anchor");
                self.drifts.push(Drift::new(DriftClass::Missing, "", None, detail).of_request(audit_id));
            }
        }
    }
}

/// Joins drifts of a truncated log into one, regardless of the number of requests affected.
fn joined(drifts: Vec<Drift>) -> Vec<Drift> {
    let mut joined: Vec<Drift> = Vec::with_capacity(drifts.len());
    for drift in drifts {
        match joined.last_mut() {
            Some(before) if before.is_followed_by(&drift) => {
                before.last = drift.seq;
                // The last drift has the highest number of records.
                before.detail = drift.detail;
            }
            _ => joined.push(drift),
        }
    }
    joined
}

fn may_belong(anchor: &EventAnchor, origin: Option<&str>) -> bool {
    match (&anchor.log, origin) {
        (Some(named), Some(origin)) => named == origin,
        _ => true,
    }
}

/// Classifies an anchor that matches no record. Returns the class, the name of the log if known, and a description.
fn lost<'a>(anchor: &EventAnchor, candidates: &[&'a LogState]) -> (DriftClass, &'a str, String) {
    let EventAnchor { seq, leaf, size, log } = anchor;
    let name = match candidates {
        [only] => &only.name,
        _ => "",
    };
    let found: Vec<_> =
        candidates.iter().filter_map(|log| log.get(*seq).map(|record| (&log.name, record))).collect();
    match &found[..] {
        [] if candidates.is_empty() => {
            let log = log.as_deref().unwrap_or_default();
            let detail = format!("the log {log} of the anchor was not given");
            (DriftClass::Missing, name, detail)
        }
        [] if candidates.iter().all(|log| log.size() <= *seq) => {
            let longest = candidates.iter().map(|log| log.size()).max().unwrap_or_default();
            let was = (*size).max(seq.saturating_add(1));
            (DriftClass::Shrink, name, format!("there were {was} records, now there are {longest}"))
        }
        [] => (DriftClass::Missing, name, "the record is not in the log".to_owned()),
        [(log, Record { leaf: found, anchored: Some(_), .. })] => {
            let detail = format!("one request has the hash {leaf}, another one {found}, which is in the log");
            (DriftClass::Fork, log, detail)
        }
        [(log, Record { leaf: found, .. })] => {
            let detail = format!("the record has the hash {found}, the API server received {leaf}");
            (DriftClass::Rewritten, log, detail)
        }
        _ => {
            let detail = format!("no log has the hash {leaf} there, which the API server received");
            (DriftClass::Rewritten, name, detail)
        }
    }
}
