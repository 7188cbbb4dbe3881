//! What becomes of a request after a webhook was asked.

#![allow(clippy::panic, reason = "expectations of tests")]

use std::collections::BTreeMap;
use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// What the API server makes of a call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The object as it goes on, patched by a mutating webhook (null on DELETE); or what the user is told.
    pub result: Result<Value, Rejection>,
    /// Why the call failed, when `failurePolicy: Ignore` admitted the request all the same.
    pub failed_open: Option<String>,
    /// The warnings that reach the user.
    pub warnings: Vec<String>,
    /// What reaches the audit log, with the API server's keys: `<name of the webhook>/<key>`.
    pub audit_annotations: BTreeMap<String, String>,
    /// What the API server drops or cuts without telling the webhook.
    pub dropped: Vec<Dropped>,
    /// HTTP requests that were made: 1, and one more for each `Retry-After`.
    pub attempts: u32,
}

/// A part of an answer that has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dropped {
    /// Which part, such as `warning "a\nb"`.
    pub part: String,
    /// Why, such as `it contains a control character`.
    pub why: &'static str,
}

/// What the user gets: fields of `metav1.Status`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejection {
    /// Whose doing it is.
    pub by: RejectedBy,
    /// HTTP status.
    pub code: i32,
    /// A `metav1.StatusReason`, such as `Forbidden`; may be empty.
    pub reason: String,
    /// The text that kubectl shows.
    pub message: String,
    /// `details.causes`.
    pub causes: Vec<Cause>,
}

/// Who rejects a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RejectedBy {
    /// The webhook: `allowed` is false.
    Webhook,
    /// `failurePolicy: Fail`, since the call failed or its answer breaks the rules of an AdmissionReview.
    FailurePolicy,
    /// The API server, whatever the failurePolicy is: the webhook's patch cannot be used.
    ApiServer,
}

/// One cause of a rejection (`metav1.StatusCause`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cause {
    /// Machine-readable cause, such as `FieldValueInvalid`; may be empty.
    pub reason: String,
    /// What is wrong.
    pub message: String,
    /// Which field it is about; may be empty.
    pub field: String,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.code, self.reason, self.message)
    }
}

impl Outcome {
    /// Whether the request goes on.
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        self.result.is_ok()
    }

    /// The object as it goes on.
    ///
    /// # Panics
    ///
    /// When the request was rejected, or only admitted because a failed call is ignored.
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

    /// The object as it goes on, decoded.
    ///
    /// # Panics
    ///
    /// As [`Self::expect_admitted`], and when the object is no `T`.
    #[must_use]
    #[track_caller]
    pub fn expect_object<T: DeserializeOwned>(self) -> T {
        match serde_json::from_value(self.expect_admitted()) {
            Ok(object) => object,
            Err(error) => panic!("the object that goes on is no {}: {error}", std::any::type_name::<T>()),
        }
    }

    /// What the user is told.
    ///
    /// # Panics
    ///
    /// When the request was admitted.
    #[must_use]
    #[track_caller]
    pub fn expect_rejected(self) -> Rejection {
        match self.result {
            Err(rejection) => rejection,
            Ok(object) => panic!("the request was admitted: {object}"),
        }
    }

    /// Why the call failed, the request being admitted all the same.
    ///
    /// # Panics
    ///
    /// When the request was rejected, or the call did not fail.
    #[must_use]
    #[track_caller]
    pub fn expect_failed_open(self) -> String {
        match (self.result, self.failed_open) {
            (Ok(_), Some(failure)) => failure,
            (Ok(_), None) => panic!("the call did not fail"),
            (Err(rejection), _) => panic!("the request was rejected: {rejection}"),
        }
    }

    /// Checks that every part of the answer has its effect.
    ///
    /// # Panics
    ///
    /// When a part was dropped.
    #[track_caller]
    pub fn assert_nothing_dropped(&self) {
        assert!(self.dropped.is_empty(), "the API server drops parts of the answer: {:?}", self.dropped);
    }
}
