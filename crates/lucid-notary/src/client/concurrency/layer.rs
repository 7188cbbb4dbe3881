use std::sync::Arc;

use tokio::sync::Semaphore;
use tower::Layer;

use super::Concurrency;
use crate::client::Metrics;

/// Lets a number of asks go on at the same time; the others wait for their turn, first come, first served.
///
/// The limit is the layer's: all services that one layer makes share it.
#[derive(Clone, Debug)]
pub struct ConcurrencyLayer {
    permits: Arc<Semaphore>,
    metrics: Metrics,
}

impl ConcurrencyLayer {
    /// At most so many at the same time, and at least one.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let limit = limit.clamp(1, Semaphore::MAX_PERMITS);
        Self { permits: Arc::new(Semaphore::new(limit)), metrics: Metrics::default() }
    }

    /// Shows there how many go on and how many wait.
    #[must_use]
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }
}

impl<S> Layer<S> for ConcurrencyLayer {
    type Service = Concurrency<S>;

    fn layer(&self, inner: S) -> Concurrency<S> {
        Concurrency { inner, permits: Arc::clone(&self.permits), metrics: self.metrics.clone() }
    }
}
