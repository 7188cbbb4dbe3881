use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use tower::{BoxError, Service, ServiceExt};

use super::Allowlist;
use crate::checked::{Checked, Provenance};
use crate::client::Metrics;
use crate::digest::Digest;
use crate::verdict::Verdict;

/// Service of the [`AllowlistLayer`](super::AllowlistLayer).
#[derive(Clone, Debug)]
pub struct Allowed<S> {
    pub(super) inner: S,
    pub(super) list: Allowlist,
    pub(super) metrics: Metrics,
}

impl<S> Service<Digest> for Allowed<S>
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
        let Self { inner, list, metrics } = self.clone();
        async move {
            if list.contains(&digest).await {
                metrics.allowlisted();
                return Ok(Checked::new(Verdict::Notarized, Provenance::Allowlist));
            }
            inner.oneshot(digest).await.map(Into::into).map_err(Into::into)
        }
        .boxed()
    }
}
