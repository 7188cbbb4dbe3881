//! Responses of an `admission.k8s.io/v1` AdmissionReview.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::patch::JsonPatch;

/// Response of a handler.
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
    /// Set if this response stands for a failure of the handler.
    pub(crate) failure: Option<FailureKind>,
    /// Warnings and audit annotations changed or dropped for the API server.
    pub(crate) cut: Cut,
    /// Set if the guard kept the request from the handler.
    pub(crate) skipped: bool,
}

/// The way in which a handler failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    Error,
    Panic,
    Deadline,
}

/// Number of warnings and audit annotations of a response that were changed or dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) warnings: u64,
    pub(crate) audit_annotations: u64,
}

/// The error shown to the user when a request is denied (fields of `metav1.Status`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denial {
    /// HTTP status, 400 to 599.
    pub code: u16,
    /// `metav1.StatusReason`, such as `Forbidden`.
    pub reason: String,
    /// Message shown to the user.
    pub message: String,
    /// Individual causes, if there are several.
    pub causes: Vec<Cause>,
    /// Delay in seconds before the client may retry (`details.retryAfterSeconds`). The API server passes it on as
    /// `Retry-After`.
    pub retry_after: Option<u32>,
}

/// One cause of a denial (`metav1.StatusCause`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Cause {
    /// `metav1.CauseType`, such as `FieldValueInvalid`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Message shown to the user.
    pub message: String,
    /// Path of the offending field, such as `spec.containers[0].image`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl AdmissionResponse {
    /// Allows the request unchanged.
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

    /// Allows the request with its object changed by `patch`; only for mutating webhooks.
    pub fn patch(patch: JsonPatch) -> Self {
        Self { patch: Some(patch), ..Self::allow() }
    }

    /// Denies the request.
    ///
    /// `code` is an HTTP status from 400 to 599, and is clamped to that range: the API server turns lower ones into
    /// 400. `reason` is a `metav1.StatusReason` such as `Forbidden` or `Invalid`; `message` is shown to the user.
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

    /// Asks the client of a denied request to retry after `seconds`. No effect on an allowing response.
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        if let Some(denial) = &mut self.denial {
            denial.retry_after = Some(seconds);
        }
        self
    }

    /// Adds a cause to a denial (`metav1.StatusCause`). No effect on an allowing response.
    ///
    /// `field` is the path of the offending field, such as `spec.containers[0].image`, or empty. `reason` is a
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

    /// Adds a warning, which the client shows to its user whether the request is allowed or denied.
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

    /// Returns `true` if the request is allowed.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        self.denial.is_none()
    }

    /// The patch, if any.
    #[must_use]
    pub const fn json_patch(&self) -> Option<&JsonPatch> {
        self.patch.as_ref()
    }

    /// The warnings, in order.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The annotations for the API server's audit log; the API server prefixes their keys with the webhook's name.
    #[must_use]
    pub const fn audit_annotations(&self) -> &BTreeMap<String, String> {
        &self.audit_annotations
    }

    /// The error shown to the user; `None` if the request is allowed.
    #[must_use]
    pub const fn denial(&self) -> Option<&Denial> {
        self.denial.as_ref()
    }
}

/// A handler can return a response early through `?`: `Err(AdmissionResponse::deny(…))?` is a response, not a failure.
impl std::error::Error for AdmissionResponse {}

impl fmt::Display for AdmissionResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.denial.as_ref().map_or("allowed", |denial| &denial.message))
    }
}
