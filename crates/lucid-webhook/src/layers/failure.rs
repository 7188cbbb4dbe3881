//! Isolates handlers, and responds for those that fail.

use std::convert::Infallible;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::timeout_at;
use tower::{BoxError, Layer, Service, ServiceExt};

use crate::answer;
use crate::failure::{Failure, FailureAction, ResponseFunction};
use crate::layers::CheckLayer;
use crate::offload;
use crate::raw_object::RawObject;
use crate::response::{AdmissionResponse, FailureKind};
use crate::review::AdmissionRequest;
use crate::truncate::truncate;

/// Maximum number of characters of a failure in the log; a failure may quote the request.
const LONGEST: usize = 1024;

/// Responds for a handler that returns an error, panics or misses [`AdmissionRequest::deadline`]. One action covers
/// errors and missed deadlines, another one panics.
///
/// At the deadline the handler is cancelled by dropping its future. On a panic the panic hook still runs, and reports
/// the message and location. Panics cannot be caught with `panic = "abort"`.
#[derive(Clone)]
pub(crate) struct FailureLayer {
    check: CheckLayer,
    failure: FailureAction,
    recovery: FailureAction,
    on_response: Option<ResponseFunction>,
}

impl FailureLayer {
    /// Applies `action` to all failures. Responses of functions pass `check`.
    pub(crate) fn new(check: CheckLayer, action: FailureAction) -> Self {
        Self { check, failure: action.clone(), recovery: action, on_response: None }
    }

    /// Applies `action` to panics.
    pub(crate) fn with_recovery_policy(mut self, action: FailureAction) -> Self {
        self.recovery = action;
        self
    }

    /// Calls `function` with each response; see [`Webhook::with_on_response`](crate::Webhook::with_on_response).
    pub(crate) fn with_on_response(self, function: Option<ResponseFunction>) -> Self {
        Self { on_response: function, ..self }
    }

    /// Clones the request if a function needs it.
    fn keep(&self, request: &AdmissionRequest) -> Option<AdmissionRequest> {
        let is_needed =
            self.failure.is_function() || self.recovery.is_function() || self.on_response.is_some();
        is_needed.then(|| request.clone())
    }

    async fn on_response(
        &self,
        request: Option<&AdmissionRequest>,
        answer: AdmissionResponse,
        failure: Option<&Failure>,
    ) -> AdmissionResponse {
        let (Some(function), Some(request)) = (&self.on_response, request) else { return answer };
        let (denial, patch) = (answer.denial.clone(), answer.patch.clone());
        let (skipped, failed) = (answer.skipped, answer.failure);
        let called = AssertUnwindSafe(async { function(request, answer, failure).await });
        let mut answer = called.catch_unwind().await.unwrap_or_else(|_panic| {
            tracing::error!("the function for responses panicked");
            AdmissionResponse { failure: Some(FailureKind::Panic), ..Failure::Panic.refusal() }
        });
        answer.denial = denial.or(answer.denial);
        answer.patch = patch.filter(|_| answer.denial.is_none());
        (answer.skipped, answer.failure) = (skipped, failed.or(answer.failure));
        answer
    }

    fn answer(
        &self,
        request: Option<&AdmissionRequest>,
        object: Option<&RawObject>,
        failure: &Failure,
    ) -> AdmissionResponse {
        let action = match failure {
            Failure::Panic => &self.recovery,
            Failure::Error(_) | Failure::Deadline => &self.failure,
        };
        tracing::error!(?action, "{}", truncate(&failure.redacted(), LONGEST));
        let mut answer = match (action, request) {
            (FailureAction::Call(function), Some(request)) => {
                let answer = catch_unwind(AssertUnwindSafe(|| function(request, failure)));
                let answer = answer.map_err(|_panic| BoxError::from("the failure action panicked"));
                let answer = answer.and_then(|answer| self.check.check(object, answer));
                let answer =
                    answer.and_then(|answer| match failure.is_guard_error() && answer.patch.is_some() {
                        true => Err("the guard failed, so nothing may be changed".into()),
                        false => Ok(answer),
                    });
                answer.unwrap_or_else(|error| {
                    tracing::error!("failed to apply the failure action: {error}");
                    failure.refusal()
                })
            }
            (FailureAction::Warn, _) => AdmissionResponse::allow().with_warning(failure.to_string()),
            (FailureAction::Skip, _) => AdmissionResponse::allow(),
            (FailureAction::Abort | FailureAction::Call(_), _) => failure.refusal(),
        };
        answer.failure = Some(failure.kind());
        answer
    }
}

impl fmt::Debug for FailureLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FailureLayer")
            .field("check", &self.check)
            .field("failure", &self.failure)
            .field("recovery", &self.recovery)
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for FailureLayer {
    type Service = OnFailure<S>;

    fn layer(&self, inner: S) -> OnFailure<S> {
        OnFailure { inner, layer: self.clone() }
    }
}

/// See [`FailureLayer`].
#[derive(Clone, Debug)]
pub(crate) struct OnFailure<S> {
    inner: S,
    layer: FailureLayer,
}

impl<S> Service<AdmissionRequest> for OnFailure<S>
where
    S: Service<AdmissionRequest, Response = AdmissionResponse> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
{
    type Response = AdmissionResponse;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<AdmissionResponse, Infallible>>;

    /// Always ready: waiting for the handler is part of the call, and its `poll_ready` may fail or panic as well.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: AdmissionRequest) -> Self::Future {
        let layer = self.layer.clone();
        let (kept, object) = (layer.keep(&request), request.object.clone());
        let (deadline, slot) = (request.deadline, request.extensions.remove());
        // A clone is dropped with a panic, so that its possibly inconsistent state is never observed.
        let handler = self.inner.clone().oneshot(request);
        let handler = offload::run(slot, async move { handler.await.map_err(Into::into) });
        // Outside of the deadline: dropping a cancelled handler may panic as well.
        let outcome = AssertUnwindSafe(async move { timeout_at(deadline, handler).await }).catch_unwind();
        async move {
            let answer = match outcome.await {
                Ok(Ok(Ok(answer))) => Ok(answer),
                Ok(Ok(Err(error))) => Err(Failure::of(error)),
                Ok(Err(_elapsed)) => Err(Failure::Deadline),
                Err(_panic) => Err(Failure::Panic),
            };
            let answer = match answer {
                Ok(answer) => layer.on_response(kept.as_ref(), answer, None).await,
                Err(failure) => {
                    let answer = layer.answer(kept.as_ref(), object.as_ref(), &failure);
                    layer.on_response(kept.as_ref(), answer, Some(&failure)).await
                }
            };
            Ok(answer::acceptable(answer))
        }
        .boxed()
    }
}
