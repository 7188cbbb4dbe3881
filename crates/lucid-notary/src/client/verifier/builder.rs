use std::time::Duration;

use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer, Service, ServiceBuilder};

use super::Verifier;
use crate::client::allowlist::{Allowlist, AllowlistLayer};
use crate::client::breaker::BreakerLayer;
use crate::client::cache::{Cache, CacheLayer, TimeToLive};
use crate::client::coalesce::CoalesceLayer;
use crate::client::concurrency::ConcurrencyLayer;
use crate::client::deadline::DeadlineLayer;
use crate::client::http::Answer;
use crate::client::last_known_good::LastKnownGoodLayer;
use crate::client::metrics::Metrics;
use crate::client::retry::RetryLayer;
use crate::digest::Digest;

/// Builder of a [`Verifier`], created by [`Verifier::builder`]. All settings have defaults.
#[derive(Clone, Debug)]
#[must_use]
pub struct VerifierBuilder<S> {
    ask: S,
    allowlist: Option<Allowlist>,
    time_to_live: TimeToLive,
    cache_size: u64,
    last_known_good: Option<Duration>,
    deadline: Duration,
    retries: usize,
    breaker: Option<(u32, Duration)>,
    concurrency: usize,
    metrics: Metrics,
}

impl<S> VerifierBuilder<S> {
    pub(super) fn new(ask: S) -> Self {
        Self {
            ask,
            allowlist: None,
            time_to_live: TimeToLive::default(),
            cache_size: 10_000,
            last_known_good: None,
            deadline: Duration::from_secs(5),
            retries: 2,
            breaker: Some((5, Duration::from_secs(5))),
            concurrency: 32,
            metrics: Metrics::default(),
        }
    }

    /// Sets the allowlist (default none).
    pub fn allowlist(mut self, list: Allowlist) -> Self {
        self.allowlist = Some(list);
        self
    }

    /// Sets the time to live of cached verdicts (default 60 s for notarized, 5 s for not notarized, 2 s for unknown).
    pub fn time_to_live(mut self, time_to_live: TimeToLive) -> Self {
        self.time_to_live = time_to_live;
        self
    }

    /// Sets the maximum number of cached digests (default 10,000).
    pub fn cache_size(mut self, digests: u64) -> Self {
        self.cache_size = digests;
        self
    }

    /// Enables last known good: during an outage, digests found notarized at most `oldest` ago count as notarized
    /// (default off).
    pub fn last_known_good(mut self, oldest: Duration) -> Self {
        self.last_known_good = Some(oldest);
        self
    }

    /// Sets the deadline of one request, retries included (default 5 s). It should exceed the timeout of a single
    /// attempt: the circuit breaker does not count an attempt that the deadline cancels.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets the maximum number of retries (default 2).
    pub fn retries(mut self, retries: usize) -> Self {
        self.retries = retries;
        self
    }

    /// Configures the circuit breaker: it opens for `pause` after `failures` consecutive failures (default 5 and 5
    /// s).
    pub fn breaker(mut self, failures: u32, pause: Duration) -> Self {
        self.breaker = Some((failures, pause));
        self
    }

    /// Disables the circuit breaker.
    pub fn without_breaker(mut self) -> Self {
        self.breaker = None;
        self
    }

    /// Sets the maximum number of concurrent requests (default 32).
    pub fn concurrency(mut self, asks: usize) -> Self {
        self.concurrency = asks;
        self
    }

    /// Sets the metrics of all layers. The inner service counts its requests separately.
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }
}

impl<S> VerifierBuilder<S>
where
    S: Service<Digest, Response = Answer, Error: Into<BoxError> + Send, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    /// Builds the client without sending a request.
    #[must_use]
    pub fn build(self) -> Verifier {
        let metrics = || self.metrics.clone();
        let cache = Cache::new(self.time_to_live, self.cache_size);
        let allowlist = self.allowlist.map(|list| AllowlistLayer::new(list).metrics(metrics()));
        let last_known_good =
            self.last_known_good.map(|oldest| LastKnownGoodLayer::new(&cache, oldest).metrics(metrics()));
        let breaker =
            self.breaker.map(|(failures, pause)| BreakerLayer::new(failures, pause).metrics(metrics()));

        let deadline = DeadlineLayer::new(self.deadline).metrics(metrics());
        let retry = RetryLayer::new(self.retries).metrics(metrics());
        let ask = ConcurrencyLayer::new(self.concurrency).metrics(metrics()).layer(self.ask);
        let uncached = ServiceBuilder::new()
            .option_layer(allowlist.clone())
            .layer(CacheLayer::write_only(&cache))
            .layer(deadline.clone())
            .layer(retry.clone())
            .service(ask.clone());
        let service = ServiceBuilder::new()
            .option_layer(allowlist)
            .layer(CacheLayer::read_only(&cache).metrics(metrics()))
            .layer(CoalesceLayer::new().metrics(metrics()))
            .option_layer(last_known_good)
            .layer(CacheLayer::new(&cache).metrics(metrics()))
            .layer(deadline)
            .layer(retry)
            .option_layer(breaker)
            .service(ask);
        Verifier {
            service: BoxCloneSyncService::new(service),
            uncached: BoxCloneSyncService::new(uncached),
            metrics: self.metrics,
        }
    }
}
