//! Load shedding.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Body;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{BoxError, Layer, Service, ServiceExt};

use crate::{body, reply};

/// Maximum number of requests in flight. Clones share the limit.
#[derive(Clone, Debug)]
pub(crate) struct Limit(Arc<Semaphore>);

/// A request in flight, until dropped.
#[derive(Debug)]
pub(crate) struct Entered(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

impl Limit {
    pub(crate) fn new(max_in_flight: usize) -> Self {
        Self(Arc::new(Semaphore::new(max_in_flight.min(Semaphore::MAX_PERMITS))))
    }

    /// Returns `None` at the limit; never waits.
    pub(crate) fn try_enter(&self) -> Option<Entered> {
        Arc::clone(&self.0).try_acquire_owned().ok().map(Entered)
    }
}

/// Responds with 429 and `Retry-After: 1` above a number of requests in flight.
///
/// The API server retries such a call up to 10 times within the webhook's timeout, possibly on another replica, whereas
/// a queued request would only miss its deadline. The body of a rejected request is read and discarded, so that its
/// connection can be reused.
///
/// ```
/// use lucid_webhook::{Router, layers::ShedLayer};
/// use tower::Layer;
///
/// let service = ShedLayer::new(200).layer(Router::new()); // for `Server::serve`
/// ```
///
/// Services created by one layer and its clones share the limit.
#[derive(Clone, Debug)]
pub struct ShedLayer {
    limit: Limit,
}

impl ShedLayer {
    /// Admits at most `max_in_flight` concurrent requests, from the headers to the response.
    #[must_use]
    pub fn new(max_in_flight: usize) -> Self {
        Self { limit: Limit::new(max_in_flight) }
    }
}

impl<S> Layer<S> for ShedLayer {
    type Service = Shed<S>;

    fn layer(&self, inner: S) -> Shed<S> {
        Shed { inner, limit: self.limit.clone(), bodies: body::Reader::default() }
    }
}

/// The service of a [`ShedLayer`].
#[derive(Clone, Debug)]
pub struct Shed<S> {
    inner: S,
    limit: Limit,
    bodies: body::Reader,
}

impl<S, B> Service<Request<B>> for Shed<S>
where
    S: Service<Request<B>, Response = Response<Full<Bytes>>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Full<Bytes>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    /// Always ready: waiting for the inner service counts as in flight.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if let Some(entered) = self.limit.try_enter() {
            let answer = self.inner.clone().oneshot(request);
            return async move {
                let _entered = entered;
                answer.await
            }
            .boxed();
        }
        let bodies = self.bodies.clone();
        async move {
            tracing::debug!(path = request.uri().path(), "too many concurrent requests");
            let (head, body) = request.into_parts();
            bodies.discard(&head.headers, body).await;
            Ok(reply::too_many_requests("too many concurrent requests"))
        }
        .boxed()
    }
}
