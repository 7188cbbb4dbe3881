use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;
use tower::{BoxError, Service, ServiceExt};

use super::BreakerOpen;
use super::state::{Circuit, Ticket};
use crate::client::Metrics;
use crate::client::failure::is_outage;
use crate::digest::Digest;

/// See [`BreakerLayer`](super::BreakerLayer).
#[derive(Clone, Debug)]
pub struct Breaker<S> {
    pub(super) inner: S,
    pub(super) circuit: Arc<Circuit>,
    pub(super) metrics: Metrics,
}

/// An ask on its way; dropped without an end, it is abandoned.
struct Ask {
    circuit: Arc<Circuit>,
    ticket: Option<Ticket>,
    metrics: Metrics,
}

impl Ask {
    fn begin(circuit: Arc<Circuit>, metrics: Metrics) -> Result<Self, BreakerOpen> {
        let ticket = circuit.begin(Instant::now()).map_err(|retry_after| {
            metrics.breaker_refused();
            BreakerOpen::new(retry_after)
        })?;
        metrics.breaker(circuit.state());
        Ok(Self { circuit, ticket: Some(ticket), metrics })
    }

    fn end(mut self, is_outage: bool) {
        if let Some(ticket) = self.ticket.take() {
            self.circuit.end(&ticket, is_outage, Instant::now());
        }
    }
}

impl Drop for Ask {
    fn drop(&mut self) {
        if let Some(ticket) = &self.ticket {
            self.circuit.abandon(ticket, Instant::now());
        }
        self.metrics.breaker(self.circuit.state());
    }
}

impl<S> Service<Digest> for Breaker<S>
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
        let Self { inner, circuit, metrics } = self.clone();
        async move {
            let ask = Ask::begin(circuit, metrics)?;
            let answer = inner.oneshot(digest).await.map_err(Into::into);
            ask.end(answer.as_ref().is_err_and(|error: &BoxError| is_outage(&**error)));
            answer
        }
        .boxed()
    }
}
