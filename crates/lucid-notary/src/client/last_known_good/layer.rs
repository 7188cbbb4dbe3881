use std::time::Duration;

use tower::Layer;

use super::LastKnownGood;
use crate::client::{Cache, Metrics};

/// During an outage, which is what [`is_outage`](crate::client::is_outage) says, answers for digests that were notarized
/// when the Verifier was last asked about them, if that is not too long ago. The answer is marked as
/// [`Provenance::LastKnownGood`](crate::Provenance::LastKnownGood) with its age.
///
/// It knows what a [`Cache`] keeps, so a [`CacheLayer`](crate::client::cache::CacheLayer) of the same cache has to be
/// within. Whoever can keep the Verifier from answering can make a revocation go unnoticed for as long as the greatest
/// age.
#[derive(Clone, Debug)]
pub struct LastKnownGoodLayer {
    cache: Cache,
    oldest: Duration,
    metrics: Metrics,
}

impl LastKnownGoodLayer {
    /// With answers of this cache, up to this age.
    #[must_use]
    pub fn new(cache: &Cache, oldest: Duration) -> Self {
        Self { cache: cache.clone(), oldest, metrics: Metrics::default() }
    }

    /// Counts such answers there.
    #[must_use]
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }
}

impl<S> Layer<S> for LastKnownGoodLayer {
    type Service = LastKnownGood<S>;

    fn layer(&self, inner: S) -> LastKnownGood<S> {
        let Self { cache, oldest, metrics } = self.clone();
        LastKnownGood { inner, cache, oldest, metrics }
    }
}
