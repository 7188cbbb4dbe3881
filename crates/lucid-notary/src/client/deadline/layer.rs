use std::time::Duration;

use tower::Layer;

use super::Deadline;
use crate::client::Metrics;

/// Gives up an ask that takes too long: [`DeadlineExceeded`](super::DeadlineExceeded).
#[derive(Clone, Debug)]
pub struct DeadlineLayer {
    limit: Duration,
    metrics: Metrics,
}

impl DeadlineLayer {
    /// An ask may take this long, everything within it included.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        Self { limit, metrics: Metrics::default() }
    }

    /// Counts what is given up there.
    #[must_use]
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }
}

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadline<S>;

    fn layer(&self, inner: S) -> Deadline<S> {
        Deadline { inner, limit: self.limit, metrics: self.metrics.clone() }
    }
}
