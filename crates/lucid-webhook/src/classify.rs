//! Classifies errors of the service stack.

use snafu::Snafu;
use tower::BoxError;

use crate::failure::Failure;
use crate::guard::GuardError;
use crate::response::FailureKind;

/// The handler panicked.
#[derive(Debug, Snafu)]
#[snafu(display("the webhook panicked"))]
#[non_exhaustive]
pub struct Panicked {}

/// The handler did not answer in time.
#[derive(Debug, Snafu)]
#[snafu(display("the webhook did not answer in time"))]
#[non_exhaustive]
pub struct DeadlineExceeded {}

impl FailureKind {
    pub(crate) fn of(error: &BoxError) -> Self {
        let review_is_late = matches!(error.downcast_ref(), Some(GuardError::TimedOut { .. }));
        if error.is::<Panicked>() {
            Self::Panic
        } else if error.is::<DeadlineExceeded>() || review_is_late {
            Self::Deadline
        } else {
            Self::Error
        }
    }
}

impl Failure {
    pub(crate) fn of(error: BoxError) -> Self {
        match FailureKind::of(&error) {
            FailureKind::Panic => Self::Panic,
            FailureKind::Deadline => Self::Deadline,
            FailureKind::Error => Self::Error(error),
        }
    }

    /// Returns `true` if the guard failed to evaluate the request.
    pub(crate) fn is_guard_error(&self) -> bool {
        matches!(self, Self::Error(error) if error.is::<GuardError>())
    }
}
