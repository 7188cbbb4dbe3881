use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use tokio::sync::watch;

use crate::anchor::Anchor;
use crate::decision::Decision;

/// A decision in the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Counts the decisions of this process from 1. Not the place in the log, which outlives a process: that is in `anchor`.
    pub number: u64,
    /// What was decided.
    pub decision: Decision,
    /// Where it is in the log. None without a log, and when the log could not keep it.
    pub anchor: Option<Anchor>,
}

impl Deref for Entry {
    type Target = Decision;

    fn deref(&self) -> &Decision {
        &self.decision
    }
}

/// The latest decisions. Who writes waits for other writers only, never for who reads.
#[derive(Debug)]
pub(crate) struct Ring {
    slots: Box<[ArcSwapOption<Entry>]>,
    /// How many decisions came; taken while one is put in its slot.
    writer: Mutex<u64>,
    /// The number of the latest that is in its slot.
    head: AtomicU64,
    changes: watch::Sender<u64>,
}

impl Ring {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            slots: (0..capacity).map(|_| ArcSwapOption::empty()).collect(),
            writer: Mutex::new(0),
            head: AtomicU64::new(0),
            changes: watch::Sender::new(0),
        }
    }

    pub(crate) fn push(&self, decision: Decision, anchor: Option<Anchor>) {
        let mut count = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        *count += 1;
        let number = *count;
        if let Some(slot) = self.slot(number) {
            slot.store(Some(Arc::new(Entry { number, decision, anchor })));
        }
        self.head.store(number, Ordering::Release);
        // With the lock, so that the number that is watched never goes back.
        self.changes.send_replace(number);
    }

    /// The entries with numbers above `number`, oldest first.
    pub(crate) fn since(&self, number: u64) -> Vec<Arc<Entry>> {
        let head = self.head.load(Ordering::Acquire);
        let oldest = head.saturating_sub(self.slots.len() as u64);
        let wanted = number.max(oldest)..head;
        // A slot may hold a newer entry by now. It comes again, in its own place, when it is asked for.
        wanted
            .filter_map(|before| {
                self.slot(before + 1)?.load_full().filter(|entry| entry.number == before + 1)
            })
            .collect()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn slot(&self, number: u64) -> Option<&ArcSwapOption<Entry>> {
        let place = number.checked_rem(self.slots.len() as u64)?;
        self.slots.get(usize::try_from(place).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn numbers(ring: &Ring, since: u64) -> Vec<u64> {
        ring.since(since).iter().map(|entry| entry.number).collect()
    }

    #[test]
    fn the_latest_stay_and_are_numbered_from_one() {
        let ring = Ring::new(3);
        assert!(numbers(&ring, 0).is_empty());
        for uid in 1..=5 {
            ring.push(Decision::new("validate", uid.to_string()), None);
        }
        assert_eq!(numbers(&ring, 0), [3, 4, 5]);
        assert_eq!(numbers(&ring, 4), [5]);
        assert!(numbers(&ring, 9).is_empty());
        assert_eq!(ring.since(4)[0].uid, "5");
        assert_eq!(*ring.watch().borrow(), 5);
    }

    #[test]
    fn a_ring_without_room_still_counts() {
        let ring = Ring::new(0);
        ring.push(Decision::new("validate", "a"), None);
        assert!(numbers(&ring, 0).is_empty());
        assert_eq!(*ring.watch().borrow(), 1);
    }

    #[test]
    fn who_follows_misses_nothing_while_others_write() {
        const EACH: u64 = 2_000;
        let ring = Ring::new(8_000);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..EACH {
                        ring.push(Decision::new("validate", "a"), None);
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
