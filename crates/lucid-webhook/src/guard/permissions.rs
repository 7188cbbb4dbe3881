//! What the cluster's administrator says of a webhook.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use snafu::Snafu;

use super::{AccessReview, Guard, Selector, ServiceAccount};
use crate::failure::FailureAction;
use crate::kind::WebhookKind;
use crate::patch::AllowedPaths;

/// Everything that an administrator says about one webhook, in camelCase; unknown fields are refused.
///
/// ```
/// use lucid_webhook::guard::{Forbidden, Permissions};
///
/// let config: Permissions = serde_json::from_str(r#"{
///     "selector": {"kinds": ["Pod"], "namespaces": ["team-*"]},
///     "strictMode": true,
///     "serviceAccountName": "policies:labeller",
///     "verbs": {"mutate": "patch"},
///     "forbidden": "deny",
///     "allowedPatchPaths": ["/metadata/labels"],
///     "failureAction": "warn",
///     "recoveryPolicy": "abort"
/// }"#)?;
/// assert_eq!(config.verbs.validate, "get");
/// assert_eq!(config.forbidden, Forbidden::Deny);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Permissions {
    /// What becomes of a request when the webhook fails: `abort`, `warn` or `skip`; what the webhook does by itself unless
    /// set.
    pub failure_action: Option<FailureAction>,
    /// The same for one that panics.
    pub recovery_policy: Option<FailureAction>,
    /// Which objects the webhook is for; by default all but those in `kube-system`.
    pub selector: Selector,
    /// Whether the object has to consent as well.
    pub strict_mode: bool,
    /// The service account within whose rights the webhook acts, as `namespace:name`; by default nobody is asked.
    pub service_account_name: Option<ServiceAccount>,
    /// What that account has to be allowed to do.
    pub verbs: Verbs,
    /// What happens to a request that the account has no rights for.
    pub forbidden: Forbidden,
    /// What a patch may change, besides what the webhook restricts itself to; everything unless set.
    pub allowed_patch_paths: Option<AllowedPaths>,
}

/// Which verb of the API a service account needs for a webhook to act for it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Verbs {
    /// For a mutating webhook, `update` by default: whoever may not change an object by hand may not do so by webhook.
    #[serde(deserialize_with = "verb")]
    pub mutate: String,
    /// For a validating webhook, `get` by default: it is shown the object.
    #[serde(deserialize_with = "verb")]
    pub validate: String,
}

impl Default for Verbs {
    fn default() -> Self {
        Self { mutate: "update".to_owned(), validate: "get".to_owned() }
    }
}

impl Verbs {
    /// The verb for a webhook of this kind.
    #[must_use]
    pub fn of(&self, kind: WebhookKind) -> &str {
        match kind {
            WebhookKind::Mutating => &self.mutate,
            WebhookKind::Validating => &self.validate,
        }
    }
}

/// An empty verb would be asked for, and refused by the API server, with every request.
fn verb<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let verb = String::deserialize(deserializer)?;
    if verb == "*" || (!verb.is_empty() && verb.bytes().all(|byte| byte.is_ascii_lowercase())) {
        Ok(verb)
    } else {
        let message =
            format!("verb {verb:?}: accepted are lower-case verbs of the API such as update, and *");
        Err(serde::de::Error::custom(message))
    }
}

/// What happens to a request that the service account has no rights for. The webhook does not see it in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Forbidden {
    /// It passes untouched, with a warning to the user.
    #[default]
    Warn,
    /// It passes untouched.
    Skip,
    /// It is refused (403, `Forbidden`).
    Deny,
}

/// The configuration names a service account, but there is nobody to ask for its rights.
#[derive(Debug, Snafu)]
#[snafu(display(
    "webhook {webhook}: serviceAccountName is {user}, but there is no access review to ask for its rights"
))]
pub struct NoAccessReview {
    webhook: String,
    user: String,
}

impl Permissions {
    /// The guard of the webhook `webhook`; `review` is needed when a service account is named.
    ///
    /// # Errors
    ///
    /// When it is needed and not there.
    pub fn guard(
        &self,
        webhook: &str,
        kind: WebhookKind,
        review: Option<Arc<dyn AccessReview>>,
    ) -> Result<Guard, NoAccessReview> {
        let mut guard = Guard::new(webhook, kind).with_selector(self.selector.clone());
        if self.strict_mode {
            guard = guard.with_strict_mode();
        }
        match (&self.service_account_name, review) {
            (None, _) => Ok(guard),
            (Some(account), Some(review)) => {
                Ok(guard.with_rights_of(account.clone(), self.verbs.of(kind), review))
            }
            (Some(account), None) => NoAccessReviewSnafu { webhook, user: account.user() }.fail(),
        }
    }
}
