//! The guard in front of a handler.

use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use tower::{BoxError, Layer, Service};

use super::{Forbidden, Guard, Scope};
use crate::kind::WebhookKind;
use crate::response::AdmissionResponse;
use crate::review::AdmissionRequest;
use crate::truncate::excerpt;

/// As a layer, the guard passes only requests to the handler that it admits.
///
/// Requests that are not selected, or whose object does not consent, are allowed unchanged. [`Forbidden`] applies if
/// the service account lacks permission. If the guard fails, the service fails with a
/// [`GuardError`](super::GuardError), which outer layers handle.
impl<S> Layer<S> for Guard {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { inner, guard: self.clone() }
    }
}

/// A handler behind a [`Guard`].
#[derive(Clone, Debug)]
pub struct Guarded<S> {
    inner: S,
    guard: Guard,
}

impl<S> Service<AdmissionRequest> for Guarded<S>
where
    S: Service<AdmissionRequest, Response = AdmissionResponse> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    type Response = AdmissionResponse;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<AdmissionResponse, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: AdmissionRequest) -> Self::Future {
        // The polled service is the one that is ready.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let guard = self.guard.clone();
        async move {
            match guard.check(&request).await? {
                Scope::Inside => inner.call(request).await.map_err(Into::into),
                scope => Ok(pass(&guard, &request, &scope)),
            }
        }
        .boxed()
    }
}

/// Responds to a request that the handler does not receive.
fn pass(guard: &Guard, request: &AdmissionRequest, scope: &Scope) -> AdmissionResponse {
    let webhook = &*guard.webhook;
    tracing::debug!(webhook, uid = &*excerpt(&request.uid), "skipped a request: {scope}");
    let mut skipped = AdmissionResponse::allow();
    skipped.skipped = true;
    let Scope::Forbidden(access) = scope else { return skipped };
    let lacks = format!("webhook {webhook}: {} may not {access}", access.user);
    match guard.forbidden {
        Forbidden::Skip => skipped,
        Forbidden::Warn => skipped.with_warning(match guard.kind {
            WebhookKind::Mutating => format!("{lacks}; the object is left as it is"),
            WebhookKind::Validating => format!("{lacks}; the object is not validated"),
        }),
        Forbidden::Deny => AdmissionResponse::deny(403, "Forbidden", lacks),
    }
}
