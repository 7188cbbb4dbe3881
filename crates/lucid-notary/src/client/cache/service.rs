use std::future::ready;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use tower::{BoxError, Service, ServiceExt};

use super::Cache;
use super::layer::Access;
use crate::checked::Checked;
use crate::client::Metrics;
use crate::digest::Digest;

/// See [`CacheLayer`](super::CacheLayer).
#[derive(Clone, Debug)]
pub struct Cached<S> {
    pub(super) inner: S,
    pub(super) cache: Cache,
    pub(super) access: Access,
    pub(super) metrics: Metrics,
}

impl<S> Cached<S> {
    fn look_up(&self, digest: &Digest) -> Option<Result<Checked, BoxError>> {
        if self.access == Access::Write {
            return None;
        }
        let known = match self.cache.answer(digest) {
            Some(checked) => Some(Ok(checked)),
            None if self.access == Access::Read => return None,
            None => self.cache.failure(digest).map(|failure| Err(failure.into())),
        };
        self.metrics.looked_up(known.as_ref());
        known
    }
}

impl<S> Service<Digest> for Cached<S>
where
    S: Service<Digest, Response: Into<Checked>, Error: Into<BoxError>, Future: Send> + Clone + Send + 'static,
{
    type Response = Checked;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Checked, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, digest: Digest) -> Self::Future {
        if let Some(known) = self.look_up(&digest) {
            return ready(known).boxed();
        }
        let inner = self.inner.clone();
        let cache = (self.access != Access::Read).then(|| self.cache.clone());
        async move {
            let outcome = inner.oneshot(digest.clone()).await.map(Into::into).map_err(Into::into);
            match cache {
                Some(cache) => cache.keep(&digest, outcome),
                None => outcome,
            }
        }
        .boxed()
    }
}
