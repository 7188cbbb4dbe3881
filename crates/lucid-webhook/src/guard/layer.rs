//! The guard in front of a handler.

use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use tower::{Layer, Service};

use super::{Forbidden, Guard, Outside, Scope};
use crate::excerpt::excerpt;
use crate::kind::WebhookKind;
use crate::response::AdmissionResponse;
use crate::review::AdmissionRequest;
use crate::router::BoxError;

/// Keeps requests from a handler that its [`Guard`] does not let in.
///
/// What is not selected or does not consent passes untouched. What the service account has no rights for is treated as
/// [`Forbidden`] says. When the guard cannot tell, the service fails with a [`GuardError`](super::GuardError), and what
/// stands outside of it decides.
#[derive(Clone, Debug)]
pub struct GuardLayer {
    guard: Guard,
    forbidden: Forbidden,
}

impl GuardLayer {
    /// A layer that asks `guard`.
    #[must_use]
    pub const fn new(guard: Guard) -> Self {
        Self { guard, forbidden: Forbidden::Warn }
    }

    /// What happens to a request that the service account has no rights for; [`Forbidden::Warn`] by default.
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
        // The one that was polled is the one that is ready.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let (guard, forbidden) = (self.guard.clone(), self.forbidden);
        async move {
            match guard.check(&request).await? {
                Scope::Inside => inner.call(request).await.map_err(Into::into),
                Scope::Outside(reason) => Ok(pass(&guard, forbidden, &request, &reason)),
            }
        }
        .boxed()
    }
}

/// The answer to a request that the handler does not see.
fn pass(
    guard: &Guard,
    forbidden: Forbidden,
    request: &AdmissionRequest,
    reason: &Outside,
) -> AdmissionResponse {
    let webhook = guard.webhook();
    tracing::debug!(webhook, uid = excerpt(&request.uid), "left a request alone: {reason}");
    let mut skipped = AdmissionResponse::allow();
    skipped.skipped = true;
    let Outside::Forbidden(access) = reason else { return skipped };
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
