use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tower::{BoxError, Service, ServiceExt};

use crate::checked::Checked;
use crate::client::failure::is_outage;
use crate::client::{Cache, Metrics};
use crate::digest::Digest;

/// See [`LastKnownGoodLayer`](super::LastKnownGoodLayer).
#[derive(Clone, Debug)]
pub struct LastKnownGood<S> {
    pub(super) inner: S,
    pub(super) cache: Cache,
    pub(super) oldest: Duration,
    pub(super) metrics: Metrics,
}

impl<S> Service<Digest> for LastKnownGood<S>
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
        let Self { inner, cache, oldest, metrics } = self.clone();
        async move {
            let error = match inner.oneshot(digest.clone()).await {
                Ok(answer) => return Ok(answer.into()),
                Err(error) => error.into(),
            };
            let known = is_outage(&*error).then(|| cache.last_known_good(&digest, oldest)).flatten();
            match known {
                Some(known) => {
                    metrics.served_last_known_good();
                    Ok(known)
                }
                None => Err(error),
            }
        }
        .boxed()
    }
}
