use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Semaphore;
use tower::{BoxError, Service, ServiceExt};

use crate::client::Metrics;
use crate::digest::Digest;

/// See [`ConcurrencyLayer`](super::ConcurrencyLayer).
#[derive(Clone, Debug)]
pub struct Concurrency<S> {
    pub(super) inner: S,
    pub(super) permits: Arc<Semaphore>,
    pub(super) metrics: Metrics,
}

impl<S> Service<Digest> for Concurrency<S>
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
        let Self { inner, permits, metrics } = self.clone();
        async move {
            let waiting = metrics.waiting();
            let _permit = permits.acquire().await?;
            drop(waiting);
            let _in_flight = metrics.in_flight();
            inner.oneshot(digest).await.map_err(Into::into)
        }
        .boxed()
    }
}
