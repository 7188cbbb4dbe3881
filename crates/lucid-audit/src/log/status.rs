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
struct Now {
    size: u64,
    failure: Option<String>,
    seal_failure: Option<String>,
    /// `true` while the log accepts records.
    ready: Option<Arc<watch::Sender<bool>>>,
}

impl Status {
    pub(super) fn new(size: u64, metrics: Metrics) -> Self {
        let status = Self { now: Mutex::new(Now { size, ..Now::default() }), metrics };
        status.tell(&status.lock());
        status
    }

    pub(super) fn kept(&self, size: u64) {
        let mut now = self.lock();
        now.size = size;
        now.failure = None;
        self.tell(&now);
    }

    /// Returns `false` if the same failure was reported last.
    pub(super) fn failed(&self, failure: String) -> bool {
        let mut now = self.lock();
        let is_new = now.failure.as_ref() != Some(&failure);
        now.failure = Some(failure);
        self.tell(&now);
        is_new
    }

    pub(super) fn recovered(&self) {
        let mut now = self.lock();
        now.failure = None;
        self.tell(&now);
    }

    /// Updates `ready` with whether the log accepts records.
    pub(super) fn report_to(&self, ready: Arc<watch::Sender<bool>>) {
        let mut now = self.lock();
        now.ready = Some(ready);
        self.tell(&now);
    }

    pub(super) fn is_failing(&self) -> bool {
        self.lock().failure.is_some()
    }

    /// Sets or clears the reason why sealing fails.
    pub(super) fn not_sealed(&self, failure: Option<String>) {
        let mut now = self.lock();
        now.seal_failure = failure;
        self.tell(&now);
    }

    pub(super) fn size(&self) -> u64 {
        self.lock().size
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    pub(super) fn seal_failure(&self) -> Option<String> {
        self.lock().seal_failure.clone()
    }

    /// Publishes the combined state: one thread writes and another one seals.
    fn tell(&self, now: &Now) {
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

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
