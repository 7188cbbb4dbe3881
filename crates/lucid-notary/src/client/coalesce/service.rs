use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use snafu::Snafu;
use tower::{BoxError, Service, ServiceExt};
use tracing::Instrument;

use crate::client::{Metrics, SharedError};
use crate::digest::Digest;

/// See [`CoalesceLayer`](super::CoalesceLayer).
pub struct Coalesce<S: Service<Digest>> {
    pub(super) inner: S,
    pub(super) flights: Flights<S::Response>,
    pub(super) metrics: Metrics,
}

type Flight<R> = Shared<BoxFuture<'static, Result<R, SharedError>>>;

/// The asks that go on, by what they are about.
pub(super) struct Flights<R>(Arc<Mutex<HashMap<Digest, Flight<R>>>>);

impl<R> Flights<R> {
    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Flight<R>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> Clone for Flights<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R> Default for Flights<R> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<S: Service<Digest> + Clone> Clone for Coalesce<S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), flights: self.flights.clone(), metrics: self.metrics.clone() }
    }
}

impl<S: Service<Digest> + fmt::Debug> fmt::Debug for Coalesce<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coalesce").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// The ask that was shared ended without an answer: it panicked, or the runtime ended.
#[derive(Debug, Snafu)]
#[snafu(display("failed to ask the Verifier: the ask ended without an answer"))]
struct Abandoned;

/// Takes an ask out of those that go on, however it ends.
struct Landing<R> {
    flights: Flights<R>,
    digest: Digest,
}

impl<R> Drop for Landing<R> {
    fn drop(&mut self) {
        self.flights.lock().remove(&self.digest);
    }
}

impl<S> Service<Digest> for Coalesce<S>
where
    S: Service<Digest, Response: Clone + Send + Sync, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
    S::Response: 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, digest: Digest) -> Self::Future {
        let mut flights = self.flights.lock();
        let flight = if let Some(flight) = flights.get(&digest) {
            self.metrics.coalesced();
            flight.clone()
        } else {
            let inner = self.inner.clone();
            let landing = Landing { flights: self.flights.clone(), digest: digest.clone() };
            let ask = async move {
                let Landing { digest, .. } = &landing;
                inner.oneshot(digest.clone()).await.map_err(SharedError::new)
            };
            let ask = ask.in_current_span();
            // Spawned by who polls first, when the lock is free again: a runtime that ends drops the ask at once, and
            // with it the landing, which takes the lock.
            let flight =
                async { tokio::spawn(ask).await.unwrap_or_else(|_| Err(SharedError::new(Abandoned))) };
            let flight = flight.boxed().shared();
            flights.insert(digest, flight.clone());
            flight
        };
        drop(flights);
        flight.map(|answer| answer.map_err(Into::into)).boxed()
    }
}
