//! The answer half of an `admission.k8s.io/v1` AdmissionReview.

use std::collections::BTreeMap;

use crate::patch::JsonPatch;

/// A handler's answer.
///
/// ```
/// use lucid_webhook::AdmissionResponse;
///
/// let answer = AdmissionResponse::deny(403, "Forbidden", "label team is missing")
///     .with_warning("see the handbook, page 7");
/// assert!(!answer.is_allowed());
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct AdmissionResponse {
    pub(crate) denial: Option<Denial>,
    pub(crate) patch: Option<JsonPatch>,
    pub(crate) warnings: Vec<String>,
    pub(crate) audit_annotations: BTreeMap<String, String>,
}

/// What the user is told when the request is refused (fields of `metav1.Status`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Denial {
    pub(crate) code: u16,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl AdmissionResponse {
    /// Lets the request pass unchanged.
    pub const fn allow() -> Self {
        Self { denial: None, patch: None, warnings: Vec::new(), audit_annotations: BTreeMap::new() }
    }

    /// Lets the request pass with its object changed by `patch`; only for mutating webhooks.
    pub fn patch(patch: JsonPatch) -> Self {
        Self { patch: Some(patch), ..Self::allow() }
    }

    /// Refuses the request.
    ///
    /// `code` is an HTTP status, 400 to 599: the API server turns anything below into 400. `reason` is a
    /// `metav1.StatusReason` such as `Forbidden` or `Invalid`; `message` is what the user reads.
    pub fn deny(code: u16, reason: impl Into<String>, message: impl Into<String>) -> Self {
        let denial = Denial { code: code.clamp(400, 599), reason: reason.into(), message: message.into() };
        Self { denial: Some(denial), ..Self::allow() }
    }

    /// Adds a warning: the client shows it to its user, also when the request is refused.
    pub fn with_warning(mut self, warning: impl Into<String>) -> Self {
        self.warnings.push(warning.into());
        self
    }

    /// Adds several warnings.
    pub fn with_warnings<W: ToString>(mut self, warnings: impl IntoIterator<Item = W>) -> Self {
        self.warnings.extend(warnings.into_iter().map(|warning| warning.to_string()));
        self
    }

    /// Adds an annotation to the event in the API server's audit log, where its key is prefixed with the webhook's
    /// name. `key` is the name part of a qualified name: up to 63 of `[A-Za-z0-9._-]`, alphanumeric at both ends.
    pub fn with_audit_annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.audit_annotations.insert(key.into(), value.into());
        self
    }

    /// Whether the request passes.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        self.denial.is_none()
    }

    /// The patch, if the object is changed.
    #[must_use]
    pub const fn json_patch(&self) -> Option<&JsonPatch> {
        self.patch.as_ref()
    }

    /// The warnings, in order.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// What the user is told when the request is refused.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        self.denial.as_ref().map(|denial| denial.message.as_str())
    }
}
