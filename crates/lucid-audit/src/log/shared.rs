use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::merkle::Hash;
use crate::metrics::{Metrics, gauge};
use crate::note::VerifierKey;

/// Maximum number of hashes kept for the sealing thread: 2 MiB. If sealing fails, the oldest are dropped. The later ones still
/// cover these lines, since each line contains the hash of the previous one.
pub(super) const MOST_LEAVES: usize = 1 << 16;

/// Status of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogStatus {
    /// Number of records.
    pub size: u64,
    /// Key that verifies the checkpoints; `None` if the log is not sealed.
    pub(super) vkey: Option<VerifierKey>,
    /// Number of records that were pruned, and sequence number of the first one kept.
    pub first: u64,
    /// Number of records covered by the checkpoint.
    pub sealed_size: u64,
    /// Number of records covered by the latest checkpoint that a witness has cosigned.
    pub cosigned_size: u64,
    pub(super) failure: Option<String>,
    pub(super) seal_failure: Option<String>,
    pub(super) prune_failure: Option<String>,
}

impl LogStatus {
    /// Returns why records cannot be written, or else why the last attempt to seal or to prune failed.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        let Self { failure, seal_failure, prune_failure, .. } = self;
        failure.as_deref().or(seal_failure.as_deref()).or(prune_failure.as_deref())
    }
}

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    pub(super) metrics: Metrics,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) status: LogStatus,
    /// `true` while the log accepts records.
    pub(super) ready: Option<Arc<watch::Sender<bool>>>,
    /// Hashes of the latest records, at most [`MOST_LEAVES`].
    pub(super) leaves: VecDeque<Hash>,
    closed: bool,
}

impl Shared {
    pub(super) fn new(status: LogStatus, metrics: Metrics) -> Self {
        let state = State { status, ready: None, leaves: VecDeque::new(), closed: false };
        let shared = Self { state: Mutex::new(state), changed: Condvar::new(), metrics };
        shared.set(|_| ());
        shared
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let State { status, ready, .. } = &*state;
        self.metrics.size.set(gauge(status.size));
        self.metrics.sealed_size.set(gauge(status.sealed_size));
        self.metrics.cosigned_size.set(gauge(status.cosigned_size));
        self.metrics.state(match status {
            LogStatus { failure: Some(_), .. } => "failing",
            LogStatus { seal_failure: Some(_), .. } => "unsealed",
            LogStatus { prune_failure: Some(_), .. } => "unpruned",
            _ => "ok",
        });
        if let Some(ready) = ready {
            let is_ready = status.failure.is_none();
            ready.send_if_modified(|ready| std::mem::replace(ready, is_ready) != is_ready);
        }
    }

    /// Returns `false` if the same failure was reported last.
    pub(super) fn failed(&self, failure: String) -> bool {
        let mut is_new = false;
        self.set(|now| is_new = now.status.failure.replace(failure) != now.status.failure);
        is_new
    }

    /// Adds records, to be sealed if the log has a key.
    pub(super) fn extend(&self, leaves: &[Hash]) {
        self.set(|now| {
            now.status.size += leaves.len() as u64;
            now.status.failure = None;
            if now.status.vkey.is_some() {
                now.leaves.extend(leaves);
            }
            let surplus = now.leaves.len().saturating_sub(MOST_LEAVES);
            now.leaves.drain(..surplus);
        });
        self.changed.notify_all();
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits until there are records to seal, or `timeout` elapses. Returns the number of records, and `true` once the log is
    /// closed.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> (u64, bool) {
        let idle = |state: &mut State| state.status.size == state.status.sealed_size && !state.closed;
        let state = self.lock();
        let state = match timeout {
            None => self.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => {
                let waited = self.changed.wait_timeout_while(state, timeout, idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        (state.status.size, state.closed)
    }

    /// Waits for further records, or until the log is closed.
    pub(super) fn pause(&self, time: Duration) {
        drop(self.changed.wait_timeout_while(self.lock(), time, |state| !state.closed));
    }
}
