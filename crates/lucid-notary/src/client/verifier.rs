//! The complete client.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use snafu::Snafu;
use tokio::sync::Semaphore;
use tokio::time::{timeout, timeout_at};
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::retry::RetryLayer;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt};
use tracing::Instrument;

use super::allowlist::Allowlist;
use super::answer::Answer;
use super::breaker::Breaker;
use super::cache::{Cache, TimeToLive};
use super::http::MAX_IN_FLIGHT;
use super::metrics::ClientMetrics;
use super::retry::RetryPolicy;
use crate::digest::Digest;
use crate::verdict::{CheckedVerdict, NotaryVerdict, Provenance};

/// Client of the Verifier for admission webhooks. Cheap to clone; clones share all state.
///
/// A check passes these stages:
///
/// 1. The [allowlist](Allowlist) works without the network.
/// 2. The cache holds verdicts and failures. Concurrent checks of a digest share one request, which continues if its
///    callers are cancelled, so that its response is cached.
/// 3. The deadline bounds a request, including the wait for a permit and retries.
/// 4. The concurrency limit makes further requests wait for a permit.
/// 5. Transient failures are retried: timeouts, broken connections, and the statuses 408, 429 and 5xx.
/// 6. The circuit breaker counts consecutive attempts for which
///    [`VerifierError::is_outage`](super::VerifierError::is_outage) returns `true`, then rejects requests for a
///    pause. A single request then probes the Verifier.
/// 7. The inner service, such as [`HttpVerifier`](super::HttpVerifier), sends the request.
///
/// Requires a tokio runtime with time enabled.
///
/// ```no_run
/// use std::time::{Duration, Instant};
///
/// use lucid_notary::client::{HttpVerifier, Verifier};
/// use lucid_notary::Digest;
///
/// # async fn example(digest: Digest) -> Result<(), Box<dyn std::error::Error>> {
/// let http = HttpVerifier::builder("https://verifier.lucid-system.svc")
///     .with_bearer_token_file("/var/run/secrets/verifier/token")
///     .build()?;
/// let verifier = Verifier::builder(http).with_retries(1).build();
///
/// let checked = verifier.check_all([digest.clone()], Instant::now() + Duration::from_secs(3)).await;
/// println!("{}", checked[&digest]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Verifier {
    shared: Arc<Shared>,
}

type Requests = BoxCloneSyncService<Digest, Answer, BoxError>;

#[derive(Debug)]
struct Shared {
    allowlist: Option<Allowlist>,
    cache: Cache,
    deadline: Duration,
    requests: Requests,
    rechecks: Requests,
    metrics: ClientMetrics,
}

impl Verifier {
    /// Creates a builder around the inner service.
    pub fn builder<S>(service: S) -> VerifierBuilder<S> {
        VerifierBuilder::new(service)
    }

    /// Checks one digest. The deadline of the [builder](VerifierBuilder) bounds the call, plus half a second if an
    /// allowlist file has to be reloaded.
    pub async fn check(&self, digest: Digest) -> CheckedVerdict {
        let checked = self.look_up(digest).await;
        self.shared.metrics.checked(&checked);
        checked
    }

    /// Checks each distinct digest once, such as those of one pod, with at most 8 concurrent checks.
    ///
    /// Returns a verdict for every digest. Digests without a response at `deadline` are unknown.
    pub async fn check_all(
        &self,
        digests: impl IntoIterator<Item = Digest>,
        deadline: Instant,
    ) -> BTreeMap<Digest, CheckedVerdict> {
        self.all(digests, deadline, |digest| self.look_up(digest)).await
    }

    /// Checks all digests like [`check_all`](Self::check_all), with a new request for each digest that is not on the
    /// allowlist.
    ///
    /// Ignores cached verdicts and the state of the circuit breaker; updates the cache. Intended for occasional
    /// checks, not for webhooks.
    pub async fn recheck_all(
        &self,
        digests: impl IntoIterator<Item = Digest>,
        deadline: Instant,
    ) -> BTreeMap<Digest, CheckedVerdict> {
        self.all(digests, deadline, |digest| self.recheck(digest)).await
    }

    async fn all<F: Future<Output = CheckedVerdict>>(
        &self,
        digests: impl IntoIterator<Item = Digest>,
        deadline: Instant,
        check: impl Fn(Digest) -> F,
    ) -> BTreeMap<Digest, CheckedVerdict> {
        let late = NotaryVerdict::unknown("the check did not end before the deadline");
        let late = CheckedVerdict::new(late, Provenance::Verifier);
        let mut all: BTreeMap<_, _> = digests.into_iter().map(|digest| (digest, late.clone())).collect();
        let distinct: Vec<Digest> = all.keys().cloned().collect();
        let mut results = stream::iter(distinct)
            .map(|digest| {
                let checked = check(digest.clone());
                async move { (digest, checked.await) }
            })
            .buffer_unordered(MAX_IN_FLIGHT);
        // The deadline is shared: no check starts after it.
        while let Ok(Some((digest, checked))) = timeout_at(deadline.into(), results.next()).await {
            all.insert(digest, checked);
        }
        all.values().for_each(|checked| self.shared.metrics.checked(checked));
        all
    }

    async fn look_up(&self, digest: Digest) -> CheckedVerdict {
        if let Some(allowed) = self.shared.allowlisted(&digest).await {
            return allowed;
        }
        let cached = self.shared.cache.get(&digest).await;
        self.shared.metrics.looked_up(cached.as_ref());
        if let Some(cached) = cached {
            return cached;
        }
        // A task, because the request must outlive its callers.
        let shared = Arc::clone(&self.shared);
        let request = async move {
            let request = shared.request(&shared.requests, digest.clone());
            let (verdict, is_coalesced) = shared.cache.get_or_request(digest, request).await;
            if is_coalesced {
                shared.metrics.coalesced.inc();
            }
            verdict
        };
        // The task fails if the service panics or the runtime shuts down.
        let verdict = tokio::spawn(request.in_current_span()).await;
        let failed = |_| NotaryVerdict::unknown("the check ended without a response");
        CheckedVerdict::new(verdict.unwrap_or_else(failed), Provenance::Verifier)
    }

    async fn recheck(&self, digest: Digest) -> CheckedVerdict {
        if let Some(allowed) = self.shared.allowlisted(&digest).await {
            return allowed;
        }
        let verdict = match self.shared.request(&self.shared.rechecks, digest.clone()).await {
            Ok(answer) => {
                self.shared.cache.insert(digest, answer.clone()).await;
                answer.into()
            }
            // Failures do not replace cached responses.
            Err(error) => NotaryVerdict::unknown(error),
        };
        CheckedVerdict::new(verdict, Provenance::Verifier)
    }
}

#[derive(Debug, Snafu)]
#[snafu(display("the check did not end within {limit:?}"))]
struct DeadlineExceeded {
    limit: Duration,
}

impl Shared {
    async fn allowlisted(&self, digest: &Digest) -> Option<CheckedVerdict> {
        let is_allowed = self.allowlist.as_ref()?.contains(digest).await;
        is_allowed.then(|| {
            self.metrics.allowlisted.inc();
            CheckedVerdict::new(NotaryVerdict::Notarized, Provenance::Allowlist)
        })
    }

    async fn request(&self, requests: &Requests, digest: Digest) -> Result<Answer, BoxError> {
        let request = async {
            let mut requests = requests.clone();
            let waiting = self.metrics.waiting();
            let requests = requests.ready().await?;
            drop(waiting);
            let _in_flight = self.metrics.in_flight();
            requests.call(digest).await
        };
        // The layer `tower::timeout` would not bound the wait for a permit.
        timeout(self.deadline, request).await.unwrap_or_else(|_| {
            self.metrics.deadlines_exceeded.inc();
            Err(DeadlineExceeded { limit: self.deadline }.into())
        })
    }
}

/// Builder of a [`Verifier`], created by [`Verifier::builder`]. All settings have defaults.
#[derive(Clone, Debug)]
#[must_use]
pub struct VerifierBuilder<S> {
    service: S,
    allowlist: Option<Allowlist>,
    time_to_live: TimeToLive,
    cache_size: u64,
    deadline: Duration,
    retries: usize,
    breaker: (u32, Duration),
    concurrency: usize,
    metrics: ClientMetrics,
}

impl<S> VerifierBuilder<S> {
    fn new(service: S) -> Self {
        Self {
            service,
            allowlist: None,
            time_to_live: TimeToLive::default(),
            cache_size: 10_000,
            deadline: Duration::from_secs(6),
            retries: 2,
            breaker: (5, Duration::from_secs(5)),
            concurrency: 32,
            metrics: ClientMetrics::default(),
        }
    }

    /// Sets the allowlist (default none).
    pub fn with_allowlist(self, list: Allowlist) -> Self {
        Self { allowlist: Some(list), ..self }
    }

    /// Sets the time to live of cached verdicts (default 60 s for notarized, 5 s for not notarized, 2 s for unknown).
    pub fn with_time_to_live(self, time_to_live: TimeToLive) -> Self {
        Self { time_to_live, ..self }
    }

    /// Sets the maximum number of cached digests (default 10,000).
    pub fn with_cache_size(self, digests: u64) -> Self {
        Self { cache_size: digests, ..self }
    }

    /// Sets the deadline of one request, retries included (default 6 s). It should exceed the timeout of a single
    /// attempt: the circuit breaker does not count an attempt that the deadline cancels.
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Sets the maximum number of retries (default 2). The pauses between them are 50 ms, 100 ms and so on, each
    /// extended by up to as much again at random.
    pub fn with_retries(self, retries: usize) -> Self {
        Self { retries, ..self }
    }

    /// Configures the circuit breaker: it opens for `pause` after `failures` consecutive failures (default 5 and 5
    /// s).
    pub fn with_breaker(self, failures: u32, pause: Duration) -> Self {
        Self { breaker: (failures, pause), ..self }
    }

    /// Sets the maximum number of concurrent requests, at least one (default 32). Retries belong to their request.
    pub fn with_concurrency(self, requests: usize) -> Self {
        Self { concurrency: requests.clamp(1, Semaphore::MAX_PERMITS), ..self }
    }

    /// Sets the metrics. The inner service counts its requests separately.
    pub fn with_metrics(self, metrics: ClientMetrics) -> Self {
        Self { metrics, ..self }
    }
}

impl<S> VerifierBuilder<S>
where
    S: Service<Digest, Response = Answer, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    /// Builds the client without sending a request.
    #[must_use]
    pub fn build(self) -> Verifier {
        let metrics = || self.metrics.clone();
        let service = self.service.map_err(Into::into);
        let (failures, pause) = self.breaker;
        let breaker = Breaker::new(service.clone(), failures, pause, metrics());
        let layers = ServiceBuilder::new()
            .layer(GlobalConcurrencyLimitLayer::new(self.concurrency))
            .layer(RetryLayer::new(RetryPolicy::new(self.retries, metrics())));
        let shared = Shared {
            requests: BoxCloneSyncService::new(layers.service(breaker)),
            rechecks: BoxCloneSyncService::new(layers.service(service)),
            cache: Cache::new(self.time_to_live, self.cache_size),
            allowlist: self.allowlist,
            deadline: self.deadline,
            metrics: self.metrics,
        };
        Verifier { shared: Arc::new(shared) }
    }
}
