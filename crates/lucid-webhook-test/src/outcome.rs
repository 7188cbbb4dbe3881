//! Outcomes of webhook calls.

#![allow(clippy::panic, reason = "expectations of tests")]

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::StatusCause;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Outcome of a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReviewOutcome {
    /// The admitted object, patched by mutating webhooks (null on DELETE), or the error shown to the user.
    pub result: Result<Value, ReviewRejection>,
    /// Calls in their order. A webhook that is called again has two.
    pub calls: Vec<Call>,
    /// Registered webhooks that do not match the request.
    pub not_called: Vec<NotCalled>,
    /// Warnings that reach the user.
    pub warnings: Vec<String>,
    /// Annotations in the audit log, with the API server's keys: `<name of the webhook>/<key>`.
    pub audit_annotations: BTreeMap<String, String>,
    /// Parts that the API server silently drops or truncates.
    pub dropped: Vec<Dropped>,
}

/// Call of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// Name of the webhook.
    pub webhook: String,
    /// Number of HTTP requests: 1, plus one for each `Retry-After`.
    pub attempts: u32,
    /// The error of a failed call, if `failurePolicy: Ignore` admitted the request.
    pub failed_open: Option<String>,
    /// Names of the webhook's matchConditions. CEL is not evaluated: they are assumed to be true.
    pub assumed_conditions: Vec<String>,
}

/// A registered webhook that was not called.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotCalled {
    /// Name of the webhook.
    pub webhook: String,
    /// Part of the registration that does not match.
    pub why: Mismatch,
    /// The request and the requirement, such as `namespaceSelector requires team=a, namespace "shop" has no labels`.
    pub problem: String,
}

/// Part of a registration that does not match a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mismatch {
    /// `rules`: operation, resource, version or scope.
    Rules,
    /// `rules` match another version of the resource only. The API server would convert the object and call the
    /// webhook; [`ApiServer`](crate::ApiServer) does not convert.
    Equivalent,
    /// `namespaceSelector`.
    NamespaceSelector,
    /// `objectSelector`.
    ObjectSelector,
}

impl fmt::Display for NotCalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "webhook {:?} is not called: {}", self.webhook, self.problem)
    }
}

/// Part of a response that has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dropped {
    /// The part, such as `warning "a\nb"`.
    pub part: String,
    /// The reason, such as `it contains a control character`.
    pub why: &'static str,
}

/// Error shown to the user (fields of `metav1.Status`).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ReviewRejection {
    /// Component that rejected the request.
    pub by: RejectedBy,
    /// HTTP status.
    pub code: i32,
    /// A `metav1.StatusReason`, such as `Forbidden`; may be empty.
    pub reason: String,
    /// Message shown by kubectl.
    pub message: String,
    /// `details.causes`.
    pub causes: Vec<StatusCause>,
}

/// Component that rejects a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RejectedBy {
    /// The webhook: `allowed` is false.
    Webhook,
    /// `failurePolicy: Fail`, because the call failed or the response is not a valid AdmissionReview.
    FailurePolicy,
    /// The API server, regardless of the failurePolicy: the webhook's patch is not applicable.
    ApiServer,
}

impl fmt::Display for ReviewRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.code, self.reason, self.message)
    }
}

impl ReviewOutcome {
    pub(super) const fn of(object: Value) -> Self {
        Self {
            result: Ok(object),
            calls: Vec::new(),
            not_called: Vec::new(),
            warnings: Vec::new(),
            audit_annotations: BTreeMap::new(),
            dropped: Vec::new(),
        }
    }

    /// Rejects the request. The user sees the first rejection only.
    pub(super) fn reject(&mut self, rejection: ReviewRejection) {
        if self.result.is_ok() {
            self.result = Err(rejection);
        }
    }

    pub(super) fn skip(&mut self, webhook: &str, (why, problem): (Mismatch, String)) {
        self.not_called.push(NotCalled { webhook: webhook.to_owned(), why, problem });
    }

    fn failed_open(&self) -> Option<&str> {
        self.calls.iter().find_map(|call| call.failed_open.as_deref())
    }

    fn reasons(&self) -> String {
        let reasons = self.not_called.iter().map(|reason| format!("; {reason}"));
        if self.not_called.is_empty() { "; none is registered".to_owned() } else { reasons.collect() }
    }

    /// Returns `true` if the request is admitted.
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        self.result.is_ok()
    }

    /// Returns the admitted object.
    ///
    /// # Panics
    ///
    /// If the request was rejected, or only admitted because failures are ignored or no webhook was called.
    #[must_use]
    #[track_caller]
    pub fn expect_admitted(self) -> Value {
        if let Some(failure) = self.failed_open() {
            panic!("the request was admitted because a failure is ignored: {failure}");
        }
        let reasons = self.reasons();
        match self.result {
            Ok(_) if self.calls.is_empty() => panic!("no webhook was called{reasons}"),
            Ok(object) => object,
            Err(rejection) => panic!("the request was rejected: {rejection}"),
        }
    }

    /// Returns the admitted object, decoded.
    ///
    /// # Panics
    ///
    /// As [`Self::expect_admitted`], and if the object does not decode as `T`.
    #[must_use]
    #[track_caller]
    pub fn expect_object<T: DeserializeOwned>(self) -> T {
        match serde_json::from_value(self.expect_admitted()) {
            Ok(object) => object,
            Err(error) => panic!("the resulting object is not a {}: {error}", std::any::type_name::<T>()),
        }
    }

    /// Returns the error shown to the user.
    ///
    /// # Panics
    ///
    /// If the request was admitted.
    #[must_use]
    #[track_caller]
    pub fn expect_rejected(self) -> ReviewRejection {
        let reasons = self.reasons();
        match self.result {
            Err(rejection) => rejection,
            Ok(_) if self.calls.is_empty() => panic!("no webhook was called{reasons}"),
            Ok(object) => panic!("the request was admitted: {object}"),
        }
    }

    /// Returns the error of a failed call whose request was admitted.
    ///
    /// # Panics
    ///
    /// If the request was rejected, or the call did not fail.
    #[must_use]
    #[track_caller]
    pub fn expect_failed_open(self) -> String {
        let failure = self.failed_open().map(str::to_owned);
        match (self.result, failure) {
            (Ok(_), Some(failure)) => failure,
            (Ok(_), None) => panic!("no call failed"),
            (Err(rejection), _) => panic!("the request was rejected: {rejection}"),
        }
    }

    /// Returns the reason why the webhook `name` was not called.
    ///
    /// # Panics
    ///
    /// If it was called, or is not registered.
    #[track_caller]
    pub fn expect_not_called(&self, name: &str) -> &NotCalled {
        match self.not_called.iter().find(|reason| reason.webhook == name) {
            Some(reason) if !self.calls.iter().any(|call| call.webhook == name) => reason,
            _ => panic!("webhook {name:?} was called, or is not registered; calls: {:?}", self.calls),
        }
    }

    /// Asserts that every part of the response takes effect.
    ///
    /// # Panics
    ///
    /// If a part was dropped.
    #[track_caller]
    pub fn assert_nothing_dropped(&self) {
        assert!(self.dropped.is_empty(), "the API server drops parts of the answer: {:?}", self.dropped);
    }
}
