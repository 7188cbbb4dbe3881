use tower::Layer;

use super::{Allowed, Allowlist};
use crate::client::Metrics;

/// Answers for the digests of an [`Allowlist`], and asks for the others.
#[derive(Clone, Debug)]
pub struct AllowlistLayer {
    list: Allowlist,
    metrics: Metrics,
}

impl AllowlistLayer {
    /// With this list.
    #[must_use]
    pub fn new(list: Allowlist) -> Self {
        Self { list, metrics: Metrics::default() }
    }

    /// Counts there what the list decided.
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
