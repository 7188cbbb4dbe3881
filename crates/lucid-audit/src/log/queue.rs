//! Queue of records to be written.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::anchor::Anchor;
use crate::decision::{Decision, Record};

use super::error::AppendError;

/// Maximum number of queued or unacknowledged records. Further callers wait for a permit.
const CAPACITY: usize = 4096;

/// Multi-producer, single-consumer queue of records.
#[derive(Debug)]
pub(super) struct Queue {
    room: Arc<Semaphore>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Item>,
    count: u64,
    /// `true` if the consumer must return without waiting for records.
    woken: bool,
    closed: bool,
}

#[derive(Debug)]
enum Item {
    Record(Waiting),
    /// Decision that supersedes a record that may have become durable too late.
    Superseding(Pending, Box<Decision>),
}

#[derive(Debug)]
pub(super) struct Waiting {
    /// JSON object.
    pub(super) record: Vec<u8>,
    /// Receiver of the result; `None` for a record that supersedes another one.
    caller: Option<Caller>,
}

#[derive(Debug)]
struct Caller {
    number: u64,
    answer: oneshot::Sender<Result<Anchor, AppendError>>,
    _room: OwnedSemaphorePermit,
}

#[derive(Debug)]
pub(crate) struct Pending {
    number: u64,
    answered: oneshot::Receiver<Result<Anchor, AppendError>>,
}

impl Waiting {
    pub(super) fn answer(self, answer: Result<Anchor, AppendError>) {
        if let Some(caller) = self.caller {
            // The receiver may have been dropped.
            let _ = caller.answer.send(answer);
        }
    }

    /// Returns `true` if the record must be written eventually, even after failures.
    pub(super) const fn is_owed(&self) -> bool {
        self.caller.is_none()
    }
}

impl Item {
    const fn number(&self) -> Option<u64> {
        match self {
            Self::Record(Waiting { caller: Some(caller), .. }) => Some(caller.number),
            _ => None,
        }
    }

    fn waiting(self) -> Option<Waiting> {
        let (mut pending, mut decision) = match self {
            Self::Record(waiting) => return Some(waiting),
            Self::Superseding(pending, decision) => (pending, decision),
        };
        // The superseded record left the queue in an earlier group, so its result is known.
        let kept = pending.answered.try_recv().ok().and_then(Result::ok)?;
        decision.overrules = Some(kept.seq);
        Some(Waiting { record: Record::from(*decision).json.into_vec(), caller: None })
    }
}

impl Pending {
    pub(crate) async fn kept(&mut self) -> Result<Anchor, AppendError> {
        (&mut self.answered).await.unwrap_or(Err(AppendError::Closed))
    }
}

impl Queue {
    pub(super) fn new() -> Self {
        Self { room: Arc::new(Semaphore::new(CAPACITY)), state: Mutex::default(), changed: Condvar::new() }
    }

    /// Enqueues a record, waiting for a permit.
    pub(super) async fn put(&self, record: Vec<u8>) -> Result<Pending, AppendError> {
        let room = Arc::clone(&self.room).acquire_owned().await.map_err(|_| AppendError::Closed)?;
        let (answer, answered) = oneshot::channel();
        let pending = {
            let mut state = self.lock();
            if state.closed {
                return Err(AppendError::Closed);
            }
            state.count += 1;
            let number = state.count;
            let caller = Some(Caller { number, answer, _room: room });
            state.waiting.push_back(Item::Record(Waiting { record, caller }));
            Pending { number, answered }
        };
        self.changed.notify_one();
        Ok(pending)
    }

    /// Withdraws a record in favor of `decision`: removes it from the queue or, if it was already dequeued, enqueues
    /// `decision`, which is written if the record is kept. Returns `true` in the latter case.
    pub(super) fn replace(&self, pending: Pending, decision: Box<Decision>) -> bool {
        let mut state = self.lock();
        let place = state.waiting.iter().position(|item| item.number() == Some(pending.number));
        match place {
            Some(place) => drop(state.waiting.remove(place)),
            // Does not need a permit: there is at most one of these per record of a group.
            None => state.waiting.push_back(Item::Superseding(pending, decision)),
        }
        drop(state);
        self.changed.notify_one();
        place.is_none()
    }

    /// Makes [`Self::take`] return, with or without records.
    pub(super) fn wake(&self) {
        self.lock().woken = true;
        self.changed.notify_one();
    }

    /// Dequeues up to `most` records in order. Waits until there is a record, `patience` elapses or [`Self::wake`] is called;
    /// the latter two may yield no records. Returns `None` once the queue is closed and empty.
    pub(super) fn take(&self, most: usize, patience: Option<Duration>) -> Option<Vec<Waiting>> {
        let state = self.lock();
        let idle = |state: &mut State| state.waiting.is_empty() && !state.closed && !state.woken;
        let mut state = match patience {
            None => self.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner),
            Some(patience) => {
                let waited = self.changed.wait_timeout_while(state, patience, idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.woken = false;
        if state.closed && state.waiting.is_empty() {
            return None;
        }
        let count = most.min(state.waiting.len());
        Some(state.waiting.drain(..count).filter_map(Item::waiting).collect())
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.room.close();
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::Ordering::SeqCst;
    use std::time::{Duration, Instant};

    use crate::log::Options;
    use crate::note::SigningKey;
    use crate::verify::{Expectations, verify};
    use crate::{Decision, Record, Recorder, layout};

    /// Returns UID, outcome and superseded record of each decision in the log.
    fn decisions(directory: &Path) -> Vec<(String, bool, Option<u64>)> {
        let folder = std::fs::read_dir(directory.join(layout::SEGMENTS)).unwrap();
        let mut paths: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let text: String = paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
        let decisions = text.lines().map(|line| serde_json::from_str::<Decision>(line).unwrap());
        decisions.map(|it| (it.uid, it.allowed, it.overrules)).collect()
    }

    fn until(holds: impl Fn() -> bool) {
        let begin = Instant::now();
        while !holds() {
            assert!(begin.elapsed() < Duration::from_secs(60), "it never comes to that");
            std::thread::yield_now();
        }
    }

    fn decision(uid: &str, allowed: bool) -> Decision {
        let mut decision = Decision::new("validate", uid);
        decision.allowed = allowed;
        decision
    }

    #[tokio::test]
    async fn records_denied_by_a_late_disk_are_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new().with_key(SigningKey::generate("lucid.computing/test/0").unwrap());
        let faults = options.faults.clone();
        // Long enough for any working disk.
        let recorder = Recorder::new(10).with_patience(Duration::from_secs(60));
        recorder.open_log(folder.path(), options).unwrap();
        recorder.record(decision("before", true)).await.unwrap();
        faults.hold.store(true, SeqCst);
        let mut late = Vec::new();
        for (uid, allowed) in [("on its way", true), ("in the queue", true), ("refused anyway", false)] {
            let patience = Duration::from_millis(20);
            late.push(recorder.record_within(decision(uid, allowed), patience).await.unwrap_err());
            // The first record is being written, the others are queued.
            until(|| faults.held.load(SeqCst));
        }
        recorder.remember(*late.pop().unwrap().decision);
        for mut late in late {
            assert!(late.to_string().contains("took longer than 20 ms"), "{late}");
            late.decision.allowed = false;
            recorder.overrule(late);
        }
        faults.hold.store(false, SeqCst);
        recorder.record(decision("after", true)).await.unwrap();
        recorder.close();
        let expected = [
            ("before", true, None),
            ("on its way", true, None),
            ("refused anyway", false, None),
            ("on its way", false, Some(1)),
            ("after", true, None),
        ];
        let expected = expected.map(|(uid, allowed, of)| (uid.to_owned(), allowed, of));
        assert_eq!(decisions(folder.path()), expected);
        let ring: Vec<_> =
            recorder.latest().iter().map(|it| it.decision()).map(|it| (it.uid, it.allowed)).collect();
        let expected = ["before+", "refused anyway-", "on its way-", "in the queue-", "after+"];
        let expected = expected.map(|it| (it[..it.len() - 1].to_owned(), it.ends_with('+')));
        assert_eq!(ring, expected);
        assert!(verify(folder.path(), &Expectations::default()).unwrap().is_intact());
    }

    #[tokio::test]
    async fn superseding_records_are_charged() {
        for authenticated in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let options = Options::new();
            let faults = options.faults.clone();
            let of = |uid: &str| Decision { authenticated, ..decision(uid, true) };
            // Enough for the first two records, but not for the superseding one in between.
            let room = layout::on_disk(Record::from(of("late")).json.len(), false) * 2;
            let recorder = Recorder::new(10).with_patience(Duration::from_secs(60)).with_budget(0, room);
            recorder.open_log(folder.path(), options).unwrap();
            faults.hold.store(true, SeqCst);
            let late = recorder.record_within(of("late"), Duration::from_millis(20)).await;
            until(|| faults.held.load(SeqCst));
            recorder.overrule(late.unwrap_err());
            faults.hold.store(false, SeqCst);
            assert_eq!(recorder.record(of("next")).await.is_ok(), authenticated);
            recorder.close();
            assert_eq!(decisions(folder.path())[1], ("late".to_owned(), true, Some(0)));
        }
    }

    #[tokio::test]
    async fn revocations_are_written_first_after_recovery() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new();
        let faults = options.faults.clone();
        let recorder = Recorder::new(10).with_patience(Duration::from_secs(60));
        recorder.open_log(folder.path(), options).unwrap();
        faults.hold.store(true, SeqCst);
        let late = recorder.record_within(decision("late", true), Duration::from_millis(20)).await;
        until(|| faults.held.load(SeqCst));
        faults.hold.store(false, SeqCst);
        until(|| recorder.log_status().unwrap().unwrap().size == 1);
        faults.syncs.store(2, SeqCst);
        recorder.overrule(late.unwrap_err());
        until(|| faults.syncs.load(SeqCst) == 0);
        recorder.record(decision("after", true)).await.unwrap();
        recorder.close();
        let expected = [("late", None), ("late", Some(0)), ("after", None)];
        assert_eq!(decisions(folder.path()), expected.map(|(uid, of)| (uid.to_owned(), true, of)));
    }

    #[tokio::test]
    async fn hanging_disks_are_failures_until_they_respond() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new();
        let faults = options.faults.clone();
        let recorder = Recorder::new(10).with_patience(Duration::from_millis(20));
        recorder.open_log(folder.path(), options).unwrap();
        let mut ready = recorder.ready().unwrap();
        faults.hold.store(true, SeqCst);
        let hurried = recorder.record_within(decision("hurried", true), Duration::from_millis(1)).await;
        let after_hurried = *ready.borrow();
        let late = recorder.record(decision("late", true)).await;
        let (after_late, status) = (*ready.borrow(), recorder.log_status().unwrap().unwrap());
        // Release the disk first: a failed assertion would block on it.
        faults.hold.store(false, SeqCst);
        assert!(hurried.is_err() && after_hurried, "a caller with less time says nothing of the disk");
        assert!(late.is_err() && !after_late);
        assert_eq!(status.failure.unwrap(), "the disk took longer than 20 ms");
        tokio::time::timeout(Duration::from_mins(1), ready.wait_for(|ready| *ready)).await.unwrap().unwrap();
    }
}
