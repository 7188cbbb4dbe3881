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

/// The settings of a [`Verifier`]; made by [`Verifier::builder`]. All of them have a default.
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

    /// What needs not be asked. Default: none.
    pub fn allowlist(mut self, list: Allowlist) -> Self {
        self.allowlist = Some(list);
        self
    }

    /// For how long verdicts are cached. Default: 60 s when notarized, 5 s when not, and 2 s when unknown.
    pub fn time_to_live(mut self, time_to_live: TimeToLive) -> Self {
        self.time_to_live = time_to_live;
        self
    }

    /// Of how many digests something is known. Default: 10,000.
    pub fn cache_size(mut self, digests: u64) -> Self {
        self.cache_size = digests;
        self
    }

    /// During an outage, take what was notarized at most this long ago to be so still. Default: never.
    pub fn last_known_good(mut self, oldest: Duration) -> Self {
        self.last_known_good = Some(oldest);
        self
    }

    /// How long one ask may take with all its retries. Default: 5 s. It should be longer than what one attempt may take:
    /// an attempt that is cut off says nothing to the breaker.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How often an ask that failed is made again. Default: 2.
    pub fn retries(mut self, retries: usize) -> Self {
        self.retries = retries;
        self
    }

    /// After how many failures in a row nothing is asked, and for how long. Default: 5, and 5 s.
    pub fn breaker(mut self, failures: u32, pause: Duration) -> Self {
        self.breaker = Some((failures, pause));
        self
    }

    /// Ask however often it fails.
    pub fn without_breaker(mut self) -> Self {
        self.breaker = None;
        self
    }

    /// How many asks may go on at the same time. Default: 32.
    pub fn concurrency(mut self, asks: usize) -> Self {
        self.concurrency = asks;
        self
    }

    /// Counts there. The service that is asked counts by itself.
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
    /// Puts everything together. Nothing is asked.
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
        let afresh = ServiceBuilder::new()
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
            afresh: BoxCloneSyncService::new(afresh),
            metrics: self.metrics,
        }
    }
}
