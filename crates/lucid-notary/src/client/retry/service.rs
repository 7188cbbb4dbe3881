use std::task::{Context, Poll};

use backon::{ExponentialBuilder, Retryable};
use futures::FutureExt;
use futures::future::BoxFuture;
use tower::{BoxError, Service, ServiceExt};

use crate::client::Metrics;
use crate::client::failure::is_worth_a_retry;
use crate::digest::Digest;

/// See [`RetryLayer`](super::RetryLayer).
#[derive(Clone, Debug)]
pub struct Retry<S> {
    pub(super) inner: S,
    pub(super) pauses: ExponentialBuilder,
    pub(super) metrics: Metrics,
}

impl<S> Service<Digest> for Retry<S>
where
    S: Service<Digest, Response: Send, Error: Into<BoxError> + Send, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, digest: Digest) -> Self::Future {
        let Self { inner, pauses, metrics } = self.clone();
        async move {
            let ask = || inner.clone().oneshot(digest.clone()).map(|answer| answer.map_err(Into::into));
            ask.retry(pauses)
                .when(|error: &BoxError| is_worth_a_retry(&**error))
                .notify(|_, _| metrics.retried())
                .await
        }
        .boxed()
    }
}
