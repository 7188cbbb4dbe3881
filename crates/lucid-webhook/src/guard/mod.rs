//! Restrictions of webhooks, controlled by the cluster administrator.
//!
//! [`Webhook::with_permissions`](crate::Webhook::with_permissions) evaluates these conditions for every request, and
//! stops at the first that does not hold:
//!
//! 1. The object is selected ([`Selector`]). `kube-system` is excluded unless it is named.
//! 2. In strict mode: the object consents. Its annotation `canMutate` or `canValidate` (or
//!    `lucid.computing/can-mutate`, `lucid.computing/can-validate`) lists the webhook. The annotations of a pod are
//!    those of its controller's template. Strict mode makes webhooks opt-in: do not use it for policies that owners of
//!    objects might want to avoid.
//! 3. The service account that the webhook acts for has the RBAC permission (SubjectAccessReview). A mutating webhook
//!    needs one of the verbs `update` and `mutate` on the request's resource and subresource, a validating one `get` or
//!    `validate`.
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

use snafu::{IntoError, Snafu};
use tokio::sync::watch;
use tower::BoxError;

use crate::kind::WebhookKind;
use crate::metrics::Outcome;
use crate::raw_object::DecodeError;
use crate::response::AdmissionResponse;
use crate::review::AdmissionRequest;
use lucid_text::Line;
use metadata::Metadata;

pub(crate) use access::AccessReview;
pub use access::ServiceAccount;
use access::describe;
pub use permissions::{Forbidden, Permissions};
pub(crate) use selector::KUBE_SYSTEM;
pub use selector::Selector;

pub(crate) struct Guard {
    webhook: Arc<str>,
    kind: WebhookKind,
    pub(crate) permissions: watch::Receiver<Permissions>,
    pub(crate) review: Option<Arc<dyn AccessReview>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Inside,
    NotSelected,
    /// The object does not consent, in strict mode.
    NoConsent {
        /// Problem with its annotation, for the author of the object.
        problem: Option<String>,
    },
    Forbidden(String),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inside => f.write_str("the webhook may handle the request"),
            Self::NotSelected => f.write_str("the object is not selected"),
            Self::NoConsent { problem: None } => f.write_str("the object does not consent"),
            Self::NoConsent { problem: Some(problem) } => write!(f, "the object does not consent: {problem}"),
            Self::Forbidden(lacks) => f.write_str(lacks),
        }
    }
}

#[derive(Debug, Snafu)]
pub(crate) enum GuardError {
    #[snafu(transparent)]
    Metadata { source: DecodeError },
    #[snafu(display("failed to find out whether {user} may {access}: {source}"))]
    Review { user: String, access: String, source: BoxError },
}

impl Guard {
    pub(crate) const fn new(
        webhook: Arc<str>,
        kind: WebhookKind,
        permissions: watch::Receiver<Permissions>,
    ) -> Self {
        Self { webhook, kind, permissions, review: None }
    }

    /// Requests that are not selected, or whose object does not consent, are allowed unchanged; [`Forbidden`] applies
    /// if the service account lacks permission.
    pub(crate) async fn refusal(
        &self,
        request: &AdmissionRequest,
    ) -> Result<Option<AdmissionResponse>, GuardError> {
        Ok(match self.check(request).await? {
            Scope::Inside => None,
            scope => Some(self.pass(request, &scope)),
        })
    }

    async fn check(&self, request: &AdmissionRequest) -> Result<Scope, GuardError> {
        let (scope, account) = {
            let permissions = self.permissions.borrow();
            (self.check_object(&permissions, request)?, permissions.service_account_name.clone())
        };
        let Some(account) = account.filter(|_| scope == Scope::Inside) else { return Ok(scope) };
        let verbs = verbs(self.kind);
        for verb in verbs {
            let allowed = match &self.review {
                Some(review) => review.is_allowed(&account.access(verb, request)).await,
                None => Err("no access review is configured".into()),
            };
            let failed = |source| {
                ReviewSnafu { user: account.user(), access: describe(verb, request) }.into_error(source)
            };
            if allowed.map_err(failed)? {
                return Ok(Scope::Inside);
            }
        }
        let access = describe(&verbs.join(" nor "), request);
        Ok(Scope::Forbidden(format!("{} may neither {access}", account.user())))
    }

    /// Evaluates the conditions on the object itself.
    fn check_object(
        &self,
        Permissions { selector, strict_mode, .. }: &Permissions,
        request: &AdmissionRequest,
    ) -> Result<Scope, DecodeError> {
        // Before any of the object is decoded.
        if !selector.matches_request(request) {
            return Ok(Scope::NotSelected);
        }
        let metadata = if *strict_mode { Metadata::of(request)? } else { selector.metadata(request)? };
        if !selector.matches_metadata(request, &metadata) {
            return Ok(Scope::NotSelected);
        }
        Ok(match strict_mode {
            true => consent::consent(&self.webhook, self.kind, request, &metadata),
            false => Scope::Inside,
        })
    }

    fn pass(&self, request: &AdmissionRequest, scope: &Scope) -> AdmissionResponse {
        let webhook = &*self.webhook;
        tracing::debug!(webhook, uid = %Line(&request.uid), "skipped a request: {scope}");
        let skipped = AdmissionResponse { outcome: Some(Outcome::Skipped), ..AdmissionResponse::allow() };
        let lacks = match scope {
            Scope::Forbidden(lacks) => format!("webhook {webhook}: {lacks}"),
            Scope::NoConsent { problem: Some(problem) } => {
                return skipped.with_warning(format!("webhook {webhook}: {problem}"));
            }
            _ => return skipped,
        };
        match self.permissions.borrow().forbidden {
            Forbidden::Skip => skipped,
            Forbidden::Warn => skipped.with_warning(match self.kind {
                WebhookKind::Mutating => format!("{lacks}; the object is left as it is"),
                WebhookKind::Validating => format!("{lacks}; the object is not validated"),
            }),
            Forbidden::Deny => AdmissionResponse::deny(403, "Forbidden", lacks),
        }
    }
}

/// RBAC verbs of which a webhook's service account needs one.
const fn verbs(kind: WebhookKind) -> [&'static str; 2] {
    match kind {
        WebhookKind::Mutating => ["update", "mutate"],
        WebhookKind::Validating => ["get", "validate"],
    }
}
