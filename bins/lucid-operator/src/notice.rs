//! What a user should hear about a pod: as an admission warning, as an event on the owner and as a metric's label.

use kube::runtime::events::EventType;
use lucid_chain::{ImpossibleReason, SkipReason, Warning};
use lucid_webhook::Failure;

use crate::injector::InjectError;

/// Something a user should hear about a pod.
#[derive(Clone, Debug)]
pub(crate) struct Notice {
    /// Whether something is not as it should be.
    pub(crate) severity: EventType,
    /// What it is about; one of a closed set.
    pub(crate) reason: &'static str,
    /// One line.
    pub(crate) text: String,
}

impl Notice {
    fn warning(reason: &'static str, text: impl Into<String>) -> Self {
        Self { severity: EventType::Warning, reason, text: text.into() }
    }

    /// What stands in a ConfigMap and cannot be used.
    pub(crate) fn of_configuration(problem: &str) -> Self {
        Self::warning("InvalidConfiguration", problem)
    }

    /// A pod that gets no chain, as it asked.
    pub(crate) fn of_skip(reason: SkipReason) -> Self {
        let text = format!("no auditors: {reason}");
        Self { severity: EventType::Normal, reason: reason.reason(), text }
    }

    /// A pod that is refused.
    pub(crate) fn of_refusal(reason: &ImpossibleReason) -> Self {
        Self::warning(reason.reason(), reason.to_string())
    }

    /// A pod that is refused, or gets no chain, because the webhook failed.
    pub(crate) fn of_failure(reason: FailureReason, text: &str) -> Self {
        Self::warning(reason.as_str(), text)
    }
}

impl From<&Warning> for Notice {
    fn from(warning: &Warning) -> Self {
        Self::warning(warning.reason(), warning.to_string())
    }
}

/// Why the webhook failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureReason {
    /// The configuration is not known yet.
    NotSynced,
    /// The request is not about a pod that can be read.
    BadRequest,
    /// The handler panicked.
    Panicked,
    /// The handler did not answer in time.
    TimedOut,
    /// Anything else.
    Internal,
}

impl FailureReason {
    /// All of them.
    pub(crate) const ALL: [Self; 5] =
        [Self::NotSynced, Self::BadRequest, Self::Panicked, Self::TimedOut, Self::Internal];

    /// Why `failure`.
    pub(crate) fn of(failure: &Failure) -> Self {
        match failure {
            Failure::Panic => Self::Panicked,
            Failure::Deadline => Self::TimedOut,
            Failure::Error(error) => match error.downcast_ref() {
                Some(InjectError::NotSynced { .. }) => Self::NotSynced,
                Some(InjectError::Request { .. }) => Self::BadRequest,
                _ => Self::Internal,
            },
            _ => Self::Internal,
        }
    }

    /// As events and metrics have it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::NotSynced => "NotSynced",
            Self::BadRequest => "BadRequest",
            Self::Panicked => "Panicked",
            Self::TimedOut => "TimedOut",
            Self::Internal => "InternalError",
        }
    }
}
