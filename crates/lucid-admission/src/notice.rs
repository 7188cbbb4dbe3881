//! Messages to users about a pod, used as admission warnings, events on its owner and metric labels.

use kube::runtime::events::EventType;
use lucid_chain::{ImpossibleReason, SkipReason, Warning};
use lucid_webhook::Failure;

use crate::error::InjectError;

#[derive(Clone, Debug)]
pub(crate) struct Notice {
    /// `Warning` for problems, `Normal` otherwise.
    pub(crate) severity: EventType,
    /// Reason in UpperCamelCase, from a closed set.
    pub(crate) reason: &'static str,
    pub(crate) text: String,
}

impl Notice {
    fn warning(reason: &'static str, text: impl Into<String>) -> Self {
        Self { severity: EventType::Warning, reason, text: text.into() }
    }

    pub(crate) fn of_configuration(problem: &str) -> Self {
        Self::warning("InvalidConfiguration", problem)
    }

    pub(crate) fn of_skip(reason: SkipReason) -> Self {
        let text = format!("no auditors: {reason}");
        Self { severity: EventType::Normal, reason: reason.reason(), text }
    }

    pub(crate) fn of_impossible(reason: &ImpossibleReason) -> Self {
        Self::warning(reason.reason(), format!("no auditors: {reason}"))
    }

    /// Reports a pod that is denied or left alone because of the webhook's permissions.
    pub(crate) fn of_permissions(text: &str) -> Self {
        Self::warning("NotPermitted", text)
    }

    /// Reports a pod that is denied or gets no chain because the webhook failed.
    pub(crate) fn of_failure(reason: FailureReason, text: &str) -> Self {
        Self::warning(reason.as_str(), text)
    }
}

impl From<&Warning> for Notice {
    fn from(warning: &Warning) -> Self {
        Self::warning(warning.reason(), warning.to_string())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureReason {
    NotSynced,
    BadRequest,
    Panicked,
    TimedOut,
    Internal,
}

impl FailureReason {
    pub(crate) const ALL: [Self; 5] =
        [Self::NotSynced, Self::BadRequest, Self::Panicked, Self::TimedOut, Self::Internal];

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
