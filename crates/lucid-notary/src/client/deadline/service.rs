use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::timeout;
use tower::{BoxError, Service, ServiceExt};

use super::DeadlineExceeded;
use crate::client::Metrics;
use crate::digest::Digest;

/// See [`DeadlineLayer`](super::DeadlineLayer).
#[derive(Clone, Debug)]
pub struct Deadline<S> {
    pub(super) inner: S,
    pub(super) limit: Duration,
    pub(super) metrics: Metrics,
}

impl<S> Service<Digest> for Deadline<S>
where
    S: Service<Digest, Response: Send, Error: Into<BoxError> + Send, Future: Send> + Clone + Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, digest: Digest) -> Self::Future {
        let Self { inner, limit, metrics } = self.clone();
        async move {
            match timeout(limit, inner.oneshot(digest)).await {
                Ok(answer) => answer.map_err(Into::into),
                Err(_) => {
                    metrics.deadline_exceeded();
                    Err(DeadlineExceeded::new(limit).into())
                }
            }
        }
        .boxed()
    }
}
