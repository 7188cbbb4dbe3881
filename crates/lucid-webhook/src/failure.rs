//! Failures of handlers, and the actions that handle them.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use kube_core::response::StatusDetails;
use serde::Deserialize;
use tower::BoxError;

use crate::handler::Rejection;
use crate::metrics::Outcome;
use crate::raw_object::DecodeError;
use crate::response::{AdmissionResponse, no_details};
use crate::review::AdmissionRequest;

/// A failure of the handler.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// The handler returned an error, or a response that the API server would reject.
    Error(BoxError),
    /// The handler panicked.
    Panic,
    /// The handler missed the deadline.
    Deadline,
}

impl Failure {
    pub(crate) const fn outcome(&self) -> Outcome {
        match self {
            Self::Error(_) => Outcome::Errored,
            Self::Panic => Outcome::Panicked,
            Self::Deadline => Outcome::TimedOut,
        }
    }

    /// Message for the log. It omits the contents of the object, which decoding errors quote.
    pub(crate) fn redacted(&self) -> String {
        let Self::Error(error) = self else { return self.to_string() };
        if let Some(Rejection::Decode { what, object, source, .. }) = error.downcast_ref() {
            format!("the webhook failed: the {what}, {object}, does not fit at {}", source.path)
        } else if let Some(error) = error.downcast_ref::<DecodeError>() {
            format!("the webhook failed: the object does not fit at {}", error.path)
        } else {
            self.to_string()
        }
    }

    /// Denies the request with this failure, as [`FailureAction::Abort`] does. The cause of a decoding error is the
    /// path of the field.
    pub fn refusal(&self) -> AdmissionResponse {
        let deny = |code, reason| AdmissionResponse::deny(code, reason, self.to_string());
        let error = match self {
            Self::Error(error) => error,
            Self::Panic => return deny(500, "InternalError"),
            Self::Deadline => return deny(504, "Timeout"),
        };
        if let Some(Rejection::Decode { details, .. }) = error.downcast_ref() {
            deny(400, "BadRequest").with_details((**details).clone())
        } else if let Some(error) = error.downcast_ref::<DecodeError>() {
            let details = StatusDetails { causes: vec![error.cause()], ..no_details() };
            deny(400, "BadRequest").with_details(details)
        } else if error.is::<Rejection>() {
            deny(400, "BadRequest")
        } else {
            deny(500, "InternalError")
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => write!(f, "the webhook failed: {error}"),
            Self::Panic => f.write_str("the webhook panicked"),
            Self::Deadline => f.write_str("the webhook timed out"),
        }
    }
}

/// Action for a request whose handler fails.
///
/// Written as `abort`, `warn` or `skip` in configuration.
#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum FailureAction {
    /// Denies the request with the failure: code 500, 504 for a missed deadline, or 400 for an argument of the handler
    /// that is absent or does not decode. The default.
    #[default]
    Abort,
    /// Allows the request unchanged, with the failure as a warning.
    Warn,
    /// Allows the request unchanged and logs the failure.
    Skip,
    /// Calls a function for the response. The response passes the same checks. One that cannot be sent denies the
    /// request. A patch also does if the [`guard`](crate::guard) failed, because the permissions of the webhook are
    /// then unknown.
    #[serde(skip)]
    Call(FailureFunction),
}

pub(crate) type FailureFunction = Arc<dyn Fn(&AdmissionRequest, &Failure) -> AdmissionResponse + Send + Sync>;

/// Function of [`Webhook::with_on_response`](crate::Webhook::with_on_response).
pub(crate) type ResponseFunction = Arc<
    dyn Fn(&AdmissionRequest, AdmissionResponse, Option<&Failure>) -> BoxFuture<'static, AdmissionResponse>
        + Send
        + Sync,
>;

impl FailureAction {
    /// Calls `function` for the response.
    pub fn call(
        function: impl Fn(&AdmissionRequest, &Failure) -> AdmissionResponse + Send + Sync + 'static,
    ) -> Self {
        Self::Call(Arc::new(function))
    }
}

impl fmt::Debug for FailureAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Abort => "Abort",
            Self::Warn => "Warn",
            Self::Skip => "Skip",
            Self::Call(_) => "Call",
        })
    }
}
