use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::metrics::{Metrics, gauge};

/// Shared status of a log.
#[derive(Debug)]
pub(super) struct Status {
    now: Mutex<Now>,
    metrics: Metrics,
}

#[derive(Debug, Default)]
pub(super) struct Now {
    pub(super) size: u64,
    pub(super) failure: Option<String>,
    pub(super) seal_failure: Option<String>,
    /// `true` while the log accepts records.
    pub(super) ready: Option<Arc<watch::Sender<bool>>>,
}

impl Status {
    pub(super) fn new(size: u64, metrics: Metrics) -> Self {
        let status = Self { now: Mutex::default(), metrics };
        status.set(|now| now.size = size);
        status
    }

    /// Changes the status and publishes it.
    pub(super) fn set(&self, change: impl FnOnce(&mut Now)) {
        let mut now = self.now();
        change(&mut now);
        self.publish(&now);
    }

    /// Returns `false` if the same failure was reported last.
    pub(super) fn failed(&self, failure: String) -> bool {
        let mut is_new = false;
        self.set(|now| is_new = now.failure.replace(failure) != now.failure);
        is_new
    }

    /// Publishes the combined state: one thread writes and another one seals.
    fn publish(&self, now: &Now) {
        self.metrics.size.set(gauge(now.size));
        self.metrics.state(match now {
            Now { failure: Some(_), .. } => "failing",
            Now { seal_failure: Some(_), .. } => "unsealed",
            _ => "ok",
        });
        if let Some(ready) = &now.ready {
            let is_ready = now.failure.is_none();
            ready.send_if_modified(|ready| std::mem::replace(ready, is_ready) != is_ready);
        }
    }

    pub(super) fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
