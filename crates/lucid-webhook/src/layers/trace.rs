//! Traces and counts requests.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};
use tracing::field::Empty;
use tracing::{Instrument, Span};

use crate::metrics::{Outcome, WebhookMetrics};
use crate::response::AdmissionResponse;
use crate::review::{AdmissionRequest, Operation};
use crate::truncate::excerpt;

/// Runs each request in a span `admission` of level INFO, with fields `webhook`, `uid`, `group`, `version`, `kind`,
/// `namespace`, `name`, `operation`, `dry_run`, `outcome`, and `trace_id` and `parent_id` if the API server sent a
/// `traceparent`.
///
/// With feature `opentelemetry`, the span is a child of that parent for `tracing-opentelemetry` as well.
#[derive(Clone, Debug)]
pub(crate) struct TraceLayer {
    webhook: Arc<str>,
    metrics: Option<WebhookMetrics>,
}

impl TraceLayer {
    /// Creates spans for the webhook of this name.
    pub(crate) fn new(webhook: impl Into<Arc<str>>) -> Self {
        Self { webhook: webhook.into(), metrics: None }
    }

    /// Counts responses by operation and outcome, and measures the time since the request's arrival.
    pub(crate) fn with_metrics(mut self, metrics: WebhookMetrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    fn span(&self, request: &AdmissionRequest) -> Span {
        let namespace = request.namespace.as_deref().map(excerpt);
        let span = tracing::info_span!(
            "admission",
            webhook = &*self.webhook,
            uid = &*excerpt(&request.uid),
            group = &*excerpt(&request.kind.group),
            version = &*excerpt(&request.kind.version),
            kind = &*excerpt(&request.kind.kind),
            namespace = namespace.as_deref(),
            name = &*excerpt(&request.name),
            operation = request.operation.as_str(),
            dry_run = request.dry_run,
            outcome = Empty,
            trace_id = Empty,
            parent_id = Empty,
        );
        if let Some(parent) = &request.trace_parent
            && !span.is_disabled()
        {
            span.record("trace_id", format_args!("{:032x}", parent.trace_id));
            span.record("parent_id", format_args!("{:016x}", parent.parent_id));
            #[cfg(feature = "opentelemetry")]
            opentelemetry::continue_trace(&span, parent);
        }
        span
    }
}

#[cfg(feature = "opentelemetry")]
mod opentelemetry {
    use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
    use tracing_opentelemetry::OpenTelemetrySpanExt;

    use crate::trace_parent::TraceParent;

    pub(super) fn continue_trace(span: &tracing::Span, parent: &TraceParent) {
        let flags = if parent.sampled { TraceFlags::SAMPLED } else { TraceFlags::NOT_SAMPLED };
        let (trace, parent) = (TraceId::from(parent.trace_id), SpanId::from(parent.parent_id));
        let remote = SpanContext::new(trace, parent, flags, true, TraceState::NONE);
        // Fails if no OpenTelemetry layer is installed, which is not an error.
        let _ = span.set_parent(opentelemetry::Context::new().with_remote_span_context(remote));
    }
}

impl<S> Layer<S> for TraceLayer {
    type Service = Trace<S>;

    fn layer(&self, inner: S) -> Trace<S> {
        Trace { inner, layer: self.clone() }
    }
}

/// See [`TraceLayer`].
#[derive(Clone, Debug)]
pub(crate) struct Trace<S> {
    inner: S,
    layer: TraceLayer,
}

/// Records the outcome on drop, so that callers that disconnect are covered as well.
struct OutcomeRecorder {
    span: Span,
    metrics: Option<WebhookMetrics>,
    operation: Operation,
    arrival: Instant,
    outcome: Outcome,
}

impl Drop for OutcomeRecorder {
    fn drop(&mut self) {
        self.span.record("outcome", self.outcome.as_str());
        if let Some(metrics) = &self.metrics {
            metrics.observe(self.operation.as_str(), self.outcome, self.arrival.elapsed());
        }
    }
}

impl<S> Service<AdmissionRequest> for Trace<S>
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
        let span = self.layer.span(&request);
        let mut recorder = OutcomeRecorder {
            span: span.clone(),
            metrics: self.layer.metrics.clone(),
            operation: request.operation,
            arrival: request.arrival,
            outcome: Outcome::Cancelled,
        };
        let answer = span.in_scope(|| self.inner.call(request));
        async move {
            let _in_flight = recorder.metrics.as_ref().map(WebhookMetrics::in_flight);
            let answer = answer.await.map_err(Into::into);
            recorder.outcome = Outcome::of_answer(&answer);
            if let (Some(metrics), Ok(response)) = (&recorder.metrics, &answer) {
                metrics.cut(response.cut);
            }
            answer
        }
        .instrument(span)
        .boxed()
    }
}
