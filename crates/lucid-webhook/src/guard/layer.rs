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

/// Passes only requests to a handler that its [`Guard`] admits.
///
/// Requests that are not selected, or whose object does not consent, are allowed unchanged. [`Forbidden`] applies if
/// the service account lacks permission. If the guard fails, the service fails with a
/// [`GuardError`](super::GuardError), which outer layers handle.
#[derive(Clone, Debug)]
pub struct GuardLayer {
    guard: Guard,
    forbidden: Forbidden,
}

impl GuardLayer {
    /// Creates a layer that applies `guard`.
    #[must_use]
    pub const fn new(guard: Guard) -> Self {
        Self { guard, forbidden: Forbidden::Warn }
    }

    /// Sets the action for requests that the service account lacks permission for; [`Forbidden::Warn`] by default.
    #[must_use]
    pub const fn with_forbidden(mut self, forbidden: Forbidden) -> Self {
        self.forbidden = forbidden;
        self
    }
}

impl<S> Layer<S> for GuardLayer {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { inner, guard: self.guard.clone(), forbidden: self.forbidden }
    }
}

/// A handler behind a [`GuardLayer`].
#[derive(Clone, Debug)]
pub struct Guarded<S> {
    inner: S,
    guard: Guard,
    forbidden: Forbidden,
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
        let (guard, forbidden) = (self.guard.clone(), self.forbidden);
        async move {
            match guard.check(&request).await? {
                Scope::Inside => inner.call(request).await.map_err(Into::into),
                scope => Ok(pass(&guard, forbidden, &request, &scope)),
            }
        }
        .boxed()
    }
}

/// Responds to a request that the handler does not receive.
fn pass(guard: &Guard, forbidden: Forbidden, request: &AdmissionRequest, scope: &Scope) -> AdmissionResponse {
    let webhook = guard.webhook();
    tracing::debug!(webhook, uid = &*excerpt(&request.uid), "skipped a request: {scope}");
    let mut skipped = AdmissionResponse::allow();
    skipped.skipped = true;
    let Scope::Forbidden(access) = scope else { return skipped };
    let lacks = format!("webhook {webhook}: {} may not {access}", access.user);
    match forbidden {
        Forbidden::Skip => skipped,
        Forbidden::Warn => skipped.with_warning(match guard.kind {
            WebhookKind::Mutating => format!("{lacks}; the object is left as it is"),
            WebhookKind::Validating => format!("{lacks}; the object is not validated"),
        }),
        Forbidden::Deny => AdmissionResponse::deny(403, "Forbidden", lacks),
    }
}
