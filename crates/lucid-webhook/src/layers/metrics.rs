//! Records metrics of a handler.

use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

use crate::metrics::{Outcome, WebhookMetrics};
use crate::response::AdmissionResponse;
use crate::review::{AdmissionRequest, Operation};

/// Counts responses by operation and outcome, and measures the time since the request's arrival.
#[derive(Clone, Debug)]
pub struct MetricsLayer {
    metrics: WebhookMetrics,
}

impl MetricsLayer {
    /// Records in `metrics` (see [`Metrics::webhook`](crate::Metrics::webhook)).
    #[must_use]
    pub const fn new(metrics: WebhookMetrics) -> Self {
        Self { metrics }
    }
}

impl<S> Layer<S> for MetricsLayer {
    type Service = Count<S>;

    fn layer(&self, inner: S) -> Count<S> {
        Count { inner, metrics: self.metrics.clone() }
    }
}

/// See [`MetricsLayer`].
#[derive(Clone, Debug)]
pub struct Count<S> {
    inner: S,
    metrics: WebhookMetrics,
}

/// Recorded on drop, so that requests of callers that disconnect are counted as well.
struct Observation {
    metrics: WebhookMetrics,
    operation: Operation,
    arrival: Instant,
    outcome: Outcome,
}

impl Drop for Observation {
    fn drop(&mut self) {
        self.metrics.observe(self.operation.as_str(), self.outcome, self.arrival.elapsed());
    }
}

impl<S> Service<AdmissionRequest> for Count<S>
where
    S: Service<AdmissionRequest, Response = AdmissionResponse>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = AdmissionResponse;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<AdmissionResponse, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: AdmissionRequest) -> Self::Future {
        let (arrival, operation, metrics) = (request.arrival, request.operation, self.metrics.clone());
        let answer = self.inner.call(request);
        async move {
            let _in_flight = metrics.in_flight();
            let mut observation = Observation { metrics, operation, arrival, outcome: Outcome::Cancelled };
            let answer = answer.await.map_err(Into::into);
            observation.outcome = Outcome::of_answer(&answer);
            if let Ok(response) = &answer {
                observation.metrics.cut(response.cut);
            }
            answer
        }
        .boxed()
    }
}
