//! The way of one admission request from the guard to the response.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures::FutureExt;
use lucid_text::truncate;
use tokio::time::{Instant, timeout_at};
use tower::BoxError;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use crate::check::{acceptable, check};
#[cfg(feature = "client")]
use crate::client::ClusterClient;
use crate::failure::{Failure, FailureAction};
use crate::metrics::{Outcome, WebhookMetrics};
use crate::offload::{self, Slot};
use crate::response::AdmissionResponse;
use crate::review::{AdmissionRequest, Operation};
use crate::webhook::Webhook;

/// Maximum number of characters of a name in the span.
const LONGEST_NAME: usize = 200;
/// Maximum number of characters of a failure in the log; a failure may quote the request.
const LONGEST_FAILURE: usize = 1024;

impl Webhook {
    /// Responds to one request, in a span of its own; `slot` lets a large request run on a blocking thread. The outcome
    /// is counted in `metrics`, also if the caller disconnects.
    pub(crate) async fn respond(
        self: &Arc<Self>,
        #[cfg_attr(not(feature = "client"), expect(unused_mut))] mut request: AdmissionRequest,
        slot: Option<Slot>,
        metrics: Option<&WebhookMetrics>,
    ) -> AdmissionResponse {
        let span = self.span(&request);
        let mut observation = Observation::new(&span, &request, metrics);
        let _in_flight = metrics.map(WebhookMetrics::in_flight);
        #[cfg(feature = "client")]
        if let Some(clients) = &self.clients {
            let client = clients.of(self.registration.may_write(request.dry_run));
            request.extensions.insert(ClusterClient(client));
        }
        let request = Arc::new(request);
        let responding = async {
            let (webhook, guarded) = (Arc::clone(self), Arc::clone(&request));
            let refusal = async move { webhook.guard.refusal(&guarded).await };
            let refusal = attempt(slot.clone(), request.deadline, refusal).await;
            let is_admitted = refusal.is_ok();
            let handled = match refusal {
                Ok(Some(response)) => Ok(response),
                Ok(None) => {
                    let handle = Arc::clone(self).handle(Arc::clone(&request));
                    attempt(slot.clone(), request.deadline, handle).await
                }
                Err(failure) => Err(failure),
            };
            // A failed request may be parsed once more.
            let webhook = Arc::clone(self);
            let recorded = async move {
                let (response, failure) = match handled {
                    Ok(response) => (response, None),
                    Err(failure) => (webhook.apply_action(&request, &failure, is_admitted), Some(failure)),
                };
                webhook.call_on_response(&request, response, failure.as_ref()).await
            };
            offload::run(slot, recorded).await
        };
        let response = acceptable(responding.instrument(span.clone()).await);
        observation.outcome = Outcome::of(&response);
        if let Some(metrics) = metrics {
            metrics.cut(response.cut);
        }
        response
    }

    async fn handle(self: Arc<Self>, request: Arc<AdmissionRequest>) -> Result<AdmissionResponse, BoxError> {
        let response = (self.handler)(Arc::clone(&request)).await?;
        self.check(&request, response)
    }

    /// Fails for a response that the API server would reject, or whose patch changes other fields than allowed.
    fn check(
        &self,
        request: &AdmissionRequest,
        response: AdmissionResponse,
    ) -> Result<AdmissionResponse, BoxError> {
        let permissions = self.guard.permissions.borrow();
        let permitted = permissions.allowed_paths.as_ref();
        Ok(check(self.kind, request.object.as_ref(), &self.allowed_paths, permitted, response)?)
    }

    /// Responds to a request that failed. Nothing may be changed unless the guard admitted it.
    fn apply_action(
        &self,
        request: &AdmissionRequest,
        failure: &Failure,
        is_admitted: bool,
    ) -> AdmissionResponse {
        let action = {
            let permissions = self.guard.permissions.borrow();
            let recovery = permissions.recovery_policy.as_ref().filter(|_| matches!(failure, Failure::Panic));
            recovery.or(permissions.failure_action.as_ref()).unwrap_or(&self.failure_action).clone()
        };
        tracing::error!(?action, "{}", truncate(&failure.redacted(), LONGEST_FAILURE));
        let mut response = match action {
            FailureAction::Abort => failure.refusal(),
            FailureAction::Warn => AdmissionResponse::allow().with_warning(failure.to_string()),
            FailureAction::Skip => AdmissionResponse::allow(),
            FailureAction::Call(function) => {
                let response = catch_unwind(AssertUnwindSafe(|| function(request, failure)));
                let response = response.map_err(|_panic| BoxError::from("the failure action panicked"));
                let response = response.and_then(|response| self.check(request, response));
                let response = response.and_then(|response| match !is_admitted && response.patch.is_some() {
                    true => Err("the guard failed, so nothing may be changed".into()),
                    false => Ok(response),
                });
                response.unwrap_or_else(|error| {
                    tracing::error!("failed to apply the failure action: {error}");
                    failure.refusal()
                })
            }
        };
        response.outcome = Some(failure.outcome());
        response
    }

    /// The function may deny the request, but neither allow it nor change its patch.
    async fn call_on_response(
        &self,
        request: &AdmissionRequest,
        response: AdmissionResponse,
        failure: Option<&Failure>,
    ) -> AdmissionResponse {
        let Some(function) = &self.on_response else { return response };
        let (denial, patch) = (response.denial.clone(), response.patch.clone());
        let outcome = response.outcome;
        let called = AssertUnwindSafe(async { function(request, response, failure).await });
        let (mut response, outcome) = match called.catch_unwind().await {
            Ok(response) => (response, outcome),
            Err(_panic) => {
                tracing::error!("the function for responses panicked");
                let outcome = failure.unwrap_or(&Failure::Panic).outcome();
                (Failure::Panic.refusal(), Some(outcome))
            }
        };
        response.outcome = outcome;
        response.denial = denial.or(response.denial);
        response.patch = patch.filter(|_| response.denial.is_none());
        response
    }

    /// With feature `opentelemetry`, the span is a child of the API server's span for `tracing-opentelemetry` as well.
    fn span(&self, request: &AdmissionRequest) -> Span {
        let shown = |text| truncate(text, LONGEST_NAME);
        let namespace = request.namespace.as_deref().map(shown);
        let span = tracing::info_span!(
            "admission",
            webhook = &*self.name,
            uid = &*shown(&request.uid),
            group = &*shown(&request.kind.group),
            version = &*shown(&request.kind.version),
            kind = &*shown(&request.kind.kind),
            namespace = namespace.as_deref(),
            name = &*shown(&request.name),
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
            parent.continue_in(&span);
        }
        span
    }
}

/// Completes a step of a request within its deadline, or fails. Dropping a step that is late may panic as well.
async fn attempt<T: Send + 'static, E: Into<BoxError> + Send + 'static>(
    slot: Option<Slot>,
    deadline: Instant,
    step: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, Failure> {
    let step = offload::run(slot, step);
    match AssertUnwindSafe(async move { timeout_at(deadline, step).await }).catch_unwind().await {
        Ok(Ok(Ok(done))) => Ok(done),
        Ok(Ok(Err(error))) => Err(Failure::Error(error.into())),
        Ok(Err(_elapsed)) => Err(Failure::Deadline),
        Err(_panic) => Err(Failure::Panic),
    }
}

/// Records the outcome on drop, so that callers that disconnect are covered as well.
struct Observation<'m> {
    span: Span,
    metrics: Option<&'m WebhookMetrics>,
    operation: Operation,
    arrival: Instant,
    outcome: Outcome,
}

impl<'m> Observation<'m> {
    fn new(span: &Span, request: &AdmissionRequest, metrics: Option<&'m WebhookMetrics>) -> Self {
        let (operation, arrival) = (request.operation, request.arrival);
        Self { span: span.clone(), metrics, operation, arrival, outcome: Outcome::Cancelled }
    }
}

impl Drop for Observation<'_> {
    fn drop(&mut self) {
        self.span.record("outcome", self.outcome.as_str());
        if let Some(metrics) = &self.metrics {
            metrics.observe(self.operation.as_str(), self.outcome, self.arrival.elapsed());
        }
    }
}
