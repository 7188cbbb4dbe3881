use std::sync::Arc;
use std::time::Duration;

use tower::Layer;

use super::Breaker;
use super::state::Circuit;
use crate::client::Metrics;

/// A circuit breaker: after a number of failures in a row nothing is asked for a while
/// ([`BreakerOpen`](super::BreakerOpen)). Then one ask is let through, the probe; if that succeeds, all are again, and
/// otherwise the while begins anew.
///
/// A failure is what [`is_outage`](crate::client::is_outage) says; other errors are signs of life, and an ask that is
/// dropped before its end is neither. The circuit is the layer's: all services that one layer makes share it.
#[derive(Clone, Debug)]
pub struct BreakerLayer {
    circuit: Arc<Circuit>,
    metrics: Metrics,
}

impl BreakerLayer {
    /// Opens after so many failures in a row, at least one, for so long.
    #[must_use]
    pub fn new(failures: u32, pause: Duration) -> Self {
        Self { circuit: Arc::new(Circuit::new(failures.max(1), pause)), metrics: Metrics::default() }
    }

    /// Shows its state there, and counts what is not asked.
    #[must_use]
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }
}

impl<S> Layer<S> for BreakerLayer {
    type Service = Breaker<S>;

    fn layer(&self, inner: S) -> Breaker<S> {
        Breaker { inner, circuit: Arc::clone(&self.circuit), metrics: self.metrics.clone() }
    }
}
