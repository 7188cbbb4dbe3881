//! Classification of records without an anchor: explained, outside the covered period, or orphaned.

use jiff::{SignedDuration, Timestamp};

use super::Correlator;
use super::drift::{Drift, DriftClass};
use super::event::Request;
use super::log::About;

/// Maximum clock skew between webhooks and API server.
const SKEW: SignedDuration = SignedDuration::from_secs(5);

/// Maximum disorder of record times: a webhook has up to 30 s between decision and record, plus [`SKEW`].
const DISORDER: SignedDuration = SignedDuration::from_secs(35);

/// Period and object name of a request.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
    /// Name or `generateName`; empty if the event has neither.
    pub(super) name: String,
    pub(super) id: u64,
}

impl Correlator {
    /// Classifies records without an anchor. A forged record can claim any time but not move between its neighbors, so
    /// their times bound its own.
    pub(super) fn evaluate_records(&mut self, before: Timestamp, now: Timestamp, finished: bool) {
        let first = self.first_event.map(|first| later(first, SKEW));
        self.tally.pending = 0;
        self.tally.overruled = self.logs.iter().map(|log| log.overruled).sum();
        for log in &mut self.logs {
            let neighbours = log.neighbours();
            for (seq, (previous, next)) in (log.settled..).zip(neighbours) {
                let Some(record) = log.records.get_mut(seq).and_then(Option::as_mut) else { continue };
                let Some(about) = record.about.as_mut() else { continue };
                let earliest = previous.map(|it| next.map_or(it, |next| it.min(next)));
                let latest = next.map_or(now, |it| previous.map_or(it, |previous| it.max(previous)));
                let is_late = record.time > later(latest, DISORDER);
                if is_late || earliest.is_some_and(|it| later(record.time, DISORDER) < it) {
                    about.misplaced = true;
                    record.time = if is_late { latest } else { earliest.unwrap_or(latest) };
                }
                let time = previous.map_or(record.time, |it| it.max(record.time));
                let time = next.map_or(time, |it| it.min(time));
                if time >= before && !finished {
                    continue;
                }
                let covered = first.is_some_and(|first| first <= time) && time < before;
                let windows = self.windows.get(&about.request);
                let fits = |it: &Window| it.has(record.time, &about.name, self.names.get(&it.id));
                let seen = log.webhooks.contains(&about.webhook)
                    && windows.is_some_and(|windows| windows.iter().any(fits));
                match (about.misplaced, seen, covered) {
                    (false, ..) if about.own => self.tally.own += 1,
                    (false, true, _) => self.tally.explained += 1,
                    (false, false, false) => self.tally.uncovered += 1,
                    (misplaced, ..) => {
                        self.tally.orphans += 1;
                        let About { request: Request { resource, namespace, user }, name, .. } = &**about;
                        let detail = if misplaced {
                            "the time of the record contradicts those of its neighbors".to_owned()
                        } else {
                            format!(
                                "the API server recorded no request of {user} for {resource} {namespace}/{name} at that time"
                            )
                        };
                        log.drifts.push(Drift::new(
                            DriftClass::Orphan,
                            &log.name,
                            Some(log.first + seq as u64),
                            detail,
                        ));
                    }
                }
                record.about = None;
            }
            self.tally.pending += log.advance_settled();
        }
        // Drop windows too old to match any record.
        let old = before.checked_sub(self.grace + DISORDER).unwrap_or(Timestamp::MIN);
        let names = &mut self.names;
        self.windows.retain(|_, windows| {
            windows.retain(|it| {
                let stays = finished || it.to >= old;
                if !stays {
                    names.remove(&it.id);
                }
                stays
            });
            !windows.is_empty()
        });
    }
}

impl Window {
    /// Returns `true` if the record may belong to the request. `names` are the object names in anchored records of the same
    /// request. Without them, a request whose event has no name matches no record.
    fn has(&self, time: Timestamp, name: &str, names: Option<&Vec<String>>) -> bool {
        let after = self.from.checked_sub(SKEW).is_ok_and(|from| from <= time);
        let until = time <= later(self.to, SKEW);
        let named = match self.name.as_str() {
            "" => names.is_some_and(|names| names.iter().any(|other| are_of_one_object(other, name))),
            known => are_of_one_object(known, name),
        };
        after && until && named
    }
}

/// Returns `true` if the names are equal, or one was generated from the other as a `generateName`.
fn are_of_one_object(one: &str, other: &str) -> bool {
    /// Length to which the API server truncates the prefix, and number of characters that it appends.
    const LONGEST: usize = 58;
    const APPENDED: usize = 5;
    let is_generated_from = |name: &str, prefix: &str| {
        let prefix = prefix.get(..LONGEST).unwrap_or(prefix);
        !prefix.is_empty() && name.strip_prefix(prefix).is_some_and(|rest| rest.len() == APPENDED)
    };
    !one.is_empty() && one == other || is_generated_from(one, other) || is_generated_from(other, one)
}

fn later(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}
