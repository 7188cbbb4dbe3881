//! Work queue with backoff per key.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crate::target::Contention;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Short, because the winner's write is already visible.
const CONFLICT_PAUSE: Duration = Duration::from_millis(100);
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Nothing is left to do until a dependency changes.
    Settled,
    Written,
    /// Another client changed the object at the same time.
    Conflict,
    /// The reconciliation failed and has to be retried.
    Failed,
}

/// A work queue. Each key is processed by one worker at a time, and backs off after consecutive failures and
/// during contention. Keys do not delay each other.
#[derive(Debug)]
pub(super) struct Queue<K>(BTreeMap<K, Entry>);

#[derive(Debug)]
struct Entry {
    requested: bool,
    not_before: Instant,
    is_running: bool,
    failures: u32,
    contention: Contention,
}

impl<K: Ord + Clone> Queue<K> {
    pub(super) fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Enqueues a key. Requests for a queued key are merged.
    pub(super) fn request(&mut self, key: &K, now: Instant) {
        let new = Entry {
            requested: true,
            not_before: now,
            is_running: false,
            failures: 0,
            contention: Contention::default(),
        };
        self.0.entry(key.clone()).or_insert(new).requested = true;
    }

    pub(super) fn request_all(&mut self) {
        self.0.values_mut().for_each(|entry| entry.requested = true);
    }

    pub(super) fn forget(&mut self, key: &K) {
        self.0.remove(key);
    }

    pub(super) fn is_requested(&self, key: &K) -> bool {
        self.0.get(key).is_some_and(|entry| entry.requested)
    }

    /// Returns when the next key is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.waiting().map(|(_, entry)| entry.not_before).min()
    }

    /// Takes a key that is due. It is not returned again before [`done`](Self::done).
    pub(super) fn take(&mut self, now: Instant) -> Option<K> {
        let (key, _) =
            self.waiting().filter(|(_, entry)| entry.not_before <= now).min_by_key(|(_, e)| e.not_before)?;
        let key = key.clone();
        let entry = self.0.get_mut(&key)?;
        entry.requested = false;
        entry.is_running = true;
        Some(key)
    }

    /// Records a result. Returns `true` if [contention](Contention) starts with it.
    pub(super) fn done(&mut self, key: &K, end: End, now: Instant) -> bool {
        let Some(entry) = self.0.get_mut(key) else { return false };
        entry.is_running = false;
        entry.failures = if end == End::Failed { entry.failures.saturating_add(1) } else { 0 };
        match end {
            End::Settled => {}
            End::Conflict => {
                entry.requested = true;
                entry.not_before = now + CONFLICT_PAUSE;
            }
            End::Failed => {
                entry.requested = true;
                entry.not_before = now + pause(entry.failures);
            }
            End::Written => {
                let begins = entry.contention.note_healed(now);
                entry.not_before = now + entry.contention.heal_after(now);
                return begins;
            }
        }
        false
    }

    fn waiting(&self) -> impl Iterator<Item = (&K, &Entry)> {
        self.0.iter().filter(|(_, entry)| entry.requested && !entry.is_running)
    }
}

/// Exponential backoff; zero for 0.
fn pause(times: u32) -> Duration {
    match times.checked_sub(1) {
        None => Duration::ZERO,
        Some(doublings) => FIRST_PAUSE.saturating_mul(1 << doublings.min(16)).min(LONGEST_PAUSE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn requests_are_merged_until_the_work_starts() {
        let (mut queue, now) = (Queue::new(), Instant::now());
        queue.request(&"a", now);
        queue.request(&"a", now);
        assert_eq!(queue.take(now), Some("a"));
        assert_eq!(queue.take(now), None);
        queue.request(&"a", now);
        assert_eq!(queue.take(now), None, "it is being worked on");
        queue.done(&"a", End::Settled, now);
        assert_eq!(queue.take(now), Some("a"));
        queue.done(&"a", End::Settled, now);
        assert_eq!((queue.take(now), queue.next_due()), (None, None));
    }

    #[test]
    fn failures_back_off_up_to_a_minute_per_key() {
        let (mut queue, mut now) = (Queue::new(), Instant::now());
        queue.request(&"bad", now);
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(queue.take(now), Some("bad"));
            queue.done(&"bad", End::Failed, now);
            queue.request(&"bad", now);
            queue.request(&"good", now);
            assert_eq!(queue.take(now), Some("good"));
            queue.done(&"good", End::Settled, now);
            assert_eq!(queue.next_due(), Some(now + seconds * SECOND));
            now += seconds * SECOND;
        }
        queue.take(now);
        queue.done(&"bad", End::Settled, now);
        queue.request(&"bad", now);
        queue.take(now);
        queue.done(&"bad", End::Failed, now);
        assert_eq!(queue.next_due(), Some(now + SECOND), "a success ends the row");
    }

    #[test]
    fn contention_limits_writes_and_is_reported_once() {
        let (mut queue, mut now) = (Queue::new(), Instant::now());
        let (mut pauses, mut reported) = (Vec::new(), 0);
        for _ in 0..20 {
            queue.request(&"a", now);
            let due = queue.next_due().unwrap();
            pauses.push((due.max(now) - now).as_secs());
            now = due.max(now);
            queue.take(now).unwrap();
            reported += u32::from(queue.done(&"a", End::Written, now));
        }
        assert_eq!((pauses[1], pauses[19], reported), (0, 60, 1), "{pauses:?}");
    }

    #[test]
    fn conflicts_are_retried_soon() {
        let (mut queue, now) = (Queue::new(), Instant::now());
        queue.request(&"a", now);
        queue.take(now);
        queue.done(&"a", End::Conflict, now);
        assert_eq!(queue.next_due(), Some(now + CONFLICT_PAUSE));
    }
}
