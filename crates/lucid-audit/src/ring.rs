use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;

use crate::anchor::Anchor;
use crate::decision::{Decision, Record};

/// A decision in the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Number of the decision within this process, from 1. The position in the log, which outlives the process, is in
    /// `anchor`.
    pub number: u64,
    /// The decision as JSON, as in the log.
    pub json: Box<[u8]>,
    /// Position in the log; `None` without a log, or if the log did not keep the decision.
    pub anchor: Option<Anchor>,
}

impl Entry {
    /// Parses the decision.
    #[must_use]
    pub fn decision(&self) -> Decision {
        // Infallible: the JSON was written by this process.
        serde_json::from_slice(&self.json).unwrap_or_default()
    }
}

/// Latest decisions of authenticated callers, and separately those of others, which never evict the former. The ring and its
/// entries have bounded size. Writers wait only for other writers, never for readers.
#[derive(Debug)]
pub(crate) struct Ring {
    authenticated: Slots,
    others: Slots,
    writer: Mutex<Counts>,
    /// Number of the latest decision stored in its slot.
    head: AtomicU64,
}

type Slots = Box<[ArcSwapOption<Entry>]>;

#[derive(Debug, Default)]
struct Counts {
    all: u64,
    authenticated: u64,
}

impl Ring {
    pub(crate) fn new(capacity: usize) -> Self {
        let slots = || (0..capacity).map(|_| ArcSwapOption::empty()).collect();
        Self { authenticated: slots(), others: slots(), writer: Mutex::default(), head: AtomicU64::new(0) }
    }

    pub(crate) fn push(&self, record: Record, anchor: Option<Anchor>) {
        let mut counts = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        counts.all += 1;
        counts.authenticated += u64::from(record.authenticated);
        let number = counts.all;
        let slot = match record.authenticated {
            true => slot(&self.authenticated, counts.authenticated),
            false => slot(&self.others, counts.all - counts.authenticated),
        };
        if let Some(slot) = slot {
            slot.store(Some(Arc::new(Entry { number, json: record.json, anchor })));
        }
        self.head.store(number, Ordering::Release);
    }

    /// Returns the entries with numbers above `number`, oldest first.
    pub(crate) fn since(&self, number: u64) -> Vec<Arc<Entry>> {
        // Ignore concurrent entries: a later one could be visible before an earlier one.
        let head = self.head.load(Ordering::Acquire);
        let slots = self.authenticated.iter().chain(&self.others);
        let mut entries: Vec<_> = slots
            .filter_map(|slot| slot.load_full().filter(|entry| (number + 1..=head).contains(&entry.number)))
            .collect();
        entries.sort_unstable_by_key(|entry| entry.number);
        entries
    }
}

fn slot(slots: &Slots, number: u64) -> Option<&ArcSwapOption<Entry>> {
    let place = number.checked_rem(slots.len() as u64)?;
    slots.get(usize::try_from(place).ok()?)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn numbers(ring: &Ring, since: u64) -> Vec<u64> {
        ring.since(since).iter().map(|entry| entry.number).collect()
    }

    #[test]
    fn latest_decisions_are_kept_and_numbered_from_1() {
        let ring = Ring::new(3);
        assert!(numbers(&ring, 0).is_empty());
        for uid in 1..=5 {
            ring.push(Decision::new("validate", uid.to_string()).into(), None);
        }
        assert_eq!(numbers(&ring, 0), [3, 4, 5]);
        assert_eq!(numbers(&ring, 4), [5]);
        assert!(numbers(&ring, 9).is_empty());
        assert_eq!(ring.since(4)[0].decision().uid, "5");
        let none = Ring::new(0);
        none.push(Decision::new("validate", "1").into(), None);
        assert!(numbers(&none, 0).is_empty());
    }

    #[test]
    fn other_callers_do_not_evict_authenticated_ones() {
        let ring = Ring::new(3);
        for number in 1..=100 {
            let mut decision = Decision::new("validate", "a");
            decision.authenticated = number % 10 == 1;
            ring.push(decision.into(), None);
        }
        assert_eq!(numbers(&ring, 0), [71, 81, 91, 98, 99, 100]);
        assert_eq!(numbers(&ring, 91), [98, 99, 100]);
    }

    #[test]
    fn followers_do_not_miss_concurrent_writes() {
        const EACH: u64 = 2_000;
        let ring = Ring::new(8_000);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        ring.push(Decision::new("validate", "a").into(), None);
                    }
                });
            }
            let mut seen = 0;
            while seen < 4 * EACH {
                for number in numbers(&ring, seen) {
                    assert_eq!(number, seen + 1);
                    seen = number;
                }
            }
        });
    }
}
