//! The answer half of an `admission.k8s.io/v1` AdmissionReview.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::failure::FailureKind;
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
    /// Set where this stands for an answer that the handler did not give.
    pub(crate) failure: Option<FailureKind>,
    /// What had to be cut for the API server to take it.
    pub(crate) cut: Cut,
    /// Set where the guard kept the request from the handler.
    pub(crate) skipped: bool,
}

/// How many warnings and audit annotations of an answer had to be changed or dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) warnings: u64,
    pub(crate) audit_annotations: u64,
}

/// What the user is told when the request is refused (fields of `metav1.Status`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denial {
    /// HTTP status, 400 to 599.
    pub code: u16,
    /// `metav1.StatusReason`, such as `Forbidden`.
    pub reason: String,
    /// What the user reads.
    pub message: String,
    /// The reasons one by one, where there are several.
    pub causes: Vec<Cause>,
    /// Seconds after which the client may try again (`details.retryAfterSeconds`); the API server passes them on as
    /// `Retry-After`.
    pub retry_after: Option<u32>,
}

/// One of several reasons for a refusal (`metav1.StatusCause`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Cause {
    /// `metav1.CauseType`, such as `FieldValueInvalid`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What the user reads.
    pub message: String,
    /// Path of what is wrong, such as `spec.containers[0].image`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl AdmissionResponse {
    /// Lets the request pass unchanged.
    pub const fn allow() -> Self {
        Self {
            denial: None,
            patch: None,
            warnings: Vec::new(),
            audit_annotations: BTreeMap::new(),
            failure: None,
            cut: Cut { warnings: 0, audit_annotations: 0 },
            skipped: false,
        }
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
        let denial = Denial {
            code: code.clamp(400, 599),
            reason: reason.into(),
            message: message.into(),
            causes: Vec::new(),
            retry_after: None,
        };
        Self { denial: Some(denial), ..Self::allow() }
    }

    /// Has the client of a refused request try again after `seconds`; nothing changes in an answer that allows.
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        if let Some(denial) = &mut self.denial {
            denial.retry_after = Some(seconds);
        }
        self
    }

    /// Adds one of several reasons for a refusal (`metav1.StatusCause`); nothing is added to an answer that allows.
    ///
    /// `field` is the path of what is wrong, such as `spec.containers[0].image`, or empty; `reason` is a
    /// `metav1.CauseType` such as `FieldValueInvalid`.
    ///
    /// ```
    /// use lucid_webhook::AdmissionResponse;
    ///
    /// let answer = AdmissionResponse::deny(422, "Invalid", "2 fields are wrong")
    ///     .with_cause("FieldValueRequired", "spec.team", "who pays?")
    ///     .with_cause("FieldValueInvalid", "spec.size", "at most 3");
    /// # assert!(!answer.is_allowed());
    /// ```
    pub fn with_cause(
        mut self,
        reason: impl Into<String>,
        field: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        if let Some(denial) = &mut self.denial {
            let (reason, field, message) = (reason.into(), field.into(), message.into());
            denial.causes.push(Cause { reason, message, field });
        }
        self
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

    /// The annotations for the API server's audit log, without the webhook's name before their keys.
    #[must_use]
    pub const fn audit_annotations(&self) -> &BTreeMap<String, String> {
        &self.audit_annotations
    }

    /// What the user is told when the request is refused; `None` when it passes.
    #[must_use]
    pub const fn denial(&self) -> Option<&Denial> {
        self.denial.as_ref()
    }
}

/// A handler can return an answer early, as an error: `Err(AdmissionResponse::deny(…))?` is an answer, not a failure.
impl std::error::Error for AdmissionResponse {}

impl fmt::Display for AdmissionResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.denial.as_ref().map_or("allowed", |denial| &denial.message))
    }
}
