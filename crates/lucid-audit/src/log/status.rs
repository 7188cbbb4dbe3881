use std::sync::{Mutex, MutexGuard, PoisonError};

use super::error::AppendError;

/// How a log is, for who watches it.
#[derive(Debug, Default)]
pub(super) struct Status(Mutex<Now>);

#[derive(Debug, Default)]
struct Now {
    size: u64,
    failure: Option<String>,
}

impl Status {
    pub(super) fn kept(&self, size: u64) {
        let mut now = self.lock();
        now.size = size;
        now.failure = None;
    }

    pub(super) fn failed(&self, error: &AppendError) {
        self.lock().failure = Some(error.to_string());
    }

    pub(super) fn size(&self) -> u64 {
        self.lock().size
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
