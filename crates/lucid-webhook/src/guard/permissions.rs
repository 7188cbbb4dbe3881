//! Configuration of a guard by the cluster administrator.

use std::future::ready;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;
use serde::{Deserialize, Deserializer};
use tower::BoxError;

use super::{AccessReview, Guard, Selector, ServiceAccount};
use crate::failure::FailureAction;
use crate::kind::WebhookKind;
use crate::patch::AllowedPaths;

/// Administrator's configuration of one webhook, in camelCase. Unknown fields are rejected.
///
/// ```
/// use lucid_webhook::guard::{Forbidden, Permissions};
///
/// let config: Permissions = serde_json::from_str(r#"{
///     "failureAction": "warn",
///     "recoveryPolicy": "panic",
///     "selector": {"resourceKind": "Pod", "namespace": ["team-*"]},
///     "strictMode": true,
///     "serviceAccountName": "policies/labeller",
///     "forbidden": "deny",
///     "allowedPaths": ["/metadata/labels"]
/// }"#)?;
/// assert_eq!(config.forbidden, Forbidden::Deny);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Permissions {
    /// Action for a webhook that fails: `abort`, `warn` or `skip`. Overrides the setting in code.
    pub failure_action: Option<FailureAction>,
    /// Action for a webhook that panics: `panic` (the same as `abort`), `abort`, `warn` or `skip`. Overrides the setting in
    /// code.
    #[serde(deserialize_with = "recovery_policy")]
    pub recovery_policy: Option<FailureAction>,
    /// Selects the objects that the webhook handles; by default all except those in `kube-system`.
    pub selector: Selector,
    /// `true` to require consent of the object. Also written `strictmode`.
    #[serde(alias = "strictmode")]
    pub strict_mode: bool,
    /// Service account that the webhook acts for, as `namespace/name`; none by default.
    pub service_account_name: Option<ServiceAccount>,
    /// Action for requests that the account lacks permission for.
    pub forbidden: Forbidden,
    /// Fields that a patch may change, in addition to restrictions in code; all by default.
    pub allowed_paths: Option<AllowedPaths>,
}

fn recovery_policy<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<FailureAction>, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum RecoveryPolicy {
        #[serde(alias = "panic")]
        Abort,
        Warn,
        Skip,
    }
    Ok(Some(match RecoveryPolicy::deserialize(deserializer)? {
        RecoveryPolicy::Abort => FailureAction::Abort,
        RecoveryPolicy::Warn => FailureAction::Warn,
        RecoveryPolicy::Skip => FailureAction::Skip,
    }))
}

/// Action for requests that the service account lacks permission for. The webhook never receives them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Forbidden {
    /// Allows the request unchanged, with a warning to the user.
    #[default]
    Warn,
    /// Allows the request unchanged.
    Skip,
    /// Denies the request (403, `Forbidden`).
    Deny,
}

/// Reviews nothing.
struct NoReview;

impl AccessReview for NoReview {
    fn is_allowed<'a>(&'a self, _: &'a SubjectAccessReviewSpec) -> BoxFuture<'a, Result<bool, BoxError>> {
        ready(Err("no access review is configured".into())).boxed()
    }
}

impl Permissions {
    /// Creates the guard of `webhook`.
    pub(crate) fn guard(
        &self,
        webhook: &str,
        kind: WebhookKind,
        review: Option<Arc<dyn AccessReview>>,
    ) -> Guard {
        let guard =
            Guard::new(webhook, kind).with_selector(self.selector.clone()).with_forbidden(self.forbidden);
        let guard = if self.strict_mode { guard.with_strict_mode() } else { guard };
        match &self.service_account_name {
            None => guard,
            Some(account) => {
                guard.with_service_account(account.clone(), review.unwrap_or_else(|| Arc::new(NoReview)))
            }
        }
    }
}
