use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One answer of a webhook.
///
/// In JSON the keys are in camelCase and what is empty is left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Decision {
    /// When it was made.
    pub time: Timestamp,
    /// Which webhook made it, such as `mutate`.
    pub webhook: String,
    /// The API server's identifier of the call (`AdmissionRequest.uid`).
    pub uid: String,
    /// What was being done, such as `CREATE`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub operation: String,
    /// Kind of the object, with its subresource: `Pod`, `Pod/ephemeralcontainers`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Namespace of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of the object, or its `generateName` while it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Who asked (`userInfo.username`).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Nothing was to be stored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Whether the request passed.
    pub allowed: bool,
    /// Whether the policy refuses it, whatever became of it: in `audit` mode, or by break-glass, it passes all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub would_deny: bool,
    /// The mode that was in force: `audit`, `enforce` or `break-glass`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mode: String,
    /// The ticket of who broke the glass.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ticket: String,
    /// Whether the object was changed on its way.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub patched: bool,
    /// Why, in one sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What the policy found wrong, each in one sentence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
    /// Exemptions that kept something from being found wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exemptions: Vec<String>,
    /// The auditors of the pod's chain, by container name, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<String>,
    /// The images that were looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageVerdict>,
    /// What the client was warned of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Decision {
    /// A decision made now: allowed, with nothing else known yet.
    #[must_use]
    pub fn new(webhook: impl Into<String>, uid: impl Into<String>) -> Self {
        Self {
            time: Timestamp::now(),
            webhook: webhook.into(),
            uid: uid.into(),
            operation: String::new(),
            kind: String::new(),
            namespace: String::new(),
            name: String::new(),
            user: String::new(),
            dry_run: false,
            allowed: true,
            would_deny: false,
            mode: String::new(),
            ticket: String::new(),
            patched: false,
            message: String::new(),
            findings: Vec::new(),
            exemptions: Vec::new(),
            chain: Vec::new(),
            images: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

/// What was known of one image when the decision was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageVerdict {
    /// The container.
    pub container: String,
    /// Its image as the pod names it.
    pub image: String,
    /// `notarized`, `not notarized`, `missing digest`, or why it could not be told.
    pub verdict: String,
}
