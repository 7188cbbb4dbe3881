//! Outcomes of webhook calls.

#![allow(clippy::panic, reason = "expectations of tests")]

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::StatusCause;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Outcome of a call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The admitted object, patched by a mutating webhook (null on DELETE), or the error shown to the user.
    pub result: Result<Value, Rejection>,
    /// The error of a failed call, if `failurePolicy: Ignore` admitted the request.
    pub failed_open: Option<String>,
    /// Warnings that reach the user.
    pub warnings: Vec<String>,
    /// Annotations in the audit log, with the API server's keys: `<name of the webhook>/<key>`.
    pub audit_annotations: BTreeMap<String, String>,
    /// Parts that the API server silently drops or truncates.
    pub dropped: Vec<Dropped>,
    /// Number of HTTP requests: 1, plus one for each `Retry-After`.
    pub attempts: u32,
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
pub struct Rejection {
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

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.code, self.reason, self.message)
    }
}

impl Outcome {
    /// Returns `true` if the request is admitted.
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        self.result.is_ok()
    }

    /// Returns the admitted object.
    ///
    /// # Panics
    ///
    /// If the request was rejected, or only admitted because failures are ignored.
    #[must_use]
    #[track_caller]
    pub fn expect_admitted(self) -> Value {
        match (self.result, self.failed_open) {
            (Ok(object), None) => object,
            (Ok(_), Some(failure)) => {
                panic!("the request was admitted because a failure is ignored: {failure}")
            }
            (Err(rejection), _) => panic!("the request was rejected: {rejection}"),
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
            Err(error) => panic!("the object that goes on is no {}: {error}", std::any::type_name::<T>()),
        }
    }

    /// Returns the error shown to the user.
    ///
    /// # Panics
    ///
    /// If the request was admitted.
    #[must_use]
    #[track_caller]
    pub fn expect_rejected(self) -> Rejection {
        match self.result {
            Err(rejection) => rejection,
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
        match (self.result, self.failed_open) {
            (Ok(_), Some(failure)) => failure,
            (Ok(_), None) => panic!("the call did not fail"),
            (Err(rejection), _) => panic!("the request was rejected: {rejection}"),
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
