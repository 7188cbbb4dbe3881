use tower::Layer;

use super::{Cache, Cached};
use crate::client::Metrics;

/// Answers from a [`Cache`] what it holds, and keeps there what comes of the other asks.
#[derive(Clone, Debug)]
pub struct CacheLayer {
    cache: Cache,
    access: Access,
    metrics: Metrics,
}

/// What a layer does with the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Both,
    Read,
    Write,
}

impl CacheLayer {
    /// Reads from the cache and writes to it.
    #[must_use]
    pub fn new(cache: &Cache) -> Self {
        Self { cache: cache.clone(), access: Access::Both, metrics: Metrics::default() }
    }

    /// Reads answers, and neither failures nor writes: what stands in front of another layer of the same cache, to
    /// spare cached answers what lies between.
    #[must_use]
    pub fn read_only(cache: &Cache) -> Self {
        Self { access: Access::Read, ..Self::new(cache) }
    }

    /// Only writes: each ask is made, and others profit by it.
    #[must_use]
    pub fn write_only(cache: &Cache) -> Self {
        Self { access: Access::Write, ..Self::new(cache) }
    }

    /// Counts there what was found in the cache and what was not.
    #[must_use]
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }
}

impl<S> Layer<S> for CacheLayer {
    type Service = Cached<S>;

    fn layer(&self, inner: S) -> Cached<S> {
        let Self { cache, access, metrics } = self.clone();
        Cached { inner, cache, access, metrics }
    }
}
