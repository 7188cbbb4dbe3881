use tower::{Layer, Service};

use super::Coalesce;
use crate::client::Metrics;
use crate::digest::Digest;

/// Makes one ask of those about the same digest that go on at the same time.
///
/// The ask is a task of its own: it goes on, and answers the others, when any of the callers gives up, or all of them do.
/// So something within should bound its time. Must be called within a tokio runtime.
#[derive(Clone, Debug, Default)]
pub struct CoalesceLayer {
    metrics: Metrics,
}

impl CoalesceLayer {
    /// A layer without metrics.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts there who joined an ask of somebody else.
    #[must_use]
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }
}

impl<S: Service<Digest>> Layer<S> for CoalesceLayer {
    type Service = Coalesce<S>;

    fn layer(&self, inner: S) -> Coalesce<S> {
        Coalesce { inner, flights: Default::default(), metrics: self.metrics.clone() }
    }
}
