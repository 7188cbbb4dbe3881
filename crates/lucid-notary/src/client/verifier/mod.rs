//! All of it, in the right order.

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

/// The Verifier, with everything in front of it that an admission webhook needs. Cheap to clone; clones share everything.
///
/// An ask passes, from the outside to the inside:
///
/// 1. the [allowlist](super::allowlist): what is on it needs no network;
/// 2. the [cache](super::cache), which answers what is known;
/// 3. [coalescing](super::coalesce): one ask for all who want the same, which goes on when they give up, so that its answer
///    is there when they come again;
/// 4. [last known good](super::last_known_good), if it is wanted;
/// 5. the cache again, which keeps answers and, for a shorter time, failures;
/// 6. the [deadline](super::deadline) of the ask with all its retries;
/// 7. [retry](super::retry);
/// 8. the [breaker](super::breaker), which sees each attempt, and of which it is told at once when it is open;
/// 9. the [concurrency](super::concurrency) limit, behind the breaker, so that nobody waits for a turn that would be
///    refused;
/// 10. the service that is asked, such as [`HttpVerifier`](super::HttpVerifier).
///
/// It is a [`Service`] from [`Digest`] to [`Checked`] as well, and needs a tokio runtime with its timer.
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
    /// Past cache and breaker.
    afresh: BoxCloneSyncService<Digest, Checked, BoxError>,
    metrics: Metrics,
}

impl Verifier {
    /// Starts with the service to ask.
    pub fn builder<S>(ask: S) -> VerifierBuilder<S> {
        VerifierBuilder::new(ask)
    }

    /// What is known about one digest. How long that takes is bounded by the deadline of the [builder](VerifierBuilder), and
    /// half a second more where the file of an allowlist has to be read again.
    pub async fn check(&self, digest: Digest) -> Checked {
        let checked = match self.service.clone().oneshot(digest).await {
            Ok(checked) => checked,
            Err(error) => failure::unknown(&*error),
        };
        self.metrics.checked(&checked);
        checked
    }

    /// What is known about each of these digests, those of one pod for instance, at `deadline` the latest.
    ///
    /// They are asked about in parallel, as [`check_all`](super::check_all) does, and there is a verdict for each.
    pub async fn check_all(
        &self,
        digests: impl IntoIterator<Item = Digest>,
        deadline: Instant,
    ) -> BTreeMap<Digest, Checked> {
        self.all(self.service.clone(), digests, deadline).await
    }

    /// The same, but each one that is not on the allowlist is asked about now, whether the breaker is open or not:
    /// neither the cache nor what is last known to be good is an answer. The cache learns of what is answered. This is for
    /// those who ask now and then, not for webhooks.
    pub async fn recheck_all(
        &self,
        digests: impl IntoIterator<Item = Digest>,
        deadline: Instant,
    ) -> BTreeMap<Digest, Checked> {
        self.all(self.afresh.clone(), digests, deadline).await
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
