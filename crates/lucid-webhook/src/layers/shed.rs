//! Load shedding.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of requests in flight. Clones share the limit.
#[derive(Clone, Debug)]
pub(crate) struct Limit(Arc<Semaphore>);

/// A request in flight, until dropped.
#[derive(Debug)]
pub(crate) struct Entered(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

impl Limit {
    pub(crate) fn new(max_in_flight: usize) -> Self {
        Self(Arc::new(Semaphore::new(max_in_flight.min(Semaphore::MAX_PERMITS))))
    }

    /// Returns `None` at the limit; never waits.
    pub(crate) fn try_enter(&self) -> Option<Entered> {
        Arc::clone(&self.0).try_acquire_owned().ok().map(Entered)
    }
}
