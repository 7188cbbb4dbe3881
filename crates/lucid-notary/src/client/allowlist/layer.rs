use tower::Layer;

use super::{Allowed, Allowlist};
use crate::client::Metrics;

/// Layer that answers for the digests of an [`Allowlist`] and forwards all others.
#[derive(Clone, Debug)]
pub struct AllowlistLayer {
    list: Allowlist,
    metrics: Metrics,
}

impl AllowlistLayer {
    /// Creates a layer for the list.
    #[must_use]
    pub fn new(list: Allowlist) -> Self {
        Self { list, metrics: Metrics::default() }
    }

    /// Sets the metrics that count allowlisted digests.
    #[must_use]
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }
}

impl<S> Layer<S> for AllowlistLayer {
    type Service = Allowed<S>;

    fn layer(&self, inner: S) -> Allowed<S> {
        Allowed { inner, list: self.list.clone(), metrics: self.metrics.clone() }
    }
}
