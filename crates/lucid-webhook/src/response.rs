//! Responses of an `admission.k8s.io/v1` AdmissionReview.

use std::collections::BTreeMap;
use std::fmt;

use http::Extensions;
use kube_core::Status;
use kube_core::response::StatusDetails;

use crate::metrics::Outcome;
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
#[derive(Clone, Debug)]
#[must_use]
pub struct AdmissionResponse {
    pub(crate) denial: Option<Box<Status>>,
    pub(crate) patch: Option<JsonPatch>,
    pub(crate) warnings: Vec<String>,
    pub(crate) audit_annotations: BTreeMap<String, String>,
    /// Set if the handler failed, or the guard kept the request from it.
    pub(crate) outcome: Option<Outcome>,
    /// Warnings and audit annotations changed or dropped for the API server.
    pub(crate) cut: Cut,
    /// Values that the handler passes to layers and to [`Webhook::with_on_response`](crate::Webhook::with_on_response).
    pub extensions: Extensions,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) warnings: u64,
    pub(crate) audit_annotations: u64,
}

impl AdmissionResponse {
    /// Allows the request unchanged.
    pub fn allow() -> Self {
        Self {
            denial: None,
            patch: None,
            warnings: Vec::new(),
            audit_annotations: BTreeMap::new(),
            outcome: None,
            cut: Cut { warnings: 0, audit_annotations: 0 },
            extensions: Extensions::new(),
        }
    }

    /// Allows the request with its object changed by `patch`; only for mutating webhooks.
    pub fn patch(patch: JsonPatch) -> Self {
        Self { patch: Some(patch), ..Self::allow() }
    }

    /// Denies the request.
    ///
    /// `code` is an HTTP status from 400 to 599, and is clamped to that range: the API server turns lower ones into
    /// 400. `reason` is a `metav1.StatusReason` such as `Forbidden`; `message` is shown to the user. For errors in
    /// fields of the object, use [`FieldErrors`](crate::FieldErrors).
    pub fn deny(code: u16, reason: impl Into<String>, message: impl Into<String>) -> Self {
        let denial = Status::failure(&message.into(), &reason.into()).with_code(code.clamp(400, 599));
        Self { denial: Some(denial.boxed()), ..Self::allow() }
    }

    /// Asks the client of a denied request to retry after `seconds`. No effect on an allowing response.
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        if let Some(denial) = &mut self.denial {
            denial.details.get_or_insert_with(no_details).retry_after_seconds = seconds;
        }
        self
    }

    pub(crate) fn with_details(mut self, details: StatusDetails) -> Self {
        if let Some(denial) = &mut self.denial {
            denial.details = Some(details);
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
    pub fn denial(&self) -> Option<&Status> {
        self.denial.as_deref()
    }
}

pub(crate) const fn no_details() -> StatusDetails {
    StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    }
}

/// A handler can return a response early through `?`: `Err(AdmissionResponse::deny(…))?` is a response, not a failure.
impl std::error::Error for AdmissionResponse {}

impl fmt::Display for AdmissionResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.denial.as_ref().map_or("allowed", |denial| &denial.message))
    }
}
