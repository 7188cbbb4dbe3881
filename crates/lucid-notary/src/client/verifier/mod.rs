//! The complete client.

mod builder;

use std::collections::BTreeMap;
use std::task::{Context, Poll};
use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt};

pub use self::builder::VerifierBuilder;
use super::batch::checked_all;
use super::{Metrics, failure};
use crate::checked::Checked;
use crate::digest::Digest;

/// Client of the Verifier for admission webhooks. Cheap to clone; clones share all state.
///
/// A request passes these layers, from the outermost to the innermost:
///
/// 1. the [allowlist](super::allowlist), which needs no network;
/// 2. the [cache](super::cache) of verdicts and failures;
/// 3. [coalescing](super::coalesce): concurrent requests for a digest share one request. It continues if its callers
///    give up, so that its answer is cached;
/// 4. [last known good](super::last_known_good), if enabled;
/// 5. the cache again, which stores answers and, for a shorter time, failures;
/// 6. the [deadline](super::deadline) of a request, retries included;
/// 7. [retry](super::retry);
/// 8. the [circuit breaker](super::breaker), which counts each attempt;
/// 9. the [concurrency](super::concurrency) limit, inside the breaker, so that rejected requests do not queue;
/// 10. the inner service, such as [`HttpVerifier`](super::HttpVerifier).
///
/// The client is also a [`Service`] from [`Digest`] to [`Checked`]. It requires a tokio runtime with time enabled.
///
/// ```no_run
/// use std::time::{Duration, Instant};
///
/// use lucid_notary::client::{HttpVerifier, Verifier};
/// use lucid_notary::Digest;
///
/// # async fn example(digest: Digest) -> Result<(), Box<dyn std::error::Error>> {
/// let http = HttpVerifier::builder("https://verifier.lucid-system.svc")
///     .bearer_token_file("/var/run/secrets/verifier/token")
///     .build()?;
/// let verifier = Verifier::builder(http).last_known_good(Duration::from_secs(600)).build();
///
/// let checked = verifier.check_all([digest.clone()], Instant::now() + Duration::from_secs(3)).await;
/// println!("{}", checked[&digest]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Verifier {
    service: BoxCloneSyncService<Digest, Checked, BoxError>,
    /// Bypasses cached verdicts and the breaker.
    uncached: BoxCloneSyncService<Digest, Checked, BoxError>,
    metrics: Metrics,
}

impl Verifier {
    /// Creates a builder around the inner service.
    pub fn builder<S>(ask: S) -> VerifierBuilder<S> {
        VerifierBuilder::new(ask)
    }

    /// Checks one digest. The deadline of the [builder](VerifierBuilder) bounds the call, plus half a second if an
    /// allowlist file has to be reloaded.
    pub async fn check(&self, digest: Digest) -> Checked {
        let checked = match self.service.clone().oneshot(digest).await {
            Ok(checked) => checked,
            Err(error) => failure::unknown(&*error),
        };
        self.metrics.checked(&checked);
        checked
    }

    /// Checks all digests concurrently until `deadline`, such as those of one pod.
    ///
    /// Returns a verdict for every digest, as [`check_all`](super::check_all) does.
    pub async fn check_all(
        &self,
        digests: impl IntoIterator<Item = Digest>,
        deadline: Instant,
    ) -> BTreeMap<Digest, Checked> {
        self.all(self.service.clone(), digests, deadline).await
    }

    /// Checks all digests like [`check_all`](Self::check_all), with a new request for each digest that is not on the
    /// allowlist.
    ///
    /// Ignores cached verdicts, last known good and the state of the circuit breaker; updates the cache. Intended for
    /// occasional checks, not for webhooks.
    pub async fn recheck_all(
        &self,
        digests: impl IntoIterator<Item = Digest>,
        deadline: Instant,
    ) -> BTreeMap<Digest, Checked> {
        self.all(self.uncached.clone(), digests, deadline).await
    }

    async fn all(
        &self,
        service: BoxCloneSyncService<Digest, Checked, BoxError>,
        digests: impl IntoIterator<Item = Digest>,
        deadline: Instant,
    ) -> BTreeMap<Digest, Checked> {
        let all = checked_all(service, digests, deadline).await;
        all.values().for_each(|checked| self.metrics.checked(checked));
        all
    }
}

impl Service<Digest> for Verifier {
    type Response = Checked;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Checked, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, digest: Digest) -> Self::Future {
        let (service, metrics) = (self.service.clone(), self.metrics.clone());
        async move {
            let outcome = service.oneshot(digest).await;
            match &outcome {
                Ok(checked) => metrics.checked(checked),
                Err(error) => metrics.checked(&failure::unknown(&**error)),
            }
            outcome
        }
        .boxed()
    }
}
