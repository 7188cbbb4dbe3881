use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::metrics::{Metrics, gauge};

use super::error::AppendError;

/// How a log is, for who watches it.
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

    pub(super) fn failed(&self, error: &AppendError) {
        let mut now = self.lock();
        now.failure = Some(error.to_string());
        self.tell(&now);
    }

    /// Why it is not, or that it is again.
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

    /// One thread writes and another one seals: each sets the state of both.
    fn tell(&self, now: &Now) {
        self.metrics.size.set(gauge(now.size));
        self.metrics.state(match now {
            Now { failure: Some(_), .. } => "failing",
            Now { seal_failure: Some(_), .. } => "unsealed",
            _ => "ok",
        });
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
