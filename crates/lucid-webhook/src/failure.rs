//! What becomes of a request whose handler gave no answer that can be sent.

use std::fmt;
use std::future::ready;
use std::str::FromStr;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde::{Deserialize, Deserializer, de};
use snafu::Snafu;

use crate::guard::GuardError;
use crate::handler::Rejection;
use crate::layers::{DeadlineExceeded, Panicked};
use crate::response::AdmissionResponse;
use crate::review::{AdmissionRequest, DecodeError};
use crate::router::BoxError;

/// Why there is no answer of the handler.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// It returned an error, or an answer that the API server would not take.
    Error(BoxError),
    /// It panicked.
    Panic,
    /// It did not answer in time.
    Deadline,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    Error,
    Panic,
    Deadline,
}

impl Failure {
    pub(crate) fn of(error: BoxError) -> Self {
        match Self::kind_of(&error) {
            FailureKind::Panic => Self::Panic,
            FailureKind::Deadline => Self::Deadline,
            FailureKind::Error => Self::Error(error),
        }
    }

    pub(crate) fn kind_of(error: &BoxError) -> FailureKind {
        let review_is_late = matches!(error.downcast_ref(), Some(GuardError::TimedOut { .. }));
        if error.is::<Panicked>() {
            FailureKind::Panic
        } else if error.is::<DeadlineExceeded>() || review_is_late {
            FailureKind::Deadline
        } else {
            FailureKind::Error
        }
    }

    pub(crate) const fn kind(&self) -> FailureKind {
        match self {
            Self::Error(_) => FailureKind::Error,
            Self::Panic => FailureKind::Panic,
            Self::Deadline => FailureKind::Deadline,
        }
    }

    /// Whether it was the guard that could not tell what the webhook may touch.
    pub(crate) fn of_guard(&self) -> bool {
        matches!(self, Self::Error(error) if error.is::<GuardError>())
    }

    /// What may be logged: not what stands in the object, which a decoder's message quotes.
    pub(crate) fn for_the_log(&self) -> String {
        let Self::Error(error) = self else { return self.to_string() };
        if let Some(Rejection::Decode { what, kind, name, source }) = error.downcast_ref() {
            format!("the webhook failed: the {what}, {kind} {name}, does not fit at {}", source.path)
        } else if let Some(error) = error.downcast_ref::<DecodeError>() {
            format!("the webhook failed: the object does not fit at {}", error.path)
        } else {
            self.to_string()
        }
    }

    /// The request refused for this reason, as by [`FailureAction::Abort`].
    pub fn refusal(&self) -> AdmissionResponse {
        let (code, reason) = match self {
            Self::Error(error) if error.is::<Rejection>() || error.is::<DecodeError>() => (400, "BadRequest"),
            Self::Error(_) | Self::Panic => (500, "InternalError"),
            Self::Deadline => (504, "Timeout"),
        };
        AdmissionResponse::deny(code, reason, self.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => write!(f, "the webhook failed: {error}"),
            Self::Panic => f.write_str("the webhook panicked"),
            Self::Deadline => f.write_str("the webhook did not answer in time"),
        }
    }
}

/// What becomes of a request when its handler fails.
///
/// In configuration it is written `abort`, `warn` or `skip`.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum FailureAction {
    /// The request is refused, with the reason: 500, 504 when it took too long, 400 when an argument of the handler is not
    /// in the request or does not decode. The default.
    #[default]
    Abort,
    /// The request passes unchanged, with a warning that tells the reason.
    Warn,
    /// The request passes unchanged; the reason is logged.
    Skip,
    /// The function answers instead. Its answer passes the same checks; one that cannot be sent refuses the request, and so
    /// does a patch when it was the [`guard`](crate::guard) that failed: nobody knows then what the webhook may touch.
    Call(FailureFunction),
}

/// See [`FailureAction::Call`]. What it needs of request and failure is in the future that it returns.
pub type FailureFunction =
    Arc<dyn Fn(&AdmissionRequest, &Failure) -> BoxFuture<'static, AdmissionResponse> + Send + Sync>;

impl FailureAction {
    /// Lets `function` answer instead.
    pub fn call(
        function: impl Fn(&AdmissionRequest, &Failure) -> AdmissionResponse + Send + Sync + 'static,
    ) -> Self {
        Self::call_async(move |request, failure| ready(function(request, failure)))
    }

    /// Lets `function` answer instead, with a future that takes what it needs of request and failure along. The API server
    /// may not wait any more: see the request's deadline.
    pub fn call_async<F: Future<Output = AdmissionResponse> + Send + 'static>(
        function: impl Fn(&AdmissionRequest, &Failure) -> F + Send + Sync + 'static,
    ) -> Self {
        Self::Call(Arc::new(move |request, failure| function(request, failure).boxed()))
    }

    pub(crate) const fn is_function(&self) -> bool {
        matches!(self, Self::Call(_))
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

/// The text is no failure action.
#[derive(Debug, Snafu)]
#[snafu(display("unknown failure action {found:?}, accepted are abort, warn and skip"))]
pub struct UnknownFailureAction {
    found: String,
}

impl FromStr for FailureAction {
    type Err = UnknownFailureAction;

    fn from_str(text: &str) -> Result<Self, UnknownFailureAction> {
        match text {
            "abort" => Ok(Self::Abort),
            "warn" => Ok(Self::Warn),
            "skip" => Ok(Self::Skip),
            _ => UnknownFailureActionSnafu { found: text }.fail(),
        }
    }
}

impl<'de> Deserialize<'de> for FailureAction {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}
