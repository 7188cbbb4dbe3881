//! Configuration of a guard by the cluster administrator.

use serde::{Deserialize, Deserializer};

use super::{Selector, ServiceAccount};
use crate::failure::FailureAction;
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
    /// Action for a webhook that panics: `panic` (the same as `abort`), `abort`, `warn` or `skip`. Overrides the
    /// setting in code.
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
