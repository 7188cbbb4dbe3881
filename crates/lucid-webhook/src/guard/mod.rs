//! Restrictions of webhooks, controlled by the cluster administrator.
//!
//! [`Webhook::with_permissions`](crate::Webhook::with_permissions) evaluates these conditions for every request, and stops
//! at the first that does not hold:
//!
//! 1. The object is selected ([`Selector`]). `kube-system` is excluded unless it is named.
//! 2. In strict mode: the object consents. Its annotation `canMutate` or `canValidate` (or
//!    `lucid.computing/can-mutate`, `lucid.computing/can-validate`) lists the webhook. The annotations of a pod are those of
//!    its controller's template. Strict mode makes webhooks opt-in: do not use it for policies that owners of objects
//!    might want to avoid.
//! 3. The service account that the webhook acts for has the RBAC permission (SubjectAccessReview). A mutating webhook needs
//!    one of the verbs `update` and `mutate` on the request's resource and subresource, a validating one `get` or `validate`.
//!
//! [`Permissions`] configure them:
//!
//! ```
//! use lucid_webhook::guard::Permissions;
//! use lucid_webhook::{AdmissionResponse, Router, Webhook};
//! use tokio::sync::watch;
//!
//! async fn label() -> AdmissionResponse {
//!     AdmissionResponse::allow()
//! }
//!
//! fn router() -> Result<Router, Box<dyn std::error::Error>> {
//!     let permissions: Permissions = serde_json::from_str(r#"{
//!         "selector": {"namespace": "team-*"},
//!         "strictMode": true,
//!         "allowedPaths": ["/metadata/labels"]
//!     }"#)?;
//!     // A sender that is kept changes the permissions while the webhook is served.
//!     let (_, permissions) = watch::channel(permissions);
//!     let label = Webhook::mutating("label.example.com", label).with_permissions(permissions);
//!     Ok(Router::new().webhook("/label", label))
//! }
//! ```

mod access;
mod consent;
pub(crate) mod labels;
mod metadata;
mod permissions;
mod selector;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use snafu::Snafu;
use tower::{BoxError, Layer, Service};

use crate::kind::WebhookKind;
use crate::raw_object::DecodeError;
use crate::response::AdmissionResponse;
use crate::review::AdmissionRequest;
use crate::truncate::excerpt;
use metadata::Metadata;

use access::Access;
pub(crate) use access::AccessReview;
pub use access::ServiceAccount;
pub use permissions::{Forbidden, Permissions};
pub(crate) use selector::KUBE_SYSTEM;
pub use selector::Selector;

/// Decides whether a webhook may handle a request.
#[derive(Clone)]
pub(crate) struct Guard {
    webhook: Arc<str>,
    kind: WebhookKind,
    selector: Arc<Selector>,
    strict: bool,
    delegation: Option<Delegation>,
    forbidden: Forbidden,
}

#[derive(Clone)]
struct Delegation {
    account: Arc<ServiceAccount>,
    review: Arc<dyn AccessReview>,
}

/// Decision of a [`Guard`] about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The webhook may handle the request.
    Inside,
    /// The object is not selected.
    NotSelected,
    /// In strict mode: the object does not consent.
    NoConsent {
        /// Why its annotation cannot be read, for the author of the object.
        problem: Option<String>,
    },
    /// The service account lacks permission.
    Forbidden(Box<Access>),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inside => f.write_str("the webhook may handle the request"),
            Self::NotSelected => f.write_str("the object is not selected"),
            Self::NoConsent { problem: None } => f.write_str("the object does not consent"),
            Self::NoConsent { problem: Some(problem) } => write!(f, "the object does not consent: {problem}"),
            Self::Forbidden(access) => write!(f, "{} may not {access}", access.user),
        }
    }
}

/// The guard could not decide.
#[derive(Debug, Snafu)]
pub(crate) enum GuardError {
    /// The metadata of the objects does not decode.
    #[snafu(transparent)]
    Metadata { source: DecodeError },
    /// The access review failed.
    #[snafu(display("failed to find out whether {} may {access}: {source}", access.user))]
    Review { access: Box<Access>, source: BoxError },
    /// The access review did not complete before the request's deadline.
    #[snafu(display("failed to find out in time whether {} may {access}", access.user))]
    TimedOut { access: Box<Access> },
}

impl Guard {
    /// Creates a guard for the webhook of this name, such as `label.example.com`. It excludes `kube-system` only.
    pub(crate) fn new(webhook: impl Into<Arc<str>>, kind: WebhookKind) -> Self {
        Self {
            webhook: webhook.into(),
            kind,
            selector: Arc::default(),
            strict: false,
            delegation: None,
            forbidden: Forbidden::default(),
        }
    }

    /// Admits only selected objects.
    pub(crate) fn with_selector(mut self, selector: Selector) -> Self {
        self.selector = Arc::new(selector);
        self
    }

    /// Admits only objects that consent to this webhook.
    pub(crate) const fn with_strict_mode(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Admits only requests whose resource `account` may `update` or `mutate`, or for a validating webhook `get` or `validate`.
    pub(crate) fn with_service_account(
        mut self,
        account: ServiceAccount,
        review: Arc<dyn AccessReview>,
    ) -> Self {
        self.delegation = Some(Delegation { account: Arc::new(account), review });
        self
    }

    /// Sets the action for requests that the service account lacks permission for; [`Forbidden::Warn`] by default.
    pub(crate) const fn with_forbidden(mut self, forbidden: Forbidden) -> Self {
        self.forbidden = forbidden;
        self
    }

    /// Evaluates one request within its deadline.
    pub(crate) async fn check(&self, request: &AdmissionRequest) -> Result<Scope, GuardError> {
        let scope = self.check_object(request)?;
        let Some(Delegation { account, review }) = &self.delegation else { return Ok(scope) };
        if scope != Scope::Inside {
            return Ok(scope);
        }
        let verbs = verbs(self.kind);
        for verb in verbs {
            let access = Access::of(account, verb, request);
            match tokio::time::timeout_at(request.deadline, review.is_allowed(&access.spec())).await {
                Ok(Ok(true)) => return Ok(Scope::Inside),
                Ok(Ok(false)) => {}
                Ok(Err(source)) => return Err(GuardError::Review { access: Box::new(access), source }),
                Err(_elapsed) => return TimedOutSnafu { access: Box::new(access) }.fail(),
            }
        }
        Ok(Scope::Forbidden(Box::new(Access::of(account, verbs[0], request))))
    }

    /// Evaluates the conditions on the object itself.
    fn check_object(&self, request: &AdmissionRequest) -> Result<Scope, DecodeError> {
        // Before any of the object is decoded.
        if !self.selector.matches_request(request) {
            return Ok(Scope::NotSelected);
        }
        let metadata = if self.strict { Metadata::of(request)? } else { self.selector.metadata(request)? };
        if !self.selector.matches_metadata(request, &metadata) {
            return Ok(Scope::NotSelected);
        }
        Ok(match self.strict {
            true => consent::consent(&self.webhook, self.kind, request, &metadata),
            false => Scope::Inside,
        })
    }
}

/// RBAC verbs of which a webhook's service account needs one.
const fn verbs(kind: WebhookKind) -> [&'static str; 2] {
    match kind {
        WebhookKind::Mutating => ["update", "mutate"],
        WebhookKind::Validating => ["get", "validate"],
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("webhook", &self.webhook)
            .field("kind", &self.kind)
            .field("selector", &self.selector)
            .field("strict", &self.strict)
            .field("account", &self.delegation.as_ref().map(|delegation| &delegation.account))
            .field("forbidden", &self.forbidden)
            .finish_non_exhaustive()
    }
}

/// As a layer, the guard passes only requests to the handler that it admits.
///
/// Requests that are not selected, or whose object does not consent, are allowed unchanged. [`Forbidden`] applies if
/// the service account lacks permission. If the guard fails, the service fails with a
/// [`GuardError`], which outer layers handle.
impl<S> Layer<S> for Guard {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { inner, guard: self.clone() }
    }
}

/// A handler behind a [`Guard`].
#[derive(Clone, Debug)]
pub(crate) struct Guarded<S> {
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
    let access = match scope {
        Scope::Forbidden(access) => access,
        Scope::NoConsent { problem: Some(problem) } => {
            return skipped.with_warning(format!("webhook {webhook}: {problem}"));
        }
        _ => return skipped,
    };
    let access = Access { verb: verbs(guard.kind).join(" nor "), ..(**access).clone() };
    let lacks = format!("webhook {webhook}: {} may neither {access}", access.user);
    match guard.forbidden {
        Forbidden::Skip => skipped,
        Forbidden::Warn => skipped.with_warning(match guard.kind {
            WebhookKind::Mutating => format!("{lacks}; the object is left as it is"),
            WebhookKind::Validating => format!("{lacks}; the object is not validated"),
        }),
        Forbidden::Deny => {
            let mut denied = AdmissionResponse::deny(403, "Forbidden", lacks);
            denied.skipped = true;
            denied
        }
    }
}
