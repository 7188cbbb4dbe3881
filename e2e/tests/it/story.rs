//! Named steps of long tests.

use std::panic::AssertUnwindSafe;

use futures::FutureExt;

/// Steps of a test in one cluster. Later ones are run although an earlier one failed, so that all failures are seen.
#[derive(Debug, Default)]
pub(crate) struct Story {
    failed: Vec<&'static str>,
}

impl Story {
    /// Runs a step. Returns `None` if it panicked.
    pub(crate) async fn step<T>(&mut self, name: &'static str, step: impl Future<Output = T>) -> Option<T> {
        let done = AssertUnwindSafe(step).catch_unwind().await.ok();
        if done.is_none() {
            self.failed.push(name);
        }
        done
    }

    /// Ends the test.
    ///
    /// # Panics
    ///
    /// Panics with the names of the steps that failed.
    pub(crate) fn end(self) {
        assert!(self.failed.is_empty(), "failed steps: {}", self.failed.join(", "));
    }
}
